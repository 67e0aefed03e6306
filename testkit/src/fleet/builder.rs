//! How a fleet is to be, and how it starts.

use std::{num::NonZero, sync::Arc, thread};

use tokio::runtime::Handle;

use super::{FakeCluster, Fleet, FleetError, endpoint::Endpoint, shared::SharedListener};
use crate::pki::ClusterCa;

/// How a [`Fleet`] is to be. The default: no clusters, named `fake-0`, `fake-1` and so on, each with a CA of its own, with
/// HTTP/2, behind one listener where loopback has many addresses.
#[derive(Clone, Debug)]
#[must_use]
pub struct FleetBuilder {
    clusters: usize,
    first: usize,
    prefix: String,
    http2: bool,
    one_ca: bool,
    port_each: bool,
}

impl Default for FleetBuilder {
    fn default() -> Self {
        Self {
            clusters: 0,
            first: 0,
            prefix: "fake".to_owned(),
            http2: true,
            one_ca: false,
            port_each: false,
        }
    }
}

impl FleetBuilder {
    /// How many clusters to start.
    pub fn clusters(mut self, clusters: usize) -> Self {
        self.clusters = clusters;
        self
    }

    /// The number of the first: so that the parts of one large fleet, each in a process of its own, have names and addresses
    /// of their own.
    pub fn first(mut self, number: usize) -> Self {
        self.first = number;
        self
    }

    /// What the clusters' names begin with, before a hyphen and their number.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Whether the servers speak HTTP/2 beside HTTP/1.1.
    pub fn http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self
    }

    /// Whether all clusters have the same CA, in place of one each. A cluster that is replaced gets one of its own.
    pub fn one_ca(mut self, one: bool) -> Self {
        self.one_ca = one;
        self
    }

    /// Whether each cluster has a port of its own, at `127.0.0.1`, in place of an address of its own behind one listener. It
    /// takes a descriptor and a task each, and [`refuse`](FakeCluster::refuse) then is `ECONNREFUSED`. So it is anyway where
    /// loopback has one address, as on macOS.
    pub fn port_each(mut self, each: bool) -> Self {
        self.port_each = each;
        self
    }

    /// Starts them on the runtime of the caller; keys are made on its blocking threads, one a processor.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Fleet, FleetError> {
        let runtime = Handle::current();
        let ca = self
            .one_ca
            .then(|| ClusterCa::new("fleet-ca"))
            .transpose()?;
        let shared = (!self.port_each && self.clusters > 0).then(|| SharedListener::bind(&runtime));
        let shared = match shared {
            Some(Ok(shared)) => Some(shared),
            Some(Err(error)) => {
                tracing::debug!(%error, "a port a cluster");
                None
            }
            None => None,
        };
        let plan = Arc::new(Plan {
            fleet: self,
            ca,
            shared,
        });
        let clusters = plan.fleet.clusters;
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        let each = clusters.div_ceil(workers).max(1);
        let mut starting = Vec::new();
        for first in (0..clusters).step_by(each) {
            let plan = plan.clone();
            let last = clusters.min(first + each);
            starting.push(
                runtime
                    .spawn_blocking(move || (first..last).map(|place| plan.one(place)).collect()),
            );
        }
        let mut started = Vec::with_capacity(clusters);
        for some in starting {
            let some: Result<Vec<_>, FleetError> = some.await?;
            started.append(&mut some?);
        }
        Ok(Fleet { clusters: started })
    }
}

/// What the clusters of a fleet have in common.
struct Plan {
    fleet: FleetBuilder,
    ca: Option<ClusterCa>,
    shared: Option<Arc<SharedListener>>,
}

impl Plan {
    fn one(&self, place: usize) -> Result<FakeCluster, FleetError> {
        let number = self.fleet.first + place;
        let mut cluster =
            FakeCluster::builder(format!("{}-{number}", self.fleet.prefix)).http2(self.fleet.http2);
        if let Some(ca) = &self.ca {
            cluster = cluster.ca(ca.clone());
        }
        let Some(shared) = &self.shared else {
            return cluster.start();
        };
        let endpoint = Endpoint::at(shared, number).map_err(FleetError::Listen)?;
        cluster.start_at(endpoint)
    }
}
