//! How long a kind is left alone after a failure: from nothing to twice as much each time, by full jitter, so that those who failed together
//! do not come again together.

use std::time::Duration;

pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    /// In a row.
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most,
            failures: 0,
        }
    }

    /// The next wait.
    pub(crate) fn next(&mut self, rng: &mut fastrand::Rng) -> Duration {
        let ceiling = self
            .least
            .saturating_mul(1 << self.failures.min(16))
            .min(self.most);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(rng.f64())
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}
