//! What is counted for metrics: each count moves when its event happens, and only then.

mod sim;

use clustercache::{
    Census, ClusterCache, FailureKind, Identity, MemorySource, Phase, ResourceCounters,
    SourcedAccess, Upsert, Verdict,
};
use futures_util::{FutureExt, StreamExt};
use sim::*;
use tokio::time::sleep;

fn one(change: impl FnOnce(Builder) -> Builder) -> (World, MemorySource, Cache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let cache = change(builder(&world, &source)).start().unwrap();
    source.upsert(plain("a"));
    (world, source, cache)
}

fn with_layer(script: &Script) -> (World, MemorySource, Cache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let layer = Layer::<0> {
        world: world.clone(),
        script: script.clone(),
    };
    source.upsert(plain("a"));
    let cache = builder(&world, &source).resource(layer).start().unwrap();
    (world, source, cache)
}

fn of<'a>(cache: &'a ClusterCache, name: &str) -> &'a ResourceCounters {
    let mut all = cache.counters().resources().iter();
    all.find(|of| of.name() == name).expect("registered")
}

/// Inits that went well and that failed, teardowns the same, and what was abandoned.
fn hooks(cache: &ClusterCache, name: &str) -> [u64; 5] {
    let of = of(cache, name);
    [
        of.inits().count(),
        of.failed_inits().count(),
        of.teardowns().count(),
        of.failed_teardowns().count(),
        of.abandoned(),
    ]
}

fn probes(cache: &ClusterCache, result: &str) -> u64 {
    let mut all = cache.counters().probes();
    all.find(|(name, _)| *name == result)
        .expect("a known result")
        .1
}

fn failing(census: &Census) -> Vec<(&'static str, usize)> {
    census.failing().filter(|(_, count)| *count > 0).collect()
}

fn labelled(name: &str, access: SourcedAccess) -> Upsert {
    Upsert {
        access,
        ..plain(name)
    }
}

#[tokio::test(start_paused = true)]
async fn the_census_is_what_the_states_say() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let script = Script::default();
    let layer = Layer::<0> {
        world: world.clone(),
        script: script.clone(),
    };
    let cache = builder(&world, &source)
        .resource(layer)
        .filter(|upsert| !upsert.key.name().starts_with("other"))
        .start()
        .unwrap();
    world.set("refuses", Answers::Refuses);
    world.set("never", Answers::Never);
    world.set("unready", Answers::NotReady);
    for name in ["a", "b", "c", "refuses", "never", "unready", "other"] {
        source.upsert(plain(name));
    }
    source.upsert(labelled(
        "gated",
        SourcedAccess::Gated("no control plane".into()),
    ));
    source.upsert(labelled(
        "refused",
        SourcedAccess::Refused("exec is not allowed".into()),
    ));
    until(&cache, "never", |state| state.first_failure.is_some()).await;
    until(&cache, "unready", |state| state.not_ready.is_some()).await;
    // One is down, one is suspect; the access of one that is connected is refused, and kept.
    world.set("a", Answers::Status(503));
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    source.upsert(labelled("b", SourcedAccess::Refused("no".into())));
    until(&cache, "b", |state| state.refused.is_some()).await;
    world.set("c", Answers::Refuses);
    until(&cache, "c", |state| state.health == Verdict::Suspect).await;

    let census = cache.census();
    let phases: Vec<_> = census.phases().filter(|(_, count)| *count > 0).collect();
    assert_eq!(
        phases,
        [
            (Phase::NotOwned, 1),
            (Phase::Gated, 1),
            (Phase::Refused, 1),
            (Phase::Connecting, 2),
            (Phase::Connected, 3),
            (Phase::Down, 1),
        ]
    );
    for (phase, count) in census.phases() {
        let states = cache.states().unwrap();
        let so = states.iter().filter(|state| state.phase == phase);
        assert_eq!(so.count(), count, "{phase}");
    }
    assert_eq!(
        failing(&census),
        [("timed_out", 1), ("connection_refused", 2), ("http_5xx", 1)]
    );
    assert_eq!((census.suspect, census.not_ready), (1, 1));
    assert_eq!((census.refused, census.clusters()), (2, 9));
    assert_eq!(census.nearest_expiry, None);

    cache.shutdown().await.unwrap();
    assert_eq!(
        cache.census(),
        Census::default(),
        "nothing is known any more"
    );
}

