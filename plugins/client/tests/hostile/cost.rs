//! What a case costs us: bytes on the heap, and time of the processors. Both are those of the process, in which one case runs at a time, with
//! its servers. Neither is a time on the clock: a busy machine changes little of them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::HEAP;

/// The most that was on the heap, above what was there at first.
pub(crate) struct Heap {
    first: usize,
}

impl Heap {
    /// From now on; there is one at a time.
    pub(crate) fn watch() -> Self {
        HEAP.reset_peak_usage();
        Self {
            first: HEAP.current_usage(),
        }
    }

    /// In bytes.
    #[track_caller]
    pub(crate) fn below(&self, limit: usize) {
        let most = HEAP.peak_usage().saturating_sub(self.first);
        assert!(
            most < limit,
            "{} KiB on the heap, of at most {}",
            most >> 10,
            limit >> 10
        );
    }
}

/// How long processors have worked for this process, in its own code and in the system's.
pub(crate) fn processors() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("no process has worked less than nothing")
}
