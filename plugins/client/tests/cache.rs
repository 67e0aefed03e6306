//! The client in a whole cache: connected, refreshed in place, down, back, gone. Only what is public is used.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clustercache::{
    ClusterAccess, ClusterCache, ClusterKey, ClusterState, FailureKind, GetError, MemorySource,
    Phase, Upsert,
};
use clustercache_client::{
    ClientExt, ClusterClient, ClusterClientExt, Deadlines, KubeClient, Limits, RateLimit,
    RequestCounts, TransportError,
};
use clustercache_testkit::{
    cache::TestCache,
    fleet::{FakeCluster, FakeCredential, ShownCredential},
    guard::PanicGuard,
    pki::Validity,
};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, WatchParams},
    client::Body,
    core::GroupVersionKind,
};

struct Rig {
    cluster: FakeCluster,
    source: MemorySource,
    cache: ClusterCache,
    key: ClusterKey,
    requests: Arc<RequestCounts>,
    _guard: PanicGuard,
}

impl Rig {
    fn start(name: &str) -> Self {
        let mut deadlines = Deadlines::default();
        deadlines.close = Duration::from_millis(100);
        Self::with(name, KubeClient::new().deadlines(deadlines))
    }

    fn with(name: &str, provider: KubeClient) -> Self {
        Self::on(FakeCluster::start(name).unwrap(), provider)
    }

    fn on(cluster: FakeCluster, provider: KubeClient) -> Self {
        let source = MemorySource::new("test");
        let requests = provider.request_counts();
        let cache = ClusterCache::builder()
            .source(source.clone())
            .resource(provider)
            .health_from::<KubeClient>()
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
        let key = ClusterKey::named(cluster.name());
        let rig = Self {
            cluster,
            source,
            _guard: PanicGuard::new(&cache),
            cache,
            key,
            requests,
        };
        rig.give(rig.cluster.access().credential);
        rig
    }

    /// The source says that the cluster has this credential now.
    fn give(&self, credential: FakeCredential) {
        let builder = ClusterAccess::builder(self.cluster.url()).ca_pem(self.cluster.ca_pem());
        let access = match credential {
            FakeCredential::Token(token) => builder.token(token),
            FakeCredential::Certificate {
                certificate_pem,
                key_pem,
            } => builder.client_certificate_pem(certificate_pem, key_pem),
        };
        let access = access.build().unwrap();
        self.source.upsert(Upsert::ready(self.key.clone(), access));
    }

    async fn connected(&self) -> clustercache::Cluster {
        let limit = Duration::from_secs(30);
        self.cache.wait_for(&self.key, limit).await.unwrap()
    }

    /// What a cluster says of itself comes by itself, and nobody is told: it is looked at with each request, of the health check if no other.
    async fn until_known(&self, client: &ClusterClient) {
        let known = async {
            while client.server_version().is_none() || client.kube_system_uid().is_none() {
                self.cluster.next_request(|_| true).await;
            }
        };
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, known).await.unwrap();
    }

    async fn until(&self, holds: impl Fn(&ClusterState) -> bool) -> ClusterState {
        let mut events = self.cache.subscribe().key(&self.key);
        let changed = async {
            loop {
                match self.cache.state(&self.key) {
                    Ok(state) if holds(&state) => return state,
                    _ => assert!(events.next().await.is_some(), "the cache ended"),
                }
            }
        };
        let limit = Duration::from_secs(30);
        let state = tokio::time::timeout(limit, changed).await;
        state.unwrap_or_else(|_| panic!("{:?}", self.cache.state(&self.key)))
    }
}

#[tokio::test]
async fn a_connected_cluster_has_a_client_and_one_connection() {
    let rig = Rig::start("connects");
    let cluster = rig.connected().await;
    let client = rig.cache.client(&rig.key).unwrap();
    client.apiserver_version().await.unwrap();
    cluster.client().unwrap().apiserver_version().await.unwrap();
    let snapshot = cluster.snapshot().unwrap();
    snapshot
        .client()
        .unwrap()
        .apiserver_version()
        .await
        .unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 1);
    rig.cache.shutdown().await.unwrap();
    rig.cluster.connections_closed().await;
    assert!(matches!(
        rig.cache.client(&rig.key),
        Err(GetError::NotRunning { .. })
    ));
}

