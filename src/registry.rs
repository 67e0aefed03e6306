//! What readers see: for each key an immutable snapshot of one generation's values, swapped whole (rules 1 and 2). A read hashes the key,
//! and finds the value in the map's own entry, or else in the snapshot behind it; it takes no lock, never waits and never allocates.

use std::{
    any::{Any, TypeId},
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering},
    },
};

use smallvec::SmallVec;
use typemap_rev::TypeMap;

use crate::{
    Census, ClusterKey, ClusterResource, ClusterState, Generation, GetError, Resource,
    census::Tally,
    clock::Clock,
    plan::Plan,
    resource::{Provider, ResourceKey, Value},
    sync::{Loaded, Swap, between_steps},
    vitals::{Probes, Vitals},
};

#[cfg(all(test, any(clustercache_shuttle, clustercache_loom)))]
mod model;

/// A concurrent map that copies no entries when one is added.
type Entries = papaya::HashMap<Name, Known, foldhash::fast::RandomState>;

/// A key's text, in the map itself unless it is long: comparing it is no step through memory of its own.
type Name = SmallVec<[u8; 40]>;

pub(crate) struct Registry {
    entries: Entries,
    running: AtomicU8,
    pub(crate) plan: Arc<Plan>,
    pub(crate) clock: Clock,
}

/// Whether there is an engine behind the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[repr(u8)]
pub enum EngineStatus {
    /// Built, and neither started nor driven yet.
    NotStarted,
    /// It runs.
    Running,
    /// It is shutting down.
    ShuttingDown,
    /// It has ended: shut down, or dropped.
    Ended,
    /// It panicked. That is a fault of this crate.
    Panicked,
}

/// What is known under one key. It stays the same for as long as the key is known.
pub(crate) struct Entry {
    pub(crate) key: ClusterKey,
    snapshot: Swap<Snapshot>,
    tally: Tally,
}

/// What the map itself holds of a key. The entry's snapshot is the truth; the shortcuts are there only while that holds the same values, so
/// that a read of one is a read of the snapshot, without two steps through cold memory.
struct Known {
    entry: Arc<Entry>,
    shortcuts: Shortcuts,
}

/// By slot. They are weak: the map frees what it no longer holds when it likes, on whichever thread reads, and keeps no value alive by that.
#[derive(Default)]
struct Shortcuts(SmallVec<[Option<Weak<dyn Any + Send + Sync>>; INLINE]>);

/// One moment of a cluster, with the values of at most one generation.
pub(crate) struct Snapshot {
    /// Counts the identities that had this key.
    pub(crate) identity: u64,
    pub(crate) generation: Option<Generation>,
    pub(crate) values: Values,
    pub(crate) state: Arc<ClusterState>,
    /// Signs of life of the published connection.
    pub(crate) vitals: Option<Arc<Vitals>>,
    pub(crate) probes: Arc<Probes>,
    pub(crate) access: Option<crate::ClusterAccess>,
}

/// So many shortcuts lie in the map itself, where a read finds them without another step through memory.
const INLINE: usize = 6;

/// The values of one generation: a typed map, and the same by slot, where an owned read finds one without hashing.
#[derive(Default)]
pub(crate) struct Values {
    typed: TypeMap,
    by_slot: Box<[Option<Value>]>,
}

impl Registry {
    pub(crate) fn new(plan: Arc<Plan>, clock: Clock) -> Self {
        Self {
            entries: Entries::default(),
            running: AtomicU8::new(EngineStatus::NotStarted as u8),
            plan,
            clock,
        }
    }

    #[inline]
    pub(crate) fn status(&self) -> EngineStatus {
        match self.running.load(Ordering::Acquire) {
            0 => EngineStatus::NotStarted,
            1 => EngineStatus::Running,
            2 => EngineStatus::ShuttingDown,
            3 => EngineStatus::Ended,
            _ => EngineStatus::Panicked,
        }
    }

    pub(crate) fn set_status(&self, status: EngineStatus) {
        self.running.store(status as u8, Ordering::Release);
    }

