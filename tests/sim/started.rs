//! Caches that tests begin with: one cluster or a fleet, with what a test adds, and what is asked of them.

use clustercache::{ClusterCache, Event, MemorySource, ResourcePhase, Subscription, Upsert};
use futures_util::{FutureExt, StreamExt};

use super::{
    Builder, Cache, LONG, Layer, Net, Script, World, builder, cluster, key, plain, resource, until,
};

/// Cluster `a` at server `a` with token `t`, connected.
pub async fn connected(change: impl FnOnce(Builder) -> Builder) -> (World, MemorySource, Cache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = change(builder(&world, &source)).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    (world, source, cache)
}

/// The same identity at another server.
pub fn moved(host: &str, token: &str) -> Upsert {
    cluster("a", "a", host, token)
}

pub fn generation(cache: &ClusterCache) -> String {
    cache
        .get::<Net>(&key("a"))
        .unwrap()
        .generation()
        .to_string()
}

/// Waits until the published connection is to this server, and no other is being made.
pub async fn until_at(cache: &ClusterCache, host: &str) {
    until(cache, "a", |state| {
        let net = cache.get::<Net>(&key("a"));
        let here =
            net.is_ok_and(|net| net.access.lock().unwrap().endpoint().url().host() == Some(host));
        here && !state.replacing
    })
    .await;
}

pub async fn fleet(
    names: &[String],
    change: impl FnOnce(Builder) -> Builder,
) -> (World, MemorySource, Cache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    for name in names {
        source.upsert(plain(name));
    }
    let cache = change(builder(&world, &source)).start().unwrap();
    assert!(cache.wait_for_start(LONG).await.unwrap());
    (world, source, cache)
}

pub async fn one() -> (World, MemorySource, Cache) {
    fleet(&["a".to_owned()], |builder| builder).await
}

pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("c{n:03}")).collect()
}

pub fn told(events: &mut Subscription) -> Vec<Event> {
    std::iter::from_fn(|| events.next().now_or_never().flatten()).collect()
}

/// Cluster `a`, with these besides `Net`; not waited for.
pub fn with(
    add: impl FnOnce(Builder, &World, &Script) -> Builder,
) -> (World, Script, MemorySource, Cache) {
    let (world, script) = <(World, Script)>::default();
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let cache = add(builder(&world, &source), &world, &script)
        .start()
        .unwrap();
    (world, script, source, cache)
}

pub fn layer<const N: usize>(world: &World, script: &Script) -> Layer<N> {
    Layer {
        world: world.clone(),
        script: script.clone(),
    }
}

pub async fn until_up(cache: &ClusterCache, name: &str) {
    until(cache, "a", |state| {
        resource(state, name).phase == ResourcePhase::Up
    })
    .await;
}
