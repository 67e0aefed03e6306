//! A fleet of fake API servers in this process: real TCP and TLS on loopback, with faults on command.
//!
//! [`Fleet`] starts many; [`FakeCluster`] is the handle of one, and [`FakeCluster::api`] is what it serves. What is wrong with
//! connections is a [`ConnectionFault`]; what was asked of them is a [`RequestHistory`].

use std::ops::Index;

use self::cluster::Inner;
use crate::pki::PkiError;

mod access;
mod auth;
mod builder;
mod cluster;
mod connection_fault;
mod control;
mod counters;
mod endpoint;
mod faults;
mod handle;
mod identity;
mod injected;
mod journal;
mod pace;
mod port;
mod requests;
mod serve;
mod shared;
mod spoken;
mod stopped_body;
mod terms;
pub(crate) mod tls;
mod wire;

pub use self::{
    access::{FakeAccess, FakeCredential, kubeconfig_of},
    builder::FleetBuilder,
    cluster::{FakeCluster, FakeClusterBuilder},
    connection_fault::{ConnectionFault, Latency},
    control::OldEndpoint,
    counters::{Counters, PathClass, Requests},
    injected::{FleetFault, Injected},
    journal::{AnsweredBy, RequestEntry, RequestHistory},
    requests::{NextRequest, RequestSeen, ShownCredential},
    tls::BadCertificate,
};
pub use crate::{api::ObjectError, hostile::Then};

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
    /// No port could be bound or listened on; most likely the process is out of descriptors: a cluster with a port of its
    /// own takes one, and one a connection.
    #[error("cannot listen on loopback")]
    Listen(#[source] std::io::Error),
    /// A task of the runtime that made the clusters did not end, because the runtime does.
    #[error("the runtime is shutting down")]
    Runtime(#[from] tokio::task::JoinError),
}

/// Fake clusters, in the order in which they were started. Dropping it ends them all.
pub struct Fleet {
    clusters: Vec<FakeCluster>,
}

impl Fleet {
    /// A fleet that is not started yet.
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
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

    /// The counters of all clusters as they are now, added up.
    pub fn counters(&self) -> Counters {
        self.clusters.iter().map(FakeCluster::counters).sum()
    }

    /// The requests that all clusters were sent, in the order of their times.
    pub fn history(&self) -> RequestHistory {
        let mut history = RequestHistory::default();
        history.extend(self.clusters.iter().map(FakeCluster::history));
        history
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
