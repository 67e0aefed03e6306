//! The one verdict on a connection, and what follows from it. The brakes on that are in `brakes.rs`.

#[path = "../sim/mod.rs"]
mod sim;

mod outages;
mod unauthorized;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use clustercache::{
    Changes, ClusterCache, ClusterKey, FailureKind, GetError, MemorySource, Phase, Stage, Verdict,
    options::Options,
};
use sim::*;
use tokio::time::{Instant, sleep};

// === Down ===

#[tokio::test(start_paused = true)]
async fn whatever_is_dead_is_down_within_fifteen_seconds_whenever_it_begins() {
    for answers in [
        Answers::Never,
        Answers::Refuses,
        Answers::Status(503),
        Answers::Status(302),
    ] {
        for quarter in 0..24 {
            let (world, _source, cache) = one().await;
            sleep(millis(250) * quarter).await;
            world.set("a", answers);
            let begun = Instant::now();
            world.until_noted("a net down Down").await;
            assert!(
                begun.elapsed() <= secs(15),
                "{answers:?} {quarter} {:?}",
                begun.elapsed()
            );
            assert!(
                begun.elapsed() >= secs(6),
                "{answers:?} {quarter} {:?}",
                begun.elapsed()
            );
            assert!(matches!(
                cache.get::<Net>(&key("a")),
                Err(GetError::Down(_))
            ));
        }
    }
}

/// Reads clusters all the time, on a thread of its own: each is there, of the same connection as ever.
struct Reader {
    sweeps: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn start(cache: &ClusterCache, names: &[String]) -> Self {
        let (sweeps, stop) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        let (cache, count, ends) = (cache.clone(), Arc::clone(&sweeps), Arc::clone(&stop));
        let read = move |key: &ClusterKey| cache.get::<Net>(key).map(|net| net.generation());
        let thread = std::thread::spawn(move || {
            let before: Vec<_> = keys.iter().map(|key| read(key).unwrap()).collect();
            while !ends.load(SeqCst) {
                for (key, before) in keys.iter().zip(&before) {
                    assert_eq!(read(key).as_ref().unwrap(), before, "{key}");
                }
                count.fetch_add(1, SeqCst);
            }
        });
        Self {
            sweeps,
            stop,
            thread,
        }
    }

