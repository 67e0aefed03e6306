//! A credential that is refused: by which schedule it is tried again, what that costs, and what mends it.

use clustercache::{FailureKind, Verdict};
use tokio::time::{Instant, sleep};

use crate::sim::*;

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

#[tokio::test(start_paused = true)]
async fn a_token_that_is_mended_200_ms_after_the_first_401_is_recovered_within_1500_ms() {
    for by_source in [true, false] {
        let (world, source, cache) = one().await;
        let net = cache.get::<Net>(&key("a")).unwrap();
        world.accept_tokens("a", ["right"]);
        until(&cache, "a", |state| state.health == Verdict::Suspect).await;
        let begun = Instant::now();
        sleep(millis(200)).await;
        if by_source {
            source.upsert(cluster("a", "a", "a", "right"));
        } else {
            // The cluster takes the old one again.
            world.accept_tokens("a", []);
        }
        until(&cache, "a", |state| state.health == Verdict::Healthy).await;
        assert!(begun.elapsed() <= millis(1_500), "{:?}", begun.elapsed());
        assert!(net.is_current(), "nothing was torn down");
    }
}
