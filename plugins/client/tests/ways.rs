//! Ways to a cluster in a whole cache: a dialer of the user's own, and an address that the policy forbids. Only what is public is used.

use std::{
    net::SocketAddr,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    AccessBuilder, AddressPolicy, ClusterAccess, ClusterCache, ClusterKey, FailureKind,
    MemorySource, Upsert,
};
use clustercache_client::{
    ByteStream, ClientExt, Destination, Dialer, KubeClient, TcpDialer, TransportError,
};
use clustercache_testkit::{
    fleet::{FakeCluster, Fleet},
    guard::PanicGuard,
};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional, duplex},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(30);

/// The agents of clusters that nobody can reach hold tunnels to us.
#[derive(Clone)]
struct Agents {
    clusters: Vec<(ClusterKey, SocketAddr)>,
    asked: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Dialer for Agents {
    async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
        self.asked.lock().unwrap().push(to.host.to_owned());
        let agent = self.clusters.iter().find(|(key, _)| key == to.cluster);
        let Some(&(_, address)) = agent else {
            return TcpDialer::new().dial(to).await;
        };
        let (ours, mut theirs) = duplex(16 << 10);
        let mut tcp = TcpStream::connect(address)
            .await
            .map_err(TransportError::dialer)?;
        tokio::spawn(async move { copy_bidirectional(&mut theirs, &mut tcp).await });
        Ok(Box::new(ours))
    }
}

fn address(cluster: &FakeCluster) -> SocketAddr {
    let url = cluster.url();
    url.trim_start_matches("https://").parse().unwrap()
}

fn access(cluster: &FakeCluster, url: &str) -> AccessBuilder {
    ClusterAccess::builder(url)
        .ca_pem(cluster.ca_pem())
        .token(cluster.token())
        .server_name("localhost")
}

/// A cache whose test fails if a provider panics.
struct Guarded(ClusterCache, #[expect(dead_code)] PanicGuard);

impl Deref for Guarded {
    type Target = ClusterCache;

    fn deref(&self) -> &ClusterCache {
        &self.0
    }
}

fn start(source: &MemorySource, client: KubeClient) -> Guarded {
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(client)
        .health_from::<KubeClient>()
        .configure(|options| options.retry.most = Duration::from_millis(500))
        .start()
        .unwrap();
    let guard = PanicGuard::new(&cache);
    Guarded(cache, guard)
}

#[tokio::test]
async fn a_cluster_behind_a_tunnel_is_one_as_any_other() {
    let fleet = Fleet::start(3).await.unwrap();
    let keys: Vec<_> = (0..3)
        .map(|number| ClusterKey::named(&format!("tunnel-{number}")))
        .collect();
    // The last has no agent, and is dialled as ever.
    let agents = Agents {
        clusters: (0..2)
            .map(|number| (keys[number].clone(), address(&fleet[number])))
            .collect(),
        asked: Arc::default(),
    };
    let source = MemorySource::new("test");
    for (number, key) in keys.iter().enumerate() {
        let url = match number {
            2 => fleet[number].url(),
            // No name that resolves: the dialer alone knows where that is.
            _ => "https://agent.invalid".into(),
        };
        let access = access(&fleet[number], &url).build().unwrap();
        source.upsert(Upsert::ready(key.clone(), access));
    }
    let cache = start(&source, KubeClient::new().dialer(agents.clone()));
    for (number, key) in keys.iter().enumerate() {
        cache.wait_for(key, LIMIT).await.unwrap();
        cache
            .client(key)
            .unwrap()
            .apiserver_version()
            .await
            .unwrap();
        assert_eq!(fleet[number].counters().connections_accepted, 1);
    }
    let asked = agents.asked.lock().unwrap().clone();
    assert_eq!(
        asked.iter().filter(|host| *host == "agent.invalid").count(),
        2
    );
    // With the connection its tunnel ends.
    assert!(cache.shutdown().await.unwrap().is_clean());
    for number in 0..3 {
        tokio::time::timeout(LIMIT, fleet[number].connections_closed())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_forbidden_address_is_not_dialled_and_says_so_until_the_operator_allows_it() {
    let cluster = FakeCluster::start("forbidden").unwrap();
    let (key, source) = (ClusterKey::named("forbidden"), MemorySource::new("test"));
    let give = |policy| {
        let access = access(&cluster, &cluster.url()).addresses(policy);
        source.upsert(Upsert::ready(key.clone(), access.build().unwrap()));
    };
    give(AddressPolicy::tenant());
    let cache = start(&source, KubeClient::new());
    let mut events = cache.subscribe().key(&key);
    let refused = async {
        loop {
            let state = cache.state(&key).ok();
            let error = state.and_then(|state| state.last_error);
            match error.filter(|error| error.kind == FailureKind::Forbidden) {
                Some(error) => return error.message.to_string(),
                None => assert!(events.next().await.is_some(), "the cache ended"),
            }
        }
    };
    let message = tokio::time::timeout(LIMIT, refused).await.unwrap();
    assert!(
        message.contains("127.0.0.1 may not be dialled"),
        "{message}"
    );
    assert_eq!(cluster.counters().connections_accepted, 0);
    give(AddressPolicy::tenant().allow("127.0.0.1/32".parse().unwrap()));
    cache.wait_for(&key, LIMIT).await.unwrap();
    assert_eq!(cluster.counters().connections_accepted, 1);
}

#[tokio::test]
async fn a_pods_port_is_reached_beside_http_2() {
    let cluster = FakeCluster::start("a").unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "nodeName": "here", "containers": [] },
    });
    cluster.put(pod).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    cluster.api().forward_port("default", "web", 8080, there);
    let key = ClusterKey::named("a");
    let source = MemorySource::new("test");
    let access = access(&cluster, &cluster.url()).build().unwrap();
    source.upsert(Upsert::ready(key.clone(), access));
    let cache = start(&source, KubeClient::new());
    cache.wait_for(&key, LIMIT).await.unwrap();

    let pods: Api<Pod> = Api::default_namespaced(cache.client(&key).unwrap());
    let carried = async {
        let mut forwarded = pods.portforward("web", &[8080, 9]).await.unwrap();
        let mut ours = forwarded.take_stream(8080).unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        let refused = forwarded.take_error(9).unwrap().await.unwrap();
        assert!(refused.contains("refused"), "{refused}");
        let bytes = vec![7; 100_000];
        let mut back = vec![0; bytes.len()];
        for _ in 0..2 {
            let (sent, received) =
                tokio::join!(ours.write_all(&bytes), theirs.read_exact(&mut back));
            sent.unwrap();
            received.unwrap();
            assert_eq!(back, bytes);
            ours.flush().await.unwrap();
            back.fill(0);
            let (sent, received) =
                tokio::join!(theirs.write_all(&bytes), ours.read_exact(&mut back));
            sent.unwrap();
            received.unwrap();
            assert_eq!(back, bytes);
        }
        // The pool's connection has HTTP/2, which has no upgrades.
        pods.get("web").await.unwrap();
        assert_eq!(cluster.counters().connections_open, 2);
        drop(theirs);
        assert_eq!(ours.read(&mut back).await.unwrap(), 0);
    };
    timeout(LIMIT, carried).await.unwrap();
    assert!(cache.shutdown().await.unwrap().is_clean());
    timeout(LIMIT, cluster.connections_closed()).await.unwrap();
}
