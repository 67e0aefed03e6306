//! Two of the three kinds of change of access: a credential in place, another identity at once. The third is in `replacements.rs`.

mod sim;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use clustercache::{GetError, MemorySource, Phase, Refresh, SourcedAccess, Upsert, Verdict};
use sim::*;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

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
