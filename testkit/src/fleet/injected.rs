//! Faults that are injected into a cluster or a whole fleet, and undone.

use std::sync::{Arc, Weak};

use super::{ConnectionFault, FakeCluster, Fleet, cluster::Inner, endpoint::Endpoint};
use crate::api;

/// A fault of connections, or of what is served.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub enum FleetFault {
    /// Of connections.
    Connection(ConnectionFault),
    /// Of answers, by verb and resource.
    Api(api::Fault),
}

impl From<ConnectionFault> for FleetFault {
    fn from(fault: ConnectionFault) -> Self {
        Self::Connection(fault)
    }
}

impl From<api::Fault> for FleetFault {
    fn from(fault: api::Fault) -> Self {
        Self::Api(fault)
    }
}

/// A fault that holds, until it is undone. Dropping this does not undo it.
#[must_use = "a fault holds until it is undone"]
#[derive(Default)]
pub struct Injected {
    connections: Vec<(Weak<Inner>, Weak<Endpoint>, u64)>,
    api: Vec<(api::FakeApi, api::FaultId)>,
}

impl Injected {
    /// Undoes it, wherever it still holds. Connections that lost bytes are reset; others go on, and so does what was held.
    ///
    /// # Panics
    /// If a port cannot be listened on again. It is reserved, so the process must be out of descriptors.
    pub fn undo(self) {
        for (cluster, endpoint, id) in self.connections {
            let (Some(cluster), Some(endpoint)) = (cluster.upgrade(), endpoint.upgrade()) else {
                continue;
            };
            let _runtime = cluster.runtime.enter();
            endpoint
                .undo(id)
                .expect("a reserved port can be listened on again");
        }
        for (api, id) in self.api {
            api.undo(id);
        }
    }

    fn inject(&mut self, cluster: &FakeCluster, fault: &FleetFault) {
        match fault {
            FleetFault::Connection(fault) => self.inject_connection(cluster, fault),
            FleetFault::Api(fault) => {
                let api = cluster.api().clone();
                let id = api.inject(fault.clone());
                self.api.push((api, id));
            }
        }
    }

    fn inject_connection(&mut self, cluster: &FakeCluster, fault: &ConnectionFault) {
        let inner = cluster.inner();
        let fault = Arc::new(fault.clone());
        let endpoints = inner.endpoints.lock().clone();
        let _runtime = inner.runtime.enter();
        for endpoint in endpoints {
            let id = endpoint
                .inject(fault.clone())
                .expect("a reserved port can be listened on again");
            let (cluster, endpoint) = (Arc::downgrade(inner), Arc::downgrade(&endpoint));
            self.connections.push((cluster, endpoint, id));
        }
    }
}

/// Several are undone as one.
impl Extend<Injected> for Injected {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, others: I) {
        for other in others {
            self.connections.extend(other.connections);
            self.api.extend(other.api);
        }
    }
}

impl FakeCluster {
    /// Injects a fault, which holds until it is undone, at the endpoints that it has now.
    ///
    /// # Panics
    /// As [`refuse`](Self::refuse).
    pub fn inject(&self, fault: impl Into<FleetFault>) -> Injected {
        let mut injected = Injected::default();
        injected.inject(self, &fault.into());
        injected
    }
}

impl Fleet {
    /// Injects a fault into all clusters that it has now.
    ///
    /// # Panics
    /// As [`FakeCluster::refuse`].
    pub fn inject(&self, fault: impl Into<FleetFault>) -> Injected {
        let fault = fault.into();
        let mut injected = Injected::default();
        for cluster in self.clusters() {
            injected.inject(cluster, &fault);
        }
        injected
    }
}
