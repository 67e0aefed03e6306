//! What all clusters share: turns to list, bytes of pages, cached bytes.

use std::time::Duration;

use clustercache::{ClusterCache, ClusterKey, MemorySource, Upsert};
use clustercache_client::KubeClient;
use clustercache_informers::{Budgets, Informers, Kind, StoreError};
use clustercache_testkit::{
    api::{Fault, Verb},
    fleet::{FakeCluster, Fleet},
};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use crate::rig::{LIMIT, Rig, access, pod, quick, soon};

fn start(informers: Informers, fleet: &Fleet) -> ClusterCache {
    let source = MemorySource::new("fleet");
    for cluster in fleet.clusters() {
        add(&source, cluster);
    }
    ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .resource(informers)
        .start()
        .unwrap()
}

fn add(source: &MemorySource, cluster: &FakeCluster) {
    let access = access(cluster, cluster.access().credential);
    source.upsert(Upsert::ready(ClusterKey::named(cluster.name()), access));
}

fn fill(cluster: &FakeCluster, pods: usize) {
    for number in 0..pods {
        cluster
            .put(pod("a", &format!("pod-{number}"), "n1"))
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_lists_pages_never_holds_more_than_its_budget_and_is_synced() {
    let fleet = Fleet::start(20).await.unwrap();
    for cluster in fleet.clusters() {
        fill(cluster, 600);
        cluster
            .api()
            .inject(Fault::status(422).verb(Verb::Watch).resource("pods"));
    }
    let mut budgets = Budgets::default();
    budgets.lists = 4;
    budgets.list_bytes = 2 << 20;
    let most = budgets.list_bytes;
    let informers = Informers::new()
        .loop_options(quick())
        .budgets(budgets)
        .kind(Kind::<Pod>::new());
    let used = informers.budget_use();
    let cache = start(informers, &fleet);
    let all = fleet.clusters().iter().map(|cluster| {
        let key = ClusterKey::named(cluster.name());
        let (cache, used) = (&cache, &used);
        async move {
            cache.wait_for(&key, LIMIT).await.unwrap();
            assert!(used.list_bytes() <= most && used.lists() <= 4, "{used:?}");
            let informers = cache.get::<Informers>(&key).unwrap();
            assert_eq!(informers.store::<Pod>().unwrap().len(), 600);
        }
    });
    join_all(all).await;
    assert_eq!(
        (used.lists(), used.lists_waiting(), used.list_bytes()),
        (0, 0, 0)
    );
    assert!(used.cached_bytes() > 20 * 600 * 100);
    cache.shutdown().await.unwrap();
    soon(async {
        while used.cached_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_say_nothing_hold_up_no_other() {
    let fleet = Fleet::start(13).await.unwrap();
    for cluster in &fleet.clusters()[..12] {
        cluster.api().inject(Fault::hang().resource("pods"));
    }
    let healthy = &fleet.clusters()[12];
    fill(healthy, 10);
    let mut budgets = Budgets::default();
    budgets.lists = 3;
    let informers = Informers::new()
        .loop_options(quick())
        .budgets(budgets)
        .kind(Kind::<Pod>::new());
    let cache = start(informers, &fleet);
    let key = ClusterKey::named(healthy.name());
    cache.wait_for(&key, LIMIT).await.unwrap();
    let informers = cache.get::<Informers>(&key).unwrap();
    assert_eq!(informers.store::<Pod>().unwrap().len(), 10);
    cache.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_are_larger_than_the_budget_are_made_smaller() {
    let cluster = FakeCluster::start("large").unwrap();
    fill(&cluster, 200);
    let pages = Fault::status(422).verb(Verb::Watch).resource("pods");
    cluster.api().inject(pages);
    let mut budgets = Budgets::default();
    budgets.list_bytes = 32 << 10;
    let informers = Informers::new()
        .loop_options(quick())
        .budgets(budgets)
        .kind(Kind::<Pod>::new());
    let rig = Rig::on(cluster, informers);
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    assert_eq!(rig.pods().len(), 200);
    assert!(rig.lists("pods") > 4, "one page was no page");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_beyond_the_budget_of_cached_bytes_says_so_and_no_other_suffers() {
    let cluster = FakeCluster::start("over").unwrap();
    fill(&cluster, 100);
    let mut budgets = Budgets::default();
    budgets.cached_bytes = 20_000;
    let informers = Informers::new()
        .loop_options(quick())
        .budgets(budgets)
        .kind(Kind::<Pod>::new().best_effort())
        .kind(Kind::<ConfigMap>::new());
    let used = informers.budget_use();
    let rig = Rig::on(cluster, informers);
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let error = rig
        .informers()
        .wait_synced::<Pod>(Duration::from_millis(300))
        .await
        .unwrap_err();
    let why = std::error::Error::source(&error)
        .expect("why")
        .downcast_ref::<StoreError>();
    assert!(
        matches!(why, Some(StoreError::OverBudget { .. })),
        "{error:?}"
    );
    assert!(rig.informers().store::<ConfigMap>().is_ok());
    assert!(used.cached_bytes() < 20_000);
    rig.end().await;
}
