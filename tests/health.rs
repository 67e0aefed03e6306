//! The one verdict on a connection, and what follows from it. The brakes on that are in `brakes.rs`.

mod sim;

use clustercache::{
    Changes, FailureKind, GetError, MemorySource, Phase, Stage, Subscription, Verdict,
};
use futures_util::StreamExt;
use sim::*;
use tokio::time::{Instant, sleep, sleep_until};

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
    names[..100]
        .iter()
        .for_each(|name| world.set(name, Answers::Never));
    sleep(secs(15)).await;
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

#[tokio::test(start_paused = true)]
async fn one_of_a_hundred_that_never_answers_delays_no_other_and_says_why() {
    let names = names(100);
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set(&names[0], Answers::Never);
    for name in &names {
        source.upsert(plain(name));
    }
    let cache = builder(&world, &source).start().unwrap();
    let begun = Instant::now();
    for name in &names[1..] {
        cache.wait_for(&key(name), LONG).await.unwrap();
    }
    assert_eq!(begun.elapsed(), secs(0));
    until(&cache, &names[0], |state| state.attempts > 2).await;
    let why = cache.get::<Net>(&key(&names[0])).unwrap_err().to_string();
    assert!(
        why.contains("is connecting") && why.contains("attempt 3"),
        "{why}"
    );
    assert!(why.contains("no end within 10s; next try at "), "{why}");
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

// === 401 ===

#[tokio::test(start_paused = true)]
async fn a_401_is_tried_by_its_schedule_and_is_down_like_any_failure() {
    let (world, source, cache) = one().await;
    world.accept_tokens("a", ["right"]);
    until(&cache, "a", |state| state.health == Verdict::Suspect).await;
    let begun = Instant::now();
    settle().await;
    assert_eq!(
        world.requests("a"),
        3,
        "the init, the probe, and one fresh handshake inside the connection"
    );
    world.until_noted("a net down Down").await;
    assert_eq!(begun.elapsed(), secs(7), "at 1, 3 and 7 s");
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(
        state.last_error.as_ref().unwrap().kind,
        FailureKind::Unauthorized
    );
    let wait = state
        .next_attempt
        .unwrap()
        .duration_since(cache.now())
        .unwrap();
    assert!((millis(14_500)..millis(15_500)).contains(&wait), "{wait:?}");
    sleep(secs(3)).await;
    source.upsert(cluster("a", "a", "a", "right"));
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0), "at once on new access");
}

#[tokio::test(start_paused = true)]
async fn a_401_for_everybody_for_a_minute_tears_nothing_down_and_costs_12_requests_a_cluster() {
    let names = names(20);
    let (world, _source, cache) = fleet(&names, |builder| builder).await;
    sleep(secs(120)).await;
    for name in &names {
        world.accept_tokens(name, ["right"]);
    }
    until(&cache, &names[0], |state| state.health == Verdict::Suspect).await;
    let before: Vec<_> = names.iter().map(|name| world.requests(name)).collect();
    sleep(secs(60)).await;
    for (name, before) in names.iter().zip(before) {
        let requests = world.requests(name) - before + 1;
        assert!(requests <= 12, "{name}: {requests}");
        cache.get::<Net>(&key(name)).unwrap();
        assert!(cache.state(&key(name)).unwrap().held_by_brake);
    }
    for name in &names {
        world.accept_tokens(name, []);
    }
    for name in &names {
        until(&cache, name, |state| {
            state.health == Verdict::Healthy && !state.held_by_brake
        })
        .await;
    }
    assert_eq!(world.count("c"), 20, "each up, and nothing else");
}

// === Outages, as subscribers hear of them ===

