//! Where clusters come from. A source says which clusters there are and how to reach them; the engine does the rest.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::stream::BoxStream;

use crate::{ClusterAccess, ClusterKey};

mod memory;

pub use memory::MemorySource;

/// A source of clusters.
///
/// Several sources may name the same key; the one registered first wins, and the loser takes over when the winner's goes.
pub trait ClusterSource: Send + Sync + 'static {
    /// For logs, the state and errors.
    fn name(&self) -> &str;

    /// As [`ClusterResource::mistakes`](crate::ClusterResource::mistakes).
    fn mistakes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The clusters that there are, then [`SourceEvent::Synced`], then what changes, for as long as the engine runs.
    ///
    /// A stream that ends, fails or panics is asked for again, with backoff. Nothing is removed for that: what a new stream has not
    /// named by its `Synced` is. The stream runs on a task of its own.
    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>>;

    /// A hint that the access of `key` was refused (401): read it again now, if that is cheaper than waiting for a change to
    /// be noticed. What was read comes through the stream. Called on a task of the source.
    fn reread(&self, key: &ClusterKey) {
        let _ = key;
    }
}

/// What went wrong in a source; it is shown escaped, and must hold no secret.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// What a source says.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// A cluster is there, or something about it changed.
    Upsert(Upsert),
    /// A cluster is gone. It lingers (5 s by default) before its connection is closed.
    Remove {
        /// Its key.
        key: ClusterKey,
        /// Which cluster of that name: another one that has come meanwhile is not removed.
        identity: Identity,
    },
    /// All clusters that there are have been named.
    Synced,
}

/// A cluster, as its source sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upsert {
    /// Its name.
    pub key: ClusterKey,
    /// Which cluster of that name it is.
    pub identity: Identity,
    /// For filters.
    pub labels: Labels,
    /// How to reach it, or why not.
    pub access: SourcedAccess,
}

impl Upsert {
    /// A cluster that can be reached by `access`, known again by its CA.
    pub fn ready(key: ClusterKey, access: ClusterAccess) -> Self {
        Self {
            key,
            identity: Identity::ByCa,
            labels: Labels::default(),
            access: SourcedAccess::Ready(access),
        }
    }

    /// The same with an access that was refused.
    pub fn refused(key: ClusterKey, why: impl Into<Arc<str>>) -> Self {
        Self {
            key,
            identity: Identity::ByCa,
            labels: Labels::default(),
            access: SourcedAccess::Refused(why.into()),
        }
    }

    /// The same with an access that is waited for.
    pub fn gated(key: ClusterKey, why: impl Into<Arc<str>>) -> Self {
        Self {
            key,
            identity: Identity::ByCa,
            labels: Labels::default(),
            access: SourcedAccess::Gated(why.into()),
        }
    }

    /// The same cluster, whose access is not ready, though it will be one to where this one leads: if that is another cluster than before,
    /// nothing of the old one is served any more.
    #[must_use]
    pub fn leading_to(mut self, place: ClusterAccess) -> Self {
        self.identity = Identity::ByCaOf(place);
        self
    }

    /// The same cluster, known by a UID.
    #[must_use]
    pub fn with_uid(mut self, uid: impl Into<Arc<str>>) -> Self {
        self.identity = Identity::Uid(uid.into());
        self
    }

    /// The same cluster, with labels.
    #[must_use]
    pub fn with_labels(mut self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        self.labels = Labels(Arc::new(labels.into_iter().collect()));
        self
    }
}

impl Upsert {
    /// Where it is, as far as it says so.
    pub(crate) fn place(&self) -> Option<&ClusterAccess> {
        match (&self.access, &self.identity) {
            (SourcedAccess::Ready(access), _) | (_, Identity::ByCaOf(access)) => Some(access),
            _ => None,
        }
    }
}

/// How a source says that a cluster can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcedAccess {
    /// By this.
    Ready(ClusterAccess),
    /// Not by what the source was given; the text says what was wrong, where, and what to do, and has no secret in it. A living
    /// connection is kept; nothing is dialled until it is mended.
    Refused(Arc<str>),
    /// Not yet: the text says what is waited for. A living connection is kept or closed, as
    /// [`GatePolicy`](crate::options::GatePolicy) says.
    Gated(Arc<str>),
}

/// What makes a cluster this one and no other of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Identity {
    /// The UID of the object that stands for it, which a source that has one is trusted on.
    Uid(Arc<str>),
    /// Nothing but its CA: a bundle that shares a public key with the last one is the same cluster, any other is a new one.
    ByCa,
    /// As [`ByCa`](Self::ByCa), where the access is not ready though it is known already where it leads: to here. What its credential
    /// is does not count.
    #[cfg_attr(feature = "serde", serde(serialize_with = "ca_fingerprint"))]
    ByCaOf(ClusterAccess),
}

#[cfg(feature = "serde")]
fn ca_fingerprint<S: serde::Serializer>(
    place: &ClusterAccess,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&place.ca().fingerprint())
}

/// A cluster's labels.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Arc<BTreeMap<String, String>>);

impl Labels {
    /// The value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
