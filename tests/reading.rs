//! What readers get: values of one generation, or a typed reason why there is none.

mod sim;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use clustercache::{
    Changes, Event, GetError, MemorySource, Phase, ResourcePhase, SourcedAccess, Upsert, Verdict,
};
use futures_util::StreamExt;
use sim::*;
use tokio::time::{Instant, sleep};

/// Cluster `a` with `Net`, and `Layer<0>` and `Layer<1>` by the script.
async fn connected() -> (World, Script, MemorySource, Cache) {
    let (world, script) = <(World, Script)>::default();
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let cache = builder(&world, &source)
        .resource(Layer::<0> {
            world: world.clone(),
            script: script.clone(),
        })
        .optional(Layer::<1> {
            world: world.clone(),
            script: script.clone(),
        })
        .start()
        .unwrap();
    until(&cache, "a", |state| {
        resource(state, "layer-1").phase == ResourcePhase::Up
    })
    .await;
    (world, script, source, cache)
}

// === Each absence has its name ===

#[tokio::test(start_paused = true)]
async fn every_way_to_be_absent_has_its_own_error_and_none_is_an_empty_value() {
    let (world, script, source, cache) = connected().await;
    let a = cache.cluster(&key("a")).unwrap();
    let name = |why: Result<clustercache::Resource<Layer<1>>, GetError>| match why {
        Ok(_) => "there",
        Err(GetError::NotRegistered { .. }) => "not registered",
        Err(GetError::NotRunning { .. }) => "not running",
        Err(GetError::Unknown { .. }) => "unknown",
        Err(GetError::Replaced { .. }) => "replaced",
        Err(GetError::NotOwned(_)) => "not owned",
        Err(GetError::Gated(_)) => "gated",
        Err(GetError::Refused(_)) => "refused",
        Err(GetError::Connecting(_)) => "connecting",
        Err(GetError::Down(_)) => "down",
        Err(GetError::Removed(_)) => "removed",
        Err(GetError::Reinitialising { .. }) => "re-initialising",
        Err(GetError::NotApplicable { .. }) => "not applicable",
        Err(_) => "?",
    };
    let get = || name(cache.get::<Layer<1>>(&key("a")));
    assert_eq!(get(), "there");
    assert_eq!(name(cache.get::<Layer<1>>(&key("b"))), "unknown");
    let why = cache.get::<Layer<4>>(&key("a")).unwrap_err();
    assert!(matches!(why, GetError::NotRegistered { .. }), "{why}");
    assert!(
        why.to_string()
            .contains("Layer<4> is not registered; add it"),
        "{why}"
    );
    script.set("a", [Act::Hangs]);
    cache
        .get::<Layer<1>>(&key("a"))
        .unwrap()
        .cx
        .failed(Scripted);
    settle().await;
    assert_eq!(get(), "re-initialising");
    until(&cache, "a", |state| {
        resource(state, "layer-1").phase == ResourcePhase::Up
    })
    .await;
    script.set("a", [Act::NotApplicable]);
    cache
        .get::<Layer<1>>(&key("a"))
        .unwrap()
        .cx
        .failed(Scripted);
    until(&cache, "a", |state| {
        resource(state, "layer-1").phase == ResourcePhase::NotApplicable
    })
    .await;
    assert_eq!(get(), "not applicable");
    world.set("a", Answers::Refuses);
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    assert_eq!(get(), "down");
    for (access, is) in [
        (SourcedAccess::Gated("why".into()), "gated"),
        (SourcedAccess::Refused("why".into()), "refused"),
    ] {
        source.upsert(Upsert {
            access,
            ..plain("a")
        });
        settle().await;
        assert_eq!(get(), is);
    }
    source.upsert(cluster("a", "other", "a", "t"));
    settle().await;
    assert_eq!((get(), name(a.get())), ("connecting", "replaced"));
    let a = cache.cluster(&key("a")).unwrap();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    assert_eq!((get(), name(a.get())), ("unknown", "removed"));
    cache.shutdown().await.unwrap();
    assert_eq!((get(), name(a.get())), ("not running", "not running"));
}

#[tokio::test(start_paused = true)]
async fn an_error_has_the_state_as_it_was_and_reads_as_a_sentence() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Refuses);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    until(&cache, "a", |state| state.attempts == 2).await;
    let why = cache.get::<Net>(&key("a")).unwrap_err();
    let state = why.state().unwrap();
    assert_eq!((&state.key, state.attempts), (&key("a"), 2));
    let text = why.to_string();
    assert!(
        text.starts_with("cluster /a is connecting since 20"),
        "{text}"
    );
    assert!(cache.get::<Net>(&key("b")).unwrap_err().state().is_none());
}

