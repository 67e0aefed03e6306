//! Whether a connection is alive.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{FailureKind, Route, Verdict, options::HealthOptions, vitals::Signs};

/// The health detector of one connection. Every input comes with the time; what to do comes out as [`Order`]s.
#[derive(Debug)]
pub(crate) struct Detector {}

/// What came of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Alive { not_ready: Option<Arc<str>> },
    Failed { kind: FailureKind, text: Arc<str> },
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send a probe; its result comes back with the number.
    Probe { number: u64, route: Route },
    /// The credential was refused: have the source read it again.
    Reread,
    /// A fresh connection answers, and the pooled one does not.
    ReplacePooled,
}

impl Detector {
    /// For a connection that has just given its first good answer.
    pub(crate) fn new(now: Instant) -> Self {
        let _ = now;
        todo!()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        todo!()
    }

    /// Failed rounds in a row.
    pub(crate) fn failures(&self) -> u32 {
        todo!()
    }

    /// What the cluster last said that it is not ready for; none once it answered as ready.
    pub(crate) fn not_ready(&self) -> Option<&Arc<str>> {
        todo!()
    }

    /// When [`timer`](Self::timer) is to be called.
    pub(crate) fn deadline(&self) -> Instant {
        todo!()
    }

    pub(crate) fn timer(
        &mut self,
        now: Instant,
        signs: Signs,
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        let _ = (now, signs, options, out);
        todo!()
    }

    /// A probe's result; one that is no more asked for is ignored.
    pub(crate) fn probed(
        &mut self,
        now: Instant,
        number: u64,
        result: ProbeResult,
        options: &HealthOptions,
        out: &mut Vec<Order>,
    ) {
        let _ = (now, number, result, options, out);
        todo!()
    }

    /// Something that should have come did not: probe at once.
    pub(crate) fn doubt(&mut self, now: Instant) {
        let _ = now;
        todo!()
    }

    /// New access was taken in place: failures are cleared, probes under way no longer count, and it is tried at once.
    pub(crate) fn new_access(&mut self, now: Instant) {
        let _ = now;
        todo!()
    }

    /// The process did not run for `time`: nobody is judged by it. Probes under way no longer count.
    pub(crate) fn stalled(&mut self, now: Instant, time: Duration) {
        let _ = (now, time);
        todo!()
    }

    /// The fleet brake withholds the teardown that the verdict asks for: go on at the slower interval.
    pub(crate) fn held(&mut self, now: Instant, options: &HealthOptions) {
        let _ = (now, options);
        todo!()
    }
}
