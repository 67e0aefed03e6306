//! Where clusters come from: several sources, filters, streams that end, lingering, gates and refusals.

mod sim;

use std::sync::{Arc, Mutex};

use clustercache::{
    Changes, ClusterKey, ClusterSource, GetError, Identity, MemorySource, Phase, SourceError,
    SourceEvent, SourcedAccess, Upsert, options::GatePolicy,
};
use futures_util::{StreamExt, stream::BoxStream};
use sim::*;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

fn gated(name: &str, why: &str) -> Upsert {
    let access = SourcedAccess::Gated(why.into());
    Upsert {
        access,
        ..plain(name)
    }
}

fn refused(name: &str, why: &str) -> Upsert {
    Upsert::refused(key(name), why).with_uid(name)
}

// === Several sources ===

/// Two sources: `high` was registered first.
fn two(high: &MemorySource, low: &MemorySource) -> (World, Cache) {
    let world = World::default();
    let cache = builder(&world, high).source(low.clone()).start().unwrap();
    (world, cache)
}

#[tokio::test(start_paused = true)]
async fn the_first_registered_source_wins_and_the_loser_is_visible() {
    let (high, low) = (MemorySource::new("high"), MemorySource::new("low"));
    high.upsert(cluster("a", "1", "high", "t"));
    low.upsert(cluster("a", "2", "low", "t"));
    let (world, cache) = two(&high, &low);
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let state = a.state().unwrap();
    assert_eq!(
        (&*state.source, &*state.shadowed),
        ("high", &["low".into()][..])
    );
    assert_eq!((world.requests("high"), world.requests("low")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_loser_takes_over_when_the_winner_has_lingered() {
    let (high, low) = (MemorySource::new("high"), MemorySource::new("low"));
    high.upsert(cluster("a", "1", "high", "t"));
    low.upsert(cluster("a", "2", "low", "t"));
    let (world, cache) = two(&high, &low);
    let old = cache
        .wait_for(&key("a"), LONG)
        .await
        .unwrap()
        .get::<Net>()
        .unwrap();
    let begun = Instant::now();
    high.remove(&key("a"));
    gone(&old).await;
    assert_eq!(begun.elapsed(), secs(5));
    let new = cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(&*new.state().unwrap().source, "low");
    assert_eq!(world.count("a net down Replaced"), 1, "another identity");
    // And it is taken back at once.
    high.upsert(cluster("a", "1", "high", "t"));
    settle().await;
    assert_eq!(&*cache.state(&key("a")).unwrap().source, "high");
    assert!(matches!(new.get::<Net>(), Err(GetError::Replaced { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_by_the_same_identity_and_access_touches_nothing() {
    let (high, low) = (MemorySource::new("high"), MemorySource::new("low"));
    high.upsert(plain("a"));
    low.upsert(plain("a"));
    let (world, cache) = two(&high, &low);
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    high.remove(&key("a"));
    sleep(secs(60)).await;
    assert_eq!(&*a.state().unwrap().source, "low");
    a.get::<Net>().unwrap();
    assert_eq!(world.noted(), ["a net up"]);
}

#[tokio::test(start_paused = true)]
async fn a_lower_source_waits_ten_seconds_at_most_for_the_highers_first_synced() {
    let (high, low) = (MemorySource::unsynced("high"), MemorySource::new("low"));
    low.upsert(plain("a"));
    let (world, cache) = two(&high, &low);
    let begun = Instant::now();
    sleep(millis(1)).await;
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::NotOwned(_))
    ));
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(10));
    assert_eq!(world.requests("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lower_source_waits_no_longer_once_the_higher_is_synced() {
    let (high, low) = (MemorySource::unsynced("high"), MemorySource::new("low"));
    low.upsert(plain("a"));
    let (_world, cache) = two(&high, &low);
    sleep(secs(3)).await;
    high.synced();
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
}

// === Filters ===

#[tokio::test(start_paused = true)]
async fn filters_are_evaluated_again_at_every_change_and_shut_out_as_they_let_in() {
    let labelled = |shard: &str| plain("a").with_labels([("shard".to_owned(), shard.to_owned())]);
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(labelled("other"));
    let cache = builder(&world, &source)
        .filter(|cluster| cluster.labels.get("shard") == Some("ours"))
        .start()
        .unwrap();
    let mut events = cache
        .subscribe()
        .only(Changes::CONNECTED | Changes::REMOVED);
    settle().await;
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::NotOwned(_))
    ));
    assert!(!cache.state(&key("a")).unwrap().owned);
    assert_eq!(world.requests("a"), 0, "not dialled");
    assert!(
        events
            .next()
            .await
            .unwrap()
            .changes()
            .contains(Changes::KNOWN)
    );
    source.upsert(labelled("ours"));
    let a = cache.wait_for(&key("a"), LONG).await.unwrap();
    let net = a.get::<Net>().unwrap();
    assert!(
        events
            .next()
            .await
            .unwrap()
            .changes()
            .contains(Changes::CONNECTED)
    );
    source.upsert(labelled("other"));
    gone(&net).await;
    assert!(matches!(a.get::<Net>(), Err(GetError::NotOwned(_))));
    assert!(
        events
            .next()
            .await
            .unwrap()
            .changes()
            .contains(Changes::REMOVED),
        "an event too"
    );
    world.until_noted("a net down Removed").await;
    source.upsert(labelled("ours"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_lets_nothing_in_and_is_counted() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    source.upsert(plain("b"));
    let cache = builder(&world, &source)
        .filter(|cluster| {
            assert_ne!(cluster.key.name(), "a", "the test says so");
            true
        })
        .start()
        .unwrap();
    cache.expect_panic("test");
    cache.wait_for(&key("b"), LONG).await.unwrap();
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::NotOwned(_))
    ));
    assert_eq!(cache.counters().panics(), [("test".into(), 1)].into());
}

// === Streams ===

/// A source whose streams a test feeds: each stream is the next of those that were put in.
#[derive(Clone, Default)]
struct Fed(Arc<Mutex<Vec<mpsc::Receiver<Fact>>>>);

enum Fact {
    Says(SourceEvent),
    Fails,
    Panics,
}

impl Fed {
    fn stream(&self) -> mpsc::Sender<Fact> {
        let (sender, receiver) = mpsc::channel(16);
        self.0.lock().unwrap().insert(0, receiver);
        sender
    }
}

impl ClusterSource for Fed {
    fn name(&self) -> &'static str {
        "fed"
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        let next = self.0.lock().unwrap().pop();
        let facts = futures_util::stream::unfold(next, |facts| async {
            let mut facts = facts?;
            match facts.recv().await? {
                Fact::Says(event) => Some((Ok(event), Some(facts))),
                Fact::Fails => Some((Err("the test says so".into()), Some(facts))),
                Fact::Panics => panic!("the test says so"),
            }
        });
        facts.boxed()
    }
}

fn says(event: SourceEvent) -> Fact {
    Fact::Says(event)
}

fn named(name: &str) -> Fact {
    says(SourceEvent::Upsert(plain(name)))
}

fn fed(fed: &Fed) -> (World, Cache) {
    let world = World::default();
    let cache = Builder::default()
        .source(fed.clone())
        .resource(Net(world.clone()))
        .health_from::<Net>()
        .configure(|options| options.seed = Some(7))
        .start()
        .unwrap();
    (world, cache)
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_fails_or_panics_removes_nothing_before_its_next_synced() {
    for how in 0..3 {
        let source = Fed::default();
        let (first, second) = (source.stream(), source.stream());
        for fact in [named("a"), named("b"), says(SourceEvent::Synced)] {
            first.try_send(fact).ok().unwrap();
        }
        let (world, cache) = fed(&source);
        cache.wait_for(&key("a"), LONG).await.unwrap();
        cache.wait_for(&key("b"), LONG).await.unwrap();
        match how {
            0 => drop(first),
            1 => first.try_send(Fact::Fails).ok().unwrap(),
            _ => {
                cache.expect_panic("fed");
                first.try_send(Fact::Panics).ok().unwrap();
            }
        }
        second.try_send(named("a")).ok().unwrap();
        sleep(secs(600)).await;
        cache
            .get::<Net>(&key("b"))
            .expect("not named yet, and not gone either");
        let begun = Instant::now();
        second.try_send(says(SourceEvent::Synced)).ok().unwrap();
        world.until_noted("b net down Removed").await;
        assert_eq!(begun.elapsed(), secs(5), "after its linger");
        cache.get::<Net>(&key("a")).unwrap();
        let panics = if how == 2 {
            [("fed".into(), 1)].into()
        } else {
            [].into()
        };
        assert_eq!(cache.counters().panics(), panics);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_had_is_asked_for_with_backoff() {
    struct Never(Arc<Mutex<Vec<Instant>>>);
    impl ClusterSource for Never {
        fn name(&self) -> &'static str {
            "never"
        }
        fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
            self.0.lock().unwrap().push(Instant::now());
            panic!("the test says so")
        }
    }
    let (world, asked) = (World::default(), Arc::new(Mutex::new(Vec::new())));
    let source = MemorySource::new("test");
    source.upsert(plain("a"));
    let cache = builder(&world, &source)
        .source(Never(Arc::clone(&asked)))
        .start()
        .unwrap();
    cache.expect_panic("never");
    sleep(secs(3_600)).await;
    let asked = asked.lock().unwrap().len();
    assert!(
        (60..=300).contains(&asked),
        "about two a minute at last, not {asked}"
    );
    cache
        .get::<Net>(&key("a"))
        .expect("the other source is not delayed");
}

#[tokio::test(start_paused = true)]
async fn removal_is_by_identity_and_never_by_name_alone() {
    let source = Fed::default();
    let stream = source.stream();
    stream.try_send(named("a")).ok().unwrap();
    let (_world, cache) = fed(&source);
    let net = cache
        .wait_for(&key("a"), LONG)
        .await
        .unwrap()
        .get::<Net>()
        .unwrap();
    let of_another = SourceEvent::Remove {
        key: key("a"),
        identity: Identity::Uid("other".into()),
    };
    stream.try_send(says(of_another)).ok().unwrap();
    sleep(secs(60)).await;
    assert!(net.is_current());
    let of_it = SourceEvent::Remove {
        key: key("a"),
        identity: Identity::Uid("a".into()),
    };
    stream.try_send(says(of_it)).ok().unwrap();
    gone(&net).await;
}

// === Lingering ===

#[tokio::test(start_paused = true)]
async fn a_removed_cluster_is_served_and_probed_for_five_seconds_and_its_event_comes_at_the_end() {
    let (world, source, cache) = connected(|builder| builder).await;
    let mut events = cache.subscribe().only(Changes::REMOVED);
    events.next().await.unwrap();
    sleep(secs(4)).await;
    let (begun, probed) = (Instant::now(), world.requests("a"));
    source.remove(&key("a"));
    sleep(millis(4_999)).await;
    cache.get::<Net>(&key("a")).expect("still served");
    assert!(cache.state(&key("a")).unwrap().removing);
    assert_eq!(world.requests("a"), probed + 1, "still probed");
    let event = events.next().await.unwrap();
    assert!(event.changes().contains(Changes::REMOVED));
    assert_eq!(begun.elapsed(), secs(5));
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Unknown { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_handle_to_what_is_gone_says_removed() {
    let (_world, source, cache) = connected(|builder| builder).await;
    let a = cache.cluster(&key("a")).unwrap();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    assert!(
        matches!(a.get::<Net>(), Err(GetError::Removed(_))),
        "{:?}",
        a.get::<Net>()
    );
    source.upsert(plain("a"));
    let new = cache.wait_for(&key("a"), LONG).await.unwrap();
    new.get::<Net>().unwrap();
    assert!(a.get::<Net>().is_err(), "not what it was a handle to");
}

#[tokio::test(start_paused = true)]
async fn a_return_within_the_linger_is_an_update() {
    let (world, source, cache) = connected(|builder| builder).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    source.remove(&key("a"));
    sleep(secs(4)).await;
    source.upsert(cluster("a", "a", "a", "new"));
    sleep(secs(60)).await;
    assert!(net.is_current());
    assert_eq!(world.seen("a"), ["t", "new"]);
    assert!(!cache.state(&key("a")).unwrap().removing);
    assert_eq!(world.noted(), ["a net up"]);
}

#[tokio::test(start_paused = true)]
async fn another_identity_within_the_linger_ends_it_at_once() {
    let (world, source, cache) = connected(|builder| builder).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    source.remove(&key("a"));
    sleep(secs(1)).await;
    source.upsert(cluster("a", "other", "b", "t"));
    let begun = Instant::now();
    gone(&net).await;
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
    assert_eq!(world.requests("b"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_goes_down_while_it_lingers_is_not_dialled_anew() {
    let (world, source, cache) =
        connected(|builder| builder.configure(|options| options.source.linger = secs(60))).await;
    source.remove(&key("a"));
    world.set("a", Answers::Refuses);
    world.until_noted("a net down Down").await;
    let requests = world.requests("a");
    until_unknown(&cache, "a").await;
    assert_eq!(world.requests("a"), requests);
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_gone_after_its_linger_and_nothing_of_it_is_left() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    let cache = builder(&world, &source).start().unwrap();
    settle().await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    world.set("a", Answers::Never);
    source.upsert(plain("a"));
    sleep(secs(2)).await;
    let begun = Instant::now();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    assert!(begun.elapsed() <= secs(5), "{:?}", begun.elapsed());
    settle().await;
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        tasks
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_returns_while_its_old_connection_is_torn_down_is_connected_at_once() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(plain("a"));
    let custom = Custom::<0>::new()
        .teardown_timeout(secs(30))
        .teardown(|_, _| sleep(secs(20)));
    let cache = builder(&world, &source).resource(custom).start().unwrap();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    source.remove(&key("a"));
    until_unknown(&cache, "a").await;
    let begun = Instant::now();
    source.upsert(plain("a"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
    world.until_noted("a net down Removed").await;
    assert_eq!(begun.elapsed(), secs(20));
    cache.get::<Net>(&key("a")).unwrap();
}

// === Gates and refusals ===

#[tokio::test(start_paused = true)]
async fn a_gated_cluster_is_not_dialled_until_its_gate_opens() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    source.upsert(gated("a", "its control plane is not initialised"));
    let cache = builder(&world, &source).start().unwrap();
    sleep(secs(600)).await;
    let why = cache.get::<Net>(&key("a")).unwrap_err();
    assert!(matches!(why, GetError::Gated(_)));
    assert!(
        why.to_string()
            .ends_with(": its control plane is not initialised"),
        "{why}"
    );
    assert_eq!(world.requests("a"), 0);
    source.upsert(plain("a"));
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_gate_keeps_the_living_connection_by_default() {
    let (world, source, cache) = connected(|builder| builder).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    let requests = world.requests("a");
    source.upsert(gated("a", "paused"));
    sleep(secs(600)).await;
    assert!(net.is_current());
    assert!(world.requests("a") > requests, "still probed");
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(
        (state.phase, state.gate.as_deref()),
        (Phase::Connected, Some("paused"))
    );
    // Once it is down it is not dialled.
    world.set("a", Answers::Refuses);
    world.until_noted("a net down Down").await;
    let requests = world.requests("a");
    sleep(secs(600)).await;
    assert_eq!(world.requests("a"), requests);
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Gated(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_lost_gate_closes_the_connection_if_that_was_chosen_and_is_an_event() {
    let close = |options: &mut clustercache::options::Options| {
        options.source.gate = GatePolicy::Close;
    };
    let (world, source, cache) = connected(|builder| builder.configure(close)).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    let mut events = cache.subscribe().only(Changes::REMOVED);
    events.next().await.unwrap();
    source.upsert(gated("a", "paused"));
    gone(&net).await;
    assert!(
        events
            .next()
            .await
            .unwrap()
            .changes()
            .contains(Changes::REMOVED)
    );
    assert!(matches!(
        cache.get::<Net>(&key("a")),
        Err(GetError::Gated(_))
    ));
    world.until_noted("a net down Removed").await;
    source.upsert(plain("a"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_a_living_connection_and_nothing_is_dialled_before_it_is_mended() {
    let (world, source, cache) = connected(|builder| builder).await;
    let net = cache.get::<Net>(&key("a")).unwrap();
    source.upsert(refused("a", "users[0].exec: not allowed"));
    sleep(secs(600)).await;
    assert!(net.is_current());
    let state = cache.state(&key("a")).unwrap();
    assert_eq!(state.phase, Phase::Connected);
    assert_eq!(state.refused.as_deref(), Some("users[0].exec: not allowed"));
    world.set("a", Answers::Refuses);
    gone(&net).await;
    let requests = world.requests("a");
    world.set("a", Answers::Well);
    sleep(secs(600)).await;
    assert_eq!(world.requests("a"), requests);
    let why = cache.get::<Net>(&key("a")).unwrap_err();
    assert!(matches!(why, GetError::Refused(_)));
    assert!(
        why.to_string().ends_with(": users[0].exec: not allowed"),
        "{why}"
    );
    source.upsert(plain("a"));
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0), "mended without a restart");
}

#[tokio::test(start_paused = true)]
async fn wrong_credentials_back_off_by_the_schedule_of_401() {
    let (world, source) = (World::default(), MemorySource::new("test"));
    world.accept_tokens("a", ["right"]);
    source.upsert(plain("a"));
    let cache = builder(&world, &source).start().unwrap();
    // At 0, 1, 3, 7, 15, then every 15 s.
    let mut begun = Instant::now();
    sleep(millis(1)).await;
    for (after, requests) in [(1, 2), (2, 3), (4, 4), (8, 5), (15, 6), (15, 7)] {
        begun += secs(after);
        tokio::time::sleep_until(begun - millis(1)).await;
        assert_eq!(world.requests("a"), requests - 1);
        tokio::time::sleep_until(begun + millis(2)).await;
        assert_eq!(world.requests("a"), requests, "after {after} s more");
    }
    assert_eq!(source.take_rereads(), [key("a")].into());
    source.upsert(cluster("a", "a", "a", "right"));
    let begun = Instant::now();
    cache.wait_for(&key("a"), LONG).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0), "at once on new access");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_asked_to_read_again_and_panics_is_counted_and_goes_on() {
    struct Bad(MemorySource);
    impl ClusterSource for Bad {
        fn name(&self) -> &'static str {
            "bad"
        }
        fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
            self.0.events()
        }
        fn reread(&self, _: &ClusterKey) {
            panic!("the test says so")
        }
    }
    let (world, inner) = (World::default(), MemorySource::new("inner"));
    inner.upsert(plain("a"));
    world.accept_tokens("a", ["right"]);
    let cache = Builder::default()
        .source(Bad(inner.clone()))
        .resource(Net(world.clone()))
        .health_from::<Net>()
        .start()
        .unwrap();
    cache.expect_panic("bad");
    sleep(secs(2)).await;
    assert!(cache.counters().panics()["bad"] > 0);
    inner.upsert(cluster("a", "a", "a", "right"));
    cache.wait_for(&key("a"), LONG).await.unwrap();
}
