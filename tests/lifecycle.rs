//! The life of clusters in simulated time: what happens to one that is up, until it goes. How it comes up is in `connecting.rs`.

mod sim;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use clustercache::{GetError, MemorySource, Phase, ResourcePhase, Stage, WaitError};
use sim::*;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

fn start<const N: usize>(names: [&str; N]) -> (World, MemorySource, Cache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    for name in names {
        source.upsert(plain(name));
    }
    let cache = builder(&world, &source).start().unwrap();
    (world, source, cache)
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_connected_read_and_removed() {
    let (world, source, cache) = start(["a"]);
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
    let (world, _source, cache) = start(["a"]);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    world.set("a", Answers::Never);
    let begun = Instant::now();
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
    let (world, _source, cache) = start(["a", "b"]);
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

// === Once up ===

#[tokio::test(start_paused = true)]
async fn an_essential_resource_that_fails_is_made_again_with_what_requires_it_and_siblings_stay() {
    let (world, script, _source, cache) = with(|builder, world, script| {
        builder
            .resource(layer::<0>(world, script))
            .resource(layer::<1>(world, script))
            .resource(layer::<2>(world, script))
            .resource(Custom::<0>::new())
    });
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let (net, sibling) = (a.get::<Net>().unwrap(), a.get::<Custom<0>>().unwrap());
    let (below, failed, above) = (
        a.get::<Layer<0>>().unwrap(),
        a.get::<Layer<1>>().unwrap(),
        a.get::<Layer<2>>().unwrap(),
    );
    world.journal();
    script.set("a", [Act::Slow(secs(2))]);
    failed.cx.failed(Scripted);
    settle().await;
    let state = a.state().unwrap();
    assert_eq!(state.phase, Phase::Degraded);
    assert!(state.phase.is_connected());
    let error = state.last_error.unwrap();
    assert_eq!(
        (error.stage, &*error.message),
        (Stage::Resource("layer-1"), "the script says so")
    );
    assert!(matches!(
        a.get::<Layer<1>>(),
        Err(GetError::Reinitialising {
            resource: "layer-1",
            ..
        })
    ));
    assert!(matches!(
        a.get::<Layer<2>>(),
        Err(GetError::Reinitialising {
            resource: "layer-2",
            ..
        })
    ));
    assert!(!failed.is_current() && !above.is_current());
    assert!(net.is_current() && sibling.is_current() && below.is_current());
    cache
        .wait_for(&key("a"), LONG)
        .await
        .expect("still connected for those who wait");
    until(&cache, "a", |state| state.phase == Phase::Connected).await;
    assert_eq!(
        world.journal(),
        [
            "a layer-2 down Replaced",
            "a layer-1 down Replaced",
            "a layer-1 tries",
            "a layer-1 up",
            "a layer-2 tries",
            "a layer-2 up"
        ]
    );
    let again = (
        a.get::<Layer<1>>().unwrap().incarnation(),
        a.get::<Layer<2>>().unwrap().incarnation(),
    );
    assert_eq!(again, (2, 2));
    assert!(net.is_current() && sibling.is_current() && below.is_current());
}

#[tokio::test(start_paused = true)]
async fn an_optional_resource_that_fails_shows_only_in_its_own_phase() {
    let (_world, script, _source, cache) =
        with(|builder, world, script| builder.optional(layer::<0>(world, script)));
    until_up(&cache, "layer-0").await;
    script.set("a", [Act::Fails, Act::Fails]);
    cache
        .get::<Layer<0>>(&key("a"))
        .unwrap()
        .cx
        .failed(Scripted);
    settle().await;
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(state.phase, Phase::Connected);
    assert_ne!(resource(&state, "layer-0").phase, ResourcePhase::Up);
    until_up(&cache, "layer-0").await;
    assert_eq!(cache.get::<Layer<0>>(&key("a")).unwrap().incarnation(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_spawned_task_is_counted_and_makes_its_resource_fail() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let custom = Custom::<0>::new().init(|cx| {
        if cx.incarnation() == 1 {
            cx.spawn(async {
                sleep(secs(5)).await;
                panic!("the test says so");
            });
        }
        async { Ok(()) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.expect_panic("custom-0");
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    gone(&a.get::<Custom<0>>().unwrap()).await;
    until_up(&cache, "custom-0").await;
    assert_eq!(a.get::<Custom<0>>().unwrap().incarnation(), 2);
    assert_eq!(cache.counters().panics(), [("custom-0".into(), 1)].into());
    let error = a.state().unwrap().last_error.unwrap();
    assert!(
        error.message.contains("panicked: the test says so"),
        "{}",
        error.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_comes_before_its_init_is_known_to_be_up_is_not_lost() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    // The task panics while init still runs; the value comes up after it.
    let custom = Custom::<0>::new().init(|cx| async move {
        if cx.incarnation() == 1 {
            cx.spawn(async { panic!("at once") });
            sleep(secs(1)).await;
        }
        Ok(())
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.expect_panic("custom-0");
    until(&cache, "a", |_| {
        cache
            .get::<Custom<0>>(&key("a"))
            .is_ok_and(|custom| custom.incarnation() == 2)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_health_provider_that_fails_is_down_as_a_whole() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    a.get::<Net>().unwrap().cx.failed(Scripted);
    settle().await;
    assert_eq!(world.noted(), ["a net up", "a net down Down"]);
    assert_eq!(a.state().unwrap().phase, Phase::Down);
    cache.wait_for(&key("a"), LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_failed_long_ago_says_nothing_of_what_is_up_now() {
    let (_world, _script, _source, cache) =
        with(|builder, world, script| builder.resource(layer::<0>(world, script)));
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let (old_net, old) = (a.get::<Net>().unwrap(), a.get::<Layer<0>>().unwrap());
    cache.reconnect(&key("a"));
    gone(&old).await;
    old.cx.failed(Scripted);
    old_net.cx.failed(Scripted);
    sleep(secs(60)).await;
    assert_eq!(a.get::<Layer<0>>().unwrap().incarnation(), 1);
    assert_eq!(cache.counters().connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn when_it_is_down_the_whole_connection_goes_in_reverse_and_a_new_one_is_tried() {
    let (world, _script, _source, cache) = with(|builder, world, script| {
        builder
            .resource(layer::<1>(world, script))
            .resource(layer::<0>(world, script))
    });
    cache.wait_for(&key("a"), LONG).await.unwrap();
    world.journal();
    world.set("a", Answers::Refuses);
    world.until_noted("a net down").await;
    assert_eq!(
        world.journal(),
        [
            "a layer-1 down Down",
            "a layer-0 down Down",
            "a net down Down"
        ]
    );
    let Err(GetError::Down(state)) = cache.get::<Layer<1>>(&key("a")) else {
        panic!("not down")
    };
    assert_eq!(state.last_error.as_ref().unwrap().stage, Stage::Probe);
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(
        cache.get::<Layer<1>>(&key("a")).unwrap().incarnation(),
        1,
        "a new connection"
    );
}

#[tokio::test(start_paused = true)]
async fn reconnect_makes_a_new_connection_beside_the_living_one() {
    let (world, _script, _source, cache) =
        with(|builder, world, script| builder.resource(layer::<0>(world, script)));
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = a.get::<Layer<0>>().unwrap();
    world.journal();
    cache.reconnect(&key("a"));
    gone(&old).await;
    assert!(a.get::<Layer<0>>().unwrap().generation() > old.generation());
    world.until_noted("a net down").await;
    assert_eq!(
        world.journal(),
        [
            "a net up",
            "a layer-0 tries",
            "a layer-0 up",
            "a layer-0 down Replaced",
            "a net down Replaced"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_resource_are_told_that_it_ends_and_are_gone_after_its_teardown() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let alive = Arc::new(AtomicUsize::new(0));
    let (count, note) = (Arc::clone(&alive), world.clone());
    let custom = Custom::<0>::new().init(move |cx| {
        for polite in [true, false] {
            count.fetch_add(1, SeqCst);
            let (counted, cx_of_task, note) =
                (Counted(Arc::clone(&count)), cx.clone(), note.clone());
            cx.spawn(async move {
                let _counted = counted;
                if polite {
                    cx_of_task.ending().await;
                    note.note("the task was told".into());
                } else {
                    std::future::pending::<()>().await;
                }
            });
        }
        async { Ok(()) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(alive.load(SeqCst), 2);
    source.remove(&key("a"));
    world.until_noted("a net down").await;
    assert_eq!(
        alive.load(SeqCst),
        0,
        "what is below goes after the tasks of what is above"
    );
    assert_eq!(world.count("the task was told"), 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_an_init_that_failed_are_gone_before_it_is_tried_again() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let gone = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&gone);
    let custom = Custom::<0>::new().init(move |cx| {
        let before = cx.incarnation() as usize - 1;
        assert_eq!(count.load(SeqCst), before);
        let counted = Counted(Arc::clone(&count));
        cx.spawn(async move {
            let _counted = counted;
            std::future::pending::<()>().await;
        });
        async move {
            if before < 3 {
                Err(Scripted.into())
            } else {
                Ok(())
            }
        }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(gone.load(SeqCst), 3);
    assert_eq!(cache.counters().panics(), [].into());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_to_dial_does_not_run_the_init_timeout() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    source.upsert(plain("b"));
    let free = Arc::new(Notify::new());
    let gate = Arc::clone(&free);
    let custom = Custom::<0>::new()
        .init_timeout(secs(3_600))
        .init(move |cx| {
            let gate = Arc::clone(&gate);
            async move {
                let _permit = cx.dial().await;
                gate.notified().await;
                Ok(())
            }
        });
    let waits = Custom::<1>::new()
        .requires(clustercache::Requires::wants::<Layer<4>>)
        .init_timeout(secs(1))
        .init(|cx| async move {
            let _permit = cx.dial().await;
            Ok(())
        });
    let cache = builder(&world, &source)
        .resource(custom)
        .resource(waits)
        .configure(|options| options.dial.silent = 2)
        .start()
        .unwrap();
    sleep(secs(60)).await;
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(
        resource(&state, "custom-1").failures,
        0,
        "{:?}",
        state.resources
    );
    for _ in 0..4 {
        free.notify_one();
        settle().await;
    }
    cache.wait_for(&key("a"), LONG).await.unwrap();
    cache.wait_for(&key("b"), LONG).await.unwrap();
}

// === Waiting ===

#[tokio::test(start_paused = true)]
async fn the_start_barrier_opens_when_all_are_connected_or_have_failed_once() {
    let (world, source) = (World::default(), MemorySource::unsynced("test"));
    world.set("bad", Answers::Refuses);
    world.set("hung", Answers::Never);
    let cache = builder(&world, &source).start().unwrap();
    assert!(
        !cache.wait_for_start(secs(5)).await.unwrap(),
        "not synced: the limit passes"
    );
    for name in ["good", "bad", "hung"] {
        source.upsert(plain(name));
    }
    source.upsert(clustercache::Upsert::refused(key("refused"), "no"));
    source.synced();
    let begun = Instant::now();
    assert!(cache.wait_for_start(LONG).await.unwrap());
    assert_eq!(begun.elapsed(), secs(10), "the hung one has failed once");
}

#[tokio::test(start_paused = true)]
async fn wait_for_fills_its_error_at_the_deadline_and_returns_at_any_publication_of_the_key() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let cache = builder(&world, &source).start().unwrap();
    let begun = Instant::now();
    let unknown = cache.wait_for(&key("a"), secs(3)).await;
    assert!(matches!(
        unknown,
        Err(WaitError::Deadline(GetError::Unknown { .. }))
    ));
    assert_eq!(begun.elapsed(), secs(3));
    source.upsert(clustercache::Upsert::refused(key("a"), "bad field").with_uid("a"));
    let refused = cache.wait_for(&key("a"), secs(3)).await.unwrap_err();
    assert!(matches!(refused, WaitError::Deadline(GetError::Refused(_))));
    assert!(refused.to_string().contains("bad field"), "{refused}");
    world.set("a", Answers::Refuses);
    source.upsert(plain("a"));
    let connecting = cache.wait_for(&key("a"), secs(3)).await;
    assert!(matches!(
        connecting,
        Err(WaitError::Deadline(GetError::Connecting(_)))
    ));
    let waits = tokio::spawn({
        let cache = cache.clone();
        async move { cache.wait_for(&key("a"), LONG).await }
    });
    settle().await;
    source.upsert(cluster("a", "another", "b", "t"));
    waits.await.unwrap().expect("whatever its identity");
}
