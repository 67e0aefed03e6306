//! What a user may give or do, however odd, and what it must not do to anybody else.

mod sim;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    Answer, Changes, CheckContext, CheckError, ClusterKey, ClusterResource, ClusterSource,
    EngineStatus, FailureKind, GetError, HealthCheck, InitContext, InitError, MemorySource, Phase,
    Requires, Route, SourceError, SourceEvent, WaitError,
};
use futures_util::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use sim::*;
use tokio::{sync::Notify, time::sleep};

#[tokio::test(start_paused = true)]
async fn a_time_that_is_never_overflows_nothing() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    world.with_permits();
    // Its init waits for a permit, so that its timeout is extended.
    let custom = Custom::<0>::new()
        .init_timeout(Duration::MAX)
        .teardown_timeout(Duration::MAX)
        .init(|cx| async move {
            drop(cx.dial().await);
            sleep(secs(1)).await;
            Ok(())
        });
    let cache = builder(&world, &source)
        .resource(custom)
        .configure(|options| {
            options.dial.per_second = 1;
            options.source.linger = Duration::MAX;
            options.source.higher_first = Duration::MAX;
            options.end.replace_wait = Duration::MAX;
            options.retry.forget_after = Duration::MAX;
            options.health.authenticate_every = Duration::MAX;
            options.health.stall_after = Duration::MAX;
            options.brake.up_since = Duration::MAX;
            options.brake.release_after = Duration::MAX;
        })
        .start()
        .unwrap();
    let mut events = cache.subscribe().unhealthy_for(Duration::MAX);
    cache.wait_for(&key("a"), Duration::MAX).await.unwrap();
    assert!(cache.wait_for_start(Duration::MAX).await.unwrap());
    world.set("a", Answers::Never);
    sleep(secs(60)).await;
    assert_eq!(cache.status(), EngineStatus::Running);
    while let Some(Some(event)) = events.next().now_or_never() {
        assert!(!event.changes().contains(Changes::UNHEALTHY));
    }
    cache.shutdown().await.unwrap();
    assert!(matches!(
        cache.wait_for(&key("a"), Duration::MAX).await,
        Err(WaitError::NotRunning(_))
    ));
}

#[tokio::test]
async fn a_shutdown_without_a_limit_is_a_mistake() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let mistakes = builder(&world, &source)
        .configure(|options| options.end.shutdown = Duration::MAX)
        .start()
        .unwrap_err();
    assert!(mistakes.to_string().contains("end.shutdown"), "{mistakes}");
}

/// Always has something to say, and says when its stream is dropped.
struct Flood {
    dropped: Mutex<Option<mpsc::Sender<()>>>,
    rereads: mpsc::Sender<ClusterKey>,
}

