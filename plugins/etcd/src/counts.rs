//! What is counted of keys and certificates, over all clusters.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many keys were made and certificates issued, over all clusters, since the provider was made. They only grow.
#[derive(Debug, Default)]
pub struct EtcdKeyCounts {
    keys: AtomicU64,
    certificates: AtomicU64,
    failures: AtomicU64,
}

impl EtcdKeyCounts {
    /// Keys that were made.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Certificates that were signed, or taken as they were given.
    pub fn certificates(&self) -> u64 {
        self.certificates.load(Ordering::Relaxed)
    }

    /// Attempts to have a certificate that failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn certificate(&self) {
        self.certificates.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}
