//! Whether a connection is alive. Keeps "Health" of ARCHITECTURE.md: when a probe is sent, what its failure means, when a connection is
//! suspect or down, what a 401 asks for, and that nobody is judged by time in which our own process did not run.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{FailureKind, Route, Verdict, options::HealthOptions, vitals::Signs};

mod outage;
mod round;
mod schedule;
#[cfg(test)]
mod tests;

use outage::{Fate, Outage};
use round::{Outcome, Probe, Round};

/// The health detector of one connection. Every input comes with the time; what to do comes out as [`Order`]s.
#[derive(Debug)]
pub(crate) struct Detector {
    /// None: healthy.
    outage: Option<Box<Outage>>,
    /// The newest sign of life.
    alive: Instant,
    /// The newest answer to an authenticated request.
    answered: Instant,
    /// When the last probe was sent; forgotten where the next is to go at once.
    sent: Option<Instant>,
    /// The next round. While healthy it may be early: a newer sign of life puts it off when it is reached.
    next: Instant,
    /// From when it may be sent: while healthy a moment before, so that many go together.
    soonest: Instant,
    /// While healthy: probe whatever signs there are.
    at_once: bool,
    number: u64,
    /// While healthy there is one at most.
    rounds: SmallVec<[Round; 1]>,
    not_ready: Option<Arc<str>>,
}

/// What came of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Alive { not_ready: Option<Arc<str>> },
    Failed { kind: FailureKind, text: Arc<str> },
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send a probe; its result comes back with the number.
    Probe { number: u64, route: Route },
    /// The credential was refused: have the source read it again.
    Reread,
    /// A fresh connection answers, and the pooled one does not.
    ReplacePooled,
}

