//! Who is told what changed.

use std::{sync::Arc, time::Duration};

use crate::{ClusterKey, ClusterState, options::EventOptions, registry::Registry};

/// All subscribers, and all who wait for one cluster.
pub(crate) struct Events {}

/// What happened to a cluster since it was last told, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes(u16);

impl Changes {
    /// It was known when the subscription began, or after a resync.
    pub const KNOWN: Self = Self(1);
    /// It came to be connected (also: another connection took the place of one).
    pub const CONNECTED: Self = Self(1 << 1);
    /// Its connection went, for whatever reason.
    pub const DISCONNECTED: Self = Self(1 << 2);
    /// It has not answered for as long as this subscriber asked about.
    pub const UNHEALTHY: Self = Self(1 << 3);
    /// Its access changed.
    pub const ACCESS: Self = Self(1 << 4);
    /// Another cluster took its name.
    pub const REPLACED: Self = Self(1 << 5);
    /// It was removed, filtered out, or lost its gate.
    pub const REMOVED: Self = Self(1 << 6);
    /// Anything else of its state changed.
    pub const STATE: Self = Self(1 << 7);
}

/// What a subscriber is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A cluster.
    Cluster {
        /// Which.
        key: ClusterKey,
        /// What happened since it was last told.
        changes: Changes,
        /// What it is now; `None` if it is no more known.
        state: Option<Box<ClusterState>>,
    },
    /// It fell too far behind: what it knows may be stale, and every known cluster follows.
    Resync,
}

/// A stream of events.
pub struct Subscription {}

impl Events {
    pub(crate) fn new(options: &EventOptions, registry: Arc<Registry>) -> Self {
        let _ = (options, registry);
        todo!()
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        todo!()
    }

    /// The engine: this happened. What is published is published before.
    pub(crate) fn tell(&self, key: &ClusterKey, changes: Changes) {
        let _ = (key, changes);
        todo!()
    }

    /// The engine: the cluster has not answered for `time`; told to those who asked about just that.
    pub(crate) fn unhealthy(&self, key: &ClusterKey, time: Duration) {
        let _ = (key, time);
        todo!()
    }

    /// All times that some living subscriber asked about, ascending.
    pub(crate) fn unhealthy_times(&self) -> Vec<Duration> {
        todo!()
    }

    /// Returns at the next `tell` for `key`, or when the engine ends. Registered when this is called, not when it is first polled.
    pub(crate) fn next(&self, key: &ClusterKey) -> impl Future<Output = ()> + use<> {
        let _ = key;
        async { todo!() }
    }

    /// The engine ended: every stream ends, every wait returns.
    pub(crate) fn close(&self) {
        todo!()
    }
}
