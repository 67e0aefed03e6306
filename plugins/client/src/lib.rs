//! A [`kube::Client`] for every cluster of a [`clustercache`], over a transport of our own that a cluster cannot stall, and the health
//! check over the same connection.
//!
//! ```
//! use clustercache_client::KubeClient;
//!
//! let provider = KubeClient::new().user_agent("fleet-controller/1.0");
//! # let _ = provider;
//! ```
//!
//! - One HTTP/2 connection a cluster, or a few of HTTP/1.1 where the server has no HTTP/2. Requests that find none up wait for one dial.
//! - Every call has a [deadline](Deadlines), waiting and body included. A watch has one until its head.
//! - A new token is used by the next request, on the same connection. A new client certificate has a new connection; watches end on the
//!   old one.
//! - No retries, no redirects. A [`TransportError`] says at which stage a call failed.

mod check;
mod client;
mod deadlines;
mod provider;
mod status;
mod transport;

pub use client::ClusterClient;
pub use deadlines::Deadlines;
pub use provider::KubeClient;
pub use transport::{TlsReason, TransportError, Wait};
