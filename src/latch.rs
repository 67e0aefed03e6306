//! An event that happens once: set by one, awaited by any, at the cost of a few words.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Latch {
    set: AtomicBool,
    waiters: Notify,
}

impl Latch {
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
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
        if !self.is_set() {
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
}
