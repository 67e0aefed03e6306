//! The fleet brake.

use tokio::time::Instant;

use crate::{ClusterKey, Verdict, options::BrakeOptions};

/// Holds teardowns by verdict when most of a fleet fails together.
#[derive(Debug, Default)]
pub(crate) struct Brake {}

/// What an evaluation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrakeChange {
    /// `bad` of `counted` clusters are suspect or down.
    Engaged { bad: usize, counted: usize },
    /// These are held no more.
    Released { clusters: Vec<ClusterKey> },
}

impl Brake {
    /// The verdict on a cluster's published connection changed; `Unknown` when it has none any more, by whatever cause but removal.
    pub(crate) fn verdict(&mut self, key: &ClusterKey, verdict: Verdict, now: Instant) {
        let _ = (key, verdict, now);
    }

    /// The cluster is gone.
    pub(crate) fn removed(&mut self, key: &ClusterKey) {
        let _ = key;
    }

    /// Engages or releases.
    pub(crate) fn evaluate(&mut self, options: &BrakeOptions, now: Instant) -> Option<BrakeChange> {
        let _ = (options, now);
        None
    }

    /// Whether a teardown of this cluster by verdict is withheld.
    pub(crate) fn holds(&self, key: &ClusterKey) -> bool {
        let _ = key;
        false
    }

    /// Released by call.
    pub(crate) fn release(&mut self) -> Option<BrakeChange> {
        None
    }

    /// When [`evaluate`](Self::evaluate) is to be called if nothing happens before.
    pub(crate) fn deadline(&self, options: &BrakeOptions) -> Option<Instant> {
        let _ = options;
        None
    }
}
