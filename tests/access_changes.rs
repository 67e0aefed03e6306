//! The three kinds of change of access: a credential in place, an endpoint make-before-break, another identity at once.

mod sim;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use clustercache::{
    ClusterCache, GetError, InitError, MemorySource, Phase, Refresh, SourcedAccess, Upsert, Verdict,
};
use sim::*;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

/// Cluster `a` at server `a` with token `t`, connected.
async fn connected(change: impl FnOnce(Builder) -> Builder) -> (World, MemorySource, Cache) {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = change(builder(&world, &source)).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    (world, source, cache)
}

/// The same identity at another server.
fn moved(host: &str, token: &str) -> Upsert {
    cluster("a", "a", host, token)
}

fn generation(cache: &ClusterCache) -> String {
    cache
        .get::<Net>(&key("a"))
        .unwrap()
        .generation()
        .to_string()
}

/// Waits until the published connection is to this server, and no other is being made.
async fn until_at(cache: &ClusterCache, host: &str) {
    until(cache, "a", |state| {
        let net = cache.get::<Net>(&key("a"));
        let here =
            net.is_ok_and(|net| net.access.lock().unwrap().endpoint().url().host() == Some(host));
        here && !state.replacing
    })
    .await;
}

// === Kind 1: credential only ===

#[tokio::test(start_paused = true)]
async fn a_new_token_is_taken_in_place_at_once_and_nothing_is_initialised_again() {
    let (world, source, cache) = connected(|builder| builder).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    let begun = Instant::now();
    source.upsert(moved("a", "new"));
    settle().await;
    assert_eq!(world.seen("a"), ["t", "new"], "proven at once");
    assert_eq!(begun.elapsed(), secs(0));
    assert!(net.is_current());
    sleep(secs(600)).await;
    assert_eq!(world.noted(), ["a net up"]);
    assert_eq!(cache.counters().rebuilds(), [].into());
}

#[tokio::test(start_paused = true)]
async fn what_required_nothing_of_the_access_is_not_asked_to_refresh() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let custom = Custom::<0>::new().refresh(move |_, _| {
        count.fetch_add(1, SeqCst);
        Refresh::Rebuild
    });
    let (_world, source, cache) = connected(|builder| builder.resource(custom)).await;
    let before = generation(&cache);
    source.upsert(moved("a", "new"));
    sleep(secs(60)).await;
    assert_eq!((asked.load(SeqCst), generation(&cache)), (0, before));
}

#[tokio::test(start_paused = true)]
async fn a_running_init_goes_on_and_sees_the_newest_access_and_is_asked_before_it_is_published() {
    let go = Arc::new(Notify::new());
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (in_init, in_refresh, gate) = (Arc::clone(&steps), Arc::clone(&steps), Arc::clone(&go));
    let token = |access: &clustercache::ClusterAccess| access.credential().fingerprint();
    let custom = Custom::<0>::new()
        .requires(clustercache::Requires::access)
        .init(move |cx| {
            let (steps, gate) = (Arc::clone(&in_init), Arc::clone(&gate));
            async move {
                let before = token(&cx.access()?);
                gate.notified().await;
                let changed = before != token(&cx.access()?);
                steps
                    .lock()
                    .unwrap()
                    .push(format!("init, access changed meanwhile: {changed}"));
                Ok(())
            }
        })
        .refresh(move |_, _| {
            in_refresh.lock().unwrap().push("refresh".into());
            Refresh::InPlace
        });
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    settle().await;
    source.upsert(moved("a", "new"));
    settle().await;
    assert_eq!(cache.state(&key("a")).unwrap().phase, Phase::Connecting);
    go.notify_one();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(
        *steps.lock().unwrap(),
        ["init, access changed meanwhile: true", "refresh"]
    );
    assert_eq!(cache.get::<Custom<0>>(&key("a")).unwrap().incarnation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_health_provider_whose_init_saw_a_new_token_is_health_checked_like_any_other() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Never);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    settle().await;
    source.upsert(moved("a", "new"));
    settle().await;
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(cache.state(&key("a")).unwrap().health, Verdict::Healthy);
    world.set("a", Answers::Never);
    let begun = Instant::now();
    world.until_noted("a net down Down").await;
    assert!(begun.elapsed() <= secs(15), "{:?}", begun.elapsed());
}

/// A resource that reads the access, and answers `refresh` as the test says.
fn refreshing<const N: usize>(
    world: &World,
    answer: impl Fn() -> Refresh + Send + Sync + 'static,
) -> Custom<N> {
    let (up, down) = (world.clone(), world.clone());
    Custom::<N>::new()
        .requires(clustercache::Requires::access)
        .init(move |cx| {
            up.note(format!("custom-{N} up {}", cx.generation()));
            async { Ok(()) }
        })
        .teardown(move |_, cx| {
            down.note(format!("custom-{N} down {}", cx.generation()));
            async {}
        })
        .refresh(move |_, _| answer())
}

