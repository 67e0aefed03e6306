//! Nothing of a cluster is left when it is gone (rule 8): no task, and no descriptor. Over real sockets, whatever they were doing.

use std::time::Duration;

use clustercache::{
    ClusterAccess, ClusterCache, ClusterKey, GetError, MemorySource, Phase, Upsert,
};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_testkit::{
    fleet::{FakeCluster, Fleet},
    guard::PanicGuard,
};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::WatchParams};
use tokio::runtime::Handle;

use crate::alone;

const LIMIT: Duration = Duration::from_secs(60);

const CLUSTERS: usize = 10;
const ROUNDS: usize = 12;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn key(cluster: &FakeCluster) -> ClusterKey {
    ClusterKey::named(cluster.name())
}

fn upsert(cluster: &FakeCluster) -> Upsert {
    let access = ClusterAccess::builder(cluster.url())
        .ca_pem(cluster.ca_pem())
        .token(cluster.token());
    Upsert::ready(key(cluster), access.build().unwrap())
}

async fn until(
    cache: &ClusterCache,
    key: &ClusterKey,
    is: impl Fn(Result<Phase, GetError>, u32) -> bool,
) {
    let mut events = cache.subscribe().key(key);
    let attempts = || cache.state(key).map_or(0, |state| state.attempts);
    let so = async {
        while !is(cache.phase(key), attempts()) {
            events.next().await.expect("the cache runs");
        }
    };
    let so = tokio::time::timeout(LIMIT, so).await;
    so.unwrap_or_else(|_| panic!("{:?}", cache.state(key)));
}

/// All come and go: most are connected, and some of them watched and changed; one is silent while it is dialled, one refuses, one turns silent.
async fn round(fleet: &Fleet, source: &MemorySource, cache: &ClusterCache) {
    let all = fleet.clusters();
    let (silent, refuses, turns_silent, moves) = (&all[0], &all[1], &all[2], &all[3]);
    silent.black_hole();
    refuses.refuse();
    for cluster in all {
        source.upsert(upsert(cluster));
    }
    for cluster in &all[2..] {
        cache.wait_for(&key(cluster), LIMIT).await.unwrap();
    }
    let dialled = silent.when(|now| now.connections_open > 0);
    tokio::time::timeout(LIMIT, dialled).await.unwrap();
    until(cache, &key(refuses), |_, attempts| attempts > 1).await;
    // A watch that is held beyond the end.
    let pods = Api::<Pod>::all(cache.client(&key(turns_silent)).unwrap());
    let watch = pods.watch(&WatchParams::default(), "0").await.unwrap();
    turns_silent.black_hole();
    // A new token is taken in place, and another CA is another cluster.
    moves.replace().unwrap();
    source.upsert(upsert(moves));
    all[4].add_token();
    source.upsert(upsert(&all[4]));
    cache.wait_for(&key(moves), LIMIT).await.unwrap();
    for cluster in all {
        source.remove(&key(cluster));
    }
    for cluster in all {
        until(cache, &key(cluster), |phase, _| phase.is_err()).await;
        let closed = tokio::time::timeout(LIMIT, cluster.connections_closed()).await;
        closed.expect("its connections are closed");
    }
    drop(watch);
    for cluster in all {
        cluster.heal();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn after_120_adds_and_removes_over_real_sockets_tasks_and_descriptors_are_what_they_were() {
    alone(async {
        let fleet = Fleet::start(CLUSTERS).await.unwrap();
        let source = MemorySource::new("test");
        let cache = ClusterCache::builder()
            .source(source.clone())
            .resource(KubeClient::new())
            .health_from::<KubeClient>()
            .configure(|options| {
                options.source.linger = Duration::from_millis(10);
                options.retry.first = Duration::from_millis(100);
                options.retry.most = Duration::from_millis(100);
            })
            .start()
            .unwrap();
        let _guard = PanicGuard::new(&cache);
        // What is opened once is open after this.
        round(&fleet, &source, &cache).await;
        let (tasks_before, descriptors_before) = (settled(&cache).await, descriptors());
        for _ in 0..ROUNDS {
            round(&fleet, &source, &cache).await;
        }
        assert_eq!(settled(&cache).await, tasks_before);
        assert_eq!(descriptors(), descriptors_before);
        assert_eq!(cache.counters().abandoned(), 0);
        let report = cache.shutdown().await.unwrap();
        assert!(report.is_clean(), "{report}");
        fleet.shutdown().await;
    });
}

/// How many tasks there are when all teardowns are over and whoever is about to end has ended.
async fn settled(cache: &ClusterCache) -> usize {
    let of = |counts: fn(&clustercache::ResourceCounters) -> u64| {
        cache.counters().resources().iter().map(counts).sum::<u64>()
    };
    let ended = async {
        while of(|of| of.inits().count()) > of(|of| of.teardowns().count()) {
            tokio::task::yield_now().await;
        }
        let mut still = (0, usize::MAX);
        while still.0 < 100 {
            tokio::task::yield_now().await;
            let now = tasks();
            still = if now == still.1 {
                (still.0 + 1, now)
            } else {
                (0, now)
            };
        }
        still.1
    };
    tokio::time::timeout(LIMIT, ended)
        .await
        .expect("teardowns end")
}
