//! Whose turn it is under a rate limit: a bucket of calls that fills with time, and two lines before it. Pure: the time is handed in.

use std::{collections::VecDeque, time::Duration};

use http::Request;
use tokio::time::Instant;

use super::class::Class;
use crate::RateLimit;

/// How urgent a call is; an extension of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Never waits.
    Probe,
    Interactive,
    Bulk,
}

impl Lane {
    /// Lists and watches are the work of caches; what else is bulk, its sender says.
    pub(super) fn of<B>(class: Class, request: &Request<B>) -> Self {
        match class {
            Class::Probe(_) => Self::Probe,
            Class::List | Class::Stream => Self::Bulk,
            Class::Call => request
                .extensions()
                .get()
                .copied()
                .unwrap_or(Self::Interactive),
        }
    }
}

/// One turn in so many is for bulk, while any waits.
pub(super) const BULK_EVERY: u32 = 4;

/// Who waits is a `W`.
pub(super) struct Lanes<W> {
    bucket: Bucket,
    interactive: Line<W>,
    bulk: Line<W>,
    /// Turns of others since bulk, which waits, had one.
    since_bulk: u32,
}

/// In the order of their coming, by a number that only grows.
struct Line<W> {
    waiting: VecDeque<(u64, W)>,
    next: u64,
}

/// Full of as many calls as a burst has; one comes each interval.
struct Bucket {
    interval: Duration,
    burst: u32,
    /// None: it is.
    full_at: Option<Instant>,
}

impl<W> Lanes<W> {
    pub(super) fn new(limit: &RateLimit) -> Self {
        Self {
            bucket: Bucket {
                interval: limit.interval(),
                burst: limit.burst(),
                full_at: None,
            },
            interactive: Line::new(),
            bulk: Line::new(),
            since_bulk: 0,
        }
    }

    /// Whether a call of `lane` may go at once. A probe may in any case, and takes from the bucket what nobody else wants.
    pub(super) fn pass(&mut self, lane: Lane, now: Instant) -> bool {
        let taken = self.is_empty() && self.bucket.take(now);
        taken || lane == Lane::Probe
    }

    /// To be called where it may not pass. Not for probes.
    pub(super) fn wait(&mut self, lane: Lane, who: W) -> u64 {
        self.line(lane).push(who)
    }

    /// Those whose turn it is now.
    pub(super) fn call(&mut self, now: Instant) -> Vec<W> {
        let mut called = Vec::new();
        while !self.is_empty() && self.bucket.take(now) {
            called.extend(self.pop());
        }
        called
    }

    /// Goes out of line; false if it was called before.
    pub(super) fn leave(&mut self, lane: Lane, number: u64) -> bool {
        self.line(lane).remove(number)
    }

    /// A turn that was not used.
    pub(super) fn give_back(&mut self) {
        self.bucket.give_back();
    }

    /// Whose turn is next.
    pub(super) fn first(&self) -> Option<&W> {
        let line = match self.next_lane() {
            Lane::Bulk => &self.bulk,
            _ => &self.interactive,
        };
        line.waiting.front().map(|(_, who)| who)
    }

    /// How long it takes at least until the turn of one in line; none if it is not in line.
    pub(super) fn wait_of(&self, lane: Lane, number: u64, now: Instant) -> Option<Duration> {
        let before = match lane {
            Lane::Bulk => self.bulk.place(number)?,
            _ => self.interactive.place(number)?,
        };
        let interval = self.bucket.interval;
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        Some(self.bucket.wait(now) + interval.saturating_mul(before))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.interactive.waiting.is_empty() && self.bulk.waiting.is_empty()
    }

    fn pop(&mut self) -> Option<W> {
        let lane = self.next_lane();
        let waits = !self.bulk.waiting.is_empty();
        self.since_bulk = match lane {
            Lane::Bulk => 0,
            _ if waits => self.since_bulk + 1,
            _ => 0,
        };
        self.line(lane).waiting.pop_front().map(|(_, who)| who)
    }

    fn next_lane(&self) -> Lane {
        let bulk_is_due = self.since_bulk + 1 >= BULK_EVERY && !self.bulk.waiting.is_empty();
        if bulk_is_due || self.interactive.waiting.is_empty() {
            Lane::Bulk
        } else {
            Lane::Interactive
        }
    }

    fn line(&mut self, lane: Lane) -> &mut Line<W> {
        match lane {
            Lane::Bulk => &mut self.bulk,
            Lane::Interactive | Lane::Probe => &mut self.interactive,
        }
    }
}