// === One generation ===

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_one_generation_whatever_comes_after() {
    let (_world, _script, source, cache) = connected().await;
    let a = cache.cluster(&key("a")).unwrap();
    let snapshot = a.snapshot().unwrap();
    let generation = snapshot.generation().unwrap();
    source.upsert(cluster("a", "a", "b", "t"));
    gone(snapshot.get::<Net>().unwrap()).await;
    let newer = a.snapshot().unwrap();
    for (snapshot, generation) in [
        (&snapshot, generation),
        (&newer, newer.generation().unwrap()),
    ] {
        assert_eq!(snapshot.state().generation, Some(generation));
        assert_eq!(snapshot.get::<Net>().unwrap().generation(), generation);
        assert_eq!(snapshot.get::<Layer<0>>().unwrap().generation(), generation);
        assert_eq!(snapshot.get::<Layer<1>>().unwrap().generation(), generation);
    }
    assert!(newer.generation() > Some(generation));
    assert!(
        !snapshot.get::<Layer<1>>().unwrap().is_current(),
        "it says so itself"
    );
    assert!(newer.get::<Layer<1>>().unwrap().is_current());
    assert_eq!(a.generation().unwrap(), newer.generation());
}

#[tokio::test(start_paused = true)]
async fn no_snapshot_holds_a_dependent_without_the_very_instance_it_was_built_on() {
    let (_world, script, _source, cache) = connected().await;
    let a = cache.cluster(&key("a")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let looks = tokio::spawn({
        let (a, stop) = (a.clone(), Arc::clone(&stop));
        async move {
            let (mut seen, mut without) = (0, 0);
            while !stop.load(SeqCst) {
                let snapshot = a.snapshot().unwrap();
                match (snapshot.get::<Layer<1>>(), snapshot.get::<Layer<0>>()) {
                    (Ok(above), Ok(below)) => {
                        let built_on = above.cx.get::<Layer<0>>().unwrap();
                        assert_eq!(built_on.incarnation(), below.incarnation());
                        seen += 1;
                    }
                    (Ok(_), Err(why)) => panic!("a dependent without what it was built on: {why}"),
                    _ => without += 1,
                }
                tokio::task::yield_now().await;
            }
            (seen, without)
        }
    });
    for _ in 0..20 {
        script.set("a", [Act::Fails, Act::Works, Act::Fails]);
        if let Ok(below) = a.get::<Layer<0>>() {
            below.cx.failed(Scripted);
        }
        // The reader keeps the clock from moving by itself.
        for _ in 0..200 {
            tokio::time::advance(millis(10)).await;
        }
    }
    stop.store(true, SeqCst);
    let (seen, without) = looks.await.unwrap();
    assert!(seen > 100 && without > 100, "{seen} {without}");
}

#[tokio::test(start_paused = true)]
async fn a_value_knows_whose_it_is_and_whether_it_is_current() {
    let (_world, _script, source, cache) = connected().await;
    let a = cache.cluster(&key("a")).unwrap();
    let net = a.get::<Net>().unwrap();
    assert_eq!((net.key(), net.incarnation()), (&key("a"), 1));
    assert_eq!(Some(net.generation()), a.generation().unwrap());
    assert!(net.is_current());
    let waits = tokio::spawn({
        let net = net.clone();
        async move { net.retired().await }
    });
    settle().await;
    assert!(!waits.is_finished());
    source.upsert(cluster("a", "other", "a", "t"));
    settle().await;
    waits.await.unwrap().unwrap();
    assert!(!net.is_current());
    net.retired().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_value_goes_with_its_last_holder_whatever_the_map_of_readers_has_yet_to_free() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let live = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&live);
    let custom = Custom::<0>::new().init(move |_| {
        count.fetch_add(1, SeqCst);
        let counted = Counted(Arc::clone(&count));
        async { Ok(counted) }
    });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let held = cache.get::<Custom<0>>(&key("a")).unwrap();
    source.remove(&key("a"));
    world.until_noted("a net down").await;
    settle().await;
    assert_eq!((live.load(SeqCst), held.is_current()), (1, false));
    drop(held);
    assert_eq!(live.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_value_is_what_get_gives() {
    let (_world, _script, source, cache) = connected().await;
    let a = cache.cluster(&key("a")).unwrap();
    let borrowed = a.borrow::<Net>().unwrap();
    assert!(std::ptr::eq(
        &raw const *borrowed,
        &raw const *a.get::<Net>().unwrap()
    ));
    assert!(borrowed.access.lock().unwrap().endpoint().url().host() == Some("a"));
    source.upsert(cluster("a", "other", "a", "t"));
    settle().await;
    assert!(a.borrow::<Net>().is_err());
    let access = borrowed.access.lock().unwrap();
    assert!(
        access.endpoint().url().host() == Some("a"),
        "it stays usable memory"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handle_is_there_for_every_known_key_connected_or_not() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Refuses);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    settle().await;
    let a = cache.cluster(&key("a")).unwrap();
    assert!(matches!(a.get::<Net>(), Err(GetError::Connecting(_))));
    assert_eq!(a.generation().unwrap(), None);
    assert_eq!(a.snapshot().unwrap().generation(), None);
    assert_eq!(
        a.access().unwrap(),
        access("a", "t"),
        "dialled by other means all the same"
    );
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    a.get::<Net>().expect("the same handle");
    let mut keys = cache.keys().unwrap();
    keys.sort();
    assert_eq!(keys, [key("a")]);
    assert_eq!(cache.states().unwrap().len(), 1);
}

// === State ===

#[tokio::test(start_paused = true)]
async fn state_says_all_that_is_known() {
    let (world, source) = (World::default(), MemorySource::new("fleet"));
    source.upsert(plain("a"));
    let script = Script::default();
    script.set("a", [Act::Fails]);
    let cache = builder(&world, &source)
        .optional(Layer::<0> {
            world: world.clone(),
            script,
        })
        .start()
        .unwrap();
    let begun = cache.now();
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let state = a.state().unwrap();
    assert_eq!(
        (&*state.source, state.owned, state.phase),
        ("fleet", true, Phase::Connected)
    );
    assert_eq!(
        (state.gate, state.refused, state.removing),
        (None, None, false)
    );
    assert!(state.generation.is_some() && !state.replacing && state.retiring == 0);
    assert_eq!(
        (state.health, state.held_by_brake, state.attempts),
        (Verdict::Healthy, false, 0)
    );
    assert_eq!((state.consecutive_failures, state.next_attempt), (0, None));
    let within = |at: std::time::SystemTime| {
        let since = at.duration_since(begun).unwrap_or_default();
        assert!(since < secs(1), "{since:?}");
    };
    within(state.since);
    within(state.last_success.unwrap());
    assert_eq!(&*state.access.unwrap().endpoint, "https://a/");
    let (net, layer) = (&state.resources[0], &state.resources[1]);
    assert_eq!(
        (net.name, net.essential, net.phase),
        ("net", true, ResourcePhase::Up)
    );
    assert_eq!(
        (layer.name, layer.essential, layer.failures),
        ("layer-0", false, 1)
    );
    assert_eq!(layer.message.as_deref(), Some("the script says so"));
    // Signs of life show without a publication.
    sleep(secs(60)).await;
    let then = a.state().unwrap();
    let (success, probe) = (then.last_success.unwrap(), then.last_probe.unwrap());
    assert!(cache.now().duration_since(success).unwrap() <= secs(5));
    assert!(cache.now().duration_since(probe).unwrap() <= secs(5));
    assert_eq!(then.since, state.since, "since when it is what it is");
}

#[tokio::test(start_paused = true)]
async fn state_shows_no_secret() {
    let (world, source) = (World::default(), MemorySource::new("fleet"));
    source.upsert(cluster("a", "a", "a", "s3cret"));
    let cache = builder(&world, &source).start().unwrap();
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let all = format!(
        "{:?} {:?} {:?} {:?}",
        a.state(),
        a.access(),
        cache,
        a.get::<Net>()
    );
    assert!(!all.contains("s3cret"), "{all}");
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn state_is_json() {
    let (_world, _script, source, cache) = connected().await;
    source.upsert(cluster("a", "a", "b", "s3cret"));
    settle().await;
    let state = cache.state(&key("a")).unwrap();
    let json = serde_json::to_value(&state).unwrap();
    assert_eq!(json["key"], "/a");
    assert_eq!(json["phase"], "Connected");
    assert_eq!(json["identity"]["Uid"], "a");
    assert_eq!(json["resources"][1]["name"], "layer-0");
    assert!(
        json["since"].as_str().unwrap().starts_with("20"),
        "RFC 3339: {}",
        json["since"]
    );
    assert!(json["next_attempt"].is_null());
    assert!(!json.to_string().contains("s3cret"));
}

// === Waiting and hearing ===

#[tokio::test(start_paused = true)]
async fn fifty_waiters_and_a_reconciler_without_a_timer_are_woken_by_the_connect_at_once() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Never);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move {
                cache.wait_for(&key("a"), LONG).await.unwrap();
                Instant::now()
            })
        })
        .collect();
    let reconciler = tokio::spawn({
        let cache = cache.clone();
        async move {
            let mut events = cache.subscribe().only(Changes::CONNECTED);
            while cache.get::<Net>(&key("a")).is_err() {
                events.next().await.unwrap();
            }
            Instant::now()
        }
    });
    sleep(secs(3)).await;
    let connects = Instant::now();
    world.set("a", Answers::Well);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), connects);
    }
    assert_eq!(reconciler.await.unwrap(), connects);
}