#[tokio::test(start_paused = true)]
async fn inits_and_teardowns_are_counted_by_provider_and_end() {
    let script = Script::default();
    script.set("a", [Act::Fails, Act::Hangs, Act::Slow(secs(2))]);
    let (world, source, cache) = with_layer(&script);
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    assert_eq!(hooks(&cache, "net"), [1, 0, 0, 0, 0]);
    assert_eq!(hooks(&cache, "layer-0"), [1, 2, 0, 0, 0]);
    assert_eq!(of(&cache, "layer-0").inits().sum(), secs(2));
    // It hung for as long as an init may take.
    assert_eq!(of(&cache, "layer-0").failed_inits().sum(), secs(10));
    source.remove(&key("a"));
    world.until_noted("a net down").await;
    settle().await;
    assert_eq!(hooks(&cache, "layer-0"), [1, 2, 1, 0, 0]);
    assert_eq!(hooks(&cache, "net"), [1, 0, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_applicable_has_not_failed() {
    let script = Script::default();
    script.set("a", [Act::NotApplicable]);
    let (_world, _source, cache) = with_layer(&script);
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    assert_eq!(hooks(&cache, "layer-0"), [1, 0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_init_that_was_cancelled_has_not_failed_and_a_teardown_without_end_is_abandoned() {
    let script = Script::default();
    script.set("a", [Act::EndsWithPanic, Act::Hangs]);
    script.set("b", [Act::EndsNever]);
    let (world, source, cache) = with_layer(&script);
    cache.expect_panic("layer-0");
    source.upsert(plain("b"));
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    until(&cache, "b", |state| state.phase == Phase::Connected).await;
    // `a` goes while it is made anew.
    cache.reconnect(&key("a"));
    settle().await;
    source.remove(&key("a"));
    source.remove(&key("b"));
    world.until_noted("b net down").await;
    settle().await;
    assert_eq!(hooks(&cache, "layer-0"), [2, 0, 0, 2, 1]);
    assert_eq!(hooks(&cache, "net"), [3, 0, 3, 0, 0]);
    assert_eq!(cache.counters().abandoned(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_is_counted_apart_from_the_init() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.with_permits();
    let one_a_second = |builder: Builder| builder.configure(|options| options.dial.per_second = 1);
    let cache = one_a_second(builder(&world, &source)).start().unwrap();
    for name in ["a", "b", "c"] {
        source.upsert(plain(name));
    }
    for name in ["a", "b", "c"] {
        until(&cache, name, |state| state.phase == Phase::Connected).await;
    }
    let waits = cache.counters().dial_waits();
    assert_eq!((waits.count(), waits.sum().as_secs()), (3, 3));
    let inits = of(&cache, "net").inits();
    assert_eq!((inits.count(), inits.sum()), (3, secs(0)));
}

#[tokio::test(start_paused = true)]
async fn probes_are_counted_by_result_and_of_a_cluster_over_all_its_connections() {
    let (world, source, cache) = one(|builder| builder);
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    let counts = |name: &str| {
        let state = cache.state(&key(name)).unwrap();
        (state.probes_succeeded, state.probes_failed)
    };
    assert_eq!(counts("a"), (0, 0));
    sleep(secs(16)).await;
    assert_eq!((counts("a"), probes(&cache, "ready")), ((3, 0), 3));
    world.set("a", Answers::NotReady);
    until(&cache, "a", |state| state.not_ready.is_some()).await;
    assert_eq!((counts("a"), probes(&cache, "not_ready")), ((4, 0), 1));
    world.set("a", Answers::Refuses);
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    let failed = counts("a").1;
    assert!(failed >= 3);
    assert_eq!(
        probes(&cache, FailureKind::Refused.label()),
        failed,
        "each of them"
    );
    world.set("a", Answers::Well);
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    assert_eq!(counts("a"), (4, failed), "of the connection before, too");
    // Another cluster of the name has not been probed.
    source.upsert(cluster("a", "another", "a", "t"));
    until(&cache, "a", |state| {
        state.phase == Phase::Connected && state.identity == Identity::Uid("another".into())
    })
    .await;
    assert_eq!(counts("a"), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_is_behind_is_seen_until_it_notices() {
    let (_world, source, cache) =
        one(|builder| builder.configure(|options| options.events.pending = 2));
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    assert_eq!(cache.subscribers().subscribed, 0);
    let mut events = cache.subscribe();
    // Its walk over what is known has begun.
    events.next().await;
    for name in ["b", "c"] {
        source.upsert(plain(name));
    }
    until(&cache, "c", |state| state.phase == Phase::Connected).await;
    let now = cache.subscribers();
    assert_eq!((now.subscribed, now.behind, now.resyncs), (1, 0, 0));
    assert_eq!(now.most_unread, 2);
    source.upsert(plain("d"));
    until(&cache, "d", |state| state.phase == Phase::Connected).await;
    let now = cache.subscribers();
    assert_eq!((now.behind, now.most_unread, now.resyncs), (1, 0, 1));
    while events.next().now_or_never().is_some() {}
    let now = cache.subscribers();
    assert_eq!((now.behind, now.resyncs), (0, 1));
    drop(events);
    assert_eq!(cache.subscribers().subscribed, 0);
}