#[tokio::test]
async fn requests_are_counted_by_class_and_result_and_probes_are_not() {
    let rig = Rig::start("counts");
    rig.connected().await;
    let client = rig.cache.client(&rig.key).unwrap();
    // Probed, too.
    rig.cluster
        .when(|counters| counters.requests.health >= 3)
        .await;
    let moved = || -> BTreeMap<_, _> {
        let counts = rig.requests.iter();
        counts.filter(|(_, count)| *count > 0).collect()
    };
    assert_eq!(moved(), BTreeMap::new());
    client.apiserver_version().await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    nodes.list(&ListParams::default()).await.unwrap();
    nodes.get("no-such-node").await.unwrap_err();
    let expected = [
        (["call", "http_4xx"], 1),
        (["call", "success"], 1),
        (["list", "success"], 1),
    ];
    assert_eq!(moved(), expected.into());
    rig.cache.shutdown().await.unwrap();
    nodes.get("no-such-node").await.unwrap_err();
    assert_eq!(moved()[&["call", "busy"]], 1);
}

#[tokio::test]
async fn a_new_token_is_used_in_place_and_nothing_is_initialised_again() {
    let rig = Rig::start("rotates");
    let cluster = rig.connected().await;
    let before = cluster.generation().unwrap();
    let token = rig.cluster.add_token();
    let seen = rig.cluster.next_request({
        let token = token.clone();
        move |seen| seen.credential == ShownCredential::Token(token.clone())
    });
    rig.give(FakeCredential::Token(token));
    // A probe is enough to see it.
    tokio::time::timeout(Duration::from_secs(30), seen)
        .await
        .unwrap();
    assert_eq!(cluster.generation().unwrap(), before);
    assert_eq!(rig.cluster.counters().connections_accepted, 1);
}

