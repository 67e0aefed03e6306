//! Monotonic time as a number that an atomic can hold, and as the wall clock shows it (rule 16).

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The moment at which a cache was built. All its times are counted from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    base: Instant,
    wall: SystemTime,
}

impl Clock {
    // Shown to people, and never compared: deadlines use the monotonic clock.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start() -> Self {
        Self {
            base: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Nanoseconds since the start, and never 0: an atomic's 0 says "never".
    pub(crate) fn ticks(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.base).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX).max(1)
    }

    pub(crate) fn instant(&self, ticks: u64) -> Option<Instant> {
        (ticks > 0).then(|| self.base + Duration::from_nanos(ticks))
    }

    /// What the wall clock would show, had nobody set it since the start.
    pub(crate) fn wall(&self, at: Instant) -> SystemTime {
        match at.checked_duration_since(self.base) {
            Some(since) => self.wall + since,
            None => self.wall - (self.base - at),
        }
    }
}
