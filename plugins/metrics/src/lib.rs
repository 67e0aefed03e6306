//! Prometheus metrics of a [`ClusterCache`](clustercache::ClusterCache): a [collector](CacheMetrics) that reads the public handle when it is
//! scraped. Nothing is kept for it between two scrapes, so that nothing grows, and the series of a cluster that is gone are gone.
//!
//! ```
//! use clustercache::ClusterCache;
//! use clustercache_metrics::CacheMetrics;
//! use prometheus::{Registry, TextEncoder};
//!
//! fn page(cache: &ClusterCache) -> Result<String, prometheus::Error> {
//!     let registry = Registry::new();
//!     registry.register(Box::new(CacheMetrics::new(cache)))?; // once, at start-up
//!     TextEncoder::new().encode_to_string(&registry.gather()) // at each scrape
//! }
//! # let _ = page;
//! ```
//!
//! Of two caches in a program, give each a registry of its own with a common label
//! ([`Registry::new_custom`](prometheus::Registry::new_custom)).
//!
//! # The fleet
//!
//! Always there. How many series there are depends on how many providers and sources are registered, and on nothing that a cluster, a document
//! or a user of the cluster chooses.
//!
//! | name | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `clustercache_engine_running` | gauge | | 1 while the engine runs |
//! | `clustercache_clusters` | gauge | `phase` | clusters that are known |
//! | `clustercache_failing_clusters` | gauge | `reason` | clusters that are down, degraded, suspect, or tried in vain, by what last went wrong |
//! | `clustercache_suspect_clusters` | gauge | | connected clusters that do not answer just now |
//! | `clustercache_not_ready_clusters` | gauge | | connected clusters that say that they are not ready |
//! | `clustercache_held_clusters` | gauge | | clusters whose teardown is withheld by the fleet brake |
//! | `clustercache_refused_clusters` | gauge | | clusters whose newest kubeconfig or other access was refused, connected or not |
//! | `clustercache_nearest_credential_expiry_timestamp_seconds` | gauge | | when the first credential ends, or ended; not there if none has an end |
//! | `clustercache_troubled_clusters` | gauge | | connected clusters of which a resource is up, and what should keep it so fails, such as the renewal of a certificate |
//! | `clustercache_nearest_resource_expiry_timestamp_seconds` | gauge | | when the first of what resources hold ends, or ended; not there if none says that it does |
//! | `clustercache_connects_total` | counter | | connections published |
//! | `clustercache_probes_total` | counter | `result` | health probes that came to an end |
//! | `clustercache_init_duration_seconds` | histogram | `resource`, `result` | how long inits took, without their waiting to dial |
//! | `clustercache_teardown_duration_seconds` | histogram | `resource`, `result` | how long teardowns took |
//! | `clustercache_abandoned_total` | counter | `resource` | hooks that were given up on, and values dropped without the end of their teardown |
//! | `clustercache_rebuilds_total` | counter | `resource` | connections made anew because a provider could not take a new credential in place |
//! | `clustercache_panics_total` | counter | `origin` | panics of providers and sources |
//! | `clustercache_slow_polls_total` | counter | `origin` | polls and calls of providers and sources that blocked their thread for more than 100 ms |
//! | `clustercache_dial_wait_seconds` | histogram | | how long dials waited for their permit |
//! | `clustercache_dials` | gauge | `stage` | dials that wait, are silent, or are at their handshake |
//! | `clustercache_brake_engagements_total` | counter | | how often the fleet brake engaged |
//! | `clustercache_stalls_total` | counter | | how often the process did not run for a while |
//! | `clustercache_subscribers` | gauge | | subscribers to events |
//! | `clustercache_behind_subscribers` | gauge | | subscribers that fell too far behind, and have not noticed yet |
//! | `clustercache_subscriber_unread_clusters` | gauge | | changed clusters that the slowest subscriber has not read yet |
//! | `clustercache_subscriber_resyncs_total` | counter | | how often a subscriber fell too far behind |
//!
//! `phase` is a [`Phase`](clustercache::Phase); `reason` the [label of a failure](clustercache::FailureKind::label), and so is `result` of a
//! probe that was not `ready` or `not_ready`; `result` of a hook is `success` or `error`; `resource` is a provider's name, `origin` that or
//! a source's. A cluster that is filtered out counts as `not_owned`, and nowhere else.
//!
//! With the feature `client`, and `CacheMetrics::requests`:
//!
//! | name | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `clustercache_client_requests_total` | counter | `class`, `result` | requests of the clients that `clustercache-client` makes, without health probes; `class` is `call`, `list` or `stream`, `result` is `success` or the label of a failure |
//! | `clustercache_client_retries_total` | counter | | calls of theirs that were sent again, because a server was too busy |
//!
//! With the feature `kubeconfig`, and `CacheMetrics::kubeconfig`:
//!
//! | name | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `clustercache_kubeconfig_problems` | gauge | `source`, `reason` | files, kubeconfigs and those that they name, that cannot be taken as they are now: `missing`, `not_a_file`, `too_large`, `empty`, `unreadable`, `no_answer`, `cut_off` or `refused` as a whole |
//!
//! With the feature `etcd`, and `CacheMetrics::etcd` (when certificates end is in the resource expiries above and below, and of which clusters a
//! renewal fails in `clustercache_troubled_clusters` and the resource failures):
//!
//! | name | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `clustercache_etcd_keys_total` | counter | | private keys that were made for etcd client certificates |
//! | `clustercache_etcd_certificates_total` | counter | | etcd client certificates that were signed, or taken as they were given |
//! | `clustercache_etcd_failures_total` | counter | | attempts to have one that failed |
//!
//! # Single clusters
//!
//! On request only ([`per_cluster`](CacheMetrics::per_cluster)), each with `cluster_namespace` and `cluster_name`, and of so many clusters
//! at most ([`at_most`](CacheMetrics::at_most)), the first by key. What has none is counted. A name with a control character, a quote or a
//! backslash in it is escaped; one longer than 253 characters has no series.
//!
//! | name | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `clustercache_cluster_connected` | gauge | | whether it is connected |
//! | `clustercache_cluster_phase` | gauge | `phase` | 1, with what it is |
//! | `clustercache_cluster_consecutive_failures` | gauge | | probes that failed in a row |
//! | `clustercache_cluster_last_success_timestamp_seconds` | gauge | | its last sign of life, if there was one |
//! | `clustercache_cluster_credential_expiry_timestamp_seconds` | gauge | | when its credential ends, if it does |
//! | `clustercache_cluster_resource_expiry_timestamp_seconds` | gauge | `resource` | when what a resource holds ends, of each that says so |
//! | `clustercache_cluster_resource_failures` | gauge | `resource` | how often in a row it failed to come up, or what should keep it up did |
//! | `clustercache_clusters_without_series` | gauge | | clusters that are left out; without the labels of a cluster |
//!
//! The names that dashboards of Cluster API know, on request too ([`cluster_api_names`](CacheMetrics::cluster_api_names)), with the same
//! labels and the same bound:
//!
//! | name | type | labels | what it says |
//! | --- | --- | --- | --- |
//! | `capi_cluster_cache_connection_up` | gauge | | whether the connection to the cluster is up |
//! | `capi_cluster_cache_healthcheck` | gauge | | 1 if its health check says healthy, 0 if suspect or down; not there before its first connection |
//! | `capi_cluster_cache_healthchecks_total` | counter | `status` | its probes by `success` and `error` |

mod clusters;
mod collector;
mod fleet;
mod label;
mod names;
mod page;

pub use collector::CacheMetrics;