    pub(crate) fn get<R: ClusterResource>(
        &self,
        key: &ClusterKey,
    ) -> Result<Resource<R>, GetError> {
        // What is there comes back in a register; why it is not is looked for apart. Both at once, as a `Result` handed from call to
        // call, cost half of the whole read.
        match self.find(key) {
            Some(resource) => Ok(resource),
            None => self.get_or_why(key),
        }
    }

    #[inline]
    fn find<R: ClusterResource>(&self, key: &ClusterKey) -> Option<Resource<R>> {
        if self.status() != EngineStatus::Running {
            return None;
        }
        let slot = self.plan.index_of(TypeId::of::<R>())?;
        between_steps();
        let entries = self.entries.pin();
        entries.get(text(key))?.shortcuts.get(slot)
    }

    #[cold]
    fn get_or_why<R: ClusterResource>(&self, key: &ClusterKey) -> Result<Resource<R>, GetError> {
        self.read(key, |entry| entry.load().get(&self.plan))?
    }

    pub(crate) fn entry(&self, key: &ClusterKey) -> Result<Arc<Entry>, GetError> {
        self.read(key, Arc::clone)
    }

    /// Calls `with` on the key's entry, if the engine runs.
    pub(crate) fn read<T>(
        &self,
        key: &ClusterKey,
        with: impl FnOnce(&Arc<Entry>) -> T,
    ) -> Result<T, GetError> {
        self.check_running()?;
        let entries = self.entries.pin();
        entries
            .get(text(key))
            .map(|known| with(&known.entry))
            .ok_or_else(|| GetError::Unknown { key: key.clone() })
    }

    pub(crate) fn check_running(&self) -> Result<(), GetError> {
        match self.status() {
            EngineStatus::Running => Ok(()),
            status => Err(GetError::NotRunning { status }),
        }
    }

    /// The newest state of a key, also of one that is no more owned; `None` if it is not known.
    pub(crate) fn state(&self, key: &ClusterKey) -> Option<ClusterState> {
        self.entries
            .pin()
            .get(text(key))
            .map(|known| known.entry.state(&self.clock))
    }

    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        for known in self.entries.pin().values() {
            census.count(&known.entry.tally);
        }
        census
    }

    pub(crate) fn keys(&self) -> Vec<ClusterKey> {
        self.entries
            .pin()
            .values()
            .map(|known| known.entry.key.clone())
            .collect()
    }

    pub(crate) fn contains(&self, key: &ClusterKey) -> bool {
        self.entries.pin().contains_key(text(key))
    }

    /// The engine only.
    pub(crate) fn publish(&self, key: &ClusterKey, snapshot: Snapshot) {
        let entries = self.entries.pin();
        let show = |entry, shortcuts| {
            between_steps();
            entries.insert(text(key).into(), Known { entry, shortcuts });
        };
        let shortcuts = Shortcuts::to(&snapshot.values);
        let Some(known) = entries.get(text(key)) else {
            let entry = Entry {
                key: key.clone(),
                tally: Tally::of(&snapshot.state),
                snapshot: Swap::from_pointee(snapshot),
            };
            return show(Arc::new(entry), shortcuts);
        };
        let entry = Arc::clone(&known.entry);
        // Most of what is published changes no value: then the map stays as it is.
        if known.shortcuts == shortcuts {
            return entry.store(snapshot);
        }
        // No shortcut while the two differ: neither is then ahead of the other, whichever way one reads.
        if known.shortcuts.any() {
            show(Arc::clone(&entry), Shortcuts::default());
        }
        entry.store(snapshot);
        if shortcuts.any() {
            show(entry, shortcuts);
        }
    }

    /// The engine only: it ends. Whoever holds an entry still holds no value by it; a map frees what was removed when it likes.
    pub(crate) fn clear(&self) {
        let entries = self.entries.pin();
        for (name, Known { entry, .. }) in &entries {
            let last = entry.load_full();
            let emptied = Snapshot {
                identity: last.identity,
                generation: None,
                values: Values::default(),
                state: Arc::clone(&last.state),
                vitals: None,
                probes: Arc::clone(&last.probes),
                access: None,
            };
            entries.remove(name);
            entry.snapshot.store(Arc::new(emptied));
        }
    }

    /// The engine only. Who still holds the entry reads its last snapshot, which the engine has emptied before.
    pub(crate) fn remove(&self, key: &ClusterKey) {
        self.entries.pin().remove(text(key));
    }
}

