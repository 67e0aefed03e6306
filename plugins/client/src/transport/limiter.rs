//! The rate limit of one cluster, which its connections share. It has no task and no timer of its own: whoever is in line wakes for its
//! own turn and calls all whose turn it is, so that one who is not polled stalls nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::lanes::{Lane, Lanes};
use crate::RateLimit;

pub(crate) struct Limiter(Mutex<Lanes<Arc<Notify>>>);

impl Limiter {
    pub(crate) fn new(limit: &RateLimit) -> Self {
        Self(Mutex::new(Lanes::new(limit)))
    }

    /// Returns when a call of `lane` may be sent. Dropped before, it leaves the line; has no deadline of its own.
    pub(crate) async fn turn(&self, lane: Lane) {
        let place = {
            let mut lanes = self.lanes();
            if lanes.pass(lane, Instant::now()) {
                return;
            }
            let called = Arc::<Notify>::default();
            Place {
                number: lanes.wait(lane, Arc::clone(&called)),
                limiter: self,
                lane,
                called,
                used: false,
            }
        };
        place.called().await;
    }

    /// Calls all whose turn it is. The next one learns that it is that.
    fn call(&self) {
        let (called, next) = {
            let mut lanes = self.lanes();
            let called = lanes.call(Instant::now());
            (called, lanes.first().cloned())
        };
        for who in called.into_iter().chain(next) {
            who.notify_one();
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in line.
struct Place<'a> {
    limiter: &'a Limiter,
    lane: Lane,
    number: u64,
    called: Arc<Notify>,
    /// The turn has come, and is taken.
    used: bool,
}

impl Place<'_> {
    async fn called(mut self) {
        loop {
            let wait = {
                let lanes = self.limiter.lanes();
                lanes.wait_of(self.lane, self.number, Instant::now())
            };
            let Some(wait) = wait else { break };
            tokio::select! {
                () = self.called.notified() => (),
                () = sleep(wait) => self.limiter.call(),
            }
        }
        self.used = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        {
            let mut lanes = self.limiter.lanes();
            if !lanes.leave(self.lane, self.number) {
                // It was called, and goes away all the same.
                lanes.give_back();
            }
        }
        self.limiter.call();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, time::Duration};

    use futures_util::{FutureExt, poll};

    use super::*;

    fn limiter(qps: f64) -> Limiter {
        let limiter = Limiter::new(&RateLimit::new(qps, 1));
        limiter.turn(Lane::Bulk).now_or_never().unwrap();
        limiter
    }

    /// Time goes on by itself while nothing else can.
    async fn seconds_until(begun: Instant, turn: impl Future<Output = ()>) -> u64 {
        turn.await;
        // To the next whole one.
        (begun.elapsed() + Duration::from_millis(500)).as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn an_interactive_call_goes_before_bulk_that_came_first() {
        let limiter = limiter(1.0);
        let begun = Instant::now();
        let mut bulk = Box::pin(seconds_until(begun, limiter.turn(Lane::Bulk)));
        assert!(poll!(&mut bulk).is_pending());
        let interactive = seconds_until(begun, limiter.turn(Lane::Interactive));
        let (bulk, interactive) = tokio::join!(bulk, interactive);
        assert_eq!((bulk, interactive), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_nobody_polls_stalls_nobody() {
        let limiter = limiter(1.0);
        let begun = Instant::now();
        let mut idle = Box::pin(limiter.turn(Lane::Bulk));
        assert!(poll!(&mut idle).is_pending());
        let busy = seconds_until(begun, limiter.turn(Lane::Bulk)).await;
        // The first turn is the other's.
        assert_eq!(busy, 3);
        assert!(poll!(&mut idle).is_ready(), "its turn was kept for it");
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_gives_its_turn_to_the_next() {
        let limiter = limiter(1.0);
        let begun = Instant::now();
        let mut turns: Vec<_> = (0..10)
            .map(|_| Box::pin(limiter.turn(Lane::Bulk)))
            .collect();
        for turn in &mut turns {
            assert!(poll!(turn).is_pending());
        }
        let mut last = turns.pop().unwrap();
        drop(turns);
        assert_eq!(seconds_until(begun, &mut last).await, 1);
        // Also one that was called and has not seen it.
        let mut called = Box::pin(limiter.turn(Lane::Bulk));
        assert!(poll!(&mut called).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        limiter.call();
        drop(called);
        assert!(limiter.turn(Lane::Bulk).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_in_line_are_served_as_fast_as_the_limit_lets_them() {
        let limiter = limiter(10.0);
        let begun = Instant::now();
        let turns = (0..100).map(|_| limiter.turn(Lane::Bulk));
        let all = async {
            futures_util::future::join_all(turns).await;
        };
        assert_eq!(seconds_until(begun, all).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_never_waits() {
        let limiter = limiter(0.001);
        for _ in 0..1_000 {
            assert!(limiter.turn(Lane::Probe).now_or_never().is_some());
        }
    }
}
