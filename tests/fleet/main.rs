//! The main job end to end: the cache over `KubeClient` and fake API servers with real TLS on loopback. Nothing here asserts a duration: what
//! is waited for is an event, under a limit that only a fault reaches.

#[path = "../rig/mod.rs"]
mod rig;

#[cfg(unix)]
mod stopped;
mod unauthorized;

use clustercache::{
    Changes, ClusterAccess, ClusterKey, GetError, Identity, Phase, Upsert, Verdict,
};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_kubeconfig::Policy;
use clustercache_testkit::{
    fleet::{FakeCluster, FakeCredential, OldEndpoint, ShownCredential},
    pki::Validity,
};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use rig::*;
use tokio::net::TcpListener;

type Tested = anyhow::Result<()>;

/// Names of the nodes, by the cluster's client.
async fn nodes(rig: &Rig, key: &ClusterKey) -> anyhow::Result<Vec<String>> {
    let nodes = Api::<Node>::all(rig.cache.client(key)?);
    let list = nodes.list(&ListParams::default()).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

/// A watch on nodes, for as long as a test lasts.
struct Watch(futures_util::stream::BoxStream<'static, kube::Result<WatchEvent<Node>>>);

impl Watch {
    async fn open(rig: &Rig, cluster: &FakeCluster) -> anyhow::Result<Self> {
        let nodes = Api::<Node>::all(rig.cache.client(&key_of(cluster))?);
        let version = cluster.version().to_string();
        Ok(Self(
            nodes
                .watch(&WatchParams::default(), &version)
                .await?
                .boxed(),
        ))
    }

    /// The next node that is added, which this adds.
    async fn sees(&mut self, cluster: &FakeCluster, name: &str) -> Tested {
        cluster.put(node(name))?;
        match limited("an event of the watch", self.0.try_next()).await?? {
            Some(WatchEvent::Added(node)) if node.name_any() == name => Ok(()),
            other => anyhow::bail!("the watch said {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_token_is_used_by_new_requests_and_drops_and_initialises_nothing() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    let key = rig.connect(cluster).await?;
    let (held, mut watch) = (
        rig.cache.get::<KubeClient>(&key)?,
        Watch::open(&rig, cluster).await?,
    );
    let (before, old) = (cluster.counters(), cluster.token());
    let new = ShownCredential::Token(cluster.add_token());
    let expected = new.clone();
    let shown = cluster.next_request(move |request| request.credential == expected);
    rig.change_access(cluster).await?;
    limited("a request with the new token", shown).await?;
    cluster.revoke_token(&old);
    nodes(&rig, &key).await?;
    let after = cluster.counters();
    assert!(held.is_current(), "it was initialised again");
    assert_eq!(after.connections_accepted, before.connections_accepted);
    assert_eq!(rig.cache.counters().connects(), 1);
    watch.sees(cluster, "after").await?;
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_client_certificate_has_a_new_connection_and_the_old_one_drains() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    cluster.accept_user("second");
    let key = key_of(cluster);
    rig.give(cluster, certificate(cluster, FakeCluster::ADMIN)?)?;
    rig.connected(&key).await?;
    let (held, mut watch) = (
        rig.cache.get::<KubeClient>(&key)?,
        Watch::open(&rig, cluster).await?,
    );
    let before = cluster.next_request(|_| true);
    nodes(&rig, &key).await?;
    let before = limited("a request", before).await?;

    let second = ShownCredential::Certificate("second".into());
    let shown = cluster.next_request(move |request| request.credential == second);
    let old = rig.cache.access(&key)?.credential().fingerprint();
    rig.give(cluster, certificate(cluster, "second")?)?;
    rig.until_not(&key, old).await?;
    nodes(&rig, &key).await?;
    let after = limited("a request with the new certificate", shown).await?;
    assert_ne!(
        after.connection, before.connection,
        "a connection has one certificate"
    );
    assert!(held.is_current(), "it was initialised again");
    assert_eq!(rig.cache.counters().connects(), 1);

    watch.sees(cluster, "on-the-old-connection").await?;
    assert_eq!(cluster.counters().watches_open, 1);
    drop(watch);
    limited(
        "the end of the old connection",
        cluster.when(|now| now.connections_open == 1),
    )
    .await?;
    assert_eq!(nodes(&rig, &key).await?, ["on-the-old-connection"]);
    rig.end().await
}

fn certificate(cluster: &FakeCluster, user: &str) -> anyhow::Result<FakeCredential> {
    Ok(cluster.client_certificate(user, Validity::years())?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_is_replaced_without_a_gap_and_sees_no_token_but_its_own() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    let mut tokens = vec![cluster.token()];
    let key = rig.connect(cluster).await?;
    let reader = rig.reads_without_a_gap(&key);
    for _ in 0..3 {
        let held = rig.cache.get::<KubeClient>(&key)?;
        cluster.move_endpoint(OldEndpoint::Keep)?;
        tokens.push(cluster.add_token());
        rig.say(cluster)?;
        limited("the end of the old connection", held.retired()).await??;
        nodes(&rig, &key).await?;
        let state = rig.cache.state(&key)?;
        assert_eq!(state.phase, Phase::Connected);
        assert_eq!(
            state.access.unwrap().endpoint.trim_end_matches('/'),
            cluster.url()
        );
    }
    reader.stop().await?;
    for (endpoint, token) in cluster.endpoints().into_iter().zip(&tokens) {
        let seen = cluster.seen_tokens_at(endpoint);
        assert_eq!(seen, [token.clone()].into(), "at {endpoint}");
    }
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_comes_back_while_its_successor_is_built_stays() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    let key = rig.connect(cluster).await?;
    let held = rig.cache.get::<KubeClient>(&key)?;
    let first = cluster.token();

    // Accepts, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut nowhere = cluster.access();
    nowhere.url = format!("https://{}", silent.local_addr()?);
    nowhere.credential = FakeCredential::Token("for-nowhere".into());
    rig.source.upsert(upsert(&nowhere)?);
    rig.until(&key, |state| state.replacing).await?;
    let dialled = limited("a dial", silent.accept()).await??;
    assert!(
        held.is_current(),
        "the old connection stays while the new one is made"
    );

    rig.say(cluster)?;
    rig.until(&key, |state| !state.replacing).await?;
    assert!(held.is_current());
    nodes(&rig, &key).await?;

    let third = cluster.move_endpoint(OldEndpoint::Keep)?;
    let token = cluster.add_token();
    rig.say(cluster)?;
    limited("the end of the first connection", held.retired()).await??;
    nodes(&rig, &key).await?;
    let endpoints = cluster.endpoints();
    assert_eq!(cluster.seen_tokens_at(third), [token].into());
    assert_eq!(cluster.seen_tokens_at(endpoints[0]), [first].into());
    drop(dialled);
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_that_answers_at_the_endpoint_sees_no_token() -> Tested {
    let rig = Rig::start(2).await?;
    let (mine, other) = (&rig.fleet[0], &rig.fleet[1]);
    let mut mixed = mine.access();
    mixed.url = other.url();
    rig.source.upsert(upsert(&mixed)?);
    rig.until(&key_of(mine), |state| state.attempts > 1).await?;
    assert!(other.seen_tokens().is_empty(), "{:?}", other.seen_tokens());
    limited("a failed handshake", other.when(|now| now.tls_failures > 0)).await?;
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_of_the_same_name_is_new_and_nothing_of_the_old_is_returned() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    cluster.put(node("old"))?;
    let key = rig.connect(cluster).await?;
    let (handle, held) = (rig.cache.cluster(&key)?, rig.cache.get::<KubeClient>(&key)?);
    assert_eq!(nodes(&rig, &key).await?, ["old"]);
    let events = rig.cache.subscribe().key(&key).only(Changes::REPLACED);
    let known = rig.cache.state(&key)?.identity;
    assert_eq!(known, Identity::ByCa);

    cluster.replace()?;
    cluster.put(node("new"))?;
    rig.say(cluster)?;
    let replaced =
        events.filter(|event| std::future::ready(event.changes().contains(Changes::REPLACED)));
    limited("the replacement", std::pin::pin!(replaced).next()).await?;
    assert!(matches!(
        handle.get::<KubeClient>(),
        Err(GetError::Replaced { .. })
    ));
    assert!(!held.is_current());
    rig.connected(&key).await?;
    assert_eq!(nodes(&rig, &key).await?, ["new"]);
    assert!(matches!(
        handle.get::<KubeClient>(),
        Err(GetError::Replaced { .. })
    ));
    let over = held.client().apiserver_version().await;
    assert!(over.is_err(), "a client of the old connection still works");
    rig.until(&key, |state| state.retiring == 0).await?;
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_down_and_comes_back() -> Tested {
    is_down_and_comes_back(FakeCluster::black_hole).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_answers_503_for_a_dead_server_is_down() -> Tested {
    is_down_and_comes_back(|cluster| cluster.answer("/", 503, "no healthy upstream")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_accepts_and_answers_nothing_is_down() -> Tested {
    is_down_and_comes_back(|cluster| cluster.hang("/")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_is_down() -> Tested {
    is_down_and_comes_back(FakeCluster::pause).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_refuses_is_down() -> Tested {
    is_down_and_comes_back(FakeCluster::refuse).await
}

/// Beside another, of which nothing changes.
async fn is_down_and_comes_back(fault: impl FnOnce(&FakeCluster)) -> Tested {
    let rig = Rig::impatient(2).await?;
    let (lost, well) = (&rig.fleet[0], &rig.fleet[1]);
    let (key, well_key) = (rig.connect(lost).await?, rig.connect(well).await?);
    let held = rig.cache.get::<KubeClient>(&well_key)?;
    fault(lost);
    let state = rig.until(&key, |state| state.phase == Phase::Down).await?;
    assert!(matches!(rig.cache.client(&key), Err(GetError::Down(_))));
    assert!(state.last_error.is_some(), "{state:?}");
    assert!(held.is_current(), "another cluster was hit");
    assert_eq!(rig.cache.state(&well_key)?.phase, Phase::Connected);
    lost.heal();
    rig.connected(&key).await?;
    nodes(&rig, &key).await?;
    assert_eq!(rig.cache.state(&key)?.health, Verdict::Healthy);
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_that_is_removed_leaves_no_socket_and_no_task() -> Tested {
    let rig = Rig::start(2).await?;
    rig.connect(&rig.fleet[1]).await?;
    let cluster = &rig.fleet[0];
    let before = alive_tasks();
    let key = rig.connect(cluster).await?;
    let watch = Watch::open(&rig, cluster).await?;
    cluster.black_hole();
    rig.source.remove(&key);
    rig.until_unknown(&key).await?;
    limited("the end of its sockets", cluster.connections_closed()).await?;
    drop(watch);
    let tasks = async {
        while alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    limited("the end of its tasks", tasks).await?;
    rig.end().await
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_cluster_is_connected_behind_300_black_holes() -> Tested {
    let rig = Rig::start(2).await?;
    let (hole, well) = (&rig.fleet[0], &rig.fleet[1]);
    hole.black_hole();
    for number in 0..300 {
        // One port for all, to save descriptors.
        let mut access = hole.access();
        access.name = format!("hole-{number}");
        rig.source.upsert(upsert(&access)?);
    }
    limited("300 dials", hole.when(|now| now.connections_open >= 300)).await?;
    let key = rig.connect(well).await?;
    nodes(&rig, &key).await?;
    let state = rig.cache.state(&ClusterKey::named("hole-7"))?;
    assert_eq!(state.phase, Phase::Connecting);
    let report = rig.cache.shutdown().await?;
    assert!(!report.to_string().contains(&key.to_string()), "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_is_mended_broken_and_changed_without_a_restart() -> Tested {
    let file = KubeconfigOnDisk::new("clusters: [")?;
    let rig = Rig::over(2, file.source()).await?;
    let (first, second) = (&rig.fleet[0], &rig.fleet[1]);
    let (first_key, second_key) = (key_of(first), key_of(second));
    // Bad from the start: nothing is known, and it is said why.
    file.until_problem(true).await?;
    assert!(matches!(
        rig.cache.client(&first_key),
        Err(GetError::Unknown { .. })
    ));

    file.write(&first.kubeconfig())?;
    rig.connected(&first_key).await?;
    let held = rig.cache.get::<KubeClient>(&first_key)?;

    // A broken edit: what it said before holds.
    file.write("clusters: {")?;
    file.until_problem(true).await?;
    assert!(held.is_current());
    nodes(&rig, &first_key).await?;

    // Another context, which is refused: it is not dialled, and says why. The first is not touched.
    let mut access = second.access();
    access.url = access.url.replace("https", "http");
    let both = |access| clustercache_testkit::fleet::kubeconfig_of([&first.access(), access]);
    file.write(&both(&access))?;
    let state = rig
        .until(&second_key, |state| state.phase == Phase::Refused)
        .await?;
    assert!(state.refused.unwrap().contains("server"));
    assert_eq!(second.counters().connections_accepted, 0);

    file.write(&both(&second.access()))?;
    rig.connected(&second_key).await?;
    assert!(held.is_current());
    file.until_problem(false).await?;
    rig.end().await
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_asked_again_after_a_401_and_its_new_token_is_taken_in_place() -> Tested {
    let folder = tempfile::tempdir()?;
    let answer = folder.path().join("answer");
    let give = |token: &str| {
        let answered = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": { "token": token },
        });
        std::fs::write(&answer, answered.to_string())
    };
    let file = KubeconfigOnDisk::new("clusters: []\ncontexts: []\nusers: []\n")?;
    let policy = Policy::operator().allow_exec(["cat"]);
    let rig = Rig::over(1, file.source().policy(policy)).await?;
    let cluster = &rig.fleet[0];
    let (key, first) = (key_of(cluster), cluster.token());
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: cat, args: ['{}']}}",
        answer.display()
    );
    let document = cluster.kubeconfig();
    let token = format!("token: {first:?}");
    anyhow::ensure!(document.contains(&token), "{document}");
    give(&first)?;
    file.write(&document.replace(&token, &exec))?;
    rig.connected(&key).await?;
    let held = rig.cache.get::<KubeClient>(&key)?;

    // Nothing says that the token has changed but the cluster's 401.
    let second = ShownCredential::Token(cluster.rotate_token());
    give(&cluster.token())?;
    let shown = cluster.next_request(move |request| request.credential == second);
    limited("a request with the new token", shown).await?;
    nodes(&rig, &key).await?;
    assert!(held.is_current(), "it was initialised again");
    assert_eq!(rig.cache.counters().connects(), 1);
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_and_mended_by_new_access() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    let key = key_of(cluster);
    rig.give(cluster, FakeCredential::Token("wrong".into()))?;
    let state = rig.until(&key, |state| state.last_error.is_some()).await?;
    assert_eq!(
        state.last_error.unwrap().kind,
        clustercache::FailureKind::Unauthorized
    );
    rig.say(cluster)?;
    rig.connected(&key).await?;
    rig.end().await
}

/// What the cache is told.
fn upsert(access: &clustercache_testkit::fleet::FakeAccess) -> anyhow::Result<Upsert> {
    let ready: ClusterAccess = rig::access(access)?;
    Ok(Upsert::ready(ClusterKey::named(&access.name), ready))
}
