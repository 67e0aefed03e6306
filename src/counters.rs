//! What is counted over the whole cache, for metrics, reports and test harnesses. What happens often is counted in atomics; only what should
//! never happen (a panic, a blocked thread) is counted by name under a lock.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{FailureKind, lifecycle::detector::ProbeResult, plan::Plan, resource::escaped};

mod durations;

pub use durations::Durations;

/// Counts since the cache was built. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    panics: Mutex<BTreeMap<Box<str>, u64>>,
    slow_polls: Mutex<BTreeMap<Box<str>, u64>>,
    rebuilds: Mutex<BTreeMap<Box<str>, u64>>,
    /// By slot.
    resources: Box<[ResourceCounters]>,
    probes: [AtomicU64; ANSWERS.len() + FailureKind::LABELS.len()],
    dial_waits: Durations,
    pub(crate) connects: AtomicU64,
    pub(crate) brakes: AtomicU64,
    pub(crate) stalls: AtomicU64,
}

/// How a probe that did not fail ends.
const ANSWERS: [&str; 2] = ["ready", "not_ready"];

/// What is counted of one provider, over all clusters.
#[derive(Debug)]
pub struct ResourceCounters {
    name: &'static str,
    inits: Durations,
    failed_inits: Durations,
    teardowns: Durations,
    failed_teardowns: Durations,
    abandoned: AtomicU64,
}

impl Counters {
    pub(crate) fn new(plan: &Plan) -> Self {
        let resources = plan
            .slots()
            .map(|(_, slot)| ResourceCounters::of(slot.name));
        Self {
            resources: resources.collect(),
            ..Self::default()
        }
    }

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

    /// What is counted of each provider, in the order of the plan.
    pub fn resources(&self) -> &[ResourceCounters] {
        &self.resources
    }

    /// Probes that came to an end, by result: `ready`, `not_ready`, or the [label](FailureKind::label) of their failure.
    pub fn probes(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let results = ANSWERS.iter().chain(&FailureKind::LABELS).copied();
        let counts = self.probes.iter();
        results.zip(counts.map(|count| count.load(Ordering::Relaxed)))
    }

    /// How long dials waited for their permit.
    pub fn dial_waits(&self) -> &Durations {
        &self.dial_waits
    }

    /// Connections published.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Values that were dropped without the end of their teardown, of all providers.
    pub fn abandoned(&self) -> u64 {
        self.resources.iter().map(ResourceCounters::abandoned).sum()
    }

    /// How often the fleet brake engaged.
    pub fn brakes(&self) -> u64 {
        self.brakes.load(Ordering::Relaxed)
    }

    /// How often the process did not run for longer than [`stall_after`](crate::options::HealthOptions::stall_after).
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// The first is a warning, repeats are for who debugs: a fleet of thousands repeats itself.
    pub(crate) fn panicked(&self, who: &str, panic: &str) {
        let panic = escaped(panic);
        if bump(&self.panics, who) == 1 {
            tracing::warn!(who, %panic, "a hook panicked");
        } else {
            tracing::debug!(who, %panic, "a hook panicked");
        }
    }

    pub(crate) fn rebuilt(&self, who: &str) {
        bump(&self.rebuilds, who);
    }

    pub(crate) fn polled(&self, who: &str, took: Duration, most: Duration) {
        const WHAT: &str = "a hook blocked its thread; move blocking work to spawn_blocking";
        if took <= most {
            return;
        }
        if bump(&self.slow_polls, who) == 1 {
            tracing::warn!(who, ?took, "{WHAT}");
        } else {
            tracing::debug!(who, ?took, "{WHAT}");
        }
    }

    pub(crate) fn probed(&self, result: &ProbeResult) {
        let index = match result {
            ProbeResult::Alive { not_ready } => usize::from(not_ready.is_some()),
            ProbeResult::Failed { kind, .. } => ANSWERS.len() + kind.index(),
        };
        self.probes[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waited_to_dial(&self, time: Duration) {
        self.dial_waits.observe(time);
    }

    pub(crate) fn initialised(&self, slot: usize, took: Duration, well: bool) {
        let of = &self.resources[slot];
        let durations = if well { &of.inits } else { &of.failed_inits };
        durations.observe(took);
    }

    pub(crate) fn torn_down(&self, slot: usize, took: Duration, well: bool) {
        let of = &self.resources[slot];
        let durations = if well {
            &of.teardowns
        } else {
            &of.failed_teardowns
        };
        durations.observe(took);
    }

    pub(crate) fn abandon(&self, slot: usize) {
        self.resources[slot]
            .abandoned
            .fetch_add(1, Ordering::Relaxed);
    }
}

impl ResourceCounters {
    fn of(name: &'static str) -> Self {
        Self {
            name,
            inits: Durations::default(),
            failed_inits: Durations::default(),
            teardowns: Durations::default(),
            failed_teardowns: Durations::default(),
            abandoned: AtomicU64::new(0),
        }
    }

    /// The provider's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How long each `init` took that made a value or found the resource not applicable, without its waiting for permits to dial.
    pub fn inits(&self) -> &Durations {
        &self.inits
    }

    /// The same of each that failed, panicked, or did not end in time. One that was cancelled is none of both.
    pub fn failed_inits(&self) -> &Durations {
        &self.failed_inits
    }

    /// How long each `teardown` took that came to its end.
    pub fn teardowns(&self) -> &Durations {
        &self.teardowns
    }

    /// The same of each that panicked, or was cancelled because it took too long.
    pub fn failed_teardowns(&self) -> &Durations {
        &self.failed_teardowns
    }

    /// Values that were dropped without the end of their teardown.
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

fn read(counts: &Mutex<BTreeMap<Box<str>, u64>>) -> BTreeMap<Box<str>, u64> {
    counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// How many there are now.
fn bump(counts: &Mutex<BTreeMap<Box<str>, u64>>, who: &str) -> u64 {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(who.into()).or_default();
    *count += 1;
    *count
}
