//! How many clusters are what, counted in one walk over what readers see: no sum is kept, so that none can drift, and no state is read.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use crate::{ClusterState, FailureKind, Phase, ResourcePhase, ResourceState, Verdict};

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
    /// When the first credential of a cluster that is ours ends, or ended, to the second.
    pub nearest_expiry: Option<SystemTime>,
    /// Connected ones of which a resource is up and [says](crate::Standing::trouble) that what should keep it so fails.
    pub troubled: usize,
    /// When the first of what resources that are up hold [ends](crate::Standing::expires), or ended, to the second.
    pub nearest_resource_expiry: Option<SystemTime>,
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

    pub(crate) fn count(&mut self, tally: &Tally) {
        let what = tally.what.load(Ordering::Relaxed);
        let field = |from: u32, bits: u32| what >> from & ((1 << bits) - 1);
        self.phases[field(0, PHASE) as usize] += 1;
        // Of one that is not failing there is none before the first.
        if let Some(kind) = (field(PHASE, KIND) as usize).checked_sub(1) {
            self.failing[kind] += 1;
        }
        let flag = |at: u32| field(PHASE + KIND + at, 1) as usize;
        self.suspect += flag(0);
        self.not_ready += flag(1);
        self.held_by_brake += flag(2);
        self.refused += flag(3);
        self.troubled += flag(4);
        nearest(&mut self.nearest_expiry, &tally.expiry);
        nearest(&mut self.nearest_resource_expiry, &tally.resource_expiry);
    }
}

fn nearest(nearest: &mut Option<SystemTime>, expiry: &AtomicU64) {
    if let Some(expiry) = expiry.load(Ordering::Relaxed).checked_sub(1) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(expiry);
        *nearest = Some(nearest.map_or(at, |nearest| nearest.min(at)));
    }
}

/// What the census counts of one cluster, in three numbers beside its snapshot: a walk that opens the snapshot and the state of each cluster
/// waits for memory most of its time.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The phase, one more than the kind of what fails, and the five flags.
    what: AtomicU32,
    /// One more than the seconds since the epoch; 0: the credential has no end.
    expiry: AtomicU64,
    /// The same of what its resources hold.
    resource_expiry: AtomicU64,
}

/// Bits of a phase.
const PHASE: u32 = 4;

/// Bits of a kind of failure, and one more.
const KIND: u32 = 5;

const _: () = assert!(Phase::ALL.len() <= 1 << PHASE && FailureKind::LABELS.len() < 1 << KIND);

impl Tally {
    pub(crate) fn of(state: &ClusterState) -> Self {
        let tally = Self::default();
        tally.set(state);
        tally
    }

    pub(crate) fn set(&self, state: &ClusterState) {
        let last = state.last_error.as_ref();
        let kind = last.map_or(FailureKind::Other, |error| error.kind);
        let failing = if is_failing(state) {
            kind.index() + 1
        } else {
            0
        };
        let flags = [
            is_suspect(state),
            state.phase.is_connected() && state.not_ready.is_some(),
            state.held_by_brake,
            state.owned && state.refused.is_some(),
            up(state).any(|resource| resource.failures > 0),
        ];
        let flags = flags
            .iter()
            .rev()
            .fold(0, |all, flag| all << 1 | usize::from(*flag));
        let what = state.phase as usize | failing << PHASE | flags << (PHASE + KIND);
        let what = u32::try_from(what).expect("fourteen bits");
        self.what.store(what, Ordering::Relaxed);
        let expiry = state.credential_expires.filter(|_| state.owned);
        self.expiry.store(seconds(expiry), Ordering::Relaxed);
        let resources = up(state).filter_map(|resource| resource.expires).min();
        self.resource_expiry
            .store(seconds(resources), Ordering::Relaxed);
    }
}

/// Resources that readers get.
fn up(state: &ClusterState) -> impl Iterator<Item = &ResourceState> {
    let resources = state.resources.iter();
    resources.filter(|resource| state.phase.is_connected() && resource.phase == ResourcePhase::Up)
}

fn seconds(expiry: Option<SystemTime>) -> u64 {
    let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH);
    // What ended before the epoch ended with it.
    let expiry = expiry.map(|at| since(at).unwrap_or_default().as_secs());
    expiry.map_or(0, |seconds| seconds.saturating_add(1))
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
