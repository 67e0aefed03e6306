//! One cluster, its cache, and what tests wait for.

use std::{sync::Arc, time::Duration};

use clustercache::{
    Cluster, ClusterAccess, ClusterCache, ClusterKey, MemorySource, Resource, Upsert,
};
use clustercache_client::{Deadlines, KubeClient};
use clustercache_informers::{
    ClusterInformers, Informed, Informers, Keep, Kind, LoopOptions, Store,
};
use clustercache_testkit::{
    api::{History, Verb},
    fleet::{FakeCluster, FakeCredential},
    guard::PanicGuard,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use serde_json::{Value, json};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Rig {
    pub(crate) cluster: FakeCluster,
    pub(crate) source: MemorySource,
    pub(crate) cache: ClusterCache,
    pub(crate) key: ClusterKey,
    _guard: PanicGuard,
}

/// Nodes decoded, pods encoded, config maps by the way.
pub(crate) fn informers() -> Informers {
    Informers::new()
        .loop_options(quick())
        .kind(Kind::<Node>::new().keep(Keep::Decoded))
        .kind(pods())
        .kind(Kind::<ConfigMap>::new().best_effort())
}

pub(crate) fn pods() -> Kind<Pod> {
    Kind::<Pod>::new()
        .index_field("node", "spec.nodeName")
        .index("app", |pod: &Pod| {
            let labels = pod.metadata.labels.iter();
            labels
                .filter_map(|labels| labels.get("app").cloned())
                .collect::<Vec<_>>()
        })
}

/// Waits that are short, so that tests are.
pub(crate) fn quick() -> LoopOptions {
    let mut options = LoopOptions::default();
    options.retry_least = Duration::from_millis(20);
    options.retry_most = Duration::from_millis(200);
    options
}

impl Rig {
    pub(crate) async fn start(name: &str) -> Self {
        Self::with(name, informers()).await
    }

    pub(crate) async fn with(name: &str, informers: Informers) -> Self {
        let rig = Self::on(FakeCluster::start(name).unwrap(), informers);
        rig.give(rig.cluster.access().credential);
        rig.connected().await;
        rig
    }

    /// The cluster is not given to the source yet.
    pub(crate) fn on(cluster: FakeCluster, informers: Informers) -> Self {
        let source = MemorySource::new("test");
        let mut deadlines = Deadlines::default();
        deadlines.close = Duration::from_millis(100);
        deadlines.drain = Duration::from_millis(300);
        let cache = ClusterCache::builder()
            .source(source.clone())
            .resource(KubeClient::new().deadlines(deadlines))
            .health_from::<KubeClient>()
            .resource(informers)
            .configure(|options| {
                options.health.probe_after = Duration::from_millis(200);
                options.health.probe_timeout = Duration::from_millis(300);
                options.health.suspect_interval = Duration::from_millis(100);
                options.health.down_after = Duration::from_millis(500);
                options.source.linger = Duration::from_millis(50);
                options.retry.most = Duration::from_millis(500);
            })
            .start()
            .unwrap();
        Self {
            key: ClusterKey::named(cluster.name()),
            cluster,
            source,
            _guard: PanicGuard::new(&cache),
            cache,
        }
    }

    /// The source says that the cluster has this credential now.
    pub(crate) fn give(&self, credential: FakeCredential) {
        let upsert = Upsert::ready(self.key.clone(), access(&self.cluster, credential));
        self.source.upsert(upsert);
    }

    pub(crate) async fn connected(&self) -> Cluster {
        self.cache.wait_for(&self.key, LIMIT).await.unwrap()
    }

    pub(crate) fn informers(&self) -> Resource<Informers> {
        self.cache.get::<Informers>(&self.key).unwrap()
    }

    pub(crate) fn pods(&self) -> Store<Pod> {
        self.informers().store().unwrap()
    }

    /// The store of pods once it is as it should be.
    pub(crate) async fn pods_when(&self, done: impl FnMut(&Store<Pod>) -> bool) -> Store<Pod> {
        let informers = self.informers();
        let pods = informers.wait_synced::<Pod>(LIMIT).await.unwrap();
        pods.wait_for(done, LIMIT).await.unwrap()
    }

    pub(crate) fn informed(&self, resource: &str) -> Informed {
        informed(&self.informers(), resource)
    }

    /// What was asked of a resource: requests that list, streams included, and all watches.
    pub(crate) fn lists(&self, resource: &str) -> u64 {
        let history = || -> History { self.cluster.api().history().resource(resource) };
        history().verb(Verb::List).count()
    }

    pub(crate) fn watches(&self, resource: &str) -> u64 {
        self.cluster
            .api()
            .history()
            .resource(resource)
            .verb(Verb::Watch)
            .count()
    }

    pub(crate) fn put_pod(&self, namespace: &str, name: &str, node: &str) -> u64 {
        self.cluster.put(pod(namespace, name, node)).unwrap()
    }

    pub(crate) fn delete_pod(&self, namespace: &str, name: &str) {
        assert!(self.cluster.delete("v1", "Pod", namespace, name));
    }

    pub(crate) async fn end(self) {
        let report = self.cache.shutdown().await.unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

pub(crate) fn informed(informers: &ClusterInformers, resource: &str) -> Informed {
    let mut all = informers.informed().into_iter();
    all.find(|one| &*one.resource == resource)
        .expect("it is declared")
}

pub(crate) fn access(cluster: &FakeCluster, credential: FakeCredential) -> ClusterAccess {
    let builder = ClusterAccess::builder(cluster.url()).ca_pem(cluster.ca_pem());
    let access = match credential {
        FakeCredential::Token(token) => builder.token(token),
        FakeCredential::Certificate {
            certificate_pem,
            key_pem,
        } => builder.client_certificate_pem(certificate_pem, key_pem),
    };
    access.build().unwrap()
}

pub(crate) fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": namespace, "name": name, "labels": { "app": node },
            "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:spec": {} } }],
        },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "none" }] },
    })
}

pub(crate) fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

pub(crate) fn name(object: &Arc<Pod>) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// Waits for an event under a generous limit.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, event)
        .await
        .expect("it happens in time")
}
