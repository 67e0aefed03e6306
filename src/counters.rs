//! What is counted over the whole cache, for metrics, reports and test harnesses.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Counts since the cache was built. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    panics: Mutex<BTreeMap<Box<str>, u64>>,
    slow_polls: Mutex<BTreeMap<Box<str>, u64>>,
    rebuilds: Mutex<BTreeMap<Box<str>, u64>>,
    pub(crate) connects: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) brakes: AtomicU64,
    pub(crate) stalls: AtomicU64,
}

impl Counters {
    /// Panics of hooks, by provider or source.
    pub fn panics(&self) -> BTreeMap<Box<str>, u64> {
        read(&self.panics)
    }

    /// Polls and calls of hooks that blocked for more than 100 ms, by provider or source.
    pub fn slow_polls(&self) -> BTreeMap<Box<str>, u64> {
        read(&self.slow_polls)
    }

    /// Whole connections made anew because of a new credential that a provider could not take in place, by provider.
    pub fn rebuilds(&self) -> BTreeMap<Box<str>, u64> {
        read(&self.rebuilds)
    }

    /// Connections published.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Values that were dropped without the end of their teardown.
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// How often the fleet brake engaged.
    pub fn brakes(&self) -> u64 {
        self.brakes.load(Ordering::Relaxed)
    }

    /// How often the process did not run for longer than [`stall_after`](crate::options::HealthOptions::stall_after).
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    pub(crate) fn panicked(&self, who: &str) {
        bump(&self.panics, who);
    }

    pub(crate) fn rebuilt(&self, who: &str) {
        bump(&self.rebuilds, who);
    }

    pub(crate) fn polled(&self, who: &str, took: Duration, most: Duration) {
        if took > most {
            bump(&self.slow_polls, who);
            tracing::warn!(
                who,
                ?took,
                "a hook blocked its thread; move blocking work to spawn_blocking"
            );
        }
    }
}

fn read(counts: &Mutex<BTreeMap<Box<str>, u64>>) -> BTreeMap<Box<str>, u64> {
    counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn bump(counts: &Mutex<BTreeMap<Box<str>, u64>>, who: &str) {
    *counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(who.into())
        .or_default() += 1;
}
