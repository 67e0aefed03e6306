//! What each metric is called, what it says, and which labels it has: the tables in the crate's documentation, for the registry and the page.

/// One metric.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

/// Declares metrics, and the list of them.
macro_rules! metrics {
    ($all:ident: $($place:ident = $name:literal $kind:ident $labels:expr, $help:literal;)*) => {
        $(pub(crate) static $place: Metric = metric($name, $kind, &$labels, $help);)*
        pub(crate) static $all: &[&Metric] = &[$(&$place),*];
    };
}

metrics! { FLEET:
    ENGINE = "clustercache_engine_running" Gauge [], "Whether the engine of the cluster cache runs.";
    CLUSTERS = "clustercache_clusters" Gauge ["phase"], "Clusters that are known, by what they are.";
    FAILING = "clustercache_failing_clusters" Gauge ["reason"],
        "Clusters that are down, degraded, suspect, or tried in vain, by what last went wrong.";
    SUSPECT = "clustercache_suspect_clusters" Gauge [], "Connected clusters that do not answer just now.";
    NOT_READY = "clustercache_not_ready_clusters" Gauge [], "Connected clusters that say that they are not ready.";
    HELD = "clustercache_held_clusters" Gauge [], "Clusters whose teardown is withheld by the fleet brake.";
    REFUSED = "clustercache_refused_clusters" Gauge [], "Clusters whose newest access was refused, connected or not.";
    EXPIRY = "clustercache_nearest_credential_expiry_timestamp_seconds" Gauge [],
        "When the first credential of a cluster ends, or ended, in seconds since the epoch.";
    TROUBLED = "clustercache_troubled_clusters" Gauge [],
        "Connected clusters of which a resource is up, and what should keep it so fails.";
    RESOURCE_EXPIRY = "clustercache_nearest_resource_expiry_timestamp_seconds" Gauge [],
        "When the first of what resources hold ends, or ended, in seconds since the epoch.";
    CONNECTS = "clustercache_connects_total" Counter [], "Connections published.";
    PROBES = "clustercache_probes_total" Counter ["result"], "Health probes that came to an end, by result.";
    INITS = "clustercache_init_duration_seconds" Histogram ["resource", "result"],
        "How long inits of providers took, without their waiting to dial.";
    TEARDOWNS = "clustercache_teardown_duration_seconds" Histogram ["resource", "result"],
        "How long teardowns of providers took.";
    ABANDONED = "clustercache_abandoned_total" Counter ["resource"],
        "Hooks of providers that were given up on, and values dropped without the end of their teardown.";
    REBUILDS = "clustercache_rebuilds_total" Counter ["resource"],
        "Connections made anew because a provider could not take a new credential in place.";
    PANICS = "clustercache_panics_total" Counter ["origin"], "Panics of providers and sources.";
    SLOW_POLLS = "clustercache_slow_polls_total" Counter ["origin"],
        "Polls and calls of providers and sources that blocked their thread for more than 100 ms.";
    DIAL_WAITS = "clustercache_dial_wait_seconds" Histogram [], "How long dials waited for their permit.";
    DIALS = "clustercache_dials" Gauge ["stage"], "Dials under way: waiting for a permit, silent, or at their handshake.";
    BRAKES = "clustercache_brake_engagements_total" Counter [], "How often the fleet brake engaged.";
    STALLS = "clustercache_stalls_total" Counter [], "How often the process did not run for a while.";
    SUBSCRIBERS = "clustercache_subscribers" Gauge [], "Subscribers to events.";
    BEHIND = "clustercache_behind_subscribers" Gauge [],
        "Subscribers that fell too far behind, and have not noticed yet.";
    UNREAD = "clustercache_subscriber_unread_clusters" Gauge [],
        "Changed clusters that the slowest subscriber has not read yet.";
    RESYNCS = "clustercache_subscriber_resyncs_total" Counter [], "How often a subscriber fell too far behind.";
}

metrics! { PER_CLUSTER:
    CONNECTED = "clustercache_cluster_connected" Gauge [NAMESPACE, NAME], "Whether the cluster is connected.";
    PHASE = "clustercache_cluster_phase" Gauge [NAMESPACE, NAME, "phase"], "1, with what the cluster is.";
    FAILURES = "clustercache_cluster_consecutive_failures" Gauge [NAMESPACE, NAME],
        "Probes of the cluster that failed in a row.";
    LAST_SUCCESS = "clustercache_cluster_last_success_timestamp_seconds" Gauge [NAMESPACE, NAME],
        "The last sign of life of the cluster, in seconds since the epoch.";
    CLUSTER_EXPIRY = "clustercache_cluster_credential_expiry_timestamp_seconds" Gauge [NAMESPACE, NAME],
        "When the credential of the cluster ends, or ended, in seconds since the epoch.";
    CLUSTER_RESOURCE_EXPIRY = "clustercache_cluster_resource_expiry_timestamp_seconds" Gauge [NAMESPACE, NAME, "resource"],
        "When what a resource of the cluster holds ends, or ended, in seconds since the epoch.";
    CLUSTER_RESOURCE_FAILURES = "clustercache_cluster_resource_failures" Gauge [NAMESPACE, NAME, "resource"],
        "How often in a row a resource of the cluster failed to come up, or what should keep it up did.";
}

