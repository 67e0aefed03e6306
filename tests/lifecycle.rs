//! The life of clusters in simulated time: the rows of the core that need no network.

mod sim;

use std::time::Duration;

use clustercache::{ClusterCache, GetError, MemorySource, Phase};
use futures_util::StreamExt;
use sim::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn start<const N: usize>(names: [&str; N]) -> (World, MemorySource, ClusterCache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    for name in names {
        source.upsert(plain(name));
    }
    let cache = builder(&world, &source).start().unwrap();
    (world, source, cache)
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_connected_read_and_removed() {
    let (world, source, cache) = start(["a"]).await;
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let net = cache.get::<Net>(&key("a")).unwrap();
    assert!(net.is_current());
    assert_eq!(a.state().unwrap().phase, Phase::Connected);
    source.remove(&key("a"));
    world.until_noted("a net down Removed").await;
    assert!(!net.is_current());
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Unknown { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_down_within_fifteen_seconds_and_comes_back() {
    let (world, _source, cache) = start(["a"]).await;
    cache.wait_for(&key("a"), LONG).await.unwrap();
    world.set("a", Answers::Never);
    let begun = tokio::time::Instant::now();
    world.until_noted("a net down Down").await;
    assert!(begun.elapsed() <= secs(15), "{:?}", begun.elapsed());
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Down(_))
    ));
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_tears_down_and_every_read_says_so() {
    let (world, _source, cache) = start(["a", "b"]).await;
    cache.wait_for_start(LONG).await.unwrap();
    let report = cache.shutdown().await.unwrap();
    assert!(report.is_clean(), "{report}");
    let mut journal = world.journal();
    journal.sort();
    assert_eq!(
        journal,
        [
            "a net down Shutdown",
            "a net up",
            "b net down Shutdown",
            "b net up"
        ]
    );
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::NotRunning { .. })
    ));
}

/// A subscriber is told when a resource comes up, fails or goes, also while the cluster's phase stays what it is.
#[tokio::test(start_paused = true)]
async fn what_becomes_of_an_optional_resource_is_told() {
    let (world, source, script) = (
        World::default(),
        MemorySource::new("test"),
        Script::default(),
    );
    script.set("a", [Act::Fails, Act::Works, Act::Fails]);
    source.upsert(plain("a"));
    let layer = Layer::<0> {
        world: world.clone(),
        script,
    };
    let cache = builder(&world, &source).optional(layer).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let mut events = cache.subscribe().key(&key("a"));
    let mut told_until = async |up: bool| {
        let told = async {
            while cache.get::<Layer<0>>(&key("a")).is_ok() != up {
                events.next().await;
            }
        };
        let told = tokio::time::timeout(LONG, told).await;
        assert!(told.is_ok(), "up {up}: nobody was told");
    };
    told_until(true).await;
    let layer = cache.get::<Layer<0>>(&key("a")).unwrap();
    layer.cx.failed(Scripted);
    told_until(false).await;
    told_until(true).await;
}