impl<W> Line<W> {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            next: 0,
        }
    }

    fn push(&mut self, who: W) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push_back((number, who));
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(n, _)| *n).ok()
    }

    fn remove(&mut self, number: u64) -> bool {
        let place = self.place(number);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        if !self.wait(now).is_zero() {
            return false;
        }
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        self.full_at = Some(full_at + self.interval);
        true
    }

    fn give_back(&mut self) {
        self.full_at = self.full_at.and_then(|at| at.checked_sub(self.interval));
    }

    /// How long until there is a call in it.
    fn wait(&self, now: Instant) -> Duration {
        let full_in = self
            .full_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        full_in.saturating_sub(self.interval.saturating_mul(self.burst - 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Call(Lane),
        /// The n-th of those who wait goes away.
        Leave(usize),
        Millis(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop_oneof![Just(Lane::Interactive), Just(Lane::Bulk), Just(Lane::Probe)]
                .prop_map(Step::Call),
            1 => (0..8_usize).prop_map(Step::Leave),
            3 => (0..400_u64).prop_map(Step::Millis),
        ]
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_in_order_and_no_turn_is_wasted(
            steps in prop::collection::vec(step(), 1..200),
            qps in 1_u32..20,
            burst in 1_u32..5,
        ) {
            let begun = Instant::now();
            let mut now = begun;
            let mut lanes = Lanes::new(&RateLimit::new(qps.into(), burst));
            let mut waiting: Vec<(Lane, u64, usize)> = Vec::new();
            let (mut counted, mut served, mut bulk_passed_over) = (0_u32, HashSet::new(), 0);
            for (nth, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Call(Lane::Probe) => prop_assert!(lanes.pass(Lane::Probe, now)),
                    Step::Call(lane) if lanes.pass(lane, now) => {
                        prop_assert!(waiting.is_empty(), "it went before who waits");
                        counted += 1;
                    }
                    Step::Call(lane) => {
                        let number = lanes.wait(lane, nth);
                        waiting.push((lane, number, nth));
                    }
                    Step::Leave(which) if !waiting.is_empty() => {
                        let (lane, number, _) = waiting.remove(which % waiting.len());
                        prop_assert!(lanes.leave(lane, number));
                        prop_assert!(!lanes.leave(lane, number));
                    }
                    Step::Leave(_) => (),
                    Step::Millis(millis) => now += Duration::from_millis(millis),
                }
                for who in lanes.call(now) {
                    counted += 1;
                    let place = waiting.iter().position(|(_, _, of)| *of == who);
                    let (lane, number, _) = waiting[place.unwrap()];
                    let first = waiting.iter().find(|(of, ..)| *of == lane).unwrap();
                    prop_assert_eq!(first.2, who, "first come, first served, in each lane");
                    let others = |wanted| waiting.iter().any(|(of, ..)| *of == wanted);
                    match lane {
                        Lane::Bulk => {
                            let due = bulk_passed_over >= BULK_EVERY - 1;
                            prop_assert!(due || !others(Lane::Interactive));
                            bulk_passed_over = 0;
                        }
                        _ if others(Lane::Bulk) => bulk_passed_over += 1,
                        _ => bulk_passed_over = 0,
                    }
                    prop_assert!(bulk_passed_over < BULK_EVERY, "bulk has one turn in four");
                    waiting.remove(place.unwrap());
                    prop_assert_eq!(lanes.wait_of(lane, number, now), None);
                    prop_assert!(served.insert(who), "one turn each");
                }
                let most = f64::from(burst) + (now - begun).as_secs_f64() * f64::from(qps);
                prop_assert!(f64::from(counted) <= most + 1e-3, "{counted} of {most}");
                // Whoever waits does so for the bucket alone, and knows for how long.
                for (lane, number, _) in &waiting {
                    let wait = lanes.wait_of(*lane, *number, now).unwrap();
                    prop_assert!(!wait.is_zero());
                }
                prop_assert_eq!(lanes.first().is_some(), !waiting.is_empty());
            }
        }
    }

    #[test]
    fn a_turn_that_was_not_used_is_there_for_the_next() {
        let now = Instant::now();
        let mut lanes = Lanes::new(&RateLimit::new(1.0, 1));
        assert!(lanes.pass(Lane::Bulk, now));
        let second = lanes.wait(Lane::Bulk, "second");
        assert!(lanes.call(now).is_empty());
        lanes.give_back();
        assert_eq!(lanes.call(now), ["second"]);
        assert!(!lanes.leave(Lane::Bulk, second));
    }
}
