//! The collector, as a registry of the crate `prometheus` takes it.

#[cfg(feature = "client")]
use std::sync::Arc;
use std::{collections::HashMap, fmt};

use clustercache::ClusterCache;
#[cfg(feature = "client")]
use clustercache_client::RequestCounts;
#[cfg(feature = "etcd")]
use clustercache_etcd::EtcdKeys;
#[cfg(feature = "kubeconfig")]
use clustercache_kubeconfig::KubeconfigFile;
use prometheus::{
    core::{Collector, Desc},
    proto::MetricFamily,
};

#[cfg(any(feature = "client", feature = "etcd", feature = "kubeconfig"))]
use crate::names;
#[cfg(any(feature = "client", feature = "etcd"))]
use crate::page;
use crate::{
    clusters, fleet,
    names::{CLUSTER_API, FLEET, Metric, PER_CLUSTER, WITHOUT_SERIES},
    page::Page,
};

#[cfg(feature = "kubeconfig")]
mod kubeconfig;

/// How many clusters have series of their own, if nothing else is said.
const AT_MOST: usize = 1_000;

/// The metrics of a [`ClusterCache`]: register it with a [`prometheus::Registry`]. The [crate's documentation](crate) has a table of them.
///
/// ```
/// use clustercache::ClusterCache;
/// use clustercache_metrics::CacheMetrics;
///
/// fn register(cache: &ClusterCache) -> Result<(), prometheus::Error> {
///     let metrics = CacheMetrics::new(cache).per_cluster().at_most(500);
///     prometheus::register(Box::new(metrics))
/// }
/// # let _ = register;
/// ```
#[must_use = "metrics are on no page until they are registered"]
pub struct CacheMetrics {
    cache: ClusterCache,
    series: Series,
    #[cfg(feature = "client")]
    requests: Option<Arc<RequestCounts>>,
    #[cfg(feature = "kubeconfig")]
    files: Vec<KubeconfigFile>,
    #[cfg(feature = "etcd")]
    etcd: Option<EtcdKeys>,
    descriptions: Vec<Desc>,
}

/// Which series of single clusters there are.
pub(crate) struct Series {
    pub(crate) per_cluster: bool,
    pub(crate) cluster_api: bool,
    pub(crate) at_most: usize,
}

impl CacheMetrics {
    /// The fleet in sums, and nothing of single clusters.
    pub fn new(cache: &ClusterCache) -> Self {
        Self {
            cache: cache.clone(),
            series: Series {
                per_cluster: false,
                cluster_api: false,
                at_most: AT_MOST,
            },
            #[cfg(feature = "client")]
            requests: None,
            #[cfg(feature = "kubeconfig")]
            files: Vec::new(),
            #[cfg(feature = "etcd")]
            etcd: None,
            descriptions: described(FLEET).collect(),
        }
    }

    /// Also series of single clusters, of 1,000 at most. A scrape costs some microseconds for each then.
    pub fn per_cluster(mut self) -> Self {
        if !self.series.per_cluster {
            self.describe_clusters(PER_CLUSTER);
            self.series.per_cluster = true;
        }
        self
    }

    /// Also `capi_cluster_cache_connection_up`, `capi_cluster_cache_healthcheck` and `capi_cluster_cache_healthchecks_total`, which dashboards
    /// of Cluster API know, of 1,000 clusters at most.
    pub fn cluster_api_names(mut self) -> Self {
        if !self.series.cluster_api {
            self.describe_clusters(CLUSTER_API);
            self.series.cluster_api = true;
        }
        self
    }

    /// Also requests by class and result, and those that were sent again, of the clients of a provider.
    ///
    /// ```
    /// use clustercache::{ClusterCache, MemorySource, StartError};
    /// use clustercache_client::KubeClient;
    /// use clustercache_metrics::CacheMetrics;
    ///
    /// fn start() -> Result<(ClusterCache, CacheMetrics), StartError> {
    ///     let provider = KubeClient::new();
    ///     let requests = provider.request_counts();
    ///     let cache = ClusterCache::builder()
    ///         .source(MemorySource::new("fleet"))
    ///         .resource(provider)
    ///         .health_from::<KubeClient>()
    ///         .start()?;
    ///     let metrics = CacheMetrics::new(&cache).requests(requests);
    ///     Ok((cache, metrics))
    /// }
    /// # let _ = start;
    /// ```
    #[cfg(feature = "client")]
    pub fn requests(mut self, counts: Arc<RequestCounts>) -> Self {
        if self.requests.replace(counts).is_none() {
            let added = [&names::REQUESTS, &names::RETRIES];
            self.descriptions.extend(described(&added));
        }
        self
    }

