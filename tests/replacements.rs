//! Another endpoint or CA of the same cluster: make before break, what the new connection takes over, and how slow teardowns are left behind.

mod sim;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use clustercache::{GetError, InitError, MemorySource, Phase, Upsert};
use sim::*;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

// === Kind 2: endpoint or CA ===

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_replaced_make_before_break_by_one_swap() {
    let (world, source, cache) = connected(|builder| builder.resource(Custom::<0>::new())).await;
    let old = cache.cluster(&key("a")).unwrap();
    let old_net = old.get::<Net>().unwrap();
    world.set("b", Answers::Never);
    source.upsert(moved("b", "t2"));
    sleep(secs(5)).await;
    assert!(old_net.is_current(), "served while the other is made");
    assert!(old.state().unwrap().replacing);
    world.set("b", Answers::Well);
    gone(&old_net).await;
    let snapshot = old.snapshot().unwrap();
    let generations = (
        snapshot.get::<Net>().unwrap().generation(),
        snapshot.get::<Custom<0>>().unwrap().generation(),
    );
    assert_eq!(generations.0, generations.1);
    assert!(generations.0 > old_net.generation());
    world.until_noted("a net down Replaced").await;
    assert_eq!(
        (world.seen("a"), world.seen("b")),
        (vec!["t".to_owned()], vec!["t2".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn back_while_building_cancels_the_build_and_a_third_endpoint_replaces_it() {
    let (world, source, cache) = connected(|builder| builder).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    world.set("b", Answers::Never);
    source.upsert(moved("b", "t2"));
    settle().await;
    source.upsert(moved("a", "t3"));
    settle().await;
    let state = cache.state(&key("a")).unwrap();
    assert!(
        !state.replacing && net.is_current(),
        "the published one takes it in place"
    );
    assert_eq!(world.seen("a"), ["t", "t3"]);
    source.upsert(moved("b", "t4"));
    settle().await;
    source.upsert(moved("c", "t5"));
    until_at(&cache, "c").await;
    sleep(secs(60)).await;
    assert_eq!(world.seen("a"), ["t", "t3"]);
    assert_eq!(world.seen("b"), ["t2", "t4"]);
    assert_eq!(
        world.seen("c"),
        ["t5"],
        "no token is seen by an endpoint that it did not come with"
    );
    assert_eq!(world.count("a net down Replaced"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_token_for_the_endpoint_that_is_built_is_taken_by_the_build_only() {
    let (world, source, cache) = connected(|builder| builder).await;
    world.set("b", Answers::Status(500));
    source.upsert(moved("b", "t2"));
    sleep(secs(2)).await;
    source.upsert(moved("b", "t3"));
    world.set("b", Answers::Well);
    until_at(&cache, "b").await;
    assert_eq!(world.seen("a"), ["t"]);
    assert_eq!(world.seen("b"), ["t2", "t3"]);
}

#[tokio::test(start_paused = true)]
async fn an_init_in_a_build_is_retried_alone_and_the_old_one_is_served_all_the_while() {
    let script = Script::default();
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let layer = Layer::<0> {
        world: world.clone(),
        script: script.clone(),
    };
    let cache = builder(&world, &source).resource(layer).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let net = cache.get::<Net>(&key("a")).unwrap();
    world.journal();
    script.set("a", [Act::Fails, Act::Panics, Act::Fails]);
    cache.expect_panic("layer-0");
    source.upsert(moved("b", "t"));
    gone(&net).await;
    settle().await;
    let journal = world.journal();
    assert_eq!(
        journal,
        [
            "a net up",
            "a layer-0 tries",
            "a layer-0 tries",
            "a layer-0 tries",
            "a layer-0 tries",
            "a layer-0 up",
            "a layer-0 down Replaced",
            "a net down Replaced"
        ]
    );
}

/// A build whose own health provider has gone down, beside a published connection: `slow` hangs in it, so that it is never swapped.
async fn build_gone_down(world: &World, source: &MemorySource, script: &Script) -> Cache {
    source.upsert(plain("a"));
    let layer = Layer::<0> {
        world: world.clone(),
        script: script.clone(),
    };
    let cache = builder(world, source).resource(layer).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    script.set("a", [Act::Hangs, Act::Hangs, Act::Hangs, Act::Works]);
    source.upsert(moved("b", "t"));
    world.until_noted("a layer-0 tries").await;
    world.journal();
    world.until_noted("a layer-0 tries").await;
    world.set("b", Answers::Never);
    world.until_noted("a net down Down").await;
    cache
}

#[tokio::test(start_paused = true)]
async fn a_build_whose_health_provider_goes_down_ends_and_is_begun_again() {
    let (world, script) = <(World, Script)>::default();
    let source = MemorySource::new("test");
    let cache = build_gone_down(&world, &source, &script).await;
    assert!(
        cache.get::<Net>(&key("a")).is_ok(),
        "the published one is not touched"
    );
    world.set("b", Answers::Well);
    until_at(&cache, "b").await;
    assert!(cache.get::<Layer<0>>(&key("a")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_replacement_interrupted_by_a_refusal_goes_on_when_that_is_mended() {
    let (world, source, cache) = connected(|builder| builder).await;
    world.set("b", Answers::Never);
    source.upsert(moved("b", "t2"));
    settle().await;
    source.upsert(Upsert::refused(key("a"), "broken").with_uid("a"));
    settle().await;
    let state = cache.state(&key("a")).unwrap();
    assert!(!state.replacing && state.refused.is_some() && state.phase == Phase::Connected);
    world.set("b", Answers::Well);
    sleep(secs(60)).await;
    assert_eq!(world.requests("b"), 1, "not dialled until it is mended");
    source.upsert(moved("b", "t2"));
    until_at(&cache, "b").await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_interrupted_by_a_removal_goes_on_when_the_cluster_is_back_within_the_linger()
{
    let (world, source, cache) = connected(|builder| builder).await;
    world.set("b", Answers::Never);
    source.upsert(moved("b", "t2"));
    settle().await;
    source.remove(&key("a"));
    sleep(secs(2)).await;
    world.set("b", Answers::Well);
    source.upsert(moved("b", "t2"));
    until_at(&cache, "b").await;
    world.until_noted("a net down Replaced").await;
}

#[tokio::test(start_paused = true)]
async fn a_swap_waits_for_optional_resources_that_were_up_until_they_are_or_failed_once() {
    for (acts, waits) in [
        (vec![Act::Slow(secs(7))], secs(7)),
        (vec![Act::Fails, Act::Hangs], secs(0)),
        (vec![Act::NotApplicable], secs(0)),
        (vec![Act::NeedsAccess], secs(0)),
    ] {
        let script = Script::default();
        let (world, source) = (World::default(), MemorySource::new("test"));
        source.upsert(plain("a"));
        let layer = Layer::<0> {
            world: world.clone(),
            script: script.clone(),
        };
        let cache = builder(&world, &source).optional(layer).start().unwrap();
        until(&cache, "a", |state| {
            resource(state, "layer-0").phase == clustercache::ResourcePhase::Up
        })
        .await;
        let net = cache.get::<Net>(&key("a")).unwrap();
        script.set_all("a", acts.clone());
        let begun = Instant::now();
        source.upsert(moved("b", "t"));
        gone(&net).await;
        assert_eq!(begun.elapsed(), waits, "{acts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_swap_waits_for_a_hung_optional_resource_for_30_seconds_at_most() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let hang = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&hang);
    let custom = Custom::<0>::new().init_timeout(secs(600)).init(move |_| {
        let hangs = hangs.load(SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let cache = builder(&world, &source).optional(custom).start().unwrap();
    until(&cache, "a", |state| {
        resource(state, "custom-0").phase == clustercache::ResourcePhase::Up
    })
    .await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    hang.store(true, SeqCst);
    let begun = Instant::now();
    source.upsert(moved("b", "t"));
    gone(&net).await;
    assert_eq!(begun.elapsed(), secs(30));
    assert!(matches!(
        cache.get::<Custom<0>>(&key("a")),
        Err(GetError::Reinitialising {
            resource: "custom-0",
            ..
        })
    ));
}

#[tokio::test(start_paused = true)]
async fn when_the_old_one_goes_down_meanwhile_it_alone_goes() {
    let (world, source, cache) = connected(|builder| builder).await;
    world.set("b", Answers::Never);
    source.upsert(moved("b", "t2"));
    settle().await;
    world.set("a", Answers::Refuses);
    world.until_noted("a net down Down").await;
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(state.phase, Phase::Down);
    let tried = world.requests("b");
    world.set("b", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(
        world.requests("b"),
        tried,
        "the build went on; it was not begun again"
    );
    assert_eq!(world.noted(), ["a net up", "a net down Down", "a net up"]);
}

#[tokio::test(start_paused = true)]
async fn removal_ends_both_the_published_connection_and_the_one_beside_it() {
    let script = Script::default();
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let layer = Layer::<0> {
        world: world.clone(),
        script: script.clone(),
    };
    let cache = builder(&world, &source).resource(layer).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    script.set("a", [Act::Hangs]);
    source.upsert(moved("b", "t"));
    world.until_noted("a layer-0 up").await;
    settle().await;
    world.journal();
    source.remove(&key("a"));
    settle().await;
    assert_eq!(
        world.journal(),
        ["a net down Removed"],
        "the build ends at once"
    );
    until_unknown(&cache, "a").await;
    settle().await;
    assert_eq!(
        world.journal(),
        ["a layer-0 down Removed", "a net down Removed"]
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_both_side_by_side() {
    let script = Script::default();
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    script.set("a", [Act::EndsSlowly(secs(3)), Act::EndsSlowly(secs(3))]);
    let layer = Layer::<0> {
        world: world.clone(),
        script: script.clone(),
    };
    let slow = Script::default();
    let second = Layer::<1> {
        world: world.clone(),
        script: slow.clone(),
    };
    let cache = builder(&world, &source)
        .resource(layer)
        .resource(second)
        .start()
        .unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    slow.set("a", [Act::Hangs]);
    source.upsert(moved("b", "t"));
    settle().await;
    assert!(cache.state(&key("a")).unwrap().replacing);
    let begun = Instant::now();
    let report = cache.shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), secs(3), "both at once");
    let left: Vec<_> = report.abandoned.iter().map(|left| left.resource).collect();
    assert_eq!(left, ["layer-1"], "only the hung init");
    assert_eq!(world.count("a layer-0 down Shutdown"), 2);
    assert_eq!(world.count("a net down Shutdown"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_reads_its_predecessor_and_a_connection_of_its_own_has_none() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let note = world.clone();
    let custom = Custom::<0>::new().init(move |cx| {
        let before = cx.predecessor::<Custom<0>>();
        let text = before.map_or("none".to_owned(), |before| before.generation().to_string());
        note.note(format!("predecessor {text}"));
        async { Ok(()) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = generation(&cache);
    source.upsert(moved("b", "t"));
    until_at(&cache, "b").await;
    world.set("b", Answers::Refuses);
    world.until_noted("a net down Down").await;
    world.set("b", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let journal = world.journal();
    let predecessors: Vec<_> = journal
        .iter()
        .filter(|line| line.starts_with("predecessor"))
        .collect();
    assert_eq!(
        predecessors,
        [
            "predecessor none",
            &*format!("predecessor {old}"),
            "predecessor none"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_predecessor_that_went_down_is_none() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let go = Arc::new(Notify::new());
    let (gate, note) = (Arc::clone(&go), world.clone());
    let custom = Custom::<0>::new()
        .init_timeout(secs(600))
        .init(move |cx| {
            let (gate, note) = (Arc::clone(&gate), note.clone());
            async move {
                if cx.predecessor::<Custom<0>>().is_some() {
                    gate.notified().await;
                    // Its teardown has not come to this one yet.
                    let is_there = cx.predecessor::<Net>().is_some();
                    note.note(format!("after it went down: {is_there}"));
                }
                Ok(())
            }
        })
        .teardown(|_, _| std::future::pending())
        .teardown_timeout(secs(100));
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = cache.get::<Custom<0>>(&key("a")).unwrap();
    source.upsert(moved("b", "t"));
    settle().await;
    world.set("a", Answers::Refuses);
    gone(&old).await;
    go.notify_one();
    world.until_noted("after it went down: false").await;
}

#[tokio::test(start_paused = true)]
async fn warm_state_that_a_teardown_kept_is_read_by_the_next_init_of_the_same_identity_once() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let note = world.clone();
    let custom = Custom::<0>::new()
        .init(move |cx| {
            note.note(format!("kept {:?}", cx.kept::<u64>()));
            async { Ok(()) }
        })
        .teardown(|_, cx| {
            assert!(cx.keep(7_u64, 8));
            async {}
        });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    for _ in 0..2 {
        world.set("a", Answers::Refuses);
        until(&cache, "a", |state| state.phase == Phase::Down).await;
        world.set("a", Answers::Well);
        cache.wait_for(&key("a"), LONG).await.unwrap();
    }
    // Another identity gets nothing of it.
    source.upsert(cluster("a", "other", "a", "t"));
    settle().await;
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let kept: Vec<_> = world
        .journal()
        .into_iter()
        .filter(|line| line.starts_with("kept"))
        .collect();
    assert_eq!(
        kept,
        ["kept None", "kept Some(7)", "kept Some(7)", "kept None"]
    );
}

#[tokio::test(start_paused = true)]
async fn identity_state_lives_over_all_connections_of_an_identity_and_not_beyond() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let note = world.clone();
    let custom = Custom::<0>::new().init(move |cx| {
        let count = cx.identity_state::<AtomicUsize>().fetch_add(1, SeqCst);
        note.note(format!("before {count}"));
        async { Ok(()) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    source.upsert(moved("b", "t"));
    until_at(&cache, "b").await;
    world.set("b", Answers::Refuses);
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    world.set("b", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    source.upsert(cluster("a", "other", "a", "t"));
    settle().await;
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    source.upsert(cluster("a", "other", "a", "t"));
    settle().await;
    let before: Vec<_> = world
        .journal()
        .into_iter()
        .filter(|line| line.starts_with("before"))
        .collect();
    assert_eq!(
        before,
        ["before 0", "before 1", "before 2", "before 0", "before 0"]
    );
}

#[tokio::test(start_paused = true)]
async fn identity_state_whose_drop_panics_harms_nobody() {
    struct Bad;
    impl Default for Bad {
        fn default() -> Self {
            Self
        }
    }
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("the test says so");
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    source.upsert(plain("b"));
    let custom = Custom::<0>::new()
        .init(move |cx| {
            let _ = cx.identity_state::<Bad>();
            async { Ok(()) }
        })
        .teardown(|_, cx| {
            cx.keep(Bad, 1);
            async {}
        });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for_start(LONG).await.unwrap();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    source.upsert(cluster("b", "other", "b", "t"));
    sleep(secs(60)).await;
    cache.get::<Net>(&key("b")).unwrap();
    assert_eq!(cache.status(), clustercache::EngineStatus::Running);
}

// === Slow teardowns ===

#[tokio::test(start_paused = true)]
async fn a_slow_teardown_delays_no_successor_and_the_third_on_its_way_out_abandons_the_oldest() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let down = world.clone();
    let custom = Custom::<0>::new()
        .teardown_timeout(secs(30))
        .teardown(move |_, cx| {
            let (world, generation) = (down.clone(), cx.generation());
            async move {
                sleep(secs(10)).await;
                world.note(format!("custom-0 ended {generation}"));
            }
        });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let begun = Instant::now();
    for uid in ["second", "third", "fourth"] {
        source.upsert(cluster("a", uid, "a", "t"));
        settle().await;
        assert!(
            cache.get::<Custom<0>>(&key("a")).is_ok(),
            "the newest is up at once"
        );
        assert_eq!(begun.elapsed(), secs(0));
    }
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(state.retiring, 2);
    assert_eq!(cache.counters().abandoned(), 2, "it, and what was below it");
    assert_eq!(world.count("a net down Replaced"), 0);
    sleep(secs(10)).await;
    settle().await;
    assert_eq!(
        world.count("custom-0 ended"),
        2,
        "the others ended in their own time"
    );
    assert_eq!(cache.state(&key("a")).unwrap().retiring, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_below_an_abandoned_hook_is_dropped_in_reverse() {
    struct Noted(World, &'static str);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.note(format!("{} dropped", self.1));
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let made = |name| {
        let world = world.clone();
        move |_| {
            let noted = Noted(world.clone(), name);
            async { Ok::<_, InitError>(noted) }
        }
    };
    let first = Custom::<0>::new()
        .init(made("first"))
        .teardown(|_, _| std::future::pending())
        .teardown_timeout(secs(1_000));
    let second = Custom::<1>::new()
        .requires(clustercache::Requires::resource::<Custom<0>>)
        .init(made("second"))
        .teardown(|_, _| std::future::pending())
        .teardown_timeout(secs(1_000));
    let cache = builder(&world, &source)
        .resource(first)
        .resource(second)
        .start()
        .unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    for uid in ["second", "third", "fourth"] {
        source.upsert(cluster("a", uid, "a", "t"));
        settle().await;
    }
    let journal = world.journal();
    let dropped: Vec<_> = journal
        .iter()
        .filter(|line| line.ends_with("dropped"))
        .collect();
    assert_eq!(dropped, ["second dropped", "first dropped"]);
    assert_eq!(
        cache.counters().abandoned(),
        3,
        "both of ours, and the one below"
    );
}