#[tokio::test(start_paused = true)]
async fn who_subscribes_between_its_get_and_the_connect_or_after_it_is_told() {
    for after in [false, true] {
        let (world, source) = (World::default(), MemorySource::new("test"));
        world.set("a", Answers::Never);
        source.upsert(plain("a"));
        let cache = builder(&world, &source).start().unwrap();
        settle().await;
        assert!(cache.get::<Net>(&key("a")).is_err());
        if after {
            world.set("a", Answers::Well);
            settle().await;
        }
        let mut events = cache.subscribe().only(Changes::CONNECTED);
        world.set("a", Answers::Well);
        let told = tokio::time::timeout(secs(1), async {
            while !events
                .next()
                .await
                .unwrap()
                .changes()
                .contains(Changes::CONNECTED)
            {}
        });
        told.await.expect("told");
        cache.get::<Net>(&key("a")).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_event_tells_can_be_read_when_it_is_told() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let hears = tokio::spawn({
        let (cache, lines) = (cache.clone(), Arc::clone(&lines));
        async move {
            let mut events = cache.subscribe();
            while let Some(event) = events.next().await {
                let Event::Cluster {
                    key,
                    changes,
                    state,
                } = event
                else {
                    continue;
                };
                let there = cache.get::<Net>(&key).is_ok();
                for (change, name) in [
                    (Changes::CONNECTED, "connected"),
                    (Changes::DISCONNECTED, "disconnected"),
                    (Changes::REPLACED, "replaced"),
                    (Changes::ACCESS, "access"),
                    (Changes::REMOVED, "removed"),
                ] {
                    if changes.contains(change) {
                        lines
                            .lock()
                            .unwrap()
                            .push(format!("{name} {there} {}", state.is_some()));
                    }
                }
            }
        }
    });
    let take = || std::mem::take(&mut *lines.lock().unwrap());
    cache.wait_for(&key("a"), LONG).await.unwrap();
    settle().await;
    assert!(take().contains(&"connected true true".into()));
    world.set("a", Answers::Refuses);
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    settle().await;
    assert_eq!(take(), ["disconnected false true"]);
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    settle().await;
    assert_eq!(take(), ["connected true true"]);
    source.upsert(cluster("a", "a", "a", "new"));
    settle().await;
    assert_eq!(take(), ["access true true"]);
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    settle().await;
    let told = take();
    assert!(told.contains(&"removed false false".into()), "{told:?}");
    hears.abort();
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_never_reads_delays_nobody_and_learns_the_newest_when_it_wakes() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let cache = builder(&world, &source)
        .configure(|options| options.events.pending = 10)
        .start()
        .unwrap();
    let mut sleeps = cache.subscribe();
    source.upsert(plain("0"));
    sleeps.next().await.unwrap();
    let dropped = cache.subscribe();
    for name in 1..500 {
        source.upsert(plain(&name.to_string()));
        cache.wait_for(&key(&name.to_string()), LONG).await.unwrap();
        if name > 5 {
            source.remove(&key(&(name - 5).to_string()));
        }
    }
    drop(dropped);
    sleep(secs(10)).await;
    assert!(matches!(sleeps.next().await, Some(Event::Resync)));
    let mut known = std::collections::BTreeSet::new();
    while let Ok(Some(event)) = tokio::time::timeout(millis(1), sleeps.next()).await {
        if let Event::Cluster {
            key,
            state: Some(state),
            ..
        } = event
        {
            assert!(state.phase.is_connected());
            known.insert(key);
        }
    }
    assert_eq!(known, cache.keys().unwrap().into_iter().collect());
    assert_eq!(known.len(), 6);
}
