//! The cache for unit tests: its clusters do what the test says, and nothing else.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clustercache::{
    Changes, ClusterCache, ClusterKey, ClusterResource, GetError, InitContext, InitError,
    MemorySource, Phase, RemoteConnectionProbe, Requires, Subscription,
};
use clustercache_testkit::{cache::TestCache, guard::PanicGuard};
use futures_util::StreamExt;

/// A value that is no clone of anything.
struct Quota;

/// One without which a cluster does.
struct Extra;

/// A provider that is itself tested: what is left of a quota.
struct Rest;

#[async_trait]
impl ClusterResource for Quota {
    type Value = Box<u64>;
    fn name(&self) -> &'static str {
        "quota"
    }
    async fn init(&self, _: &InitContext) -> Result<Box<u64>, InitError> {
        unreachable!("a stand-in has its place")
    }
}

#[async_trait]
impl ClusterResource for Extra {
    type Value = &'static str;
    fn name(&self) -> &'static str {
        "extra"
    }
    async fn init(&self, _: &InitContext) -> Result<&'static str, InitError> {
        unreachable!("a stand-in has its place")
    }
}

#[async_trait]
impl ClusterResource for Rest {
    type Value = u64;
    fn name(&self) -> &'static str {
        "rest"
    }
    fn requires(&self) -> Requires {
        Requires::nothing().resource::<Quota>()
    }
    async fn init(&self, cx: &InitContext) -> Result<u64, InitError> {
        let quota = **cx.get::<Quota>()?;
        assert!(quota > 0, "a quota is never zero");
        Ok(quota - 1)
    }
}

fn key() -> ClusterKey {
    ClusterKey::new("prod", "eu-1")
}

fn test() -> TestCache {
    TestCache::builder()
        .resource::<Quota>()
        .optional::<Extra>()
        .build()
}

async fn connected() -> TestCache {
    let test = test();
    test.put::<Quota>(&key(), Box::new(7)).await;
    test.connect(&key()).await;
    test
}

fn quota(test: &TestCache) -> Result<u64, GetError> {
    test.cache().get::<Quota>(&key()).map(|quota| **quota)
}

/// Both: no test here needs time, so that real time costs none.
macro_rules! in_paused_and_in_real_time {
    ($($name:ident),*) => { $(
        mod $name {
            #[tokio::test(start_paused = true)]
            async fn paused() { super::$name().await; }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn real() { super::$name().await; }
        }
    )* };
}

in_paused_and_in_real_time!(
    a_cluster_comes_and_goes,
    a_resource_fails_and_is_put_again,
    an_optional_one_may_be_missing,
    another_value_takes_its_place,
    a_cluster_is_gated_refused_replaced_and_removed,
    a_provider_is_tested_on_a_stand_in,
    a_value_for_each_connection
);

async fn a_cluster_comes_and_goes() {
    let test = test();
    test.add(&key()).await;
    assert!(matches!(quota(&test), Err(GetError::Connecting(_))));
    test.put::<Quota>(&key(), Box::new(7)).await;
    test.connect(&key()).await;
    let held = test.cache().get::<Quota>(&key()).unwrap();
    assert_eq!((**held, held.is_current()), (7, true));
    test.disconnect(&key()).await;
    assert!(matches!(quota(&test), Err(GetError::Down(_))));
    assert!(!held.is_current());
    test.put::<Quota>(&key(), Box::new(8)).await;
    test.connect(&key()).await;
    assert_eq!(quota(&test).unwrap(), 8);
}

async fn a_resource_fails_and_is_put_again() {
    let test = connected().await;
    test.fail::<Quota>(&key(), "the watch broke").await;
    let error = quota(&test).unwrap_err();
    assert!(matches!(error, GetError::Reinitialising { .. }), "{error}");
    assert!(error.to_string().contains("the watch broke"), "{error}");
    let state = test.cache().state(&key()).unwrap();
    assert_eq!(state.phase, Phase::Degraded);
    assert_eq!(state.resources[1].name, "quota");
    test.put::<Quota>(&key(), Box::new(9)).await;
    assert_eq!(quota(&test).unwrap(), 9);
    assert_eq!(test.cache().state(&key()).unwrap().phase, Phase::Connected);
}

async fn an_optional_one_may_be_missing() {
    let test = connected().await;
    let extra = || test.cache().get::<Extra>(&key()).map(|extra| *extra);
    assert!(matches!(extra(), Err(GetError::Reinitialising { .. })));
    test.put::<Extra>(&key(), "more").await;
    assert_eq!(extra().unwrap(), "more");
    test.not_applicable::<Extra>(&key(), "there is none").await;
    assert!(matches!(extra(), Err(GetError::NotApplicable { .. })));
    test.put::<Extra>(&key(), "again").await;
    assert_eq!(extra().unwrap(), "again");
}

async fn another_value_takes_its_place() {
    let test = connected().await;
    let old = test.cache().get::<Quota>(&key()).unwrap();
    test.put::<Quota>(&key(), Box::new(8)).await;
    assert_eq!(
        (quota(&test).unwrap(), **old, old.is_current()),
        (8, 7, false)
    );
}

async fn a_cluster_is_gated_refused_replaced_and_removed() {
    let test = connected().await;
    let handle = test.cache().cluster(&key()).unwrap();
    test.replace(&key()).await;
    assert!(matches!(handle.state(), Err(GetError::Replaced { .. })));
    test.gate(&key(), "not provisioned").await;
    assert!(matches!(quota(&test), Err(GetError::Gated(_))));
    test.refuse(&key(), "no CA").await;
    assert!(matches!(quota(&test), Err(GetError::Refused(_))));
    test.put::<Quota>(&key(), Box::new(1)).await;
    test.connect(&key()).await;
    assert_eq!(quota(&test).unwrap(), 1);
    test.remove(&key()).await;
    assert!(matches!(quota(&test), Err(GetError::Unknown { .. })));
}

