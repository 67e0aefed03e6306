//! Model checks of what readers see (rules 1 and 2): reads against publication, teardown, replacement and the end, under schedules that
//! a checker chooses. `models/Cargo.toml` has the commands.

use std::{any::TypeId, sync::Arc};

use async_trait::async_trait;

use super::*;
use crate::{
    InitContext, InitError, Phase, Requires,
    events::{
        model::checker::{check, spawn},
        tests::state,
    },
    latch::Moments,
    plan::Spec,
    resource::{Life, erase},
    sync::{Mutex, lock},
};

/// A provider whose value is the generation that it was made in.
struct Base;
/// One that is built on it: its value is what it was built on.
struct Top;

#[async_trait]
impl ClusterResource for Base {
    type Value = u64;
    fn name(&self) -> &'static str {
        "base"
    }
    async fn init(&self, _: &InitContext) -> Result<u64, InitError> {
        unreachable!("values are put in by hand")
    }
}

#[async_trait]
impl ClusterResource for Top {
    type Value = u64;
    fn name(&self) -> &'static str {
        "top"
    }
    fn requires(&self) -> Requires {
        Requires::nothing().resource::<Base>()
    }
    async fn init(&self, _: &InitContext) -> Result<u64, InitError> {
        unreachable!("values are put in by hand")
    }
}

struct Cluster {
    registry: Registry,
    key: ClusterKey,
    /// What the engine has promised so far.
    promised: Mutex<Promised>,
}

#[derive(Clone, Copy, Default)]
struct Promised {
    /// This generation, or a later one, is what readers get.
    published: u64,
    /// The teardown of this generation, and of all before, has begun.
    torn: u64,
    identity: u64,
    ended: bool,
}

impl Cluster {
    fn new() -> Arc<Self> {
        let spec = |provider: &dyn Provider| Spec {
            name: provider.name(),
            type_id: provider.type_id(),
            type_name: provider.name(),
            essential: true,
            requires: provider.requires(),
        };
        let specs = [spec(&*erase(Arc::new(Base))), spec(&*erase(Arc::new(Top)))];
        let plan = Plan::new(&specs, Some((TypeId::of::<Base>(), "base"))).unwrap();
        let registry = Registry::new(Arc::new(plan), Clock::start());
        registry.set_status(EngineStatus::Running);
        let promised = Mutex::new(Promised::default());
        Arc::new(Self {
            registry,
            key: ClusterKey::named("a"),
            promised,
        })
    }

    /// As the engine does it: published first, promised after.
    fn publish(&self, generation: u64, identity: u64) {
        let life = |_| {
            Arc::new(Life {
                key: self.key.clone(),
                generation: Generation(generation),
                incarnation: 1,
                moments: Moments::default(),
            })
        };
        let mut values = Values::new(&self.registry.plan);
        if generation > 0 {
            let base = Resource::<Base>::new(generation, life(())).erased();
            let top = Resource::<Top>::new(generation, life(())).erased();
            values.insert(0, base, &*erase(Arc::new(Base)));
            values.insert(1, top, &*erase(Arc::new(Top)));
        }
        let phase = if generation > 0 {
            Phase::Connected
        } else {
            Phase::Down
        };
        self.registry.publish(
            &self.key,
            Snapshot {
                identity,
                generation: (generation > 0).then_some(Generation(generation)),
                values,
                state: Arc::new(state(&self.key, phase)),
                vitals: None,
                probes: Arc::default(),
                access: None,
            },
        );
        let mut promised = lock(&self.promised);
        promised.published = generation;
        promised.identity = identity;
    }

    fn tear_down(&self, generation: u64) {
        lock(&self.promised).torn = generation;
    }

    fn end(&self) {
        self.registry.set_status(EngineStatus::Ended);
        self.registry.clear();
        lock(&self.promised).ended = true;
    }

    /// What a handle reads.
    fn by_handle(&self) -> Option<Generation> {
        let entry = self.registry.entry(&self.key).ok()?;
        entry.load_full().generation
    }

    /// One read, judged by what had been promised before it began.
    fn read(&self) {
        let before = *lock(&self.promised);
        let handle_before = self.by_handle();
        match self.registry.get::<Top>(&self.key) {
            Ok(top) => {
                assert!(
                    handle_before <= Some(top.generation()),
                    "back in time by key"
                );
                let after = self.by_handle().unwrap_or(top.generation());
                assert!(top.generation() <= after, "back in time by handle");
                assert!(!before.ended, "a value after the end");
                assert!(*top > before.torn, "a value whose teardown had begun");
                assert!(*top >= before.published, "an older generation");
                assert_eq!(top.generation(), Generation(*top));
            }
            Err(GetError::NotRunning { .. } | GetError::Unknown { .. } | GetError::Down(_)) => {}
            Err(why) => panic!("{why}"),
        }
        let Ok(entry) = self.registry.entry(&self.key) else {
            return;
        };
        let snapshot = entry.load_full();
        assert!(snapshot.identity >= before.identity, "another cluster's");
        let base = snapshot.find::<Base>().map(|value| **value);
        let top = snapshot.find::<Top>().map(|value| **value);
        assert_eq!(base, top, "a dependent without what it was built on");
        assert_eq!(top, snapshot.generation.map(|generation| generation.0));
    }
}

fn readers(cluster: &Arc<Cluster>, reads: u32) -> impl FnOnce() + use<> {
    let readers = [(); 2].map(|()| {
        let cluster = Arc::clone(cluster);
        spawn(move || (0..reads).for_each(|_| cluster.read()))
    });
    move || {
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap())
    }
}

const READS: u32 = if cfg!(clustercache_loom) { 1 } else { 3 };

#[test]
fn readers_see_one_generation_and_none_whose_teardown_has_begun() {
    check(|| {
        let cluster = Cluster::new();
        let join = readers(&cluster, READS);
        cluster.publish(1, 0);
        cluster.publish(2, 0); // make before break
        cluster.tear_down(1);
        cluster.publish(0, 0); // down
        cluster.tear_down(2);
        join();
    });
}

#[test]
fn readers_see_nothing_of_an_identity_after_the_next_is_known() {
    check(|| {
        let cluster = Cluster::new();
        let join = readers(&cluster, READS);
        cluster.publish(1, 0);
        cluster.publish(0, 1);
        cluster.tear_down(1);
        cluster.publish(2, 1);
        join();
    });
}

#[test]
fn readers_see_nothing_after_the_end() {
    check(|| {
        let cluster = Cluster::new();
        let join = readers(&cluster, READS);
        cluster.publish(1, 0);
        cluster.end();
        cluster.tear_down(1);
        join();
    });
}
