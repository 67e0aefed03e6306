//! Model checks of how values come up and go (rules 2 and 6), over the very tasks that do it: an init that ends just as its connection goes, parts that
//! go before the whole, a runtime that drops a teardown on the way; readers meanwhile, and every call from inside them (rule 11). Under schedules that a checker chooses, by
//! shuttle only. `models/Cargo.toml` has the commands.
//!
//! The tasks want a runtime for their deadlines. There is one that nobody runs: no time passes, and nothing ends by that.

use std::{collections::BTreeSet, future::poll_fn, sync::OnceLock, task::Poll};

use async_trait::async_trait;

use super::*;
use crate::{
    CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource, Generation, HealthCheck,
    Identity, InitError, MemorySource, Phase, Requires, Resource,
    cache::model::every_call,
    connection::IdentityState,
    events::{
        model::checker::{block_on, check, spawn},
        tests::state,
    },
    latch::Moments,
    registry::{Snapshot, Values},
    resource::{Life, erase},
    sync::{Mutex, between_steps, lock},
    vitals::Vitals,
};

/// What was done to the values of one connection, in order.
#[derive(Clone, Default)]
struct Journal {
    notes: Arc<Mutex<Vec<&'static str>>>,
    /// Whoever makes a note makes every call of this too, if it is there.
    calls: Arc<Mutex<Option<ClusterCache>>>,
}

impl Journal {
    fn note(&self, what: &'static str) {
        lock(&self.notes).push(what);
        let calls = lock(&self.calls).clone();
        if let Some(cache) = calls {
            every_call::<Base>(&cache);
        }
    }

    fn has(&self, what: &str) -> bool {
        lock(&self.notes).iter().any(|other| *other == what)
    }
}

struct Value {
    journal: Journal,
    dropped: &'static str,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.journal.note(self.dropped);
    }
}

/// The health provider.
struct Base(Journal);
/// One that is built on it.
struct Top(Journal);

#[async_trait]
impl ClusterResource for Base {
    type Value = Value;
    fn name(&self) -> &'static str {
        "base"
    }
    async fn init(&self, _: &InitContext) -> Result<Value, InitError> {
        unreachable!("it is up from the beginning")
    }
    async fn teardown(&self, value: Resource<Self>, _: &TeardownContext) {
        self.0.note("base ends");
        assert!(!value.is_current(), "torn down while readers get it");
    }
}

#[async_trait]
impl HealthCheck for Base {
    async fn check(&self, _: &Value, _: &CheckContext) -> Result<Answer, CheckError> {
        unreachable!("nothing is probed")
    }
}

#[async_trait]
impl ClusterResource for Top {
    type Value = Value;
    fn name(&self) -> &'static str {
        "top"
    }
    fn requires(&self) -> Requires {
        Requires::nothing().resource::<Base>()
    }
    async fn init(&self, _: &InitContext) -> Result<Value, InitError> {
        step().await;
        self.0.note("top up");
        Ok(Value {
            journal: self.0.clone(),
            dropped: "top dropped",
        })
    }
    async fn teardown(&self, value: Resource<Self>, _: &TeardownContext) {
        self.0.note("top ends");
        assert!(!value.is_current(), "torn down while readers get it");
        step().await;
    }
}