#[tokio::test(start_paused = true)]
async fn unhealthy_for_fires_that_long_after_the_last_success_once_an_outage() {
    let (world, _source, cache) = one().await;
    let mut events = cache
        .subscribe()
        .only(Changes::default())
        .unhealthy_for(secs(50));
    assert!(
        events
            .next()
            .await
            .unwrap()
            .changes()
            .contains(Changes::KNOWN)
    );
    for up in [7, 61, 3] {
        sleep(secs(up)).await;
        world.set("a", Answers::Never);
        let last = cache.state(&key("a")).unwrap().last_success.unwrap();
        let event = events.next().await.unwrap();
        assert!(event.changes().contains(Changes::UNHEALTHY));
        let after = cache.now().duration_since(last).unwrap();
        assert!(after >= secs(50) && after < millis(50_010), "{after:?}");
        sleep(secs(1_800)).await;
        assert!(told(&mut events).is_empty(), "once an outage");
        world.set("a", Answers::Well);
        cache.wait_for(&key("a"), LONG).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn unhealthy_for_a_cluster_never_connected_fires_that_long_after_its_first_failed_attempt() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.set("a", Answers::Never);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    let mut events = cache
        .subscribe()
        .only(Changes::default())
        .unhealthy_for(secs(50));
    let begun = Instant::now();
    assert!(
        events
            .next()
            .await
            .unwrap()
            .changes()
            .contains(Changes::KNOWN)
    );
    events.next().await.unwrap();
    let fired = begun.elapsed();
    assert!(
        (secs(60)..secs(60) + millis(10)).contains(&fired),
        "10 s for the attempt: {fired:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_healthy_clusters_fires_nothing() {
    let names = names(20);
    let (_world, _source, cache) = fleet(&names, |builder| builder).await;
    let mut events = cache
        .subscribe()
        .only(Changes::default())
        .unhealthy_for(secs(50));
    sleep(secs(600)).await;
    let fired = told(&mut events)
        .iter()
        .filter(|event| event.changes().contains(Changes::UNHEALTHY))
        .count();
    assert_eq!(fired, 0);
}

#[tokio::test(start_paused = true)]
async fn a_time_asked_about_in_an_outage_counts_from_its_last_success_too() {
    let (world, _source, cache) = one().await;
    world.set("a", Answers::Never);
    let begun = Instant::now();
    sleep(secs(30)).await;
    let mut events = cache
        .subscribe()
        .only(Changes::default())
        .unhealthy_for(secs(50))
        .unhealthy_for(secs(20));
    let first = events.next().await.unwrap();
    assert!(first.changes().contains(Changes::KNOWN));
    settle().await;
    let already = told(&mut events);
    assert!(
        first.changes().contains(Changes::UNHEALTHY) || already.len() == 1,
        "20 s have passed already"
    );
    events.next().await.unwrap();
    assert!(
        begun.elapsed() >= secs(49) && begun.elapsed() <= secs(51),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn who_asks_about_a_time_that_an_outage_has_passed_is_told_once_also_if_others_were_before() {
    let (world, _source, cache) = one().await;
    let subscribe = || {
        let events = cache.subscribe().only(Changes::default());
        events.unhealthy_for(secs(50))
    };
    let unhealthy = |events: &mut Subscription| {
        let told = told(events);
        let told = told.iter().map(clustercache::Event::changes);
        told.filter(|changes| changes.contains(Changes::UNHEALTHY))
            .count()
    };
    let mut early = subscribe();
    world.set("a", Answers::Never);
    sleep(secs(60)).await;
    assert_eq!(unhealthy(&mut early), 1);
    let mut late = subscribe();
    settle().await;
    assert_eq!((unhealthy(&mut early), unhealthy(&mut late)), (0, 1));
    sleep(secs(1_800)).await;
    assert_eq!((unhealthy(&mut early), unhealthy(&mut late)), (0, 0));
    world.set("a", Answers::Well);
    cache.wait_for(&key("a"), LONG).await.unwrap();
    world.set("a", Answers::Never);
    sleep(secs(60)).await;
    assert_eq!((unhealthy(&mut early), unhealthy(&mut late)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_logs_five_info_lines_at_most() {
    for answers in [
        Answers::Never,
        Answers::Refuses,
        Answers::Status(503),
        Answers::Status(401),
    ] {
        let (world, _source, cache) = one().await;
        sleep(secs(120)).await;
        let log = Log::default();
        let _guard = log.set();
        world.set("a", answers);
        sleep(secs(600)).await;
        world.set("a", Answers::Well);
        cache.wait_for(&key("a"), LONG).await.unwrap();
        let lines = log.lines();
        assert!(lines.len() <= 5, "{answers:?} {lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("down")),
            "{answers:?} {lines:?}"
        );
        assert!(
            lines.iter().any(|line| line.contains("connected")),
            "{lines:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_no_task() {
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let (_world, source, cache) = one().await;
    sleep_until(Instant::now() + secs(2)).await;
    let before = alive();
    for name in names(200) {
        source.upsert(plain(&name));
        cache.wait_for(&key(&name), LONG).await.unwrap();
    }
    settle().await;
    assert_eq!(alive(), before);
}
