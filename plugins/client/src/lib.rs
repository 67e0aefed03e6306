//! A [`kube::Client`] for every cluster of a [`clustercache`], over a transport of our own that a cluster cannot stall, and the health
//! check over the same connection.
//!
//! ```no_run
//! use clustercache::{ClusterCache, ClusterKey, MemorySource};
//! use clustercache_client::{ClientExt, KubeClient};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = ClusterCache::builder()
//!     .source(MemorySource::new("fleet"))
//!     .resource(KubeClient::new().user_agent("fleet-controller/1.0"))
//!     .health_from::<KubeClient>()
//!     .start()?;
//!
//! // In a reconciler: never waits.
//! let client = cache.client(&ClusterKey::named("eu-1"))?;
//! println!("{}", client.apiserver_version().await?.git_version);
//! # Ok(())
//! # }
//! ```
//!
//! - One HTTP/2 connection a cluster, and more where its streams are all used; or a few of HTTP/1.1 where the server has no HTTP/2. Requests that find none up wait for one dial.
//! - Every call has a [deadline](Deadlines), waiting and body included. A watch has one until its head.
//! - A new token is used by the next request, on the same connection. A new client certificate has a new connection; watches end on the
//!   old one.
//! - How a cluster is reached is a [`Dialer`]: by [names and TCP](TcpDialer), under the access's address policy, unless you give one of your
//!   own. A proxy that the access names is gone through: `http`, `https` (judged by the cluster's CA) or `socks5`. The address policy judges the
//!   proxy's address, and the endpoint if that is an address itself; a name is resolved by the proxy, whose matter it is then.
//! - `exec`, `attach` and `portforward` of a [`kube::Api`] work, with kube's feature `ws`: each on a connection of its own, cut as a watch is.
//! - Every answer has a [limit](Limits): a cluster cannot make us hold more.
//! - No redirects. A [`TransportError`] says at which stage a call failed.
//! - A call that a server is too busy for (429, 503) is sent three times at most, within its deadline, if that cannot do a thing twice.
//! - What a cluster serves that is not known at compile time: [`ClusterClient::resolve`].
//!
//! # What `kube` logs
//!
//! What a server refuses with is made plain before `kube` has it: on one line, cut, and without our token. An answer that succeeded is
//! its object, and so nobody's to change; where it is not what the caller's type wants, `kube` logs all of it at WARN (target
//! `kube_client::client`), and its error may quote some of it. Our own calls (health checks, [`server_version`](ClusterClient::server_version),
//! [`discovery`](ClusterClient::discovery)) read their answers themselves and log nothing of them. Where a cluster's objects must not
//! reach the log, filter that target, or have the one call not listened to:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Secret;
//! use kube::Api;
//! use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};
//!
//! # async fn example(secrets: Api<Secret>) -> Result<(), kube::Error> {
//! let secret = secrets.get("ca").with_subscriber(NoSubscriber::default()).await?;
//! # let _ = secret;
//! # Ok(())
//! # }
//! ```

mod about;
mod check;
mod client;
mod counts;
mod deadlines;
mod dialer;
mod discovery;
mod ext;
mod intern;
mod limits;
mod provider;
mod rate;
mod status;
mod transport;
mod version;

pub use client::{AnswerBody, ClusterClient};
pub use counts::RequestCounts;
pub use deadlines::Deadlines;
pub use dialer::{ByteStream, Destination, Dialer, TcpDialer};
pub use discovery::{Discovery, DiscoveryError};
pub use ext::{ClientExt, ClusterClientExt};
pub use limits::Limits;
pub use provider::KubeClient;
pub use rate::RateLimit;
pub use transport::{Part, TlsReason, TransportError, Wait};
pub use version::ServerVersion;