    /// Until all have been read anew; no time passes.
    async fn sweep(&self) {
        let before = self.sweeps.load(SeqCst);
        while self.sweeps.load(SeqCst) < before + 2 && !self.thread.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    fn end(self) {
        self.stop.store(true, SeqCst);
        self.thread.join().expect("every read succeeds");
    }
}

#[tokio::test(start_paused = true)]
async fn half_of_200_turn_black_holes_and_all_of_them_are_down_in_15_s_and_not_one_healthy_one() {
    let names = names(200);
    let (world, _source, cache) = fleet(&names, |builder| builder).await;
    sleep(secs(120)).await;
    let generation = |name: &str| {
        cache
            .get::<Net>(&key(name))
            .ok()
            .map(|net| net.generation())
    };
    let before: Vec<_> = names.iter().map(|name| generation(name)).collect();
    let reader = Reader::start(&cache, &names[100..]);
    names[..100]
        .iter()
        .for_each(|name| world.set(name, Answers::Never));
    for _ in 0..60 {
        sleep(millis(250)).await;
        reader.sweep().await;
    }
    reader.end();
    for (index, name) in names.iter().enumerate() {
        let now = generation(name);
        assert_eq!(now, before[index].filter(|_| index >= 100), "{name}");
    }
    assert_eq!(cache.counters().brakes(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_failed_probe_between_good_ones_changes_nothing() {
    let (world, _source, cache) = one().await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    let mut events = cache
        .subscribe()
        .only(Changes::CONNECTED | Changes::DISCONNECTED);
    told(&mut events);
    for _ in 0..20 {
        world.set("a", Answers::FailsOnce);
        sleep(secs(11)).await;
        let state = cache.state(&key("a")).unwrap();
        assert_eq!(
            (state.phase, state.health),
            (Phase::Connected, Verdict::Healthy)
        );
    }
    assert!(net.is_current() && told(&mut events).is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_dials_change_nothing_while_the_connection_answers() {
    let (world, _source, cache) = one().await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    world.refuse_dials("a", true);
    for _ in 0..20 {
        world.set("a", Answers::FailsOnce);
        sleep(secs(11)).await;
    }
    assert!(net.is_current());
    assert_eq!(
        (
            cache.state(&key("a")).unwrap().health,
            *net.replaced.lock().unwrap()
        ),
        (Verdict::Healthy, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn one_failed_dial_while_connecting_is_tried_again() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::FailsOnce);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert!(begun.elapsed() <= millis(500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dead_pooled_connection_is_replaced_and_nothing_is_down() {
    let (world, _source, cache) = one().await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    world.set("a", Answers::OldConnectionsDie);
    sleep(secs(60)).await;
    assert_eq!(*net.replaced.lock().unwrap(), 1);
    assert!(net.is_current());
    assert_eq!(cache.state(&key("a")).unwrap().health, Verdict::Healthy);
    assert_eq!(world.noted(), ["a net up"]);
}

#[tokio::test(start_paused = true)]
async fn every_doubt_is_followed_by_a_probe_at_once() {
    let (world, _source, cache) = one().await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    for _ in 0..3 {
        sleep(millis(2_500)).await;
        let requests = world.requests("a");
        net.cx.alive().doubt();
        settle().await;
        assert_eq!(world.requests("a"), requests + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_changes_all_the_time_floods_no_healthy_cluster_with_probes() {
    let (world, source, cache) = one().await;
    let before = world.requests("a");
    for turn in 0..500 {
        source.upsert(cluster("a", "a", "a", &format!("t{turn}")));
        sleep(millis(10)).await;
    }
    let probes = world.requests("a") - before;
    assert!((4..=7).contains(&probes), "{probes} in five seconds");
    assert_eq!(world.count("a net up"), 1);
    cache.get::<Net>(&key("a")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn bytes_put_probes_off_but_the_credential_is_proven_once_a_minute() {
    let (world, _source, cache) = one().await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    let requests = world.requests("a");
    let begun = Instant::now();
    for _ in 0..600 {
        sleep(secs(1)).await;
        net.cx.alive().bytes();
    }
    let probes = world.requests("a") - requests;
    assert!(
        (9..=10).contains(&probes),
        "{probes} in {:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_never_ready_is_shown_and_not_torn_down() {
    let (world, _source, cache) = one().await;
    world.set("a", Answers::NotReady);
    until(&cache, "a", |state| {
        state.not_ready.as_deref() == Some("etcd failed")
    })
    .await;
    sleep(secs(600)).await;
    cache.get::<Net>(&key("a")).unwrap();
    world.set("a", Answers::Well);
    until(&cache, "a", |state| state.not_ready.is_none()).await;
    assert_eq!(world.noted(), ["a net up"]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_got_no_permit_is_no_failure() {
    let (world, _source, cache) = one().await;
    world.set("a", Answers::Busy);
    sleep(secs(600)).await;
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(
        (state.health, state.consecutive_failures),
        (Verdict::Healthy, 0)
    );
    assert!(state.last_error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_health_check_is_counted_and_a_failure_of_that_cluster_alone() {
    let (world, _source, cache) = fleet(&["a".to_owned(), "b".to_owned()], |builder| builder).await;
    cache.expect_panic("net");
    let log = Log::default();
    let _guard = log.set();
    world.set("a", Answers::Panics);
    until(&cache, "a", |state| state.phase == Phase::Down).await;
    let error = cache.state(&key("a")).unwrap().last_error.unwrap();
    assert_eq!(
        (error.stage, error.kind),
        (Stage::Probe, FailureKind::Panicked)
    );
    assert!(cache.counters().panics()["net"] > 1);
    let lines = log.lines();
    let panics = lines.iter().filter(|line| line.contains("a hook panicked"));
    assert_eq!(panics.count(), 1, "repeats are for who debugs: {lines:?}");
    cache.get::<Net>(&key("b")).unwrap();
}

// === Connecting ===

/// What the dial pool is given, and when the last is connected by that.
type Limits = (fn(&mut Options), Duration);

/// When each of a hundred was connected, through the dial pool, the first ones first. One never answers, if that is said.
async fn hundred_connect(
    bad: Option<usize>,
    options: impl FnOnce(&mut Options),
) -> (Vec<Duration>, Vec<String>, Cache) {
    let names = names(100);
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.with_permits();
    world.handshakes_take(millis(20));
    if let Some(bad) = bad {
        world.set(&names[bad], Answers::Never);
    }
    for name in &names {
        source.upsert(plain(name));
    }
    let cache = builder(&world, &source).configure(options).start().unwrap();
    let begun = Instant::now();
    let connects: Vec<_> = (0..100)
        .filter(|number| bad != Some(*number))
        .map(|number| {
            let (cache, key) = (cache.clone(), key(&names[number]));
            tokio::spawn(async move {
                cache.wait_for(&key, LONG).await.unwrap();
                begun.elapsed()
            })
        })
        .collect();
    let mut times = Vec::new();
    for connect in connects {
        times.push(connect.await.unwrap());
    }
    times.sort_unstable();
    (times, names, cache)
}

#[tokio::test(start_paused = true)]
async fn one_of_a_hundred_that_never_answers_delays_no_other_and_says_why() {
    let as_ever = |_: &mut Options| {};
    // One handshake at a time: whoever is silent must not have that place.
    let narrow = |options: &mut Options| options.dial.handshakes = 1;
    let limits: [Limits; 2] = [(as_ever, millis(40)), (narrow, secs(2))];
    for (limits, at_last) in limits {
        let (without, ..) = hundred_connect(None, limits).await;
        assert_eq!(without[99], at_last, "the limits are met");
        for bad in [0, 50, 99] {
            let (with, names, cache) = hundred_connect(Some(bad), limits).await;
            assert_eq!(with, without[..99], "as fast as without it");
            until(&cache, &names[bad], |state| state.attempts > 2).await;
            let why = cache.get::<Net>(&key(&names[bad])).unwrap_err().to_string();
            assert!(
                why.contains("is connecting") && why.contains("attempt 3"),
                "{why}"
            );
            assert!(why.contains("no end within 10s; next try at "), "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn behind_300_black_holes_a_healthy_cluster_is_connected_within_a_second() {
    let names = names(300);
    let (world, source) = (World::default(), MemorySource::new("test"));
    for name in &names {
        world.set(name, Answers::Never);
        source.upsert(plain(name));
    }
    world.with_permits();
    let cache = builder(&world, &source)
        .configure(|options| options.dial.silent = 64)
        .start()
        .unwrap();
    sleep(secs(60)).await;
    for name in ["good-1", "good-2", "good-3"] {
        source.upsert(plain(name));
        let begun = Instant::now();
        cache.wait_for(&key(name), LONG).await.unwrap();
        assert!(begun.elapsed() <= secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn backoff_is_forgotten_after_a_minute_up() {
    let (world, _source, cache) = one().await;
    let mut waits = Vec::new();
    for up in [1, 1, 1, 1, 1, 1, 1, 90] {
        sleep(secs(up)).await;
        world.set("a", Answers::Refuses);
        let state = until(&cache, "a", |state| state.phase == Phase::Down).await;
        waits.push(
            state
                .next_attempt
                .unwrap()
                .duration_since(cache.now())
                .unwrap_or_default(),
        );
        world.set("a", Answers::Well);
        cache.wait_for(&key("a"), LONG).await.unwrap();
    }
    assert!(waits.iter().take(7).max().unwrap() > &secs(1), "{waits:?}");
    assert!(waits[7] <= millis(500), "{waits:?}");
}