impl ClusterSource for Flood {
    fn name(&self) -> &'static str {
        "flood"
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        let dropped = self.dropped.lock().unwrap().take();
        let mut tokens = 0_u64;
        let flood = futures_util::stream::repeat_with(move || {
            let _ = &dropped;
            tokens += 1;
            let token = format!("t{tokens}");
            Ok(SourceEvent::Upsert(cluster("a", "a", "a", &token)))
        });
        flood.boxed()
    }

    fn reread(&self, key: &ClusterKey) {
        let _ = self.rereads.send(key.clone());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_source_that_floods_is_asked_to_read_again_and_ends_with_the_cache() {
    let world = World::default();
    world.accept_tokens("a", ["none"]);
    let (dropped, is_dropped) = mpsc::channel();
    let (rereads, asked) = mpsc::channel();
    let flood = Flood {
        dropped: Mutex::new(Some(dropped)),
        rereads,
    };
    let cache = Builder::default()
        .source(flood)
        .resource(Net(world))
        .health_from::<Net>()
        .start()
        .unwrap();
    let asked = tokio::task::spawn_blocking(move || asked.recv_timeout(secs(20)));
    assert_eq!(asked.await.unwrap(), Ok(key("a")));
    cache.shutdown().await.unwrap();
    let ended = tokio::task::spawn_blocking(move || is_dropped.recv_timeout(secs(20)));
    let gone = Err(mpsc::RecvTimeoutError::Disconnected);
    assert_eq!(ended.await.unwrap(), gone);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_before_the_engines_first_turn_ends_it() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    cache.shutdown().await.unwrap();
    settle().await;
    assert_eq!(cache.status(), EngineStatus::Ended);
    assert!(world.noted().is_empty(), "{:?}", world.noted());
}

/// Panics when it is woken, and when it is dropped.
struct Rude;

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the test's");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_is_its_owners_loss_alone() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let cache = builder(&world, &source).start().unwrap();
    let rude = Waker::from(Arc::new(Rude));
    let mut cx = Context::from_waker(&rude);
    let a = key("a");
    let mut barrier = Box::pin(cache.wait_for_start(LONG));
    let mut waits = Box::pin(cache.wait_for(&a, LONG));
    assert!(barrier.poll_unpin(&mut cx).is_pending());
    assert!(waits.poll_unpin(&mut cx).is_pending());
    source.upsert(plain("a"));
    assert!(cache.wait_for_start(LONG).await.unwrap());
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let net = cache.get::<Net>(&key("a")).unwrap();
    let mut retired = Box::pin(net.retired());
    assert!(retired.poll_unpin(&mut cx).is_pending());
    source.upsert(cluster("a", "another", "a", "t"));
    net.retired().await.unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    let mut ended = Box::pin(cache.shutdown());
    assert!(ended.poll_unpin(&mut cx).is_pending());
    assert!(cache.shutdown().await.unwrap().is_clean());
    assert_eq!(cache.status(), EngineStatus::Ended);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_built_on_a_wanted_value_whose_teardown_is_due() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let failing = Arc::new(Mutex::new(None::<InitContext>));
    let wanted = {
        let failing = Arc::clone(&failing);
        Custom::<0>::new()
            .init(move |cx| {
                let first = failing.lock().unwrap().replace(cx).is_none();
                async move {
                    if first {
                        Ok(())
                    } else {
                        std::future::pending().await
                    }
                }
            })
            // The teardown waits behind one that takes long, and so has not begun.
            .teardown(|_, _| sleep(secs(1)))
    };
    let note = world.clone();
    let wants = Custom::<1>::new()
        .requires(Requires::wants::<Custom<0>>)
        .init(move |cx| {
            let wanted = cx.try_get::<Custom<0>>();
            let current = wanted.as_ref().map(clustercache::Resource::is_current);
            note.note(format!("built on {current:?}"));
            async move {
                if cx.attempt() == 1 {
                    return Err(InitError::retry("once"));
                }
                Ok(())
            }
        });
    let cache = builder(&world, &source)
        .optional(wanted)
        .optional(wants)
        .configure(|options| {
            options.retry.first = secs(60);
            options.seed = Some(1);
        })
        .start()
        .unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    world.until_noted("built on Some(true)").await;
    // In one turn of the engine: the one goes bad, and the other is tried again.
    failing
        .lock()
        .unwrap()
        .as_ref()
        .unwrap()
        .failed("the test says so");
    cache.retry_now(&key("a"));
    settle().await;
    sleep(millis(1)).await;
    assert_eq!(world.count("built on"), 2, "{:?}", world.noted());
    assert_eq!(
        world.count("built on Some(false)"),
        0,
        "{:?}",
        world.noted()
    );
}

/// What is thrown, and said, by those who mean no good.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("what was thrown panics in its drop");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_panics_with_may_panic_in_its_drop() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let inits = Arc::new(AtomicUsize::new(0));
    let custom = {
        let inits = Arc::clone(&inits);
        Custom::<0>::new()
            .init(move |_| {
                let first = inits.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if first {
                        std::panic::panic_any(Bomb);
                    }
                    Ok(())
                }
            })
            .teardown(|_, _| async { std::panic::panic_any(Bomb) })
    };
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.expect_panic("custom-0");
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(inits.load(Ordering::Relaxed), 2);
    cache.reconnect(&key("a"));
    sleep(secs(1)).await;
    let state = cache.state(&key("a")).unwrap();
    assert_eq!((state.phase, state.retiring), (Phase::Connected, 0));
    assert!(cache.shutdown().await.unwrap().is_clean());
    assert_eq!(world.count("a net down"), 2, "{:?}", world.noted());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "panics that the test did not expect: net (")]
async fn a_test_in_which_a_provider_panics_unexpectedly_fails_and_names_it() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    world.set("a", Answers::Panics);
    let cache = builder(&world, &source).start().unwrap();
    until(&cache, "a", |state| state.attempts > 1).await;
}

struct Unspeakable;

impl fmt::Debug for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no word of it");
    }
}

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no word of it");
    }
}

impl std::error::Error for Unspeakable {}

/// Its first stream fails with an error that cannot be told.
struct Mute(MemorySource, AtomicUsize);

impl ClusterSource for Mute {
    fn name(&self) -> &'static str {
        "mute"
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            let error: SourceError = Box::new(Unspeakable);
            return futures_util::stream::once(async { Err(error) }).boxed();
        }
        self.0.events()
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_source_that_panics_when_it_is_told_ends_no_more_than_its_stream() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = Builder::default()
        .source(Mute(source, AtomicUsize::new(0)))
        .resource(Net(world))
        .health_from::<Net>()
        .start()
        .unwrap();
    cache.expect_panic("mute");
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(cache.counters().panics(), [("mute".into(), 1)].into());
}

/// Its probes wait for a permit; the init of `b` keeps the only one.
struct Patient;

#[async_trait]
impl ClusterResource for Patient {
    type Value = ();

