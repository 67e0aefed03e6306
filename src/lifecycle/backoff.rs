//! When what failed is tried again.

use std::time::Duration;

use crate::options::RetryOptions;

/// Full jitter below a ceiling that doubles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure, and says how long to wait: at random between zero and the ceiling; at least `at_least`, of which no more
    /// than the highest ceiling counts.
    pub(crate) fn failed(
        &mut self,
        options: &RetryOptions,
        rng: &mut fastrand::Rng,
        at_least: Option<Duration>,
    ) -> Duration {
        let _ = (options, rng, at_least);
        todo!()
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}
