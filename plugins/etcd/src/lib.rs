//! etcd client certificates for the clusters of a [`clustercache`]: one for each, signed by its etcd CA, renewed before it ends, and gone with
//! the cluster. What the kubeadm control plane provider of Cluster API needs to look after the members of etcd.
//!
//! ```no_run
//! use clustercache::{ClusterCache, ClusterKey, MemorySource};
//! use clustercache_client::KubeClient;
//! use clustercache_etcd::{EtcdClientKey, SecretIssuers};
//!
//! # async fn example(management: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let cache = ClusterCache::builder()
//!     .source(MemorySource::new("fleet"))
//!     .resource(KubeClient::new())
//!     .health_from::<KubeClient>()
//!     .optional(EtcdClientKey::per_cluster(SecretIssuers::new(management)))
//!     .start()?;
//!
//! // In a reconciler: never waits.
//! let key = ClusterKey::new("default", "eu-1");
//! let certificate = cache.get::<EtcdClientKey>(&key)?.current()?;
//! let tls = certificate.client_config(); // rustls; or as PEM
//! # let _ = tls;
//! # Ok(())
//! # }
//! ```
//!
//! - **Who signs** is known by an [`EtcdIssuerSource`]: [`SecretIssuers`] reads Cluster API's Secrets of a management cluster, [`MemoryIssuers`] is
//!   told by the program. Of a bundle of several CAs the one that the key belongs to signs, wherever it stands; all of them are trusted for
//!   servers. Its key is read when something has to be signed, and dropped right after.
//! - **A certificate** is for clients only, of 24 hours by default, never longer than its CA, valid from five minutes ago, and renewed at two thirds
//!   of its life. If that fails the old one is used until it ends, and the cluster's state says so
//!   ([`ResourceState`](clustercache::ResourceState)).
//! - **Another CA** is seen by a watch; a certificate of it is there within two seconds.
//! - **Another cluster of the same name** has nothing of the old: neither its certificate nor its key, and a Secret of the old one is not used.
//! - **Keys** are one a cluster, one a certificate, or one for all: see [`EtcdClientKey`]. They are made off the workers that serve everything else.
//! - **Secrets**: PEM and DER that are ours are wiped when their last user drops them, a CA's key right after its signature. What the crypto library
//!   copies for itself cannot be wiped, and neither can what TLS and HTTP received of a Secret on its way here.
//! - Keys of RSA need the feature `rsa`. CAs may have any kind without it.

mod algorithm;
mod authority;
mod backoff;
mod certificate;
mod counts;
mod error;
mod flight;
mod keeper;
mod key;
mod memory;
mod policy;
mod private_key;
mod provider;
mod secrets;
mod signed;
mod source;
mod tenant;
mod value;
mod wall;
mod work;

pub use algorithm::{KeyAlgorithm, UnknownAlgorithm};
pub use certificate::{IssuedCertificate, issue_once};
pub use counts::EtcdKeyCounts;
pub use error::{AuthorityError, CurrentError, IssueError, IssuerError};
pub use memory::MemoryIssuers;
pub use provider::{EtcdClientKey, EtcdKeys};
pub use secrets::SecretIssuers;
pub use source::{EtcdIssuer, EtcdIssuerSource, IssuerChange};
pub use value::EtcdCertificate;
