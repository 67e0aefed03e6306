//! Outages, as subscribers and the log hear of them, and what a cluster costs that has none.

use clustercache::{Changes, MemorySource, Subscription};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep, sleep_until};

use crate::sim::*;

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
