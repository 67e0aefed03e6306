//! How a cache ends: bounded, with a report, and so that every read says so; and what may not wait inside a hook.

mod sim;

use std::sync::{Arc, Mutex, OnceLock};

use clustercache::{
    ClusterCache, EngineStatus, GetError, HookKind, InitError, MemorySource, WaitError,
};
use futures_util::StreamExt;
use sim::*;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// Says when it is dropped.
struct Noted(World, String);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.note(format!("{} dropped", self.1));
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_with_200_hung_inits_ends_within_five_seconds_and_names_them() {
    let (world, script, source) = (
        World::default(),
        Script::default(),
        MemorySource::new("test"),
    );
    let names: Vec<String> = (0..200).map(|n| format!("c{n:03}")).collect();
    for name in &names {
        script.set(name, [Act::Hangs]);
        source.upsert(plain(name));
    }
    let before = tasks();
    let layer = Layer::<0> {
        world: world.clone(),
        script,
    };
    let cache = builder(&world, &source).resource(layer).start().unwrap();
    sleep(secs(3)).await;
    let begun = Instant::now();
    let report = cache.shutdown().await.unwrap();
    assert!(begun.elapsed() <= secs(5), "{:?}", begun.elapsed());
    let mut abandoned: Vec<&str> = report
        .abandoned
        .iter()
        .map(|left| {
            assert_eq!((left.resource, left.hook), ("layer-0", HookKind::Init));
            left.key.name()
        })
        .collect();
    abandoned.sort_unstable();
    assert_eq!(abandoned, names);
    let text = report.to_string();
    assert!(
        text.starts_with("200 hook(s) abandoned: init of layer-0 of /c"),
        "{text}"
    );
    assert_eq!(
        world.count("c"),
        200 + 200 + 200,
        "each net up, layer tried, net torn down"
    );
    settle().await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn shutdown_with_a_third_of_the_providers_hung_ends_in_time_and_drops_all_in_reverse() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let names: Vec<String> = (0..50).map(|n| format!("c{n:02}")).collect();
    for name in &names {
        source.upsert(plain(name));
    }
    let made = |layer: &'static str| {
        let world = world.clone();
        move |cx: clustercache::InitContext| {
            let noted = Noted(world.clone(), format!("{} {layer}", cx.key().name()));
            async { Ok(noted) }
        }
    };
    let ends = world.clone();
    let below = Custom::<0>::new()
        .init(made("below"))
        .teardown(move |_, cx| {
            ends.note(format!("{} below torn down", cx.key().name()));
            async {}
        });
    let hung = Custom::<1>::new()
        .requires(clustercache::Requires::resource::<Custom<0>>)
        .init(made("hung"))
        .teardown_timeout(secs(3_600))
        .teardown(|_, _| std::future::pending());
    let cache = builder(&world, &source)
        .resource(below)
        .resource(hung)
        .start()
        .unwrap();
    assert!(cache.wait_for_start(LONG).await.unwrap());
    let begun = Instant::now();
    let report = cache.shutdown().await.unwrap();
    assert!(begun.elapsed() <= secs(5), "{:?}", begun.elapsed());
    let journal = world.journal();
    for name in &names {
        let at = |what: &str| {
            let line = format!("{name} {what} dropped");
            let at = journal.iter().position(|other| *other == line);
            at.unwrap_or_else(|| panic!("no {line:?}"))
        };
        assert!(at("hung") < at("below"));
    }
    // What is below a hook that was abandoned has no time left for its own teardown: it is named too.
    let hooks: Vec<_> = report
        .abandoned
        .iter()
        .map(|left| (left.resource, left.hook))
        .collect();
    assert_eq!(
        hooks
            .iter()
            .filter(|hook| **hook == ("custom-1", HookKind::Teardown))
            .count(),
        50
    );
    assert_eq!(cache.counters().abandoned(), report.abandoned.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_its_way_out_at_shutdown_is_named_if_it_is_abandoned() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let hung = Custom::<0>::new()
        .teardown_timeout(secs(3_600))
        .teardown(|_, _| std::future::pending());
    let cache = builder(&world, &source).resource(hung).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    let begun = Instant::now();
    let report = cache.shutdown().await.unwrap();
    assert!(begun.elapsed() <= secs(5), "{:?}", begun.elapsed());
    let named: Vec<_> = report.abandoned.iter().map(|left| left.resource).collect();
    assert_eq!(named, ["custom-0", "net"]);
}

