//! A cache of what controllers need for every Kubernetes cluster.

mod access;
mod builder;
mod cache;
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
    AccessBuilder, AccessChange, AccessError, CaBundle, ClientCertificate, ClusterAccess,
    Credential, Endpoint, Fingerprint,
};
pub use builder::{Builder, Mistake, StartError};
pub use cache::{Borrowed, Cluster, ClusterCache, ClusterSnapshot};
pub use condition::{Condition, ConditionStatus, RemoteConnectionProbe};
pub use context::{Alive, ContextError, InitContext, TeardownContext, TeardownReason};
pub use counters::Counters;
pub use dial::DialPermit;
pub use engine::{Abandoned, Engine, HookKind, ShutdownReport};
pub use error::{GetError, WaitError};
pub use events::{Changes, Event, Subscription};
pub use hook::WouldDeadlock;
pub use key::ClusterKey;
pub use plan::PlanError;
pub use registry::EngineStatus;
pub use resource::{
    Answer, CheckContext, CheckError, ClusterResource, FailureKind, Generation, HealthCheck,
    InitError, Refresh, Requires, Resource, Route,
};
pub use source::{
    ClusterSource, Identity, Labels, MemorySource, SourceError, SourceEvent, SourcedAccess, Upsert,
};
pub use state::{
    AccessState, ClusterState, LastError, Phase, ResourcePhase, ResourceState, Stage, Verdict,
};