/// One poll more.
async fn step() {
    let mut stepped = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

const BASE: usize = 0;
const TOP: usize = 1;

/// A connection whose base is up and published, and whose top is about to be made.
struct Scene {
    journal: Journal,
    cache: ClusterCache,
    connection: Arc<Connection>,
    /// Whoever runs its init takes it.
    top: Option<Arc<Attempt>>,
    /// Never run; its drop would say that the cache has ended.
    _engine: crate::Engine,
}

impl Scene {
    fn new() -> Self {
        let journal = Journal::default();
        let built = ClusterCache::builder()
            .source(MemorySource::new("test"))
            .resource(Base(journal.clone()))
            .resource(Top(journal.clone()))
            .health_from::<Base>()
            .build();
        let (cache, engine) = built.expect("no mistakes");
        cache.shared.registry.set_status(EngineStatus::Running);
        let access = ClusterAccess::builder("https://a").token("t").build();
        let connection = Arc::new(Connection::new(
            Arc::clone(&cache.shared),
            ClusterKey::named("a"),
            Generation(1),
            access.expect("it is one"),
            Arc::new(IdentityState::new(Identity::ByCa)),
            Arc::new(Vitals::new(cache.shared.registry.clock)),
            None,
        ));
        let base = attempt(&connection, BASE);
        let value = Value {
            journal: journal.clone(),
            dropped: "base dropped",
        };
        let value = Resource::<Base>::new(value, Arc::clone(&base.life)).erased();
        connection.began(Arc::clone(&base));
        assert!(connection.finished(&base, Some(value)).is_none());
        let top = attempt(&connection, TOP);
        connection.began(Arc::clone(&top));
        let scene = Self {
            journal,
            cache,
            connection,
            top: Some(top),
            _engine: engine,
        };
        scene.publish(true);
        scene
    }

    /// As the engine does it.
    fn publish(&self, connected: bool) {
        let shared = &self.cache.shared;
        let mut values = Values::new(&shared.plan);
        if let Some(up) = self.connection.value(BASE).filter(|_| connected) {
            values.insert(
                BASE,
                up.value,
                &*erase(Arc::new(Base(self.journal.clone()))),
            );
        }
        let phase = if connected {
            Phase::Connected
        } else {
            Phase::Down
        };
        let key = &self.connection.key;
        let snapshot = Snapshot {
            identity: 0,
            generation: connected.then_some(self.connection.generation),
            values,
            state: Arc::new(state(key, phase)),
            vitals: None,
            probes: Arc::default(),
            access: None,
        };
        shared.registry.publish(key, snapshot);
    }

    fn init(&mut self) -> impl FnOnce() + Send + use<> {
        let cx = InitContext(self.top.take().expect("it runs once"));
        move || block_on(init(cx))
    }

    /// The engine takes these slots down: readers have lost them before.
    fn retire(&self, slots: Option<BTreeSet<usize>>, before: Option<&TakeDown>) -> TakeDown {
        self.connection
            .mark_retired(|slot| slots.as_ref().is_none_or(|slots| slots.contains(&slot)));
        TakeDown {
            connection: Arc::clone(&self.connection),
            slots,
            reason: TeardownReason::Down,
            before: before.map(|before| Arc::clone(&before.done)),
            done: Arc::default(),
            abandon: Arc::default(),
        }
    }

    /// A read, judged by what had begun before it.
    fn reader(&self) -> impl FnOnce() + Send + use<> {
        let (cache, journal) = (self.cache.clone(), self.journal.clone());
        let key = self.connection.key.clone();
        move || {
            for _ in 0..2 {
                let begun = journal.has("base ends");
                if let Ok(value) = cache.get::<Base>(&key) {
                    assert!(!begun, "a value whose teardown had begun");
                    let begun = journal.has("base ends");
                    between_steps();
                    assert!(!begun || !value.is_current(), "current, and torn down");
                }
                assert!(cache.get::<Top>(&key).is_err(), "never published");
            }
        }
    }

    /// All is over: nobody holds anything, and this was done.
    fn ends(self, may: &[&[&'static str]]) {
        let Self {
            journal,
            connection,
            ..
        } = &self;
        assert!(connection.running().is_empty() && connection.all_up().is_empty());
        // It holds the provider that holds it.
        *lock(&journal.calls) = None;
        let journal = lock(&journal.notes).clone();
        assert!(may.iter().any(|may| *may == journal), "{journal:?}");
    }
}

fn attempt(connection: &Arc<Connection>, slot: usize) -> Arc<Attempt> {
    let life = Life {
        key: connection.key.clone(),
        generation: connection.generation,
        incarnation: 1,
        moments: Moments::default(),
    };
    Arc::new(Attempt {
        connection: Arc::clone(connection),
        slot,
        nth: 1,
        life: Arc::new(life),
        tasks: OnceLock::new(),
        built_on: connection
            .current(BASE)
            .map(|up| up.value)
            .into_iter()
            .collect(),
        paused: OnceLock::new(),
        asked: AtomicBool::new(false),
    })
}

/// With a runtime for those who look for one.
fn model(model: impl Fn() + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    check(model);
}

const IN_REVERSE: [&str; 5] = [
    "top up",
    "top ends",
    "top dropped",
    "base ends",
    "base dropped",
];
const NO_TOP: [&str; 2] = ["base ends", "base dropped"];

#[test]
fn an_init_that_ends_as_its_connection_goes_is_torn_down_once_in_reverse_or_made_nothing() {
    model(|| {
        let mut scene = Scene::new();
        let (init, reader) = (spawn(scene.init()), spawn(scene.reader()));
        scene.publish(false);
        let down = scene.retire(None, None);
        block_on(down.run());
        init.join().unwrap();
        reader.join().unwrap();
        scene.ends(&[&IN_REVERSE, &NO_TOP]);
    });
}

#[test]
fn no_call_from_inside_an_init_a_teardown_or_a_drop_meets_a_lock_that_is_held() {
    model(|| {
        let mut scene = Scene::new();
        *lock(&scene.journal.calls) = Some(scene.cache.clone());
        let (init, reader) = (spawn(scene.init()), spawn(scene.reader()));
        scene.publish(false);
        block_on(scene.retire(None, None).run());
        init.join().unwrap();
        reader.join().unwrap();
        scene.ends(&[&IN_REVERSE, &NO_TOP]);
    });
}

#[test]
fn a_part_that_goes_before_its_connection_is_torn_down_once_before_what_it_is_on() {
    model(|| {
        let mut scene = Scene::new();
        let init = spawn(scene.init());
        let part = scene.retire(Some(BTreeSet::from([TOP])), None);
        scene.publish(false);
        let whole = scene.retire(None, Some(&part));
        let part = spawn(move || block_on(part.run()));
        block_on(whole.run());
        part.join().unwrap();
        init.join().unwrap();
        scene.ends(&[&IN_REVERSE, &NO_TOP]);
    });
}

#[test]
fn a_teardown_that_its_runtime_drops_on_the_way_leaves_no_value_to_anybody() {
    model(|| {
        let mut scene = Scene::new();
        let init = spawn(scene.init());
        scene.publish(false);
        let down = scene.retire(None, None);
        let dropped = spawn(move || {
            let mut down = Box::pin(down.run());
            block_on(poll_fn(|cx| Poll::Ready(down.as_mut().poll(cx).is_ready())));
        });
        dropped.join().unwrap();
        init.join().unwrap();
        scene.ends(&[
            &IN_REVERSE,
            &NO_TOP,
            // Their teardown was cut short, or never began.
            &["base dropped"],
            &["top up", "top dropped", "base dropped"],
            &["top up", "top ends", "top dropped", "base dropped"],
        ]);
    });
}

#[test]
fn whoever_waits_for_the_end_of_a_value_is_woken_and_keeps_its_memory() {
    model(|| {
        let mut scene = Scene::new();
        let value = scene.cache.get::<Base>(&scene.connection.key).unwrap();
        let life = Arc::clone(&scene.connection.all_up()[BASE].attempt.life);
        let journal = scene.journal.clone();
        let waits = spawn(move || {
            block_on(life.moments.wait(Moment::Retired));
            assert!(!value.is_current());
            assert!(!journal.has("base dropped"));
        });
        let init = spawn(scene.init());
        scene.publish(false);
        block_on(scene.retire(None, None).run());
        waits.join().unwrap();
        init.join().unwrap();
        scene.ends(&[&IN_REVERSE, &NO_TOP]);
    });
}