#[tokio::test(start_paused = true)]
async fn a_clean_shutdown_leaves_no_task() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let before = tasks();
    let cache = builder(&world, &source).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let begun = Instant::now();
    assert!(cache.shutdown().await.unwrap().is_clean());
    settle().await;
    assert_eq!((tasks(), begun.elapsed()), (before, secs(0)));
    assert!(
        cache.shutdown().await.unwrap().is_clean(),
        "again, and at once"
    );
}

/// Blocks its thread, as no hook should.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn shutdown_is_bounded_also_if_a_hook_blocks_its_thread() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let blocks = Custom::<0>::new().teardown(move |_, _| {
        let blocked = Arc::clone(&blocked);
        async move {
            let _ = blocked.lock().unwrap().recv();
        }
    });
    let cache = builder(&world, &source)
        .resource(blocks)
        .configure(|options| options.end.shutdown = millis(100))
        .start()
        .unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let report = tokio::time::timeout(secs(60), cache.shutdown())
        .await
        .expect("it ends")
        .unwrap();
    drop(release);
    assert_eq!(cache.status(), EngineStatus::Ended);
    let named: Vec<_> = report
        .abandoned
        .iter()
        .map(|left| (left.resource, left.hook))
        .collect();
    assert!(
        named.contains(&("custom-0", HookKind::Teardown)),
        "{named:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_init_that_blocks_its_thread_beyond_the_end_of_its_connection_leaves_nothing() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (blocked, note) = (Arc::new(Mutex::new(blocked)), world.clone());
    let blocks = Custom::<0>::new()
        .teardown_timeout(millis(50))
        .init(move |_| {
            let (blocked, noted) = (Arc::clone(&blocked), Noted(note.clone(), "value".into()));
            async move {
                noted.0.note("it blocks".into());
                let _ = blocked.lock().unwrap().recv();
                Ok(noted)
            }
        });
    let cache = builder(&world, &source)
        .resource(blocks)
        .configure(|options| options.source.linger = secs(0))
        .start()
        .unwrap();
    world.until_noted("it blocks").await;
    source.remove(&key("a"));
    world.until_noted("a net down Removed").await;
    assert_eq!(cache.counters().abandoned(), 1, "waited for no longer");
    drop(release);
    world.until_noted("value dropped").await;
    assert!(cache.shutdown().await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_dropped_drops_values_in_reverse_and_every_read_says_so() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let made = |name: &'static str| {
        let world = world.clone();
        move |_| {
            let noted = Noted(world.clone(), name.into());
            async { Ok(noted) }
        }
    };
    let first = Custom::<0>::new().init(made("first"));
    let second = Custom::<1>::new()
        .requires(clustercache::Requires::resource::<Custom<0>>)
        .init(made("second"));
    let third = Custom::<2>::new()
        .requires(clustercache::Requires::resource::<Custom<1>>)
        .init(made("third"));
    let (cache, engine) = builder(&world, &source)
        .resource(second)
        .resource(third)
        .resource(first)
        .build()
        .unwrap();
    let engine = tokio::spawn(engine.run());
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let mut events = cache.subscribe();
    events.next().await.unwrap();
    let waits = tokio::spawn({
        let cache = cache.clone();
        async move { cache.wait_for(&key("b"), LONG).await }
    });
    settle().await;
    world.journal();
    engine.abort();
    settle().await;
    assert_eq!(
        world.journal(),
        ["third dropped", "second dropped", "first dropped"]
    );
    let ended = |why: GetError| {
        matches!(
            why,
            GetError::NotRunning {
                status: EngineStatus::Ended
            }
        )
    };
    assert!(ended(cache.get::<Net>(&key("a")).unwrap_err()));
    assert!(ended(cache.state(&key("a")).unwrap_err()));
    assert!(ended(cache.cluster(&key("a")).unwrap_err()));
    assert!(ended(a.get::<Net>().unwrap_err()));
    assert!(ended(a.borrow::<Net>().err().unwrap()));
    assert!(ended(a.snapshot().err().unwrap()));
    assert!(ended(a.state().unwrap_err()));
    assert!(ended(a.access().unwrap_err()));
    assert!(matches!(waits.await.unwrap(), Err(WaitError::NotRunning(why)) if ended(why.clone())));
    assert!(events.next().await.is_none(), "streams end");
    assert!(matches!(
        cache.wait_for_start(LONG).await,
        Err(WaitError::NotRunning(_))
    ));
    let report = cache.shutdown().await.unwrap();
    assert_eq!(
        report.abandoned.len(),
        4,
        "net and the three, without their teardown: {report}"
    );
    assert!(ended(cache.keys().unwrap_err()) && ended(cache.states().unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn an_init_that_ends_as_the_engine_is_dropped_leaves_nothing() {
    for init_first in [true, false] {
        let (world, source) = (World::default(), MemorySource::new("test"));
        source.upsert(plain("a"));
        let go = Arc::new(Notify::new());
        let (gate, note) = (Arc::clone(&go), world.clone());
        let custom = Custom::<0>::new().init(move |_| {
            let (gate, noted) = (Arc::clone(&gate), Noted(note.clone(), "value".into()));
            async move {
                gate.notified().await;
                Ok(noted)
            }
        });
        let (cache, engine) = builder(&world, &source).resource(custom).build().unwrap();
        let engine = tokio::spawn(engine.run());
        settle().await;
        if init_first {
            go.notify_one();
        }
        engine.abort();
        go.notify_one();
        settle().await;
        assert_eq!(world.count("value dropped"), 1, "init first: {init_first}");
        assert_eq!(cache.status(), EngineStatus::Ended);
        assert_eq!(world.count("a net"), 1, "no teardown");
    }
}

#[test]
fn an_init_that_blocks_its_thread_as_the_engine_is_dropped_on_no_runtime_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (blocked, note) = (Arc::new(Mutex::new(blocked)), world.clone());
    let blocks = Custom::<0>::new().init(move |_| {
        let (blocked, noted) = (Arc::clone(&blocked), Noted(note.clone(), "value".into()));
        async move {
            noted.0.note("it blocks".into());
            let _ = blocked.lock().unwrap().recv();
            Ok(noted)
        }
    });
    let (cache, engine) = builder(&world, &source).resource(blocks).build().unwrap();
    let mut engine = Box::pin(engine.run());
    runtime.block_on(async {
        tokio::select! {
            () = &mut engine => unreachable!("it runs until it is dropped"),
            () = world.until_noted("it blocks") => {}
        }
    });
    drop(engine);
    assert_eq!(cache.status(), EngineStatus::Ended);
    drop(release);
    runtime.block_on(async {
        let dropped = tokio::time::timeout(secs(60), world.until_noted("value dropped"));
        dropped.await.expect("it is dropped");
    });
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_was_never_started_says_so() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (cache, engine) = builder(&world, &source).build().unwrap();
    let why = cache.get::<Net>(&key("a")).unwrap_err();
    assert!(matches!(
        why,
        GetError::NotRunning {
            status: EngineStatus::NotStarted
        }
    ));
    assert!(cache.state(&key("a")).is_err() && cache.cluster(&key("a")).is_err());
    let begun = Instant::now();
    let waited = cache.wait_for(&key("a"), secs(3)).await;
    assert!(matches!(waited, Err(WaitError::NotRunning(_))));
    assert_eq!(begun.elapsed(), secs(3), "it may still be started");
    assert!(cache.shutdown().await.unwrap().is_clean());
    drop(engine);
    let why = cache.get::<Net>(&key("a")).unwrap_err();
    assert!(matches!(
        why,
        GetError::NotRunning {
            status: EngineStatus::Ended
        }
    ));
    let waited = cache.wait_for(&key("a"), LONG).await;
    assert!(matches!(waited, Err(WaitError::NotRunning(_))));
    assert!(cache.subscribe().next().await.is_none());
    assert_eq!(begun.elapsed(), secs(3), "now it may not");
}

/// A log that panics on command: the only foreign code that the engine's own task meets.
struct Bomb(Arc<std::sync::atomic::AtomicBool>);

impl tracing::Subscriber for Bomb {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let engines = event
            .metadata()
            .target()
            .starts_with("clustercache::engine");
        assert!(
            !(engines && self.0.load(std::sync::atomic::Ordering::SeqCst)),
            "the test says so"
        );
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_panicked_says_so_and_leaves_nothing() {
    let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let guard = tracing::subscriber::set_default(Bomb(Arc::clone(&armed)));
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let note = world.clone();
    let custom = Custom::<0>::new().init(move |_| {
        let noted = Noted(note.clone(), "value".into());
        async { Ok(noted) }
    });
    let (cache, engine) = builder(&world, &source).resource(custom).build().unwrap();
    let engine = tokio::spawn(engine.run());
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    settle().await;
    // Another test's log may have been asked just now whether anybody listens.
    tracing::callsite::rebuild_interest_cache();
    armed.store(true, std::sync::atomic::Ordering::SeqCst);
    source.upsert(plain("b"));
    let ended = tokio::time::timeout(LONG, engine).await;
    let ended = ended.expect("the engine logs a new cluster");
    assert!(ended.unwrap_err().is_panic());
    drop(guard);
    settle().await;
    let panicked = |why: GetError| {
        matches!(
            why,
            GetError::NotRunning {
                status: EngineStatus::Panicked
            }
        )
    };
    assert!(panicked(cache.get::<Net>(&key("a")).unwrap_err()));
    assert!(panicked(a.get::<Net>().unwrap_err()));
    assert!(matches!(
        cache.wait_for(&key("a"), LONG).await,
        Err(WaitError::NotRunning(_))
    ));
    assert!(world.count("value dropped") > 0);
    cache.shutdown().await.unwrap();
}

// === What may not wait ===

#[tokio::test(start_paused = true)]
async fn every_wait_inside_init_and_teardown_would_deadlock_at_once() {
    async fn waits(
        cache: &ClusterCache,
        world: &World,
        place: &str,
        own: Option<&clustercache::Resource<Net>>,
    ) {
        let waits = [
            cache
                .wait_for(&key("a"), LONG)
                .await
                .err()
                .map(|why| why.to_string()),
            cache
                .wait_for_start(LONG)
                .await
                .err()
                .map(|why| why.to_string()),
            cache.shutdown().await.err().map(|why| why.to_string()),
            match own {
                Some(own) => own.retired().await.err().map(|why| why.to_string()),
                None => None,
            },
        ];
        for wait in waits.into_iter().flatten() {
            let (name, _) = wait.split_once(' ').unwrap();
            assert!(wait.contains("would deadlock"), "{wait}");
            world.note(format!("{place} {name}"));
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cell = Arc::new(OnceLock::<ClusterCache>::new());
    let (in_init, in_teardown) = (
        (Arc::clone(&cell), world.clone()),
        (Arc::clone(&cell), world.clone()),
    );
    let custom = Custom::<0>::new()
        .init(move |cx| {
            let (cell, world) = in_init.clone();
            async move {
                let net = cx.get::<Net>()?;
                waits(cell.get().unwrap(), &world, "init", Some(&net)).await;
                Ok(())
            }
        })
        .teardown(move |value, _| {
            let (cell, world) = in_teardown.clone();
            let net = value.cx.get::<Net>().unwrap();
            async move { waits(cell.get().unwrap(), &world, "teardown", Some(&net)).await }
        });
    let (cache, engine) = builder(&world, &source).resource(custom).build().unwrap();
    cell.set(cache.clone()).unwrap();
    tokio::spawn(engine.run());
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    cache.shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
    let all = |place: &str| {
        ["wait_for", "wait_for_start", "shutdown", "retired"].map(|wait| format!("{place} {wait}"))
    };
    let journal = world.journal();
    let of = |place: &str| -> Vec<_> {
        journal
            .iter()
            .filter(|line| line.starts_with(place))
            .cloned()
            .collect()
    };
    assert_eq!(
        (of("init"), of("teardown")),
        (all("init").to_vec(), all("teardown").to_vec())
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_waits_for_another_cluster_by_retrying_gets_it() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cell = Arc::new(OnceLock::<ClusterCache>::new());
    let cache_of = Arc::clone(&cell);
    let custom = Custom::<0>::new().init(move |cx| {
        let cell = Arc::clone(&cache_of);
        async move {
            if cx.key().name() == "a" {
                let waited = cell.get().unwrap().wait_for(&key("b"), LONG).await;
                waited.map_err(InitError::retry)?;
            }
            Ok(())
        }
    });
    let (cache, engine) = builder(&world, &source).resource(custom).build().unwrap();
    cell.set(cache.clone()).unwrap();
    tokio::spawn(engine.run());
    until(&cache, "a", |state| {
        resource(state, "custom-0").failures > 2
    })
    .await;
    let state = cache.state(&key("a")).unwrap();
    assert!(
        resource(&state, "custom-0")
            .message
            .unwrap()
            .contains("would deadlock")
    );
    assert_eq!(cache.counters().panics(), [].into());
}

// === Bad drops ===

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_drop_of_a_value_is_counted_and_harms_nobody() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("the test says so");
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    source.upsert(plain("b"));
    let bad = Custom::<0>::new().init(|_| async { Ok(Bad) });
    let (cache, engine) = builder(&world, &source).resource(bad).build().unwrap();
    cache.expect_panic("custom-0");
    let engine = tokio::spawn(engine.run());
    assert!(cache.wait_for_start(LONG).await.unwrap());
    source.remove(&key("a"));
    world.until_noted("a net down Removed").await;
    assert_eq!(cache.counters().panics(), [("custom-0".into(), 1)].into());
    cache.get::<Custom<0>>(&key("b")).unwrap();
    engine.abort();
    settle().await;
    assert_eq!(
        cache.counters().panics(),
        [("custom-0".into(), 2)].into(),
        "also when the engine is dropped"
    );
    assert_eq!(cache.status(), EngineStatus::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_teardown_is_counted_and_the_rest_is_torn_down() {
    let (world, script, source) = (
        World::default(),
        Script::default(),
        MemorySource::new("test"),
    );
    source.upsert(plain("a"));
    script.set("a", [Act::EndsWithPanic]);
    let layer = Layer::<0> {
        world: world.clone(),
        script,
    };
    let cache = builder(&world, &source).resource(layer).start().unwrap();
    cache.expect_panic("layer-0");
    cache.wait_for(&key("a"), LONG).await.unwrap();
    source.remove(&key("a"));
    world.until_noted("a net down Removed").await;
    assert_eq!(cache.counters().panics(), [("layer-0".into(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_teardown_that_never_ends_is_abandoned_at_its_timeout_and_the_rest_is_torn_down() {
    let (world, script, source) = (
        World::default(),
        Script::default(),
        MemorySource::new("test"),
    );
    source.upsert(plain("a"));
    script.set("a", [Act::EndsNever]);
    let layer = Layer::<0> {
        world: world.clone(),
        script,
    };
    let cache = builder(&world, &source).resource(layer).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    let begun = Instant::now();
    world.until_noted("a net down Removed").await;
    assert_eq!(begun.elapsed(), secs(30));
    assert_eq!(cache.counters().abandoned(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_holds_a_value_keeps_its_memory_and_delays_nothing() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let note = world.clone();
    let custom = Custom::<0>::new().init(move |_| {
        let noted = Noted(note.clone(), "value".into());
        async { Ok(noted) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let (held, snapshot) = (a.get::<Custom<0>>().unwrap(), a.snapshot().unwrap());
    source.remove(&key("a"));
    world.until_noted("a net down Removed").await;
    settle().await;
    assert!(!held.is_current() && held.made::<Noted>().1 == "value");
    assert!(!snapshot.get::<Custom<0>>().unwrap().is_current());
    drop(held);
    assert_eq!(world.count("value dropped"), 0);
    drop(snapshot);
    assert_eq!(world.count("value dropped"), 1, "at the last holder");
}
