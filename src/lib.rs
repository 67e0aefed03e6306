//! A cache of what controllers need for every Kubernetes cluster: connected, health-checked, read without a lock.
//!
//! A controller that manages a fleet of clusters needs, for each of them, things that are costly to make and must not outlive the
//! connection: a client, informer caches, watches, a certificate, and its own. This crate keeps them. Providers
//! ([`ClusterResource`]) make them in the order of their needs when a cluster of a [`ClusterSource`] can be reached; they are torn
//! down in reverse when the shared [`HealthCheck`] fails or the cluster goes; and reconcilers read them through a [`ClusterCache`]
//! without a lock, without waiting, and without ever seeing a half-built or torn-down value.
//!
//! The core knows no Kubernetes object and opens no socket. `clustercache-client` has a `kube::Client` for each cluster,
//! `clustercache-kubeconfig` reads clusters from kubeconfig files.
//!
//! ```
//! use std::time::Duration;
//! use async_trait::async_trait;
//! use clustercache::*;
//!
//! /// A provider: makes one value a cluster. This one is the health check too.
//! struct Link;
//!
//! #[async_trait]
//! impl ClusterResource for Link {
//!     type Value = String;
//!     fn name(&self) -> &'static str {
//!         "link"
//!     }
//!     fn requires(&self) -> Requires {
//!         Requires::nothing().access()
//!     }
//!     async fn init(&self, cx: &InitContext) -> Result<String, InitError> {
//!         Ok(format!("connected to {}", cx.access()?.endpoint().url()))
//!     }
//! }
//!
//! #[async_trait]
//! impl HealthCheck for Link {
//!     async fn check(&self, _: &String, _: &CheckContext) -> Result<Answer, CheckError> {
//!         Ok(Answer::Ready)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fleet = MemorySource::new("fleet");
//! let cache = ClusterCache::builder()
//!     .source(fleet.clone())
//!     .resource(Link)
//!     .health_from::<Link>()
//!     .start()?; // every mistake in the set-up is reported here; the engine runs
//!
//! let key = ClusterKey::new("prod", "eu-1");
//! fleet.upsert(Upsert::ready(key.clone(), ClusterAccess::builder("https://10.0.0.1:6443").build()?));
//! cache.wait_for(&key, Duration::from_secs(5)).await?;
//!
//! // In a reconciler: never waits, never locks.
//! match cache.get::<Link>(&key) {
//!     Ok(link) => assert_eq!(*link, "connected to https://10.0.0.1:6443/"),
//!     Err(why) => println!("{why}"), // says what it is, since when, why, and when it is tried next
//! }
//!
//! cache.shutdown().await?; // bounded; its report names what was abandoned
//! # Ok(())
//! # }
//! ```
//!
//! # What always holds
//!
//! - [`get`](ClusterCache::get) never waits, locks or allocates, whatever the engine, a provider or a cluster does.
//! - A reader sees values of one connection only, and none whose teardown has begun. One that it still holds stays usable memory.
//! - Each value is torn down exactly once, in the reverse of the order in which they came up; or abandoned, and counted.
//! - A provider that panics or hangs in one cluster delays no other cluster, and no other provider's retry.
//! - Waiting for a cluster inside `init` or `teardown` is an error at once ([`WouldDeadlock`]), not a deadlock.
//! - Every time, limit and policy is an option: see [`options`].

mod access;
mod builder;
mod cache;
mod census;
mod clock;
mod condition;
mod connection;
mod context;
mod counters;
mod dial;
mod engine;
mod error;
mod events;
mod hook;
mod identity;
mod inbox;
mod key;
mod latch;
mod lifecycle;
pub mod options;
mod plan;
mod registry;
mod resource;
mod shared;
mod source;
mod state;
mod sync;
mod vitals;

pub use access::{
    AccessBuilder, AccessChange, AccessError, AddressPolicy, CaBundle, ClientCertificate,
    ClusterAccess, Credential, Endpoint, Fingerprint, Forbidden, ForbiddenAddress, Impersonation,
    Proxy, ProxyUser,
};
pub use builder::{Builder, Mistake, StartError};
pub use cache::{Borrowed, Cluster, ClusterCache, ClusterSnapshot};
pub use census::Census;
pub use condition::{Condition, ConditionStatus, RemoteConnectionProbe};
pub use context::{Alive, ContextError, InitContext, TeardownContext, TeardownReason};
pub use counters::{Counters, Durations, ResourceCounters};
pub use dial::{DialPermit, Dials};
pub use engine::{Abandoned, Engine, HookKind, ShutdownReport};
pub use error::{GetError, WaitError};
pub use events::{Changes, Event, Subscribers, Subscription};
pub use hook::WouldDeadlock;
pub use identity::IdentityHandle;
/// A network of addresses, for an [`AddressPolicy`].
pub use ipnet::IpNet;
pub use key::ClusterKey;
pub use plan::PlanError;
pub use registry::EngineStatus;
pub use resource::{
    Answer, CheckContext, CheckError, ClusterResource, FailureKind, Generation, HealthCheck,
    InitError, Refresh, Reporter, Requires, Resource, Route, StandIn, Standing,
};
pub use source::{
    ClusterSource, Identity, Labels, MemorySource, SourceError, SourceEvent, SourcedAccess, Upsert,
};
pub use state::{
    AccessState, ClusterState, LastError, Phase, ResourcePhase, ResourceState, Stage, Stall,
    Verdict,
};

/// The README's program builds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
