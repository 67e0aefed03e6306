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

    /// A time between the two that many others fall on too: a whole multiple, from the start, of the time between them.
    pub(crate) fn together(&self, from: Instant, by: Instant) -> Instant {
        let window = by.saturating_duration_since(from).as_nanos();
        let since = by.saturating_duration_since(self.base).as_nanos();
        let beyond = since.checked_rem(window).unwrap_or(0);
        u64::try_from(beyond).map_or(by, |beyond| by - Duration::from_nanos(beyond))
    }

    /// What the wall clock would show, had nobody set it since the start.
    pub(crate) fn wall(&self, at: Instant) -> SystemTime {
        match at.checked_duration_since(self.base) {
            Some(since) => self.wall + since,
            None => self.wall - (self.base - at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn what_may_be_done_together_falls_on_one_time_within_all_windows(
            first in 0..10_000_u64,
            apart in 0..100_u64,
            width in 0..200_u64,
        ) {
            let clock = Clock::start();
            let (ms, width) = (Duration::from_millis, Duration::from_millis(width));
            let by = |at| clock.base + width + ms(at);
            let (one, other) = (by(first), by(first + apart));
            let at = |by: Instant| clock.together(by - width, by);
            for by in [one, other] {
                proptest::prop_assert!(at(by) <= by && at(by) + width >= by);
            }
            let step = at(other) - at(one);
            proptest::prop_assert!(step.is_zero() || step >= width, "{step:?}");
        }
    }
}
