//! The condition `RemoteConnectionProbe` of one cluster over time: what a controller writes into the status of the object that
//! stands for the cluster. It is reconciled by events alone, without a timer.
//!
//! `cargo run --example conditions`: minutes of a cluster's life, in simulated time.

use std::time::Duration;

use async_trait::async_trait;
use clustercache::{
    ClusterCache, ClusterKey, ClusterResource, Condition, ConditionStatus, InitContext, InitError,
    RemoteConnectionProbe,
};
use clustercache_testkit::cache::TestCache;
use futures_util::StreamExt;
use tokio::time::{Instant, sleep, sleep_until};

/// Stands for `KubeClient` and whatever else a controller has of each cluster.
struct Client;

#[async_trait]
impl ClusterResource for Client {
    type Value = ();

    fn name(&self) -> &'static str {
        "client"
    }

    async fn init(&self, _: &InitContext) -> Result<(), InitError> {
        Ok(())
    }
}

/// Keeps the condition of one object, and prints it whenever it is another. A real controller reads `existing` from the object's status, and
/// writes what comes out back there.
async fn reconcile_on_events(cache: ClusterCache, key: ClusterKey) {
    let probe = RemoteConnectionProbe::default();
    // Time alone makes the condition False: a grace period after the last success is an event too.
    let mut events = cache.subscribe().key(&key).unhealthy_for(probe.grace());
    let begun = Instant::now();
    let mut existing: Option<Condition> = None;
    loop {
        let state = cache.state(&key).ok();
        let condition = probe.condition(existing.clone(), state.as_ref(), cache.now());
        if existing.as_ref() != Some(&condition) {
            let phase = state.map_or("unknown".into(), |state| state.phase.to_string());
            print(begun.elapsed(), &phase, &condition);
        }
        existing = Some(condition);
        if events.next().await.is_none() {
            return;
        }
    }
}

fn print(at: Duration, phase: &str, condition: &Condition) {
    let seconds = at.as_secs();
    let Condition {
        status,
        reason,
        message,
        ..
    } = condition;
    println!("{seconds:>4} s  {phase:<10}  {status:<5}  {reason:<14}  {message}");
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let test = TestCache::builder().resource::<Client>().build();
    let key = ClusterKey::new("prod", "eu-1");
    test.put_each::<Client>(&key, || ()).await;
    println!("TIME    CLUSTER     STATUS REASON          MESSAGE");
    let reconciler = tokio::spawn(reconcile_on_events(test.cache(), key.clone()));
    let begun = Instant::now();
    let at = |seconds| sleep_until(begun + Duration::from_secs(seconds));

    at(5).await;
    test.add(&key).await; // known, and not reached yet: nothing new is said
    at(10).await;
    test.connect(&key).await;
    at(120).await;
    test.silence(&key); // a blip: it is down, and back within the grace period, so that the condition stays
    at(150).await;
    test.connect(&key).await;
    at(300).await;
    test.silence(&key); // an outage: 50 s after its last answer the condition says so
    at(600).await;
    test.connect(&key).await;
    sleep(Duration::from_secs(60)).await;

    let cache = test.cache();
    let now = RemoteConnectionProbe::default().condition(
        None,
        cache.state(&key).ok().as_ref(),
        cache.now(),
    );
    assert_eq!(now.status, ConditionStatus::True);
    cache.shutdown().await.expect("outside of any provider");
    reconciler
        .await
        .expect("the reconciler ends with the cache");
}
