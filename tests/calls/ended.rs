//! A cache that was never started, one whose engine was dropped, and one whose engine panicked: every read says so, at once (rules 4 and 10).

use clustercache::{
    Cluster, ClusterCache, EngineStatus, GetError, IdentityHandle, MemorySource, WaitError,
};
use clustercache_client::{ClientExt, ClusterClientExt};
use futures_util::{FutureExt, StreamExt};

use crate::{A, CALLS, said, sim::*};

/// What is no read of a cluster, by the begin of its name.
const NO_READS: [&str; 17] = [
    "Subscription::",
    "drop of",
    "ClusterCache::builder",
    "ClusterCache::subscribe",
    "ClusterCache::wait_for",
    "ClusterCache::wait_for_start",
    "ClusterCache::retry_now",
    "ClusterCache::reconnect",
    "ClusterCache::reconsider",
    "ClusterCache::release_brake",
    "ClusterCache::shutdown",
    "ClusterCache::status",
    "ClusterCache::counters",
    // In numbers, for metrics, beside the status.
    "ClusterCache::census",
    "ClusterCache::subscribers",
    "ClusterCache::dials",
    "ClusterCache::now",
];

type ByHandle = (&'static str, fn(&Cluster) -> String);

/// What is read by a handle that was had before: each has to be in the table of all calls.
const BY_HANDLE: [ByHandle; 7] = [
    ("Cluster::get", |a| said(a.get::<Net>())),
    ("Cluster::borrow", |a| said(a.borrow::<Net>().map(drop))),
    ("Cluster::snapshot", |a| said(a.snapshot().map(drop))),
    ("Cluster::access", |a| said(a.access())),
    ("Cluster::state", |a| said(a.state())),
    ("Cluster::generation", |a| said(a.generation())),
    ("Cluster::client", |a| said(a.client().map(drop))),
];

/// Every read, by the key.
fn reads_say(cache: &ClusterCache, status: EngineStatus) {
    let so = format!("NotRunning {{ status: {status:?} }}");
    let is_read = |name: &str| !NO_READS.iter().any(|begin| name.starts_with(begin));
    for (name, read) in CALLS.iter().filter(|(name, _)| is_read(name)) {
        let answer = read(cache.clone()).now_or_never();
        let answer = answer.unwrap_or_else(|| panic!("{name} waits"));
        // Of what there is no handle, snapshot or value, nothing can be read.
        let none = answer == "None" && !name.starts_with("ClusterCache::");
        assert!(none || answer.contains(&so), "{name}: {answer}");
    }
    let client = said(cache.client(&A()).map(drop));
    assert!(client.contains(&so), "{client}");
    assert_eq!(cache.status(), status);
    assert_eq!(cache.census().clusters(), 0);
}

/// The same where there was a cluster, by what was had of it, and every wait.
fn all_say(cache: &ClusterCache, had: &Had, status: EngineStatus) {
    reads_say(cache, status);
    let so = format!("NotRunning {{ status: {status:?} }}");
    for (name, read) in BY_HANDLE {
        let answer = read(&had.handle);
        assert!(answer.contains(&so), "{name}: {answer}");
    }
    for (name, _) in CALLS
        .iter()
        .filter(|(name, _)| name.starts_with("Cluster::"))
    {
        let called = BY_HANDLE.iter().any(|(other, _)| other == name);
        assert!(called || *name == "Cluster::key", "{name} is not read");
    }
    // What was held before is usable memory, and says that it is not current.
    let of_snapshot = had.snapshot.get::<Net>().unwrap();
    for value in [&had.value, of_snapshot] {
        assert!(!value.is_current());
        assert_eq!(value.retired().now_or_never(), Some(Ok(())));
        assert!(value.access.lock().unwrap().credential().token().is_some());
    }
    assert!(!had.identity.is_current());
    let ended = |why: &WaitError| matches!(why, WaitError::NotRunning(GetError::NotRunning { status: is }) if *is == status);
    let waited = cache.wait_for(&A(), LONG).now_or_never();
    assert!(ended(&waited.expect("at once").unwrap_err()));
    let waited = cache.wait_for_start(LONG).now_or_never();
    assert!(ended(&waited.expect("at once").unwrap_err()));
    assert!(cache.shutdown().now_or_never().is_some());
    assert!(cache.subscribe().next().now_or_never().unwrap().is_none());
}

/// What a reader had of cluster `a` while the engine ran.
struct Had {
    handle: Cluster,
    snapshot: clustercache::ClusterSnapshot,
    value: clustercache::Resource<Net>,
    identity: IdentityHandle,
}

impl Had {
    async fn of(cache: &ClusterCache) -> Self {
        let handle = cache.wait_for(&A(), LONG).await.unwrap();
        let value = handle.get::<Net>().unwrap();
        Self {
            snapshot: handle.snapshot().unwrap(),
            identity: value.cx.identity(),
            value,
            handle,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_was_never_started_says_so_by_every_read_and_when_its_engine_is_dropped() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (cache, engine) = builder(&world, &source).build().unwrap();
    reads_say(&cache, EngineStatus::NotStarted);
    // It may still be started: until its limit a wait waits for that.
    let not_started = |why: WaitError| {
        matches!(
            why,
            WaitError::NotRunning(GetError::NotRunning {
                status: EngineStatus::NotStarted
            })
        )
    };
    assert!(not_started(
        cache.wait_for(&A(), secs(1)).await.unwrap_err()
    ));
    assert!(not_started(
        cache.wait_for_start(secs(1)).await.unwrap_err()
    ));
    drop(engine);
    reads_say(&cache, EngineStatus::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_cache_whose_engine_was_dropped_says_so_by_every_read() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (cache, engine) = builder(&world, &source).build().unwrap();
    let engine = tokio::spawn(engine.run());
    let had = Had::of(&cache).await;
    engine.abort();
    assert!(engine.await.unwrap_err().is_cancelled());
    all_say(&cache, &had, EngineStatus::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_cache_whose_engine_panicked_says_so_by_every_read() {
    let log = Log::default();
    let _guard = log.set();
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let (cache, engine) = builder(&world, &source).build().unwrap();
    let engine = tokio::spawn(engine.run());
    let had = Had::of(&cache).await;
    // The only foreign code that the engine's own task meets is who listens to its log.
    log.panic_at("message=connected");
    source.upsert(plain("b"));
    assert!(engine.await.unwrap_err().is_panic());
    all_say(&cache, &had, EngineStatus::Panicked);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_was_shut_down_says_so_by_every_read() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let had = Had::of(&cache).await;
    assert!(cache.shutdown().await.unwrap().is_clean());
    all_say(&cache, &had, EngineStatus::Ended);
}
