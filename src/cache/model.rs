//! Model checks of the handle (rule 11): every call that does not await, made by a reader, by who reads events and by the drop of a value, against a
//! writer that publishes, replaces, retires, removes and shuts down, under schedules that a checker chooses. A lock that is held where
//! such a call is made is a deadlock there, which the checker reports. By shuttle only: for loom there are too many. `models/Cargo.toml` has
//! the commands.
//!
//! The engine itself runs on tokio, which no checker schedules: here the test writes as it does. The same calls from inside `init` and `teardown` are
//! in `engine/hooks/model.rs`; those that await, and those from hooks that only the engine runs, are in a table in `tests/calls`.

use std::sync::OnceLock;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};

use super::*;
use crate::{
    Answer, Changes, CheckContext, CheckError, HealthCheck, InitContext, InitError, MemorySource,
    Phase,
    events::{
        model::checker::{block_on, check, spawn},
        tests::state,
    },
    latch::Moments,
    registry::Values,
    resource::{Life, erase},
};

struct Calls;

/// Makes every call when it is dropped.
struct Value(Arc<OnceLock<ClusterCache>>);

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(cache) = self.0.get() {
            every_call::<Calls>(cache);
        }
    }
}

#[async_trait]
impl ClusterResource for Calls {
    type Value = Value;
    fn name(&self) -> &'static str {
        "calls"
    }
    async fn init(&self, _: &InitContext) -> Result<Value, InitError> {
        unreachable!("values are put in by hand")
    }
}

#[async_trait]
impl HealthCheck for Calls {
    async fn check(&self, _: &Value, _: &CheckContext) -> Result<Answer, CheckError> {
        unreachable!("nothing is probed")
    }
}

fn key() -> ClusterKey {
    ClusterKey::named("a")
}

/// Every call that does not await, about the cluster `a`.
pub(crate) fn every_call<R: ClusterResource>(cache: &ClusterCache) {
    let a = key();
    let _ = (cache.get::<R>(&a), cache.access(&a), cache.state(&a));
    let _ = (cache.keys(), cache.states(), cache.status(), cache.now());
    let _ = (
        cache.counters().panics(),
        cache.dials(),
        format!("{cache:?}"),
    );
    cache.retry_now(&a);
    cache.reconnect(&a);
    cache.reconsider::<R>(&a);
    cache.release_brake();
    let minute = Duration::from_secs(60);
    let mut events = cache
        .subscribe()
        .only(Changes::CONNECTED)
        .unhealthy_for(minute);
    let _ = events.next().now_or_never();
    drop(events.key(&a));
    drop(cache.shared.events.next(&a));
    let Ok(cluster) = cache.cluster(&a) else {
        return;
    };
    let _ = (cluster.state(), cluster.access(), cluster.generation());
    let _ = (cluster.get::<R>(), cluster.borrow::<R>().is_ok());
    let Ok(snapshot) = cluster.snapshot() else {
        return;
    };
    let _ = (snapshot.generation(), snapshot.state());
    if let Ok(value) = snapshot.get::<R>() {
        let _ = (value.is_current(), value.key(), value.generation());
    }
}

/// A cache without an engine; the test is the writer.
struct Writer {
    cache: ClusterCache,
    of_values: Arc<OnceLock<ClusterCache>>,
    /// Never run; its drop would say that the cache has ended.
    _engine: crate::Engine,
}

impl Writer {
    fn new() -> Self {
        let builder = ClusterCache::builder().source(MemorySource::new("test"));
        let built = builder.resource(Calls).health_from::<Calls>().build();
        let (cache, engine) = built.expect("no mistakes");
        cache.shared.registry.set_status(EngineStatus::Running);
        let of_values = Arc::new(OnceLock::new());
        let _ = of_values.set(cache.clone());
        Self {
            cache,
            of_values,
            _engine: engine,
        }
    }

    /// As the engine does it: published, then told.
    fn publish(&self, generation: u64, identity: u64, changes: Changes) {
        let shared = &self.cache.shared;
        let mut values = Values::new(&shared.plan);
        if generation > 0 {
            let life = Life {
                key: key(),
                generation: Generation(generation),
                incarnation: 1,
                moments: Moments::default(),
            };
            let value = Resource::<Calls>::new(Value(Arc::clone(&self.of_values)), Arc::new(life));
            values.insert(0, value.erased(), &*erase(Arc::new(Calls)));
        }
        let phase = if generation > 0 {
            Phase::Connected
        } else {
            Phase::Down
        };
        let snapshot = Snapshot {
            identity,
            generation: (generation > 0).then_some(Generation(generation)),
            values,
            state: Arc::new(state(&key(), phase)),
            vitals: None,
            probes: Arc::default(),
            access: None,
        };
        shared.registry.publish(&key(), snapshot);
        shared.events.tell(&key(), changes);
        shared.events.unhealthy(&key(), Duration::from_secs(60));
        let _ = (shared.events.newcomers(), shared.inbox.take());
    }

    fn remove(&self) {
        self.cache.shared.registry.remove(&key());
        self.cache.shared.events.tell(&key(), Changes::REMOVED);
    }

    fn end(&self) {
        let shared = &self.cache.shared;
        shared.registry.set_status(EngineStatus::ShuttingDown);
        shared.registry.clear();
        shared.close(EngineStatus::Ended);
    }
}

#[test]
fn no_call_of_a_reader_a_subscriber_or_a_drop_meets_a_lock_that_is_held() {
    check(|| {
        let writer = Writer::new();
        let reader = spawn({
            let cache = writer.cache.clone();
            move || every_call::<Calls>(&cache)
        });
        let subscriber = spawn({
            let cache = writer.cache.clone();
            move || {
                let mut events = cache.subscribe();
                while block_on(events.next()).is_some() {
                    every_call::<Calls>(&cache);
                }
            }
        });
        writer.publish(1, 0, Changes::CONNECTED);
        writer.publish(2, 0, Changes::CONNECTED); // make before break: the first value is dropped
        writer.publish(0, 0, Changes::DISCONNECTED);
        writer.publish(3, 1, Changes::REPLACED);
        writer.remove();
        writer.end();
        reader.join().unwrap();
        subscriber.join().unwrap();
    });
}
