//! When a probe is sent: of a healthy connection when it was quiet for too long, of a suspect one every second over both routes,
//! of one that was answered 401 by the schedule for that.

use tokio::time::Instant;

use super::{
    Detector, Order, later,
    outage::Fate,
    round::{Probe, Round},
};
use crate::{Route, options::HealthOptions};

/// Rounds under way at most; with the defaults there are four, as each may take 3 s and a new one begins every second.
pub(super) const MOST_ROUNDS: usize = 8;

/// A healthy connection may be asked by this part of its time too early, together with others: then the process wakes once for many.
const EARLY: u32 = 50;

impl Detector {
    pub(super) fn advance(&mut self, now: Instant, options: &HealthOptions, out: &mut Vec<Order>) {
        let Some(outage) = &mut self.outage else {
            return self.advance_healthy(now, options, out);
        };
        outage.look = later(now, options.suspect_interval);
        if outage.fate == Fate::Down || now < self.next {
            return;
        }
        if self.rounds.len() == MOST_ROUNDS {
            self.next = later(now, outage.interval(options));
            return;
        }
        let tried = outage.next_try(options);
        self.next = later(now, tried.unwrap_or(outage.interval(options)));
        let routes: &[Route] = if tried.is_some() || outage.unproven() {
            &[Route::Pooled]
        } else {
            &[Route::Pooled, Route::Fresh]
        };
        self.begin_round(now, routes, options, out);
    }

    fn advance_healthy(&mut self, now: Instant, options: &HealthOptions, out: &mut Vec<Order>) {
        if !self.rounds.is_empty() {
            return;
        }
        let asked = self.sent.map_or(self.answered, |at| at.max(self.answered));
        let quiet = later(self.alive, options.probe_after);
        let due = quiet.min(later(asked, options.authenticate_every));
        let due = if self.at_once { now } else { due };
        let early = options.probe_after.min(options.authenticate_every) / EARLY;
        let early = due.checked_sub(early).unwrap_or(due);
        let earliest = self.sent.map(|at| later(at, options.suspect_interval));
        self.next = due.max(earliest.unwrap_or(due));
        self.soonest = early.max(earliest.unwrap_or(early));
        if now >= self.soonest {
            self.begin_round(now, &[Route::Pooled], options, out);
        }
    }

    fn begin_round(
        &mut self,
        now: Instant,
        routes: &[Route],
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        self.at_once = false;
        let mut round = Round::new(self.number, lost_at(now, options));
        for &route in routes {
            let probe = self.send(now, route, out);
            match route {
                Route::Pooled => round.pooled = probe,
                Route::Fresh => round.fresh = probe,
            }
        }
        self.rounds.push(round);
    }

    pub(super) fn send(&mut self, now: Instant, route: Route, out: &mut Vec<Order>) -> Probe {
        let number = self.number;
        self.number += 1;
        self.sent = Some(now);
        out.push(Order::Probe { number, route });
        Probe::Sent(number)
    }
}

pub(super) fn lost_at(now: Instant, options: &HealthOptions) -> Instant {
    later(now, options.probe_timeout.saturating_mul(2))
}
