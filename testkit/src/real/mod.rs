//! Real kube-apiservers over a real etcd, without a cluster, for tests that a fake must not answer.
//!
//! [`RealApiServers::start`] starts one etcd and any number of kube-apiservers that share it by prefix, all on loopback,
//! each API server with a PKI of its own. Build the two binaries once with `cargo xtask api-server`, or point
//! `KUBEBUILDER_ASSETS` at a folder that has them. A test that cannot have them says so and passes:
//!
//! ```no_run
//! use clustercache_testkit::real::Caller;
//! use clustercache_testkit::real_or_skip;
//!
//! # async fn f() -> Result<(), clustercache_testkit::real::RealError> {
//! let mut servers = real_or_skip!(2, Ok(()));
//! let token = servers[0].token_for("default/robot").await?;
//! let version = servers[0].get(Caller::Token(&token), "/version").await?;
//! assert!(version.status.is_success());
//! servers[1].kill().await?;
//! servers[1].restart().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What these servers have not
//! There are no controllers: no default service accounts, no garbage collection, no namespace finalisation, and no
//! status of a disruption budget (an eviction under a budget whose `observedGeneration` is behind is answered 429). There
//! is no kubelet: an evicted pod that was scheduled never vanishes. Tests play both. A server caches the tokens that it
//! accepted for 10 s, and issues none for less than 600 s. A watch from a version that is too old is answered 200 and an
//! `ERROR` event, a restarted server starts its watch cache at its own first list, and `limit` is ignored at
//! `resourceVersion=0`.
//!
//! # What is left behind
//! Nothing: the processes and their folder go when the handle is dropped, and also when the test process is killed (a
//! shell that waits on a pipe from it, see `watchdog.rs`).

mod api_server;
mod binaries;
mod error;
mod etcd;
mod fleet;
mod http;
mod member;
mod pki;
mod ports;
mod process;
mod skip;
mod watchdog;

pub use self::api_server::{Caller, RealApiServer};
pub use self::error::RealError;
pub use self::etcd::RealEtcd;
pub use self::fleet::RealApiServers;
pub use self::http::Answer;
pub use self::member::{MemberPki, RealEtcdMember};
pub use self::pki::PemPair;
pub use self::skip::{SKIPPED, or_skip};
