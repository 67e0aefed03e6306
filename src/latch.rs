//! An event that happens once: set by one, awaited by any, at the cost of a few words.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::sync::between_steps;

#[cfg(all(test, any(clustercache_shuttle, clustercache_loom)))]
mod model;

#[derive(Debug, Default)]
pub(crate) struct Latch {
    set: AtomicBool,
    waiters: Notify,
}

impl Latch {
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        between_steps();
        self.waiters.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        let waiter = self.waiters.notified();
        tokio::pin!(waiter);
        // Registered before the flag is read: a `set` between the two wakes us.
        waiter.as_mut().enable();
        between_steps();
        if !self.is_set() {
            waiter.await;
        }
    }
}

/// The latches of one init and of what it made, at the cost of one: there are five such of every cluster.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    passed: AtomicU8,
    waiters: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The init is cancelled.
    Stop = 1,
    /// The init is over, whatever came of it.
    Done = 2,
    /// The resource's teardown begins: its tasks should end by themselves.
    Ending = 4,
    /// Its teardown is over: they are dropped.
    Killed = 8,
    /// Readers get its value no more.
    Retired = 16,
}

impl Moments {
    pub(crate) fn set(&self, moment: Moment) {
        self.passed.fetch_or(moment as u8, Ordering::Release);
        between_steps();
        self.waiters.notify_waiters();
    }

    pub(crate) fn is_set(&self, moment: Moment) -> bool {
        self.passed.load(Ordering::Acquire) & moment as u8 != 0
    }

    pub(crate) async fn wait(&self, moment: Moment) {
        loop {
            let waiter = self.waiters.notified();
            tokio::pin!(waiter);
            // Registered before the flag is read: a `set` between the two wakes us. So does one of another moment.
            waiter.as_mut().enable();
            between_steps();
            if self.is_set(moment) {
                return;
            }
            waiter.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wakes_all_who_wait_and_does_not_hold_who_comes_later() {
        let latch = Latch::default();
        let (a, b, ()) = tokio::join!(latch.wait(), latch.wait(), async { latch.set() });
        assert_eq!((a, b), ((), ()));
        latch.wait().await;
    }

    #[tokio::test]
    async fn a_moment_wakes_those_who_wait_for_it_and_no_others() {
        let moments = Moments::default();
        let done = moments.wait(Moment::Done);
        tokio::pin!(done);
        moments.set(Moment::Stop);
        let ((), early) = tokio::join!(moments.wait(Moment::Stop), async {
            futures_util::poll!(done.as_mut()).is_ready()
        });
        assert!(!early);
        let ((), ()) = tokio::join!(done, async { moments.set(Moment::Done) });
    }
}
