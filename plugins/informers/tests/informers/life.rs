//! Rotation, outage, replacement: what a kind is listed again for, and for what not.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use clustercache::{ClusterAccess, ClusterState, Phase, Upsert};
use clustercache_informers::{Informers, Keep, Kind};
use clustercache_testkit::{
    api::{FakeApi, Fault, Verb},
    fleet::{FakeCluster, OldEndpoint, PathClass, ShownCredential},
    pki::Validity,
};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::rig::{LIMIT, Rig, access, informers, node, pods, quick, soon};

/// A reader that never rests, and minds that there is always something to read.
struct Reader {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Reader {
    fn of(rig: &Rig, least: usize) -> Self {
        let (stop, reads) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (cache, key) = (rig.cache.clone(), rig.key.clone());
        let (stops, counts) = (Arc::clone(&stop), Arc::clone(&reads));
        let task = tokio::spawn(async move {
            while !stops.load(Relaxed) {
                let pods = cache
                    .get::<Informers>(&key)
                    .expect("connected")
                    .store::<Pod>();
                let pods = pods.expect("synced");
                assert!(pods.len() >= least, "{} of {least}", pods.len());
                counts.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
            }
        });
        Self { stop, reads, task }
    }

    async fn end(self) {
        self.stop.store(true, Relaxed);
        self.task.await.expect("no read failed");
        assert!(self.reads.load(Relaxed) > 0);
    }
}

async fn until(rig: &Rig, holds: impl Fn(&ClusterState) -> bool) {
    let mut events = rig.cache.subscribe().key(&rig.key);
    let changed = async {
        while !rig.cache.state(&rig.key).is_ok_and(|state| holds(&state)) {
            events.next().await.expect("the cache runs");
        }
    };
    soon(changed).await;
}

async fn with_pods(rig: &Rig, pods: usize) {
    for number in 0..pods {
        rig.put_pod("a", &format!("pod-{number}"), "n1");
    }
    rig.pods_when(|store| store.len() == pods).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_tokens_in_a_row_drop_no_watch_and_list_nothing() {
    let cluster = FakeCluster::start("tokens").unwrap();
    for number in 0..1_000 {
        cluster.put(node(&format!("node-{number}"))).unwrap();
    }
    let rig = Rig::on(
        cluster,
        Informers::new()
            .kind(Kind::<Node>::new().keep(Keep::Decoded))
            .kind(pods()),
    );
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    with_pods(&rig, 3).await;
    let reader = Reader::of(&rig, 3);
    let before = (
        rig.lists("nodes"),
        rig.watches("nodes"),
        rig.watches("pods"),
    );
    for nth in 0..3 {
        let old = rig.cluster.token();
        rig.cluster.add_token();
        rig.give(rig.cluster.access().credential);
        let newest = rig.cluster.token();
        soon(
            rig.cluster
                .when(|_| rig.cluster.seen_tokens().contains(&newest)),
        )
        .await;
        rig.cluster.revoke_token(&old);
        // It goes on.
        rig.put_pod("a", &format!("after-{nth}"), "n1");
        rig.pods_when(|pods| pods.contains("a", &format!("after-{nth}")))
            .await;
    }
    reader.end().await;
    assert_eq!(
        (
            rig.lists("nodes"),
            rig.watches("nodes"),
            rig.watches("pods")
        ),
        before
    );
    assert_eq!(rig.informers().store::<Node>().unwrap().len(), 1_000);
    assert_eq!(rig.informed("nodes").lists, 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_client_certificate_moves_watches_by_their_version() {
    let cluster = FakeCluster::start("certificates").unwrap();
    cluster.accept_user("one");
    cluster.accept_user("two");
    let rig = Rig::on(cluster, Informers::new().loop_options(quick()).kind(pods()));
    let certificate = |user| {
        rig.cluster
            .client_certificate(user, Validity::years())
            .unwrap()
    };
    rig.give(certificate("one"));
    rig.connected().await;
    with_pods(&rig, 5).await;
    let reader = Reader::of(&rig, 5);
    let (generation, before) = (rig.informers().generation(), rig.informed("pods"));
    let moved = rig.cluster.next_request(|seen| {
        seen.credential == ShownCredential::Certificate("two".into())
            && seen.class == PathClass::Watch
    });
    rig.give(certificate("two"));
    soon(moved).await;
    rig.put_pod("a", "after", "n1");
    rig.pods_when(|pods| pods.contains("a", "after")).await;
    reader.end().await;
    let after = rig.informed("pods");
    assert_eq!(rig.informers().generation(), generation);
    assert_eq!((after.lists, after.watches - before.watches), (1, 1));
    assert_eq!((after.added - before.added, after.deleted), (1, 0));
    rig.end().await;
}

/// Makes what the source says of the cluster the newest, and returns when a connection with that is up.
async fn rebuilt(rig: &Rig, access: ClusterAccess) {
    let generation = rig.informers().generation();
    rig.source.upsert(Upsert::ready(rig.key.clone(), access));
    until(rig, |_| {
        let informers = rig.cache.get::<Informers>(&rig.key);
        informers.is_ok_and(|now| now.generation() > generation)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_moves_and_a_ca_that_is_replaced_list_nothing() {
    let rig = Rig::with("moves", Informers::new().loop_options(quick()).kind(pods())).await;
    with_pods(&rig, 5).await;
    let reader = Reader::of(&rig, 5);
    let first = rig.cluster.ca_pem();
    rig.cluster.move_endpoint(OldEndpoint::Keep).unwrap();
    let trusting = |ca: &str| {
        let builder = ClusterAccess::builder(rig.cluster.url()).ca_pem(ca);
        builder.token(rig.cluster.token()).build().unwrap()
    };
    rebuilt(&rig, trusting(&first)).await;
    rig.cluster.renew_ca().unwrap();
    let second = rig.cluster.ca_pem();
    rebuilt(&rig, trusting(&format!("{first}{second}"))).await;
    rebuilt(&rig, trusting(&second)).await;
    rig.put_pod("a", "after", "n1");
    rig.pods_when(|pods| pods.contains("a", "after")).await;
    reader.end().await;
    let after = rig.informed("pods");
    assert_eq!((after.lists, after.added, after.deleted), (0, 1, 0));
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_comes_back_sends_what_changed_and_lists_nothing() {
    let rig = Rig::start("back").await;
    with_pods(&rig, 20).await;
    rig.cluster.send_bookmarks();
    rig.cluster.refuse();
    until(&rig, |state| state.phase == Phase::Down).await;
    assert!(rig.cache.get::<Informers>(&rig.key).is_err());
    rig.delete_pod("a", "pod-0");
    rig.put_pod("a", "pod-1", "n2");
    rig.put_pod("a", "new", "n1");
    rig.cluster.heal();
    rig.connected().await;
    let pods = rig.pods_when(|pods| pods.contains("a", "new")).await;
    assert_eq!(pods.len(), 20);
    assert_eq!(pods.count_by_index("node", "n2").unwrap(), 1);
    let after = rig.informed("pods");
    assert_eq!(
        (after.lists, after.added, after.modified, after.deleted),
        (0, 1, 1, 1)
    );
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_last_known_is_read_by_another_name_and_goes_with_the_cluster() {
    let mut informers = informers();
    let last = informers.last_known(LIMIT);
    let rig = Rig::with("known", informers).await;
    with_pods(&rig, 3).await;
    assert!(last.get(&rig.key).unwrap().disconnected_for().is_none());
    rig.cluster.refuse();
    until(&rig, |state| state.phase == Phase::Down).await;
    assert!(rig.cache.get::<Informers>(&rig.key).is_err());
    let known = soon(async {
        loop {
            let known = last.get(&rig.key).unwrap();
            if known.disconnected_for().is_some() {
                return known;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(known.store::<Pod>().unwrap().len(), 3);
    rig.cluster.replace().unwrap();
    rig.cluster.heal();
    rig.give(rig.cluster.access().credential);
    let forgotten = || {
        let known = last.get(&rig.key);
        known.is_err()
            || known
                .unwrap()
                .store::<Pod>()
                .is_ok_and(|pods| pods.is_empty())
    };
    until(&rig, |_| forgotten()).await;
    rig.connected().await;
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_gone_by_the_return_is_one_list_and_the_same_differences() {
    let rig = Rig::start("compacted").await;
    with_pods(&rig, 20).await;
    rig.cluster.refuse();
    until(&rig, |state| state.phase == Phase::Down).await;
    rig.delete_pod("a", "pod-0");
    rig.put_pod("a", "new", "n1");
    rig.cluster.compact();
    rig.cluster.heal();
    rig.connected().await;
    rig.pods_when(|pods| pods.contains("a", "new")).await;
    let after = rig.informed("pods");
    assert_eq!(
        (after.lists, after.added, after.modified, after.deleted),
        (1, 1, 0, 1)
    );
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_at_the_old_place_has_nothing_of_the_old_one() {
    let rig = Rig::start("another").await;
    with_pods(&rig, 5).await;
    rig.cluster.replace().unwrap();
    rig.put_pod("b", "theirs", "n1");
    rig.give(rig.cluster.access().credential);
    until(&rig, |_| {
        let informers = rig.cache.get::<Informers>(&rig.key);
        informers.is_ok_and(|now| {
            now.store::<Pod>()
                .is_ok_and(|pods| pods.contains("b", "theirs"))
        })
    })
    .await;
    assert_eq!(rig.pods().len(), 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_each_moment_of_connecting_is_there_once() {
    let rig = Rig::on(FakeCluster::start("moments").unwrap(), informers());
    rig.put_pod("a", "before", "n1");
    let hung = rig
        .cluster
        .api()
        .inject(Fault::hang().verb(Verb::Watch).resource("pods"));
    rig.give(rig.cluster.access().credential);
    rig.cluster
        .when(|counters| counters.requests.watch > 0)
        .await;
    rig.put_pod("a", "asked", "n1");
    rig.cluster.api().undo(hung);
    rig.put_pod("a", "answered", "n1");
    rig.connected().await;
    rig.put_pod("a", "after", "n1");
    let pods = rig.pods_when(|pods| pods.contains("a", "after")).await;
    assert_eq!(pods.len(), 4);
    assert_eq!(
        (rig.informed("pods").added, rig.informed("pods").modified),
        (4, 0)
    );
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_names_in_two_clusters_are_never_mixed() {
    let rig = Rig::start("one").await;
    let other = FakeCluster::builder("two")
        .api(FakeApi::new())
        .start()
        .unwrap();
    let key = clustercache::ClusterKey::named("two");
    rig.source.upsert(Upsert::ready(
        key.clone(),
        access(&other, other.access().credential),
    ));
    rig.cache.wait_for(&key, LIMIT).await.unwrap();
    rig.put_pod("a", "same", "of-one");
    other.put(crate::rig::pod("a", "same", "of-two")).unwrap();
    other.put(crate::rig::pod("b", "same", "of-two")).unwrap();
    let ours = rig.pods_when(|pods| pods.len() == 1).await;
    let theirs = rig.cache.get::<Informers>(&key).unwrap();
    let theirs = theirs
        .store::<Pod>()
        .unwrap()
        .wait_for(|pods| pods.len() == 2, LIMIT)
        .await
        .unwrap();
    assert_eq!(ours.count_by_index("node", "of-one").unwrap(), 1);
    assert_eq!(theirs.count_by_index("node", "of-one").unwrap(), 0);
    assert_eq!(theirs.count_by_index("node", "of-two").unwrap(), 2);
    rig.end().await;
}
