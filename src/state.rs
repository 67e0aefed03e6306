//! State is data (rule 14): what a cluster is, since when, why, and what comes next. Reading it takes no lock.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{ClusterKey, FailureKind, Fingerprint, Generation, Identity};

/// Everything that is known of a cluster. Times are by the wall clock as it was when the engine started, plus monotonic time since.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a state in disguise
pub struct ClusterState {
    /// Its name.
    pub key: ClusterKey,
    /// What makes it this cluster and no other of the name.
    pub identity: Identity,
    /// The source that it comes from.
    pub source: Arc<str>,
    /// Other sources that name the same key, and lost.
    pub shadowed: Vec<Arc<str>>,
    /// Whether the filters let it in.
    pub owned: bool,
    /// What it is.
    pub phase: Phase,
    /// Since when it is that.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::time"))]
    pub since: SystemTime,
    /// What its source waits for before it may be connected.
    pub gate: Option<Arc<str>>,
    /// Why its access was refused.
    pub refused: Option<Arc<str>>,
    /// Whether its removal was seen, and it lingers.
    pub removing: bool,
    /// The published connection.
    pub generation: Option<Generation>,
    /// Whether a replacement is being built beside the published connection.
    pub replacing: bool,
    /// Connections on their way out.
    pub retiring: usize,
    /// The verdict of the health check.
    pub health: Verdict,
    /// What the cluster itself says that it is not ready for.
    pub not_ready: Option<Arc<str>>,
    /// Whether its teardown is withheld by the fleet brake.
    pub held_by_brake: bool,
    /// Attempts to connect since it was last connected.
    pub attempts: u32,
    /// When the first of them failed; the beginning of an outage of a cluster that was never connected.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::option"))]
    pub first_failure: Option<SystemTime>,
    /// When it is tried next.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::option"))]
    pub next_attempt: Option<SystemTime>,
    /// When the last probe was sent.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::option"))]
    pub last_probe: Option<SystemTime>,
    /// The last sign of life, of any connection.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::option"))]
    pub last_success: Option<SystemTime>,
    /// When the process itself last did not run: nobody is judged by that time.
    pub stalled: Option<Stall>,
    /// Probes that failed in a row.
    pub consecutive_failures: u32,
    /// Probes that were answered, of all connections of this identity; one that had no permit counts neither here nor below.
    pub probes_succeeded: u64,
    /// Probes that failed, of all connections of this identity.
    pub probes_failed: u64,
    /// What last went wrong. Kept after it is mended; its time tells.
    pub last_error: Option<LastError>,
    /// Each resource, in the order of the plan.
    pub resources: Vec<ResourceState>,
    /// When the credential ends.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::option"))]
    pub credential_expires: Option<SystemTime>,
    /// Fingerprints of endpoint, CA and credential of the newest access.
    pub access: Option<AccessState>,
}

/// What a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Phase {
    /// Known, and not let in by the filters, or still waiting for a higher source.
    NotOwned,
    /// Its source says that it may not be connected yet.
    Gated,
    /// Its access was refused: it is not dialled.
    Refused,
    /// Tried for the first time, or again after it was down for reasons other than its health.
    Connecting,
    /// All essential resources are up or not applicable.
    Connected,
    /// Connected, and an essential resource is being made anew.
    Degraded,
    /// It was connected, and its health check failed. It is tried again.
    Down,
    /// It is gone.
    Removed,
}

impl Phase {
    /// In the order in which they are declared.
    pub(crate) const ALL: [Self; 8] = [
        Self::NotOwned,
        Self::Gated,
        Self::Refused,
        Self::Connecting,
        Self::Connected,
        Self::Degraded,
        Self::Down,
        Self::Removed,
    ];

    /// Whether a connection is published: what `wait_for`, the events and the condition mean by connected.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::Degraded)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotOwned => "not owned",
            Self::Gated => "gated",
            Self::Refused => "refused",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Degraded => "degraded",
            Self::Down => "down",
            Self::Removed => "removed",
        })
    }
}

/// What the health check says of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// There is no connection to speak of.
    #[default]
    Unknown,
    /// It answers.
    Healthy,
    /// It has failed to; not often or long enough to be down.
    Suspect,
    /// It does not answer.
    Down,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LastError {
    /// In doing what.
    pub stage: Stage,
    /// What kind of failure.
    pub kind: FailureKind,
    /// What was wrong; without secrets, control characters escaped.
    pub message: Arc<str>,
    /// When.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::time"))]
    pub at: SystemTime,
}

/// In doing what something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Stage {
    /// The `init` of this resource.
    Init(&'static str),
    /// This resource, after it was up.
    Resource(&'static str),
    /// A probe.
    Probe,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Init(name) => write!(f, "init of {name}"),
            Self::Resource(name) => f.write_str(name),
            Self::Probe => f.write_str("health check"),
        }
    }
}

/// A resource of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResourceState {
    /// Its provider's name.
    pub name: &'static str,
    /// Whether the cluster counts as connected without it.
    pub essential: bool,
    /// What it is, in the published connection, else in the one that is being made.
    pub phase: ResourcePhase,
    /// How often its `init` failed in a row; of one that is up, how often what should keep it so did.
    pub failures: u32,
    /// What last went wrong with it, or why it is not applicable. Of one that is up, what is wrong with it now.
    pub message: Option<Arc<str>>,
    /// When what it holds ends, if it is up and [says so](crate::Standing::expires).
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::option"))]
    pub expires: Option<SystemTime>,
}

/// What a resource of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum ResourcePhase {
    /// Not begun: there is no connection, or what it needs is not up.
    Waiting,
    /// Its `init` runs.
    Initialising,
    /// Its `init` failed, and is tried again.
    Retrying,
    /// Its `init` failed, and only new access can mend it.
    NeedsAccess,
    /// Readers get it.
    Up,
    /// The cluster has no such thing.
    NotApplicable,
    /// Its `teardown` runs.
    Ending,
}

/// A time in which the process itself did not run: it was stopped, or its machine was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stall {
    /// Its end.
    #[cfg_attr(feature = "serde", serde(serialize_with = "rfc3339::time"))]
    pub until: SystemTime,
    /// How long it was, all together since the last success.
    pub time: Duration,
}

/// An access, told apart without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AccessState {
    /// The endpoint's URL.
    pub endpoint: Arc<str>,
    /// Of the CA bundle.
    pub ca: Fingerprint,
    /// Of the credential.
    pub credential: Fingerprint,
}

#[cfg(feature = "serde")]
mod rfc3339 {
    use std::time::SystemTime;

    use serde::{Serialize, Serializer, ser::Error};

    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
    pub(super) fn time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        jiff::Timestamp::try_from(*time)
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }

    #[allow(clippy::trivially_copy_pass_by_ref, clippy::ref_option)] // as above
    pub(super) fn option<S: Serializer>(
        option: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match option {
            Some(at) => time(at, serializer),
            None => serializer.serialize_none(),
        }
    }
}
