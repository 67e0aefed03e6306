//! The one shared verdict on a connection: the provider that is asked for it.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;

use super::{ClusterResource, FailureKind, error::escaped};
use crate::{ClusterAccess, ClusterKey, DialPermit, Generation, InitContext};

/// A provider that can tell whether a cluster answers. Its `init` includes the first good answer.
///
/// The engine decides when a probe is sent, and what its failures mean; it also ends one that takes longer than
/// [`probe_timeout`](crate::options::HealthOptions::probe_timeout).
#[async_trait]
pub trait HealthCheck: ClusterResource {
    /// Sends one probe. Dropped at its deadline.
    async fn check(&self, value: &Self::Value, cx: &CheckContext) -> Result<Answer, CheckError>;

    /// A fresh connection answered, and the pooled one does not: use a new one from now on.
    fn replace_pooled(&self, value: &Self::Value) {
        let _ = value;
    }
}

/// What a probe is sent with.
pub struct CheckContext {
    pub(crate) init: InitContext,
    pub(crate) route: Route,
    /// It waits for a permit, or did so when it ended.
    pub(crate) without_permit: AtomicBool,
}

impl CheckContext {
    /// Over which connection.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Which cluster.
    pub fn key(&self) -> &ClusterKey {
        self.init.key()
    }

    /// Which connection.
    pub fn generation(&self) -> Generation {
        self.init.generation()
    }

    /// The newest access.
    pub fn access(&self) -> ClusterAccess {
        self.init.newest_access()
    }

    /// Waits for a permit to dial; see [`InitContext::dial`]. A probe whose time is over before it has one says nothing of the cluster.
    pub async fn dial(&self) -> DialPermit {
        self.without_permit.store(true, Ordering::Relaxed);
        let permit = self.init.dial().await;
        self.without_permit.store(false, Ordering::Relaxed);
        permit
    }
}

/// Over which connection a probe goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// The one that calls use.
    Pooled,
    /// A new one, of its own.
    Fresh,
}

/// The cluster is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// And ready.
    Ready,
    /// And says that it is not ready: shown, not torn down.
    NotReady(String),
}

/// The cluster did not answer as something alive does.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct CheckError {
    pub(crate) kind: FailureKind,
    pub(crate) text: std::sync::Arc<str>,
}

impl CheckError {
    /// A failure of this kind. [`FailureKind::Busy`] is none: it says nothing of the cluster.
    pub fn new(kind: FailureKind, text: impl fmt::Display) -> Self {
        Self {
            kind,
            text: escaped(&text.to_string()),
        }
    }

    /// What kind of failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}
