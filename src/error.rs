//! How reading and waiting fail. Every way in which a value can be absent has its own name, so that "cannot say" is never "none"
//! (rule 4). Making one of these allocates nothing: the state is shared.

use std::{any::TypeId, fmt, sync::Arc};

use crate::{
    ClusterKey, ClusterResource, ClusterState, Phase, ResourcePhase, WouldDeadlock, plan::Plan,
    registry::EngineStatus,
};

/// Why there is no value. None of these is worth a retry with backoff: return without a timer, and let
/// [`subscribe`](crate::ClusterCache::subscribe) wake you.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// No provider of this type was registered.
    #[error("{type_name} is not registered; add it to the builder with .resource() or .optional()")]
    NotRegistered {
        /// The provider's type.
        type_name: &'static str,
    },
    /// There is no engine behind the cache.
    #[error("the cache is not running ({status:?})")]
    NotRunning {
        /// Why.
        status: EngineStatus,
    },
    /// No source knows the key.
    #[error("cluster {} is not known to any source", key.shown())]
    Unknown {
        /// The key.
        key: ClusterKey,
    },
    /// The cluster behind a handle was replaced by another of the same name.
    #[error("cluster {} was replaced by another of the same name; ask the cache for it again", key.shown())]
    Replaced {
        /// The key.
        key: ClusterKey,
    },
    /// Known, and not let in by the filters, or waiting for a higher source.
    #[error("{}", Why("is not owned", .0, None))]
    NotOwned(Arc<ClusterState>),
    /// Its source says that it may not be connected yet.
    #[error("{}", Why("is gated", .0, .0.gate.as_deref()))]
    Gated(Arc<ClusterState>),
    /// Its access was refused.
    #[error("{}", Why("is refused", .0, .0.refused.as_deref()))]
    Refused(Arc<ClusterState>),
    /// It is being connected, for the first time or after a change.
    #[error("{}", Why("is connecting", .0, None))]
    Connecting(Arc<ClusterState>),
    /// It was connected and does not answer.
    #[error("{}", Why("is down", .0, None))]
    Down(Arc<ClusterState>),
    /// It is gone.
    #[error("{}", Why("is removed", .0, None))]
    Removed(Arc<ClusterState>),
    /// It is connected, and this resource is being made, or made anew.
    #[error("{}", WhyResource("is re-initialising", resource, state))]
    Reinitialising {
        /// The provider's name.
        resource: &'static str,
        /// The cluster.
        state: Arc<ClusterState>,
    },
    /// It has no such thing.
    #[error("{}", WhyResource("is not applicable", resource, state))]
    NotApplicable {
        /// The provider's name.
        resource: &'static str,
        /// The cluster.
        state: Arc<ClusterState>,
    },
}

impl GetError {
    /// The cluster's state when it was read, where the key is known.
    pub fn state(&self) -> Option<&ClusterState> {
        match self {
            Self::NotOwned(state)
            | Self::Gated(state)
            | Self::Refused(state)
            | Self::Connecting(state)
            | Self::Down(state)
            | Self::Removed(state)
            | Self::Reinitialising { state, .. }
            | Self::NotApplicable { state, .. } => Some(state),
            _ => None,
        }
    }

    pub(crate) fn absent<R: ClusterResource>(plan: &Plan, state: &Arc<ClusterState>) -> Self {
        let Some(index) = plan.index_of(TypeId::of::<R>()) else {
            return Self::NotRegistered {
                type_name: std::any::type_name::<R>(),
            };
        };
        if let Some(not_connected) = Self::not_connected(state) {
            return not_connected;
        }
        let (resource, state) = (plan.name(index), Arc::clone(state));
        match state.resources.get(index).map(|resource| resource.phase) {
            Some(ResourcePhase::NotApplicable) => Self::NotApplicable { resource, state },
            _ => Self::Reinitialising { resource, state },
        }
    }

    /// Why a cluster has no published connection; `None` if it has.
    pub(crate) fn not_connected(state: &Arc<ClusterState>) -> Option<Self> {
        let why = match state.phase {
            Phase::Connected | Phase::Degraded => return None,
            Phase::NotOwned => Self::NotOwned,
            Phase::Gated => Self::Gated,
            Phase::Refused => Self::Refused,
            Phase::Connecting => Self::Connecting,
            Phase::Down => Self::Down,
            Phase::Removed => Self::Removed,
        };
        Some(why(Arc::clone(state)))
    }
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// It was called where waiting can only end in a deadlock.
    #[error(transparent)]
    WouldDeadlock(#[from] WouldDeadlock),
    /// The deadline passed; this is what the cluster was then.
    #[error("not connected by the deadline: {0}")]
    Deadline(#[source] GetError),
    /// The engine ended meanwhile, or was never started.
    #[error(transparent)]
    NotRunning(GetError),
}

struct Why<'a>(&'static str, &'a ClusterState, Option<&'a str>);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, state, why) = self;
        write!(
            f,
            "cluster {} {what} since {}",
            state.key.shown(),
            Wall(state.since)
        )?;
        if let Some(why) = why {
            return write!(f, ": {why}");
        }
        if state.attempts > 0 {
            write!(f, ", attempt {}", state.attempts)?;
        }
        if let Some(error) = &state.last_error {
            write!(f, ": {}: {}", error.stage, error.message)?;
        }
        match state.next_attempt {
            Some(at) => write!(f, "; next try at {}", Wall(at)),
            None => Ok(()),
        }
    }
}

struct WhyResource<'a>(&'static str, &'static str, &'a ClusterState);

impl fmt::Display for WhyResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, name, cluster) = self;
        write!(f, "{name} of cluster {} {what}", cluster.key.shown())?;
        let resource = cluster
            .resources
            .iter()
            .find(|resource| resource.name == *name);
        match resource.and_then(|resource| resource.message.as_ref()) {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// Wall time to the second, in UTC.
pub(crate) struct Wall(pub(crate) std::time::SystemTime);

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::try_from(self.0) {
            Ok(at) => write!(f, "{at:.0}"),
            Err(_) => f.write_str("an unknown time"),
        }
    }
}