#[tokio::test]
async fn a_new_client_certificate_is_a_new_connection_and_nothing_is_initialised_again() {
    let rig = Rig::start("renews");
    let cluster = rig.connected().await;
    let before = cluster.generation().unwrap();
    rig.cluster.accept_user("renewed");
    let certificate = rig.cluster.client_certificate("renewed", Validity::years());
    let seen = rig
        .cluster
        .next_request(|seen| seen.credential == ShownCredential::Certificate("renewed".into()));
    rig.give(certificate.unwrap());
    tokio::time::timeout(Duration::from_secs(30), seen)
        .await
        .unwrap();
    rig.cluster
        .when(|counters| counters.connections_open == 1)
        .await;
    assert_eq!(cluster.generation().unwrap(), before);
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn a_black_hole_is_down_its_client_is_retired_and_it_comes_back() {
    let rig = Rig::start("returns");
    let before = rig.connected().await.generation().unwrap();
    let client = rig.cache.client(&rig.key).unwrap();
    rig.cluster.black_hole();
    rig.until(|state| state.phase != Phase::Connected).await;
    let down = rig.until(|_| rig.cache.client(&rig.key).is_err()).await;
    assert_ne!(down.phase, Phase::Connected);
    let kube::Error::Service(error) = client.apiserver_version().await.unwrap_err() else {
        panic!("it is an error of ours")
    };
    assert!(error.downcast_ref::<TransportError>().is_some(), "{error}");
    rig.cluster.heal();
    let after = rig.connected().await.generation().unwrap();
    assert!(after > before);
    rig.cache
        .client(&rig.key)
        .unwrap()
        .apiserver_version()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_refused_credential_and_a_wrong_server_are_told_apart() {
    let rig = Rig::start("kinds");
    rig.cluster.revoke_token(&rig.cluster.token());
    let failed = |state: &ClusterState, kind| {
        let error = state.last_error.as_ref();
        error.is_some_and(|error| error.kind == kind)
    };
    rig.until(|state| failed(state, FailureKind::Unauthorized))
        .await;
    rig.cluster.replace().unwrap();
    rig.until(|state| failed(state, FailureKind::Tls)).await;
    rig.cluster.refuse();
    rig.until(|state| failed(state, FailureKind::Refused)).await;
}

#[tokio::test]
async fn a_removed_cluster_leaves_no_connection() {
    let rig = Rig::start("leaves");
    rig.connected().await;
    rig.source.remove(&rig.key);
    rig.cluster.connections_closed().await;
}

#[tokio::test]
async fn a_connected_clusters_version_and_uid_are_known_after_a_while() {
    let rig = Rig::start("about");
    let client = rig.connected().await.get::<KubeClient>().unwrap();
    rig.until_known(&client).await;
    assert_eq!(client.server_version().unwrap().minor, 37);
}

#[tokio::test]
async fn what_a_cluster_does_not_say_of_itself_at_first_it_is_asked_again() {
    let rig = Rig::start("unsure");
    rig.cluster.answer("/version", 503, "busy");
    rig.cluster.forbid("/api/v1/namespaces");
    let client = rig.connected().await.get::<KubeClient>().unwrap();
    // All tries of the first time.
    rig.cluster
        .when(|counters| counters.requests.version >= 3)
        .await;
    assert!(client.server_version().is_none() && client.kube_system_uid().is_none());
    rig.cluster.answer_normally();
    rig.until_known(&client).await;
}

#[tokio::test]
async fn what_a_cluster_serves_is_known_beyond_the_connection() {
    let rig = Rig::start("serves");
    let before = rig.connected().await.generation().unwrap();
    let deployment = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resolve = async || {
        let client = rig.connected().await.get::<KubeClient>().unwrap();
        client.resolve(&deployment).await.unwrap()
    };
    resolve().await;
    let asked = rig.cluster.counters().requests.discovery;
    assert!(asked > 0);
    rig.cache.reconnect(&rig.key);
    rig.until(|state| state.generation > before && state.phase == Phase::Connected)
        .await;
    resolve().await;
    assert_eq!(rig.cluster.counters().requests.discovery, asked);
}

#[tokio::test]
async fn a_cluster_that_dies_while_watches_hold_all_connections_is_down() {
    let cluster = FakeCluster::builder("full").http2(false);
    let rig = Rig::on(cluster.start().unwrap(), KubeClient::new());
    rig.connected().await;
    let nodes: Api<Node> = Api::all(rig.cache.client(&rig.key).unwrap());
    let all = WatchParams::default();
    let watches = (0..64).map(|_| nodes.watch(&all, "0"));
    let watches = futures_util::future::try_join_all(watches).await.unwrap();
    rig.cluster.black_hole();
    rig.until(|state| !state.phase.is_connected()).await;
    drop(watches);
}

#[tokio::test]
async fn a_rate_limit_outlives_the_connection() {
    let mut deadlines = Deadlines::default();
    deadlines.call = Duration::from_millis(500);
    let limit = RateLimit::new(1.0 / 3600.0, 5);
    let provider = KubeClient::new().deadlines(deadlines).rate_limit(limit);
    let rig = Rig::with("limited", provider);
    let before = rig.connected().await.generation().unwrap();
    let is_busy = async || match rig
        .cache
        .client(&rig.key)
        .unwrap()
        .apiserver_version()
        .await
    {
        Err(kube::Error::Service(error)) => {
            matches!(error.downcast_ref(), Some(TransportError::Busy { .. }))
        }
        _ => false,
    };
    let used_up = async { while !is_busy().await {} };
    tokio::time::timeout(Duration::from_secs(30), used_up)
        .await
        .unwrap();
    rig.cache.reconnect(&rig.key);
    rig.until(|state| state.generation > before && state.phase == Phase::Connected)
        .await;
    assert!(is_busy().await);
}

#[test]
fn whoever_asks_for_a_client_need_not_be_on_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rig = runtime.block_on(async {
        let rig = Rig::start("thread");
        rig.connected().await;
        rig
    });
    let client = rig.cache.client(&rig.key).unwrap();
    let version = runtime.block_on(client.apiserver_version());
    version.unwrap();
}

/// What a user's unit test does: a client over a service of the test's, in a cache whose clusters the test holds.
#[tokio::test(start_paused = true)]
async fn a_reconciler_is_tested_without_a_network() {
    let test = TestCache::builder().resource::<KubeClient>().build();
    let (cache, key) = (test.cache(), ClusterKey::named("eu-1"));
    let list = r#"{"apiVersion":"v1","kind":"NodeList","metadata":{},"items":[{"metadata":{"name":"worker"}}]}"#;
    let service = tower::service_fn(move |_| async move {
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(list.as_bytes().to_vec())))
    });
    test.put::<KubeClient>(&key, kube::Client::new(service, "default").into())
        .await;
    test.connect(&key).await;
    let nodes = Api::<Node>::all(cache.client(&key).unwrap());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    assert_eq!(nodes.items[0].metadata.name.as_deref(), Some("worker"));
    assert_eq!(cache.state(&key).unwrap().resources[1].name, "kube-client");
    test.disconnect(&key).await;
    assert!(matches!(cache.client(&key), Err(GetError::Down(_))));
}

#[tokio::test]
async fn what_the_provider_was_given_is_judged_at_start_all_at_once() {
    let mut deadlines = Deadlines::default();
    deadlines.call = Duration::MAX;
    deadlines.tls = Duration::MAX;
    deadlines.probe = Duration::ZERO;
    deadlines.ping = Duration::ZERO;
    let mut limits = Limits::default();
    limits.line = 0;
    let mistakes = ClusterCache::builder()
        .source(MemorySource::new("test"))
        .resource(
            KubeClient::new()
                .user_agent("two\nlines")
                .deadlines(deadlines)
                .limits(limits)
                .rate_limit(RateLimit::new(f64::NAN, 0)),
        )
        .health_from::<KubeClient>()
        .start()
        .unwrap_err();
    let text = mistakes.to_string();
    for named in [
        "user agent",
        "deadlines.call",
        "deadlines.tls",
        "deadlines.probe",
        "deadlines.ping",
        "limits.line",
        "calls a second",
        "burst",
    ] {
        assert!(text.contains(named), "{named} in {text}");
    }
}
