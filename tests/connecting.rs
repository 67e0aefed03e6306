//! The resources of a cluster on the way up: in which order, what is retried, what is waited for, what is left out.

mod sim;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use clustercache::{
    Changes, ClusterCache, ContextError, FailureKind, GetError, InitError, MemorySource, Phase,
    ResourcePhase, Stage,
};
use futures_util::StreamExt;
use sim::*;
use tokio::time::{Instant, sleep};

// === On the way up ===

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_all_essential_resources_are_up_and_then_everything_is_at_once()
{
    let (world, script, _source, cache) = with(|builder, world, script| {
        builder
            .resource(layer::<0>(world, script))
            .resource(Custom::<0>::new())
    });
    script.set("a", [Act::Slow(secs(3))]);
    let begun = Instant::now();
    world.until_noted("a layer-0 tries").await;
    settle().await;
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Connecting(_))
    ));
    assert!(matches!(
        cache.get::<Custom<0>>(&key("a")),
        Err(GetError::Connecting(_))
    ));
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(3));
    let snapshot = a.snapshot().unwrap();
    snapshot.get::<Net>().unwrap();
    snapshot.get::<Layer<0>>().unwrap();
    snapshot.get::<Custom<0>>().unwrap();
}

#[tokio::test(start_paused = true)]
async fn independent_resources_start_side_by_side_and_dependents_after_what_they_require() {
    let (world, script, _source, cache) = with(|builder, world, script| {
        let slow = |world: &World, name: &'static str| {
            let world = world.clone();
            move |_| {
                let world = world.clone();
                async move {
                    world.note(format!("{name} begins"));
                    sleep(secs(2)).await;
                    Ok(())
                }
            }
        };
        builder
            .resource(layer::<1>(world, script))
            .resource(layer::<0>(world, script))
            .resource(Custom::<0>::new().init(slow(world, "one")))
            .resource(Custom::<1>::new().init(slow(world, "other")))
    });
    script.set("a", [Act::Slow(secs(1)), Act::Slow(secs(1))]);
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(2), "1 + 1 beside 2 beside 2");
    let journal = world.journal();
    assert_eq!(
        journal[0], "a net up",
        "the health provider before what depends on it"
    );
    let at = |line: &str| journal.iter().position(|other| other == line);
    assert!(at("a layer-0 up") < at("a layer-1 tries"), "{journal:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resource_whose_init_fails_is_retried_alone_while_its_siblings_keep_what_they_have() {
    let (world, script, _source, cache) = with(|builder, world, script| {
        builder
            .resource(layer::<0>(world, script))
            .resource(Custom::<0>::new())
    });
    script.set("a", [Act::Fails, Act::Panics, Act::Fails]);
    cache.expect_panic("layer-0");
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(world.count("a layer-0 tries"), 4);
    assert_eq!(world.count("a net up"), 1);
    assert_eq!(a.get::<Custom<0>>().unwrap().incarnation(), 1);
    assert_eq!(a.get::<Layer<0>>().unwrap().incarnation(), 4);
    assert_eq!(cache.counters().panics(), [("layer-0".into(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn while_it_connects_every_failed_attempt_is_told_with_its_reason_and_next_try() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Refuses);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    for attempt in 2..6 {
        until(&cache, "a", |state| state.attempts == attempt).await;
        let Err(GetError::Connecting(state)) = cache.get::<Net>(&key("a")) else {
            panic!("{:?}", cache.get::<Net>(&key("a")));
        };
        let error = state.last_error.clone().unwrap();
        assert_eq!(
            (error.stage, error.kind),
            (Stage::Init("net"), FailureKind::Refused)
        );
        assert!(state.next_attempt.unwrap() >= error.at);
        let text = cache.get::<Net>(&key("a")).unwrap_err().to_string();
        assert!(
            text.contains(&format!("attempt {attempt}: init of net: ")),
            "{text}"
        );
        assert!(text.contains("connection refused; next try at "), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_back_off_to_a_minute_and_new_access_or_retry_now_tries_at_once() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Refuses);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    sleep(secs(3_600)).await;
    let tried = world.requests("a");
    assert!(
        (60..=300).contains(&tried),
        "about two a minute at last, not {tried}"
    );
    cache.retry_now(&key("a"));
    settle().await;
    assert_eq!(world.requests("a"), tried + 1);
    source.upsert(cluster("a", "a", "a", "new"));
    settle().await;
    assert_eq!(world.requests("a"), tried + 2);
}

#[tokio::test(start_paused = true)]
async fn an_essential_resource_that_never_completes_is_ended_by_its_init_timeout_and_tried_again() {
    let (world, script, _source, cache) =
        with(|builder, world, script| builder.resource(layer::<0>(world, script)));
    script.set("a", [Act::Hangs]);
    let begun = Instant::now();
    until(&cache, "a", |state| {
        resource(state, "layer-0").failures == 1
    })
    .await;
    assert_eq!(begun.elapsed(), secs(10));
    let state = cache.state(&key("a")).unwrap();
    let error = state.last_error.unwrap();
    assert_eq!(
        (error.stage, error.kind),
        (Stage::Init("layer-0"), FailureKind::TimedOut)
    );
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(world.count("a net up"), 1, "its sibling is untouched");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_connected_without_its_optional_resource_which_joins_when_it_can() {
    for acts in [
        vec![Act::Fails, Act::Fails, Act::Fails],
        vec![Act::Panics, Act::Panics, Act::Panics],
        vec![Act::Hangs],
    ] {
        let (_world, script, _source, cache) =
            with(|builder, world, script| builder.optional(layer::<0>(world, script)));
        script.set_all("a", acts.clone());
        let begun = Instant::now();
        let a = cache.wait_for(&key("a"), LONG).await.unwrap();
        assert_eq!(begun.elapsed(), secs(0), "{acts:?}");
        assert!(matches!(
            a.get::<Layer<0>>(),
            Err(GetError::Reinitialising {
                resource: "layer-0",
                ..
            })
        ));
        assert_eq!(a.state().unwrap().phase, Phase::Connected);
        until_up(&cache, "layer-0").await;
        assert_eq!(
            a.get::<Layer<0>>().unwrap().incarnation() as usize,
            acts.len() + 1
        );
        let panics = acts.iter().filter(|act| **act == Act::Panics).count() as u64;
        if panics > 0 {
            cache.expect_panic("layer-0");
        }
        assert_eq!(cache.counters().panics().values().sum::<u64>(), panics);
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_is_told_when_an_optional_resource_comes_and_goes() {
    let (_world, script, _source, cache) =
        with(|builder, world, script| builder.optional(layer::<0>(world, script)));
    script.set("a", [Act::Slow(secs(5)), Act::Slow(secs(5))]);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let mut events = cache.subscribe();
    settle().await;
    events.next().await.unwrap();
    for there in [true, false, true] {
        let layer = loop {
            let event = tokio::time::timeout(LONG, events.next()).await;
            let event = event.expect("it is told").unwrap();
            assert!(event.changes().contains(Changes::STATE));
            let layer = cache.get::<Layer<0>>(&key("a"));
            if layer.is_ok() == there {
                break layer;
            }
        };
        if let Ok(layer) = layer {
            layer.cx.failed(Scripted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_not_applicable_counts_as_settled_and_passes_on_to_what_requires_it() {
    let (world, script, _source, cache) = with(|builder, world, script| {
        builder
            .resource(layer::<0>(world, script))
            .resource(layer::<1>(world, script))
    });
    script.set("a", [Act::NotApplicable]);
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(a.state().unwrap().phase, Phase::Connected);
    assert!(matches!(
        a.get::<Layer<0>>(),
        Err(GetError::NotApplicable {
            resource: "layer-0",
            ..
        })
    ));
    let why = a.get::<Layer<1>>().unwrap_err();
    assert!(matches!(
        why,
        GetError::NotApplicable {
            resource: "layer-1",
            ..
        }
    ));
    assert!(
        why.to_string().contains("layer-0 is not applicable"),
        "{why}"
    );
    sleep(secs(3_600)).await;
    assert_eq!(
        world.count("a layer-0 tries"),
        1,
        "not asked again by itself"
    );
}

#[tokio::test(start_paused = true)]
async fn not_applicable_is_asked_again_by_reconsider_by_new_access_and_by_a_new_connection() {
    for how in 0..3 {
        let (world, script, source, cache) = with(|builder, world, script| {
            builder
                .resource(layer::<0>(world, script))
                .resource(layer::<1>(world, script))
        });
        script.set("a", [Act::NotApplicable]);
        cache.wait_for(&key("a"), LONG).await.unwrap();
        match how {
            0 => cache.reconsider::<Layer<0>>(&key("a")),
            1 => source.upsert(cluster("a", "a", "a", "new")),
            _ => {
                world.set("a", Answers::Refuses);
                world.until_noted("a net down Down").await;
                world.set("a", Answers::Well);
            }
        }
        until_up(&cache, "layer-1").await;
        cache.get::<Layer<0>>(&key("a")).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_not_applicable_init_lives_on_and_may_ask_again() {
    let source = MemorySource::new("test");
    let world = World::default();
    source.upsert(plain("a"));
    let (cache_cell, applicable) = (
        Arc::new(std::sync::OnceLock::<ClusterCache>::new()),
        Arc::new(AtomicBool::new(false)),
    );
    let (cell, is) = (Arc::clone(&cache_cell), Arc::clone(&applicable));
    let custom = Custom::<0>::new().init(move |cx| {
        let (cell, is) = (Arc::clone(&cell), Arc::clone(&is));
        async move {
            if is.load(SeqCst) {
                return Ok(());
            }
            let key = cx.key().clone();
            cx.spawn(async move {
                sleep(secs(60)).await;
                is.store(true, SeqCst);
                cell.get().unwrap().reconsider::<Custom<0>>(&key);
            });
            Err(InitError::not_applicable("not yet"))
        }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache_cell.set(cache.clone()).unwrap();
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    assert!(matches!(
        a.get::<Custom<0>>(),
        Err(GetError::NotApplicable { .. })
    ));
    let begun = Instant::now();
    until_up(&cache, "custom-0").await;
    assert_eq!(begun.elapsed(), secs(60));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_not_applicable_init_end_when_it_is_asked_again_and_with_the_connection() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let alive = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&alive);
    let custom = Custom::<0>::new().init::<(), _>(move |cx| {
        assert_eq!(count.fetch_add(1, SeqCst), 0, "those before are gone");
        let counted = Counted(Arc::clone(&count));
        cx.spawn(async move {
            let _counted = counted;
            std::future::pending::<()>().await;
        });
        async { Err(InitError::not_applicable("no")) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    for _ in 0..3 {
        cache.reconsider::<Custom<0>>(&key("a"));
        settle().await;
        assert_eq!(alive.load(SeqCst), 1);
    }
    source.remove(&key("a"));
    world.until_noted("a net down").await;
    assert_eq!(alive.load(SeqCst), 0, "before what they were built on");
    assert_eq!(cache.counters().abandoned(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_health_provider_that_says_not_applicable_is_tried_again() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    world.set("a", Answers::NotApplicable);
    let cache = builder(&world, &source).start().unwrap();
    until(&cache, "a", |state| state.attempts == 4).await;
    assert_eq!(cache.state(&key("a")).unwrap().phase, Phase::Connecting);
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    cache.get::<Net>(&key("a")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_needs_access_is_not_tried_before_there_is_some_or_retry_now() {
    for new_access in [true, false] {
        let (world, script, source, cache) =
            with(|builder, world, script| builder.resource(layer::<0>(world, script)));
        script.set("a", [Act::NeedsAccess]);
        sleep(secs(3_600)).await;
        let state = cache.state(&key("a")).unwrap();
        assert_eq!(
            resource(&state, "layer-0").phase,
            ResourcePhase::NeedsAccess
        );
        assert_eq!(world.count("a layer-0 tries"), 1);
        if new_access {
            source.upsert(cluster("a", "a", "a", "new"));
        } else {
            cache.retry_now(&key("a"));
        }
        let begun = Instant::now();
        cache.wait_for(&key("a"), LONG).await.unwrap();
        assert_eq!(begun.elapsed(), secs(0));
    }
}

#[tokio::test(start_paused = true)]
async fn wants_is_ordered_after_and_read_if_it_is_there_and_restarted_by_nothing() {
    let (world, script, _source, cache) = with(|builder, world, script| {
        let note = world.clone();
        let wants = Custom::<0>::new()
            .requires(clustercache::Requires::wants::<Layer<0>>)
            .init(move |cx| {
                note.note(format!(
                    "layer-0 there: {}",
                    cx.try_get::<Layer<0>>().is_some()
                ));
                async { Ok(()) }
            });
        builder.resource(wants).optional(layer::<0>(world, script))
    });
    script.set("a", [Act::Slow(secs(2))]);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    world.until_noted("layer-0 there: true").await;
    cache
        .get::<Layer<0>>(&key("a"))
        .unwrap()
        .cx
        .failed(Scripted);
    sleep(secs(60)).await;
    assert_eq!(cache.get::<Layer<0>>(&key("a")).unwrap().incarnation(), 2);
    assert_eq!(cache.get::<Custom<0>>(&key("a")).unwrap().incarnation(), 1);
}

#[tokio::test(start_paused = true)]
async fn wants_waits_no_longer_than_until_the_other_has_failed_once_or_is_not_applicable() {
    for act in [
        Act::Fails,
        Act::NotApplicable,
        Act::NeedsAccess,
        Act::Panics,
    ] {
        let (_world, script, _source, cache) = with(|builder, world, script| {
            let wants = Custom::<0>::new().requires(clustercache::Requires::wants::<Layer<0>>);
            builder.resource(wants).optional(layer::<0>(world, script))
        });
        script.set("a", [act, act]);
        if act == Act::Panics {
            cache.expect_panic("layer-0");
        }
        let begun = Instant::now();
        cache.wait_for(&key("a"), LONG).await.unwrap();
        assert_eq!(begun.elapsed(), secs(0), "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_declared_is_not_read() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let note = world.clone();
    let custom = Custom::<0>::new().init(move |cx| {
        let access = matches!(cx.access(), Err(ContextError::Access { .. }));
        let other = matches!(cx.get::<Layer<0>>(), Err(ContextError::Resource { .. }));
        note.note(format!("{access} {other}"));
        async { Ok(()) }
    });
    let layer = layer::<0>(&world, &Script::default());
    let cache = builder(&world, &source)
        .resource(layer)
        .resource(custom)
        .start()
        .unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(world.count("true true"), 1);
}
