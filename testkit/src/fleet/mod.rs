//! A fleet of fake API servers in this process: real TCP and TLS on loopback, with faults on command.
//!
//! [`Fleet`] starts many; [`FakeCluster`] is the handle of one, and [`FakeCluster::api`] is what it serves.

use std::{num::NonZero, ops::Index, thread};

use tokio::runtime::Handle;

use self::cluster::Inner;
use crate::pki::PkiError;

mod access;
mod auth;
mod cluster;
mod control;
mod counters;
mod endpoint;
mod faults;
mod handle;
mod identity;
mod requests;
mod serve;
pub(crate) mod tls;
mod wire;

pub use self::{
    access::{FakeAccess, FakeCredential, kubeconfig_of},
    cluster::{FakeCluster, FakeClusterBuilder},
    control::OldEndpoint,
    counters::{Counters, PathClass, Requests},
    requests::{NextRequest, RequestSeen, ShownCredential},
};
pub use crate::api::ObjectError;

/// A fake cluster could not be started or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// Its certificates could not be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// rustls refused what was made for it.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The verifier of client certificates could not be made.
    #[error("cannot set up the verification of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// No port could be bound or listened on; most likely the process is out of descriptors: a cluster takes one, and
    /// one a connection.
    #[error("cannot listen on a port of 127.0.0.1")]
    Listen(#[source] std::io::Error),
    /// A task of the runtime that made the clusters did not end, because the runtime does.
    #[error("the runtime is shutting down")]
    Runtime(#[from] tokio::task::JoinError),
}

/// Fake clusters, in the order in which they were started. Dropping it ends them all.
pub struct Fleet {
    clusters: Vec<FakeCluster>,
}

/// How a [`Fleet`] is to be. The default: no clusters, named `fake-0`, `fake-1` and so on, with HTTP/2.
#[derive(Clone, Debug)]
#[must_use]
pub struct FleetBuilder {
    clusters: usize,
    prefix: String,
    http2: bool,
}

impl FleetBuilder {
    /// How many clusters to start.
    pub fn clusters(mut self, clusters: usize) -> Self {
        self.clusters = clusters;
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

    /// Starts them on the runtime of the caller; keys are made on its blocking threads, one a processor.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Fleet, FleetError> {
        let runtime = Handle::current();
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        let share = self.clusters.div_ceil(workers).max(1);
        let mut shares = Vec::new();
        for first in (0..self.clusters).step_by(share) {
            let wanted = self.clone();
            let last = self.clusters.min(first + share);
            shares.push(
                runtime.spawn_blocking(move || {
                    (first..last).map(|number| wanted.one(number)).collect()
                }),
            );
        }
        let mut clusters = Vec::with_capacity(self.clusters);
        for share in shares {
            let started: Result<Vec<_>, FleetError> = share.await?;
            clusters.append(&mut started?);
        }
        Ok(Fleet { clusters })
    }

    fn one(&self, number: usize) -> Result<FakeCluster, FleetError> {
        FakeCluster::builder(format!("{}-{number}", self.prefix))
            .http2(self.http2)
            .start()
    }
}

impl Fleet {
    /// A fleet that is not started yet.
    pub fn builder() -> FleetBuilder {
        FleetBuilder {
            clusters: 0,
            prefix: "fake".to_owned(),
            http2: true,
        }
    }

    /// Starts `clusters` clusters with the defaults. See [`FleetBuilder::start`].
    pub async fn start(clusters: usize) -> Result<Self, FleetError> {
        Self::builder().clusters(clusters).start().await
    }

    /// All clusters, in the order in which they were started.
    pub fn clusters(&self) -> &[FakeCluster] {
        &self.clusters
    }

    /// The first cluster of that name.
    pub fn get(&self, name: &str) -> Option<&FakeCluster> {
        self.clusters.iter().find(|cluster| cluster.name() == name)
    }

    /// Adds a cluster that was started by hand.
    pub fn add(&mut self, cluster: FakeCluster) {
        self.clusters.push(cluster);
    }

    /// Takes the first cluster of that name out; it ends when its last handle is dropped.
    pub fn remove(&mut self, name: &str) -> Option<FakeCluster> {
        let place = self
            .clusters
            .iter()
            .position(|cluster| cluster.name() == name)?;
        Some(self.clusters.remove(place))
    }

    /// One kubeconfig with a context a cluster, named as the cluster, each with its current endpoint, CA and token.
    pub fn kubeconfig_of_all(&self) -> String {
        let accesses: Vec<_> = self.clusters.iter().map(FakeCluster::access).collect();
        kubeconfig_of(&accesses)
    }

    /// Ends all clusters and waits until no task and no socket of theirs is left.
    pub async fn shutdown(self) {
        for cluster in &self.clusters {
            cluster.stop();
        }
        for cluster in self.clusters {
            cluster.shutdown().await;
        }
    }
}

impl Index<usize> for Fleet {
    type Output = FakeCluster;

    fn index(&self, number: usize) -> &FakeCluster {
        &self.clusters[number]
    }
}
