//! How many clusters are what, counted in one walk over what readers see: nothing is kept for it, so that nothing can drift, and no state
//! is cloned.

use std::time::SystemTime;

use crate::{ClusterState, FailureKind, Phase, Verdict};

/// How many clusters are what. It is counted when it is asked for, cluster by cluster, while they change.
///
/// ```
/// # fn of(cache: &clustercache::ClusterCache) {
/// use clustercache::Phase;
///
/// let census = cache.census();
/// println!("{} of {} connected", census.in_phase(Phase::Connected), census.clusters());
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    phases: [usize; Phase::ALL.len()],
    failing: [usize; FailureKind::LABELS.len()],
    /// Connected ones that do not answer just now.
    pub suspect: usize,
    /// Connected ones that say that they are not ready.
    pub not_ready: usize,
    /// Those whose teardown is withheld by the fleet brake.
    pub held_by_brake: usize,
    /// Those whose newest access was refused, connected or not.
    pub refused: usize,
    /// When the first credential of a cluster that is ours ends, or ended.
    pub nearest_expiry: Option<SystemTime>,
}

impl Census {
    /// All known clusters.
    pub fn clusters(&self) -> usize {
        self.phases.iter().sum()
    }

    /// How many clusters are in this phase.
    pub fn in_phase(&self, phase: Phase) -> usize {
        self.phases[phase as usize]
    }

    /// How many clusters are in each phase.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, usize)> + '_ {
        Phase::ALL.into_iter().zip(self.phases.iter().copied())
    }

    /// How many clusters are not as they should be (down, degraded, suspect, or tried in vain since they were last connected), by the
    /// [label](FailureKind::label) of what last went wrong.
    pub fn failing(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        FailureKind::LABELS
            .into_iter()
            .zip(self.failing.iter().copied())
    }

    pub(crate) fn count(&mut self, state: &ClusterState) {
        self.phases[state.phase as usize] += 1;
        if is_failing(state) {
            let last = state.last_error.as_ref();
            let kind = last.map_or(FailureKind::Other, |error| error.kind);
            self.failing[kind.index()] += 1;
        }
        self.suspect += usize::from(is_suspect(state));
        self.not_ready += usize::from(state.phase.is_connected() && state.not_ready.is_some());
        self.held_by_brake += usize::from(state.held_by_brake);
        self.refused += usize::from(state.owned && state.refused.is_some());
        let expiry = state.credential_expires.filter(|_| state.owned);
        self.nearest_expiry = match (self.nearest_expiry, expiry) {
            (Some(nearest), Some(this)) => Some(nearest.min(this)),
            (one, other) => one.or(other),
        };
    }
}

fn is_suspect(state: &ClusterState) -> bool {
    state.phase.is_connected() && matches!(state.health, Verdict::Suspect | Verdict::Down)
}

fn is_failing(state: &ClusterState) -> bool {
    match state.phase {
        Phase::Down | Phase::Degraded => true,
        Phase::Connecting => state.first_failure.is_some(),
        Phase::Connected => is_suspect(state),
        Phase::NotOwned | Phase::Gated | Phase::Refused | Phase::Removed => false,
    }
}