    /// Also what is wrong with the files of a source, one call a source: what is refused as a whole concerns no cluster, and shows nowhere
    /// else on the page.
    ///
    /// ```
    /// use clustercache::ClusterCache;
    /// use clustercache_kubeconfig::KubeconfigFile;
    /// use clustercache_metrics::CacheMetrics;
    ///
    /// fn metrics(cache: &ClusterCache, source: &KubeconfigFile) -> CacheMetrics {
    ///     CacheMetrics::new(cache).kubeconfig(source.clone())
    /// }
    /// # let _ = metrics;
    /// ```
    #[cfg(feature = "kubeconfig")]
    pub fn kubeconfig(mut self, source: KubeconfigFile) -> Self {
        if self.files.is_empty() {
            self.descriptions.extend(described(&[&names::PROBLEMS]));
        }
        self.files.push(source);
        self
    }

    /// Also what an `EtcdClientKey` has made, and how often it failed to. Ask it for its keys before it is given away. When certificates end is
    /// on the page without this.
    ///
    /// ```
    /// use clustercache::{Builder, StartError};
    /// use clustercache_etcd::{EtcdClientKey, MemoryIssuers};
    /// use clustercache_metrics::CacheMetrics;
    ///
    /// fn start(builder: Builder, issuers: MemoryIssuers) -> Result<CacheMetrics, StartError> {
    ///     let provider = EtcdClientKey::per_cluster(issuers);
    ///     let keys = provider.keys();
    ///     let cache = builder.optional(provider).start()?;
    ///     Ok(CacheMetrics::new(&cache).etcd(keys))
    /// }
    /// # let _ = start;
    /// ```
    #[cfg(feature = "etcd")]
    pub fn etcd(mut self, keys: EtcdKeys) -> Self {
        if self.etcd.replace(keys).is_none() {
            let added = [
                &names::ETCD_KEYS,
                &names::ETCD_CERTIFICATES,
                &names::ETCD_FAILURES,
            ];
            self.descriptions.extend(described(&added));
        }
        self
    }

    /// Another bound on the clusters that have series of their own, the first by key. `clustercache_clusters_without_series` says how many
    /// are left out.
    pub fn at_most(mut self, clusters: usize) -> Self {
        self.series.at_most = clusters;
        self
    }

    fn describe_clusters(&mut self, metrics: &[&Metric]) {
        if !self.series.any() {
            self.descriptions.extend(described(&[&WITHOUT_SERIES]));
        }
        self.descriptions.extend(described(metrics));
    }
}

impl Series {
    pub(crate) fn any(&self) -> bool {
        self.per_cluster || self.cluster_api
    }
}

fn described(metrics: &[&Metric]) -> impl Iterator<Item = Desc> {
    metrics.iter().map(|metric| {
        let labels = metric.labels.iter().map(|label| (*label).to_owned());
        let (name, help) = (metric.name.to_owned(), metric.help.to_owned());
        Desc::new(name, help, labels.collect(), HashMap::new())
            .expect("names and labels are constants, and good")
    })
}

impl Collector for CacheMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (mut page, census) = (Page::default(), self.cache.census());
        fleet::gather(&self.cache, &census, &mut page);
        #[cfg(feature = "client")]
        if let Some(counts) = &self.requests {
            let requests = counts.iter();
            page.many(
                &names::REQUESTS,
                requests.map(|(labels, times)| (labels, page::count(times))),
            );
            page.one(&names::RETRIES, page::count(counts.retries()));
        }
        #[cfg(feature = "kubeconfig")]
        if !self.files.is_empty() {
            page.many(&names::PROBLEMS, kubeconfig::problems(&self.files));
        }
        #[cfg(feature = "etcd")]
        if let Some(counts) = self.etcd.as_ref().map(EtcdKeys::counts) {
            page.one(&names::ETCD_KEYS, page::count(counts.keys()));
            let certificates = page::count(counts.certificates());
            page.one(&names::ETCD_CERTIFICATES, certificates);
            page.one(&names::ETCD_FAILURES, page::count(counts.failures()));
        }
        clusters::gather(&self.cache, &census, &self.series, &mut page);
        page.families()
    }
}

impl fmt::Debug for CacheMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheMetrics")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}