metrics! { CLUSTER_API:
    CONNECTION_UP = "capi_cluster_cache_connection_up" Gauge [NAMESPACE, NAME],
        "Whether the connection to the cluster is up.";
    HEALTHCHECK = "capi_cluster_cache_healthcheck" Gauge [NAMESPACE, NAME],
        "Result of the last clustercache healthcheck for a cluster.";
    HEALTHCHECKS = "capi_cluster_cache_healthchecks_total" Counter [NAMESPACE, NAME, "status"],
        "Results of all clustercache healthchecks.";
}

/// With any of the two above.
pub(crate) static WITHOUT_SERIES: Metric = metric(
    "clustercache_clusters_without_series",
    Gauge,
    &[],
    "Clusters without series of their own: there are too many, or their names are too long.",
);

/// Of the clients that `clustercache-client` makes.
#[cfg(any(test, feature = "client"))]
pub(crate) static REQUESTS: Metric = metric(
    "clustercache_client_requests_total",
    Counter,
    &["class", "result"],
    "Requests of the clients of clusters, by class and result.",
);

#[cfg(any(test, feature = "client"))]
pub(crate) static RETRIES: Metric = metric(
    "clustercache_client_retries_total",
    Counter,
    &[],
    "Calls of the clients of clusters that were sent again, because a server was too busy.",
);

/// Of the files of a source in `clustercache-kubeconfig`.
#[cfg(any(test, feature = "kubeconfig"))]
pub(crate) static PROBLEMS: Metric = metric(
    "clustercache_kubeconfig_problems",
    Gauge,
    &["source", "reason"],
    "Files of kubeconfig sources that could not be taken as they are now.",
);

/// Of the etcd client certificates that `clustercache-etcd` makes.
#[cfg(any(test, feature = "etcd"))]
pub(crate) static ETCD_KEYS: Metric = metric(
    "clustercache_etcd_keys_total",
    Counter,
    &[],
    "Private keys that were made for etcd client certificates.",
);

#[cfg(any(test, feature = "etcd"))]
pub(crate) static ETCD_CERTIFICATES: Metric = metric(
    "clustercache_etcd_certificates_total",
    Counter,
    &[],
    "Etcd client certificates that were signed, or taken as they were given.",
);

#[cfg(any(test, feature = "etcd"))]
pub(crate) static ETCD_FAILURES: Metric = metric(
    "clustercache_etcd_failures_total",
    Counter,
    &[],
    "Attempts to have an etcd client certificate that failed.",
);

/// The labels of a cluster, as Cluster API names them.
pub(crate) const NAMESPACE: &str = "cluster_namespace";
pub(crate) const NAME: &str = "cluster_name";

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a metric in the tables of the crate's documentation, without those labels that all of its table have.
    fn line(metric: &Metric) -> String {
        let own = metric.labels.iter();
        let own = own.filter(|label| ![NAMESPACE, NAME].contains(label));
        let labels: Vec<_> = own.map(|label| format!("`{label}`")).collect();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let labels = match labels.join(", ") {
            none if none.is_empty() => String::new(),
            some => format!("{some} "),
        };
        format!("//! | `{}` | {kind} | {labels}| ", metric.name)
    }

    #[test]
    fn each_metric_is_documented_and_nothing_else_is() {
        let docs = include_str!("lib.rs");
        let alone = &[&WITHOUT_SERIES, &REQUESTS, &RETRIES, &PROBLEMS];
        let etcd = &[&ETCD_KEYS, &ETCD_CERTIFICATES, &ETCD_FAILURES];
        let all = [FLEET, PER_CLUSTER, CLUSTER_API, alone, etcd].concat();
        for metric in &all {
            let line = line(metric);
            assert!(docs.lines().any(|text| text.starts_with(&line)), "{line}");
        }
        let rows = docs.lines().filter(|line| line.starts_with("//! | `"));
        assert_eq!(rows.count(), all.len());
    }
}
