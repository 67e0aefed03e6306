//! Signs of life of a connection: written by whoever talks to the cluster, read by the health detector and by the state, without
//! a lock and without waking anybody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::Instant;

use crate::clock::Clock;

/// What came of a cluster's probes, over all its connections. Only the engine counts.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Vitals {
    clock: Clock,
    sign: AtomicU64,
    answer: AtomicU64,
    probe: AtomicU64,
    /// A doubt is on its way to the engine: further ones need not be sent.
    pub(crate) doubted: AtomicBool,
}

/// The newest of each, as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Any sign of life: bytes on a watch, or an answer.
    pub(crate) any: Option<Instant>,
    /// An answer to an authenticated request.
    pub(crate) answer: Option<Instant>,
    /// A probe sent.
    pub(crate) probe: Option<Instant>,
}

impl Probes {
    pub(crate) fn succeed(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Those that were answered, and those that failed.
    pub(crate) fn read(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.succeeded), count(&self.failed))
    }
}

impl Vitals {
    pub(crate) fn new(clock: Clock) -> Self {
        let never = || AtomicU64::new(0);
        Self {
            clock,
            sign: never(),
            answer: never(),
            probe: never(),
            doubted: AtomicBool::new(false),
        }
    }

    /// Bytes from the cluster: it can be reached. Says nothing of the credential.
    pub(crate) fn bytes(&self, now: Instant) {
        self.sign
            .fetch_max(self.clock.ticks(now), Ordering::Relaxed);
    }

    /// An answer to an authenticated request.
    pub(crate) fn answered(&self, now: Instant) {
        self.bytes(now);
        self.answer
            .fetch_max(self.clock.ticks(now), Ordering::Relaxed);
    }

    /// The engine has heard of the doubt: the next is sent again.
    pub(crate) fn doubt_taken(&self) {
        self.doubted.store(false, Ordering::Relaxed);
    }

    pub(crate) fn probed(&self, now: Instant) {
        self.probe
            .fetch_max(self.clock.ticks(now), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Signs {
        let at = |ticks: &AtomicU64| self.clock.instant(ticks.load(Ordering::Relaxed));
        Signs {
            any: at(&self.sign),
            answer: at(&self.answer),
            probe: at(&self.probe),
        }
    }
}