async fn a_provider_is_tested_on_a_stand_in() {
    let test = TestCache::builder()
        .resource::<Quota>()
        .set_up(|builder| builder.resource(Rest))
        .build();
    test.put::<Quota>(&key(), Box::new(7)).await;
    test.connect(&key()).await;
    assert_eq!(*test.cache().get::<Rest>(&key()).unwrap(), 6);
    // What it is built on is made anew, and so is it.
    test.put::<Quota>(&key(), Box::new(3)).await;
    test.connect(&key()).await;
    assert_eq!(*test.cache().get::<Rest>(&key()).unwrap(), 2);
}

async fn a_value_for_each_connection() {
    let test = test();
    test.put_each::<Quota>(&key(), || Box::new(5)).await;
    for _ in 0..3 {
        test.connect(&key()).await;
        assert_eq!(quota(&test).unwrap(), 5);
        test.disconnect(&key()).await;
    }
}

async fn next(events: &mut Subscription) -> Changes {
    events.next().await.unwrap().changes()
}

#[tokio::test(start_paused = true)]
async fn events_and_the_condition_are_those_of_production() {
    const MINUTES: Duration = Duration::from_secs(300);
    let test = connected().await;
    let cache = test.cache();
    let mut events = cache
        .subscribe()
        .only(Changes::CONNECTED | Changes::DISCONNECTED)
        .unhealthy_for(MINUTES);
    assert!(next(&mut events).await.contains(Changes::KNOWN));

    test.silence(&key());
    assert!(next(&mut events).await.contains(Changes::DISCONNECTED));
    assert!(matches!(quota(&test), Err(GetError::Down(_))));
    let state = cache.state(&key()).unwrap();
    assert!(next(&mut events).await.contains(Changes::UNHEALTHY));
    let since = cache.now().duration_since(state.last_success.unwrap());
    assert!(since.unwrap() >= MINUTES);
    let condition = RemoteConnectionProbe::default().condition(None, Some(&state), cache.now());
    assert_eq!(condition.reason, RemoteConnectionProbe::FAILED);

    test.put::<Quota>(&key(), Box::new(1)).await;
    test.connect(&key()).await;
    assert!(next(&mut events).await.contains(Changes::CONNECTED));
}

#[tokio::test(start_paused = true)]
async fn an_init_that_fails_is_tried_again() {
    let test = test();
    test.fail::<Quota>(&key(), "forbidden").await;
    test.add(&key()).await;
    let connects = async { test.connect(&key()).await };
    let puts = async {
        // Once the failure is seen.
        let mut events = test.cache().subscribe();
        while !quota(&test).unwrap_err().to_string().contains("forbidden") {
            events.next().await;
        }
        test.put::<Quota>(&key(), Box::new(1)).await;
    };
    tokio::join!(connects, puts);
    assert_eq!(quota(&test).unwrap(), 1);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "was each essential resource put?")]
async fn connecting_without_a_value_says_so() {
    test().connect(&key()).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "give it to the builder by .resource::<")]
async fn a_resource_that_was_not_given_to_the_builder_is_named() {
    test().put::<Rest>(&key(), 1).await;
}

/// A cache in which `rest` panics.
async fn panicking() -> TestCache {
    let test = TestCache::builder()
        .resource::<Quota>()
        .set_up(|builder| builder.optional(Rest))
        .build();
    test.put::<Quota>(&key(), Box::new(0)).await;
    test.connect(&key()).await;
    let mut events = test.cache().subscribe();
    while test.cache().counters().panics().is_empty() {
        events.next().await;
    }
    test
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "panics that the test did not expect: rest (")]
async fn a_panic_of_a_provider_fails_the_test() {
    drop(panicking().await);
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_is_expected_does_not() {
    panicking().await.expect_panic("rest");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "rest was expected to panic, and did not")]
async fn a_panic_that_was_expected_and_did_not_come_does() {
    connected().await.expect_panic("rest");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the test itself")]
async fn a_test_that_fails_already_is_left_alone() {
    let _test = panicking().await;
    panic!("the test itself");
}

#[tokio::test]
async fn a_guard_is_for_any_cache() {
    let source = Arc::new(MemorySource::new("test"));
    let (cache, engine) = ClusterCache::builder()
        .source((*source).clone())
        .filter(|_| panic!("a filter of the test"))
        .stand_in(clustercache::StandIn::<Quota>::new("quota", async |_| {
            Ok(Box::new(1))
        }))
        .resource(Health)
        .health_from::<Health>()
        .build()
        .unwrap();
    let guard = PanicGuard::new(&cache);
    tokio::spawn(engine.run());
    source.upsert(clustercache::Upsert::refused(key(), "test"));
    cache.wait_for_start(Duration::from_secs(10)).await.unwrap();
    assert_eq!(
        guard
            .unexpected()
            .keys()
            .map(|name| &**name)
            .collect::<Vec<_>>(),
        ["test"]
    );
    guard.expect_panic("test");
}

struct Health;

#[async_trait]
impl ClusterResource for Health {
    type Value = ();
    fn name(&self) -> &'static str {
        "health"
    }
    async fn init(&self, _: &InitContext) -> Result<(), InitError> {
        Ok(())
    }
}

#[async_trait]
impl clustercache::HealthCheck for Health {
    async fn check(
        &self,
        (): &(),
        _: &clustercache::CheckContext,
    ) -> Result<clustercache::Answer, clustercache::CheckError> {
        Ok(clustercache::Answer::Ready)
    }
}
