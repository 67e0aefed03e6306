//! How many calls a cluster gets: a limit of ours, where its server's own is not enough.

use std::time::Duration;

/// A limit on the calls to one cluster: so many a second, after a first burst. It belongs to the cluster, not to a connection.
///
/// Calls beyond it wait within their [deadline](crate::Deadlines), and fail with [`Busy`](crate::TransportError::Busy) if it passes. Reads
/// and writes of objects go before bulk: lists, watches, discovery, and all of [`ClusterClient::bulk`](crate::ClusterClient::bulk); but one
/// turn in four is for bulk, while any waits. Health checks do not wait. An `exec`, `attach` or `portforward` is one call, however long it
/// lasts. What is [sent again](crate::ClusterClient::retries) waits again.
///
/// ```
/// use clustercache_client::{KubeClient, RateLimit};
///
/// let provider = KubeClient::new().rate_limit(RateLimit::new(20.0, 30)); // controller-runtime's
/// # let _ = provider;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    qps: f64,
    burst: u32,
}

impl RateLimit {
    /// `qps` calls a second, from one an hour to a million; `burst` at once, from one to a million.
    pub fn new(qps: f64, burst: u32) -> Self {
        Self { qps, burst }
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.qps)
    }

    pub(crate) fn burst(&self) -> u32 {
        self.burst
    }

    /// Every mistake, as text that says what was wrong and what to give instead.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self { qps, burst } = *self;
        let mut mistakes = Vec::new();
        if !(1.0 / 3600.0..=1e6).contains(&qps) {
            mistakes.push(format!(
                "the rate limit has {qps} calls a second; give one an hour to a million a second"
            ));
        }
        if !(1..=1_000_000).contains(&burst) {
            mistakes.push(format!(
                "the rate limit has a burst of {burst}; give 1 to 1000000"
            ));
        }
        mistakes
    }
}
