//! The two brakes: most of a fleet that fails at once, and a process that did not run itself.

mod sim;

use clustercache::{Changes, ConditionStatus, MemorySource, Phase, RemoteConnectionProbe, Verdict};
use sim::*;
use tokio::time::{Instant, advance, sleep};

// === The fleet brake ===

/// A fleet of 100, up for long enough to count.
async fn hundred() -> (Vec<String>, World, MemorySource, Cache) {
    let names = names(100);
    let (world, source, cache) = fleet(&names, |builder| builder).await;
    sleep(secs(120)).await;
    world.journal();
    (names, world, source, cache)
}

fn downs(world: &World) -> usize {
    world
        .noted()
        .iter()
        .filter(|line| line.ends_with("down Down"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn sixty_percent_within_a_second_tears_nothing_down_and_reads_are_served_with_one_alarm() {
    let (names, world, _source, cache) = hundred().await;
    let log = Log::default();
    let _guard = log.set();
    for name in &names[..60] {
        world.set(name, Answers::Never);
        sleep(millis(16)).await;
    }
    sleep(secs(300)).await;
    assert_eq!(downs(&world), 0);
    assert_eq!(cache.counters().brakes(), 1);
    let alarms = log
        .lines()
        .iter()
        .filter(|line| line.starts_with("ERROR"))
        .count();
    assert_eq!(alarms, 1, "{:?}", log.lines());
    for name in &names[..60] {
        cache.get::<Net>(&key(name)).unwrap();
        let state = cache.state(&key(name)).unwrap();
        assert_eq!((state.health, state.held_by_brake), (Verdict::Down, true));
    }
    assert!(!cache.state(&key(&names[99])).unwrap().held_by_brake);
    names[..60]
        .iter()
        .for_each(|name| world.set(name, Answers::Well));
    for name in &names[..60] {
        until(&cache, name, |state| {
            state.health == Verdict::Healthy && !state.held_by_brake
        })
        .await;
    }
    sleep(secs(60)).await;
    assert_eq!(downs(&world), 0);
    // Let go of: a single one falls as ever.
    world.set(&names[0], Answers::Never);
    until(&cache, &names[0], |state| state.phase == Phase::Down).await;
}

#[tokio::test(start_paused = true)]
async fn spread_over_ten_seconds_nothing_more_is_torn_down_once_55_percent_are_suspect() {
    let (names, world, _source, cache) = hundred().await;
    for name in &names[..60] {
        world.set(name, Answers::Never);
        sleep(millis(166)).await;
    }
    while cache.counters().brakes() == 0 {
        sleep(millis(50)).await;
    }
    let before = downs(&world);
    sleep(secs(300)).await;
    assert_eq!(downs(&world), before);
    assert!(before < 55, "{before}");
}

#[tokio::test(start_paused = true)]
async fn the_brake_lets_go_after_ten_minutes_and_engages_only_after_the_share_was_low() {
    let (names, world, _source, cache) = hundred().await;
    names[..60]
        .iter()
        .for_each(|name| world.set(name, Answers::Never));
    while cache.counters().brakes() == 0 {
        sleep(millis(50)).await;
    }
    let begun = Instant::now();
    world.until_noted("c000 net down Down").await;
    assert_eq!(
        begun.elapsed().as_secs(),
        599 + u64::from(begun.elapsed() >= secs(600)),
        "{:?}",
        begun.elapsed()
    );
    settle().await;
    assert_eq!(downs(&world), 60);
    sleep(secs(60)).await;
    assert_eq!(cache.counters().brakes(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_brake_is_released_by_call() {
    let (names, world, _source, cache) = hundred().await;
    names[..60]
        .iter()
        .for_each(|name| world.set(name, Answers::Never));
    sleep(secs(60)).await;
    assert_eq!(downs(&world), 0);
    cache.release_brake();
    settle().await;
    assert_eq!(downs(&world), 60);
}

#[tokio::test(start_paused = true)]
async fn while_held_everything_but_teardown_by_verdict_goes_on() {
    let (names, world, source, cache) = hundred().await;
    let mut unhealthy = cache
        .subscribe()
        .only(Changes::default())
        .unhealthy_for(secs(50));
    told(&mut unhealthy);
    names[..60]
        .iter()
        .for_each(|name| world.set(name, Answers::Never));
    sleep(secs(70)).await;
    assert_eq!(downs(&world), 0);
    let spoken = told(&mut unhealthy);
    assert_eq!(
        spoken
            .iter()
            .filter(|event| event.changes().contains(Changes::UNHEALTHY))
            .count(),
        60
    );
    // A removal, a new endpoint, another identity, a reconnect, a resource that fails.
    source.remove(&key("c000"));
    source.upsert(cluster("c001", "c001", "new", "t"));
    source.upsert(cluster("c002", "other", "new", "t"));
    world.set("c003", Answers::Well);
    cache.reconnect(&key("c003"));
    cache.get::<Net>(&key("c004")).unwrap().cx.failed(Scripted);
    sleep(secs(10)).await;
    for (name, how) in [
        ("c000", "Removed"),
        ("c001", "Replaced"),
        ("c002", "Replaced"),
        ("c003", "Replaced"),
        ("c004", "Down"),
    ] {
        assert_eq!(
            world.count(&format!("{name} net down {how}")),
            1,
            "{name} {how}"
        );
    }
    let begun = Instant::now();
    cache.shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn another_cluster_of_a_name_is_not_held_for_what_the_old_one_was() {
    let (names, world, source, cache) = hundred().await;
    for name in &names[..60] {
        world.set(name, Answers::Never);
    }
    sleep(secs(70)).await;
    assert!(cache.state(&key("c002")).unwrap().held_by_brake);
    source.upsert(cluster("c002", "other", "new", "t"));
    world.until_noted("c002 net down Replaced").await;
    cache.wait_for(&key("c002"), LONG).await.unwrap();
    world.set("new", Answers::Never);
    sleep(secs(15)).await;
    assert_eq!(world.count("c002 net down Down"), 1);
    assert_eq!(downs(&world), 1, "the others are held still");
}

#[tokio::test(start_paused = true)]
async fn a_small_fleet_and_a_fleet_that_was_not_up_a_minute_ago_have_no_brake() {
    for (count, up) in [(9, 120), (100, 20)] {
        let names = names(count);
        let (world, _source, cache) = fleet(&names, |builder| builder).await;
        sleep(secs(up)).await;
        for name in &names {
            world.set(name, Answers::Never);
        }
        sleep(secs(15)).await;
        assert_eq!(downs(&world), count);
        assert_eq!(cache.counters().brakes(), 0);
    }
}

// === The process itself ===

#[tokio::test(start_paused = true)]
async fn a_process_that_did_not_run_for_a_minute_declares_nobody_down_because_of_it() {
    let names = names(5);
    for offset in 0..12 {
        let (world, _source, cache) = fleet(&names, |builder| builder).await;
        sleep(millis(700) * offset).await;
        let mut events = cache.subscribe().only(Changes::DISCONNECTED);
        told(&mut events);
        advance(secs(60)).await;
        settle().await;
        for name in &names {
            let (state, now) = (cache.state(&key(name)).unwrap(), cache.now());
            let probe = RemoteConnectionProbe::default().condition(None, Some(&state), now);
            assert_eq!(probe.status, ConditionStatus::True, "{}", probe.message);
        }
        sleep(secs(60)).await;
        assert!(cache.counters().stalls() >= 1);
        assert_eq!(told(&mut events).len(), 0);
        assert_eq!(
            world.noted().len(),
            names.len(),
            "each up, and nothing else"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspect_connection_is_not_down_by_the_time_in_which_the_process_did_not_run() {
    let (world, _source, cache) = one().await;
    world.set("a", Answers::Never);
    until(&cache, "a", |state| state.consecutive_failures == 1).await;
    advance(secs(60)).await;
    sleep(secs(2)).await;
    cache
        .get::<Net>(&key("a"))
        .expect("not judged by that time");
    world.set("a", Answers::Well);
    until(&cache, "a", |state| state.health == Verdict::Healthy).await;
    // A real black hole is still found.
    world.set("a", Answers::Never);
    let begun = Instant::now();
    world.until_noted("a net down Down").await;
    assert!(begun.elapsed() <= secs(15));
}

#[tokio::test(start_paused = true)]
async fn a_suspect_cluster_is_not_unhealthy_by_the_time_in_which_the_process_did_not_run() {
    let (world, _source, cache) = one().await;
    let unhealthy = cache.subscribe().only(Changes::default());
    let mut unhealthy = unhealthy.unhealthy_for(secs(20));
    world.set("a", Answers::Never);
    until(&cache, "a", |state| state.consecutive_failures == 1).await;
    told(&mut unhealthy);
    advance(secs(60)).await;
    settle().await;
    assert_eq!(told(&mut unhealthy).len(), 0);
    // What passes while the process runs counts as ever.
    sleep(secs(15)).await;
    assert_eq!(told(&mut unhealthy).len(), 1);
}
