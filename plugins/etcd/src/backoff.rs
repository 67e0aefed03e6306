//! How long to wait before something that failed is tried again.

use std::time::Duration;

const LEAST: Duration = Duration::from_millis(500);
const MOST: Duration = Duration::from_secs(30);

/// After so many failures in a row: full jitter, from half a second to thirty.
pub(crate) fn wait(failures: u32) -> Duration {
    let ceiling = LEAST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    ceiling.min(MOST).mul_f64(fastrand::f64())
}