#[tokio::test(start_paused = true)]
async fn rebuild_makes_the_connection_anew_beside_the_living_one_and_is_counted_by_name() {
    let world = World::default();
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let custom = refreshing::<0>(&world, || Refresh::Rebuild);
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = cache.get::<Custom<0>>(&key("a")).unwrap();
    world.journal();
    source.upsert(moved("a", "new"));
    gone(&old).await;
    let new = cache.get::<Custom<0>>(&key("a")).unwrap();
    assert!(new.generation() > old.generation(), "make before break");
    settle().await;
    let journal = world.journal();
    let (up, down) = (
        journal
            .iter()
            .position(|line| line.starts_with("custom-0 up")),
        journal
            .iter()
            .position(|line| line.starts_with("custom-0 down")),
    );
    assert!(up < down, "{journal:?}");
    assert_eq!(cache.counters().rebuilds(), [("custom-0".into(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_refresh_is_a_rebuild_and_both_are_counted() {
    let world = World::default();
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let custom = refreshing::<0>(&world, || panic!("the test says so"));
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.expect_panic("custom-0");
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = cache.get::<Custom<0>>(&key("a")).unwrap();
    source.upsert(moved("a", "new"));
    gone(&old).await;
    cache.get::<Custom<0>>(&key("a")).unwrap();
    let counted = [("custom-0".into(), 1)].into();
    assert_eq!(
        (cache.counters().rebuilds(), cache.counters().panics()),
        (counted, [("custom-0".into(), 1)].into())
    );
}

/// Blocks its thread, as no hook should.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_refresh_that_blocks_its_thread_is_a_rebuild_and_the_next_one_is_asked() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (blocked, note) = (Mutex::new(Some(blocked)), world.clone());
    let custom = Custom::<0>::new()
        .requires(clustercache::Requires::access)
        .init_timeout(millis(50))
        .refresh(move |_, _| {
            note.note("asked".into());
            let blocked = blocked.lock().unwrap().take();
            let _ = blocked.map(|blocked| blocked.recv());
            Refresh::InPlace
        });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = cache.get::<Custom<0>>(&key("a")).unwrap();
    source.upsert(moved("a", "new"));
    gone(&old).await;
    assert_eq!(cache.counters().rebuilds(), [("custom-0".into(), 1)].into());
    world.journal();
    source.upsert(moved("a", "newer"));
    world.until_noted("asked").await;
    drop(release);
    cache.shutdown().await.unwrap();
}

/// Blocks its thread, as no hook should; and the connection that is to replace its own does not come up.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_value_is_not_asked_again_while_it_has_not_answered() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (blocked, note) = (Mutex::new(Some(blocked)), world.clone());
    let hang = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&hang);
    let custom = Custom::<0>::new()
        .requires(clustercache::Requires::access)
        .init_timeout(millis(50))
        .init(move |_| {
            let hangs = hangs.load(SeqCst);
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        })
        .refresh(move |_, _| {
            note.note("asked".into());
            let blocked = blocked.lock().unwrap().take();
            let _ = blocked.map(|blocked| blocked.recv());
            note.note("answered".into());
            Refresh::InPlace
        });
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    hang.store(true, SeqCst);
    let rebuilds = async |count| {
        while cache.counters().rebuilds() != [("custom-0".into(), count)].into() {
            sleep(millis(1)).await;
        }
    };
    source.upsert(moved("a", "new"));
    tokio::time::timeout(secs(60), rebuilds(1)).await.unwrap();
    source.upsert(moved("a", "newer"));
    tokio::time::timeout(secs(60), rebuilds(2)).await.unwrap();
    assert_eq!(world.count("asked"), 1);
    drop(release);
    world.until_noted("answered").await;
    // It is asked as ever from then on.
    let asked = async {
        for number in 0.. {
            source.upsert(moved("a", &format!("newest-{number}")));
            sleep(millis(1)).await;
            if world.count("asked") > 1 {
                break;
            }
        }
    };
    tokio::time::timeout(secs(60), asked).await.unwrap();
    cache.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_that_was_ended_is_still_owed() {
    let world = World::default();
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let hang = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&hang);
    let custom = Custom::<0>::new()
        .requires(clustercache::Requires::access)
        .init_timeout(secs(1_000))
        .init(move |_| {
            let hangs = hangs.load(SeqCst);
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        })
        .refresh(|_, _| Refresh::Rebuild);
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let old = cache.get::<Custom<0>>(&key("a")).unwrap();
    hang.store(true, SeqCst);
    source.upsert(moved("a", "new"));
    settle().await;
    assert!(cache.state(&key("a")).unwrap().replacing);
    // A refusal ends the build, and is mended by the very access that there was.
    source.upsert(Upsert::refused(key("a"), "broken").with_uid("a"));
    settle().await;
    assert!(!cache.state(&key("a")).unwrap().replacing && old.is_current());
    hang.store(false, SeqCst);
    source.upsert(moved("a", "new"));
    gone(&old).await;
    cache.get::<Custom<0>>(&key("a")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_a_connection_is_made_all_of_it_takes_the_new_token_though_one_must_be_made_again() {
    let world = World::default();
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let rebuilds = refreshing::<0>(&world, || Refresh::Rebuild);
    let takes = refreshing::<1>(&world, move || {
        count.fetch_add(1, SeqCst);
        Refresh::InPlace
    });
    let slow = Custom::<2>::new().init(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(())
        }
    });
    let cache = builder(&world, &source)
        .resource(rebuilds)
        .resource(takes)
        .resource(slow)
        .start()
        .unwrap();
    settle().await;
    source.upsert(moved("a", "new"));
    settle().await;
    go.notify_one();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert!(asked.load(SeqCst) > 0, "the sibling has the old token");
    let up = |name: &str| world.count(&format!("{name} up"));
    assert_eq!(
        (up("custom-0"), up("custom-1")),
        (2, 1),
        "only one is made again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_mended_after_a_401_is_tried_at_once_and_heals() {
    let (world, source, cache) = connected(|builder| builder).await;
    world.accept_tokens("a", ["new"]);
    until(&cache, "a", |state| state.health == Verdict::Suspect).await;
    assert_eq!(
        source.take_rereads(),
        [key("a")].into(),
        "the source reads it again"
    );
    sleep(millis(200)).await;
    source.upsert(moved("a", "new"));
    let begun = Instant::now();
    until(&cache, "a", |state| state.health == Verdict::Healthy).await;
    assert!(begun.elapsed() <= millis(1_300), "{:?}", begun.elapsed());
    assert_eq!(world.noted(), ["a net up"]);
}

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

// === Kind 3: another identity ===

#[tokio::test(start_paused = true)]
async fn nothing_of_the_old_identity_is_served_once_the_new_is_known() {
    let (world, source, cache) = connected(|builder| builder).await;
    let handle = cache.cluster(&key("a")).unwrap();
    let net = handle.get::<Net>().unwrap();
    world.set("b", Answers::Never);
    source.upsert(cluster("a", "other", "b", "t2"));
    settle().await;
    assert!(!net.is_current());
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Connecting(_))
    ));
    assert!(matches!(
        handle.get::<Net>(),
        Err(GetError::Replaced { .. })
    ));
    assert!(matches!(handle.snapshot(), Err(GetError::Replaced { .. })));
    assert!(matches!(handle.access(), Err(GetError::Replaced { .. })));
    let state = cache.state(&key("a")).unwrap();
    assert!(
        state.last_success.is_none() && state.last_error.is_none(),
        "everything is new"
    );
    assert_eq!(
        world.noted(),
        ["a net up", "a net down Replaced"],
        "its teardown ends"
    );
    world.set("b", Answers::Well);
    let new = cache.wait_for(&key("a"), LONG).await.unwrap();
    new.get::<Net>().unwrap();
    assert!(matches!(
        handle.get::<Net>(),
        Err(GetError::Replaced { .. })
    ));
    assert_eq!(
        (world.seen("a"), world.seen("b")),
        (vec!["t".into()], vec!["t2".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn another_identity_that_is_refused_or_gated_serves_nothing_of_the_old_either() {
    for access in [
        SourcedAccess::Refused("no".into()),
        SourcedAccess::Gated("no".into()),
    ] {
        let (world, source, cache) = connected(|builder| builder).await;
        let other = Upsert {
            access,
            ..cluster("a", "other", "a", "t")
        };
        source.upsert(other);
        settle().await;
        assert!(matches!(
            cache.get::<Net>(&key("a")),
            Err(GetError::Refused(_) | GetError::Gated(_))
        ));
        assert!(cache.access(&key("a")).is_err(), "nor its access");
        assert_eq!(world.count("a net down Replaced"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_uid_another_endpoint_without_a_ca_is_another_cluster() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(Upsert::ready(key("a"), access("a", "t")));
    let cache = builder(&world, &source).start().unwrap();
    let handle = cache.wait_for(&key("a"), LONG).await.unwrap();
    source.upsert(Upsert::ready(key("a"), access("a", "t2")));
    settle().await;
    assert!(handle.get::<Net>().is_ok(), "the same");
    source.upsert(Upsert::ready(key("a"), access("b", "t2")));
    settle().await;
    assert!(matches!(
        handle.get::<Net>(),
        Err(GetError::Replaced { .. })
    ));
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
