//! The wall clock, by which certificates are valid. It is read here only; what is pure is handed the time.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

// A certificate is valid by the calendar, and a machine may have slept: monotonic time would not know. Waits use the monotonic clock.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// When it will be `at`, as far as can be said now.
pub(crate) fn instant(at: SystemTime) -> Instant {
    Instant::now() + until(at)
}

/// How long until `at`; zero if that was.
pub(crate) fn until(at: SystemTime) -> Duration {
    const FAR: Duration = Duration::from_secs(365 * 86_400);
    at.duration_since(now()).unwrap_or_default().min(FAR)
}
