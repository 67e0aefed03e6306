//! What is in each cluster of a [`clustercache`], at hand: stores of the objects that were declared, kept true by a list/watch loop on the
//! cluster's client, and read by reconcilers without waiting.
//!
//! ```no_run
//! use std::time::Duration;
//! use clustercache::{ClusterCache, ClusterKey, MemorySource};
//! use clustercache_client::KubeClient;
//! use clustercache_informers::{Informers, Keep, Kind};
//! use k8s_openapi::api::core::v1::{Node, Pod};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = ClusterCache::builder()
//!     .source(MemorySource::new("fleet"))
//!     .resource(KubeClient::new())
//!     .health_from::<KubeClient>()
//!     .resource(
//!         Informers::new()
//!             .kind(Kind::<Node>::new().keep(Keep::Decoded))
//!             .kind(Kind::<Pod>::new().index_field("node", "spec.nodeName")),
//!     )
//!     .start()?;
//!
//! // In a reconciler: never waits. What cannot be said is an error, never an empty list.
//! let informers = cache.get::<Informers>(&ClusterKey::named("eu-1"))?;
//! for node in informers.store::<Node>()?.list()? {
//!     let name = node.metadata.name.as_deref().unwrap_or_default();
//!     println!("{name}: {} pods", informers.store::<Pod>()?.count_by_index("node", name)?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - A kind that was never declared is [`StoreError::NotCached`]: nothing is informed by accident.
//! - A [`Store`] is one moment: all that is read from it is of one version.
//! - An object is [kept](Keep) as its JSON, and decoded when it is read; or decoded, for what is read in bulk; or as a
//!   [projection](Kind::project) to a small type of your own. Managed fields are cut out unless told otherwise.
//! - One object that does not fit its type hides no other: it is an error of its own when it is read.
//! - One kind's trouble is its own: others are served, and it is tried again alone.
//! - A new token drops no watch. A new connection to the same cluster goes on from the old objects and their version: nothing is
//!   listed again unless that version is gone.
//! - All clusters share [`Budgets`].

mod ask;
mod budget;
mod cluster;
mod entry;
mod error;
mod feed;
mod informer;
mod json;
mod keeper;
mod kind;
mod last_known;
mod line;
mod lines;
mod live;
mod machine;
mod objects;
mod options;
mod provider;
mod recipe;
mod stock;
mod store;
mod trie;
mod version;
mod warm;
mod writer;

pub use cluster::{ClusterInformers, Informed};
pub use error::{ReadError, StoreError, StoreWaitError, Trouble};
pub use feed::{Feed, FeedError};
pub use kind::{Keep, Kind};
pub use last_known::{LastKnown, LastKnownError, Remembered};
pub use live::LiveError;
pub use options::{Budgets, LoopOptions};
pub use provider::{BudgetUse, Informers};
pub use store::{Freshness, Store};
