//! What tests, examples and benches of `clustercache`, and of controllers that use it, are made of.
//!
//! [`fleet`] starts fake API servers with real TLS on loopback, which list, watch and break on command. [`api`] is one of them
//! without its network: a tower service in memory.
//! [`real`] starts real kube-apiservers over one real etcd. [`cache`] is a `ClusterCache` whose clusters a unit test holds in its hand.
//! [`guard`] fails tests in which a provider panicked, [`ears`] hear all that is logged. [`hostile`] is a server that misbehaves on command.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! use clustercache_testkit::fleet::Fleet;
//! use serde_json::json;
//!
//! let fleet = Fleet::start(3).await?;
//! let cluster = &fleet[0];
//! cluster.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker" } }))?;
//!
//! // One context a cluster, all of it inline: for any client that reads a kubeconfig.
//! let kubeconfig = fleet.kubeconfig_of_all();
//! assert!(kubeconfig.contains(&cluster.url()));
//!
//! cluster.black_hole(); // accepts, swallows, answers nothing
//! let _silent = tokio::net::TcpStream::connect(cluster.addr()).await?;
//! let counters = cluster.when(|counters| counters.connections_open == 1).await;
//! assert_eq!(counters.tls_handshakes, 0);
//! cluster.heal(); // the same port; what was swallowed is reset
//! cluster.connections_closed().await;
//!
//! fleet.shutdown().await; // no task and no socket is left
//! # anyhow::Ok(())
//! # })?;
//! # anyhow::Ok(())
//! ```

pub mod api;
pub mod cache;
pub mod ears;
pub mod fleet;
pub mod guard;
pub mod hostile;
pub mod pki;
pub mod real;