impl Entry {
    #[inline]
    pub(crate) fn load(&self) -> Loaded<Snapshot> {
        self.snapshot.load()
    }

    fn store(&self, snapshot: Snapshot) {
        self.tally.set(&snapshot.state);
        self.snapshot.store(Arc::new(snapshot));
    }

    pub(crate) fn load_full(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    pub(crate) fn state(&self, clock: &Clock) -> ClusterState {
        self.load().state(clock)
    }
}

impl Snapshot {
    pub(crate) fn get<R: ClusterResource>(&self, plan: &Plan) -> Result<Resource<R>, GetError> {
        self.borrow(plan).cloned()
    }

    pub(crate) fn borrow<R: ClusterResource>(&self, plan: &Plan) -> Result<&Resource<R>, GetError> {
        self.find()
            .ok_or_else(|| GetError::absent::<R>(plan, &self.state))
    }

    pub(crate) fn find<R: ClusterResource>(&self) -> Option<&Resource<R>> {
        self.values.typed.get::<ResourceKey<R>>()
    }

    /// The state with the newest signs of life in it, which are not worth a publication each.
    pub(crate) fn state(&self, clock: &Clock) -> ClusterState {
        let mut state = ClusterState::clone(&self.state);
        (state.probes_succeeded, state.probes_failed) = self.probes.read();
        if let Some(vitals) = &self.vitals {
            let signs = vitals.read();
            let newer = |at, old| std::cmp::max(signs_time(at, clock), old);
            state.last_success = newer(signs.any, state.last_success);
            state.last_probe = newer(signs.probe, state.last_probe);
        }
        state
    }
}

impl Values {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            typed: TypeMap::new(),
            by_slot: (0..plan.len()).map(|_| None).collect(),
        }
    }

    pub(crate) fn insert(&mut self, slot: usize, value: Value, provider: &dyn Provider) {
        provider.publish(&value, &mut self.typed);
        self.by_slot[slot] = Some(value);
    }

    #[inline]
    pub(crate) fn value<R: ClusterResource>(&self, slot: usize) -> Option<&R::Value> {
        self.by_slot
            .get(slot)?
            .as_ref()
            .and_then(Resource::<R>::value_of)
    }

    #[inline]
    pub(crate) fn get<R: ClusterResource>(&self, slot: usize) -> Option<Resource<R>> {
        self.by_slot
            .get(slot)?
            .as_ref()
            .and_then(Resource::from_erased)
    }
}

impl Shortcuts {
    fn to(values: &Values) -> Self {
        let weak = |value: &Option<Value>| value.as_ref().map(Arc::downgrade);
        Self(values.by_slot.iter().map(weak).collect())
    }

    fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    #[inline]
    fn get<R: ClusterResource>(&self, slot: usize) -> Option<Resource<R>> {
        let value = self.0.get(slot)?.as_ref()?.upgrade()?;
        Resource::of(value)
    }
}

impl PartialEq for Shortcuts {
    /// To the very same values.
    fn eq(&self, other: &Self) -> bool {
        let of = |shortcuts: &Self, slot: usize| shortcuts.0.get(slot)?.as_ref().map(Weak::as_ptr);
        let slots = self.0.len().max(other.0.len());
        (0..slots).all(|slot| match (of(self, slot), of(other, slot)) {
            (Some(one), Some(another)) => std::ptr::addr_eq(one, another),
            (one, another) => one.is_none() && another.is_none(),
        })
    }
}

fn text(key: &ClusterKey) -> &[u8] {
    key.as_str().as_bytes()
}

fn signs_time(at: Option<tokio::time::Instant>, clock: &Clock) -> Option<std::time::SystemTime> {
    at.map(|at| clock.wall(at))
}