impl Detector {
    /// For a connection that has just given its first good answer.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            outage: None,
            alive: now,
            answered: now,
            sent: None,
            next: now,
            soonest: now,
            at_once: false,
            number: 0,
            rounds: SmallVec::new(),
            not_ready: None,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match self.outage.as_ref().map(|outage| outage.fate) {
            None => Verdict::Healthy,
            Some(Fate::Suspect) => Verdict::Suspect,
            Some(Fate::Down | Fate::Held) => Verdict::Down,
        }
    }

    /// Failed rounds in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.outage.as_ref().map_or(0, |outage| outage.failures)
    }

    /// What the cluster last said that it is not ready for; none once it answered as ready.
    pub(crate) fn not_ready(&self) -> Option<&Arc<str>> {
        self.not_ready.as_ref()
    }

    /// When [`timer`](Self::timer) is to be called.
    pub(crate) fn deadline(&self) -> Instant {
        let never = later(self.next, Duration::MAX);
        let next = match &self.outage {
            // Only a result is waited for.
            None if !self.rounds.is_empty() => never,
            None => self.next,
            Some(outage) if outage.fate == Fate::Down => never,
            Some(outage) => self.next.min(outage.look),
        };
        let lost = self.rounds.iter().map(|round| round.lost_at);
        lost.fold(next, Instant::min)
    }

    /// From when [`timer`](Self::timer) may as well be called as at the deadline, so that what is due of many is done together.
    pub(crate) fn soonest(&self) -> Instant {
        match self.outage {
            None if self.rounds.is_empty() => self.soonest,
            _ => self.deadline(),
        }
    }

    pub(crate) fn timer(
        &mut self,
        now: Instant,
        signs: Signs,
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        self.see(signs);
        // The shell ends a probe at its timeout. One whose hook blocks its thread cannot be ended, and is a failure all the same.
        while let Some(lost) = self.rounds.iter().find_map(|round| round.lost(now)) {
            self.take(now, lost, Outcome::Failed, options, out);
        }
        self.advance(now, options, out);
    }

    /// Whether the result of this probe still counts.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.rounds.iter().any(|round| round.has(number))
    }

    /// A probe's result; one that is no more asked for is ignored.
    pub(crate) fn probed(
        &mut self,
        now: Instant,
        number: u64,
        result: ProbeResult,
        signs: Signs,
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        let outcome = Outcome::from(result);
        // Before a failure is judged, not after: a call may have been answered since the last timer.
        if !matches!(outcome, Outcome::Alive(_)) {
            self.see(signs);
        }
        self.take(now, number, outcome, options, out);
        self.see(signs);
        self.advance(now, options, out);
    }

    /// Something that should have come did not: probe at once. (A suspect connection is probed all the time, and a healthy one no
    /// more often than a suspect one, however often somebody doubts.)
    pub(crate) fn doubt(&mut self, now: Instant) {
        if self.outage.is_none() && self.rounds.is_empty() {
            self.at_once = true;
            self.next = now;
            self.soonest = now;
        }
    }

    /// New access was taken in place: failures are cleared, probes under way no longer count, and it is tried at once. What was
    /// suspect or down is suspect, without a failure, until it answers.
    pub(crate) fn new_access(&mut self, now: Instant) {
        // A healthy one is probed no more often than a suspect one, however often its credential changes.
        let sent = self.sent.filter(|_| self.outage.is_none());
        self.begin_again(now);
        self.sent = sent;
        if let Some(outage) = &mut self.outage {
            outage.begin_again(now);
        }
    }

    /// The process did not run for `time`: nobody is judged by it. Probes under way no longer count.
    pub(crate) fn stalled(&mut self, now: Instant, time: Duration) {
        self.begin_again(now);
        if let Some(first) = self.outage.as_mut().and_then(|o| o.first.as_mut()) {
            *first = later(*first, time).min(now);
        }
    }

    /// The fleet brake withholds the teardown that the verdict asks for: go on at the slower interval.
    pub(crate) fn held(&mut self, now: Instant, options: &HealthOptions) {
        if let Some(outage) = &mut self.outage
            && outage.fate == Fate::Down
        {
            outage.fate = Fate::Held;
            if !outage.refused() {
                self.next = later(now, options.held_interval);
            }
        }
    }

    fn begin_again(&mut self, now: Instant) {
        self.rounds.clear();
        self.sent = None;
        self.next = now;
        self.soonest = now;
        self.at_once = true;
    }

    fn see(&mut self, signs: Signs) {
        self.alive = self.alive.max(signs.any.unwrap_or(self.alive));
        self.answered = self.answered.max(signs.answer.unwrap_or(self.answered));
        if self.outage.as_ref().is_some_and(|o| o.ended_by(signs)) {
            self.heal();
        }
    }

    fn heal(&mut self) {
        self.outage = None;
        self.rounds = SmallVec::new();
        self.next = self.alive;
        self.soonest = self.alive;
    }

    fn take(
        &mut self,
        now: Instant,
        number: u64,
        outcome: Outcome,
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        let found = self.rounds.iter().position(|round| round.has(number));
        let Some(mut round) = found.map(|at| self.rounds.remove(at)) else {
            return;
        };
        let refused = matches!(outcome, Outcome::Refused);
        match outcome {
            Outcome::Alive(not_ready) => {
                self.not_ready = not_ready;
                self.alive = self.alive.max(now);
                self.answered = self.answered.max(now);
                self.heal();
                *round.probe(number) = Probe::Alive;
                match (&round.fresh, &round.pooled) {
                    (Probe::Alive, Probe::Failed) => out.push(Order::ReplacePooled),
                    // Nothing is down, and still it must be known whether the pooled one is.
                    (Probe::Alive, Probe::Sent(_)) => self.rounds.push(round),
                    _ => {}
                }
            }
            Outcome::Busy if round.fresh == Probe::Alive => {}
            Outcome::Busy => {
                *round.probe(number) = Probe::Busy;
                self.settle(now, round, options);
            }
            Outcome::Failed | Outcome::Refused if round.fresh == Probe::Alive => {
                out.push(Order::ReplacePooled);
            }
            Outcome::Failed | Outcome::Refused => {
                *round.probe(number) = Probe::Failed;
                if self.outage.is_none() {
                    self.outage = Some(Box::new(Outage::begin(now)));
                    self.next = now;
                }
                if refused {
                    round.refused = true;
                    self.refused(now, &mut round, options, out);
                }
                self.settle(now, round, options);
            }
        }
    }

    fn refused(
        &mut self,
        now: Instant,
        round: &mut Round,
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        let Some(outage) = &mut self.outage else {
            return;
        };
        if outage.refusal.is_none() {
            out.push(Order::Reread);
        }
        let first = !outage.by_answer;
        if let Some(wait) = outage.enter_refusal(self.number, options) {
            self.next = later(now, wait);
        }
        // A client certificate belongs to its connection: a fresh handshake may be all it takes.
        if first && round.fresh == Probe::NotSent {
            round.fresh = self.send(now, Route::Fresh, out);
            round.lost_at = schedule::lost_at(now, options);
        }
    }

    /// Judges a round once all of it is in.
    fn settle(&mut self, now: Instant, round: Round, options: &HealthOptions) {
        if round.pending().is_some() {
            self.rounds.push(round);
        } else if !round.failed() {
            // All busy: says nothing, so that a healthy one has yet to be asked.
            self.at_once |= self.outage.is_none();
        } else if let Some(outage) = &mut self.outage {
            outage.failed(now, options);
            if !round.refused && outage.leave_refusal(round.number) {
                let since = self.sent.unwrap_or(now);
                self.next = later(since, outage.interval(options));
            }
            if outage.fate == Fate::Down {
                self.rounds.clear();
            }
        }
    }
}

/// A time that may be given as "never" (`Duration::MAX`) overflows nothing.
fn later(at: Instant, time: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);
    at + time.min(NEVER)
}