    fn name(&self) -> &'static str {
        "patient"
    }

    fn init_timeout(&self) -> Duration {
        LONG
    }

    async fn init(&self, cx: &InitContext) -> Result<(), InitError> {
        if cx.key().name() == "b" {
            let _permit = cx.dial().await;
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[async_trait]
impl HealthCheck for Patient {
    async fn check(&self, (): &(), cx: &CheckContext) -> Result<Answer, CheckError> {
        let _permit = cx.dial().await;
        Ok(Answer::Ready)
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_time_is_over_before_it_has_a_permit_is_no_failure() {
    let source = MemorySource::new("test");
    source.upsert(plain("b"));
    let cache = Builder::default()
        .source(source.clone())
        .resource(Patient)
        .health_from::<Patient>()
        .configure(|options| options.dial.silent = 1)
        .start()
        .unwrap();
    settle().await;
    source.upsert(plain("a"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
    sleep(secs(60)).await;
    let state = cache.state(&key("a")).unwrap();
    assert_eq!((state.phase, state.last_error), (Phase::Connected, None));
}

/// Its clusters answer no probe; each fresh one dials, and hears nothing until it is evicted. The init of `new` dials too.
struct Silent;

#[async_trait]
impl ClusterResource for Silent {
    type Value = ();

    fn name(&self) -> &'static str {
        "silent"
    }

    async fn init(&self, cx: &InitContext) -> Result<(), InitError> {
        if cx.key().name() == "new" {
            let _permit = cx.dial().await;
        }
        Ok(())
    }
}

#[async_trait]
impl HealthCheck for Silent {
    async fn check(&self, (): &(), cx: &CheckContext) -> Result<Answer, CheckError> {
        if cx.route() == Route::Pooled {
            std::future::pending::<()>().await;
        }
        let permit = cx.dial().await;
        permit.evicted().await;
        Err(CheckError::new(FailureKind::Busy, "evicted"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_evicts_the_fresh_probes_of_suspect_ones() {
    let source = MemorySource::new("test");
    for name in ["a", "b", "c", "d"] {
        source.upsert(plain(name));
    }
    let cache = Builder::default()
        .source(source.clone())
        .resource(Silent)
        .health_from::<Silent>()
        .configure(|options| options.dial.silent = 4)
        .start()
        .unwrap();
    cache.wait_for_start(LONG).await.unwrap();
    while cache.dials().silent < 4 {
        sleep(millis(100)).await;
    }
    let begun = tokio::time::Instant::now();
    source.upsert(plain("new"));
    cache.wait_for(&key("new"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
}

/// Has named nothing, and names both at once when it is told to.
struct Burst(Arc<Notify>);

impl ClusterSource for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        let go = Arc::clone(&self.0);
        let named = stream::once(async move {
            go.notified().await;
            stream::iter(["a", "stuck"].map(|name| Ok(SourceEvent::Upsert(plain(name)))))
        });
        let synced = stream::iter([Ok(SourceEvent::Synced)]);
        let all = synced.chain(named.flatten()).chain(stream::pending());
        all.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_filter_that_blocks_its_thread_is_counted_and_named_and_delays_no_other_source_or_cluster()
 {
    const SOON: Duration = Duration::from_secs(30);
    let (world, other) = (World::default(), MemorySource::new("other"));
    let (go, note) = (Arc::new(Notify::new()), world.clone());
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let cache = Builder::default()
        .source(Burst(Arc::clone(&go)))
        .source(other.clone())
        .resource(Net(world.clone()))
        .health_from::<Net>()
        .filter(move |cluster| {
            if cluster.key.name() == "stuck" {
                note.note("it blocks".into());
                let _ = blocked.lock().unwrap().recv();
            }
            true
        })
        .start()
        .unwrap();
    assert!(cache.wait_for_start(SOON).await.unwrap());
    // The engine rests: whoever wakes it has it next on its own thread.
    sleep(millis(50)).await;
    go.notify_one();
    world.until_noted("it blocks").await;
    // What its source said before is heard.
    let a = cache.wait_for(&key("a"), SOON).await.unwrap();
    let first = a.generation().unwrap();
    other.upsert(plain("b"));
    cache.wait_for(&key("b"), SOON).await.unwrap();
    cache.reconnect(&key("a"));
    until(&cache, "a", |state| state.generation != first).await;
    // For long enough to be counted.
    sleep(millis(150)).await;
    assert!(cache.get::<Net>(&key("stuck")).is_err());
    release.send(()).unwrap();
    cache.wait_for(&key("stuck"), SOON).await.unwrap();
    assert_eq!(cache.counters().slow_polls().get("burst"), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn the_access_of_a_cluster_that_is_not_ours_any_more_is_not_given_out() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let named = |ours: &str| plain("a").with_labels([("ours".to_owned(), ours.to_owned())]);
    source.upsert(named("yes"));
    let cache = builder(&world, &source)
        .filter(|cluster| cluster.labels.get("ours") == Some("yes"))
        .start()
        .unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    cache.access(&key("a")).unwrap();
    source.upsert(named("no"));
    settle().await;
    let why = cache.access(&key("a")).unwrap_err();
    assert!(matches!(why, GetError::NotOwned(_)), "{why}");
}
