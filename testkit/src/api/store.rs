//! The objects of one server, and the history from which watches and older versions are read.
//!
//! One version counter a server, as etcd has, and a collection a kind, as the real watch cache has. There is no queue for a
//! watch: each reads the history from its own position. Nothing here has a task: what time brings about (pods that vanish
//! after their grace) happens when the store is next looked at, and watches look when it is due.

mod history;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, futures::Notified};

pub use self::history::Snapshot;
use super::{
    budgets,
    builtin::{self, BUILT_IN},
    clock::Clock,
    kind::Kind,
    object::{Change, Object},
};

/// What happened to an object: `after` is what it is, of a deletion its last state; `before` is what it was.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) change: Change,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Arc<Object>,
}

pub(super) struct Store {
    state: Mutex<State>,
    clock: Clock,
    /// Told of every change of any kind.
    changed: Notify,
}

/// Everything that etcd would hold, and what the watch cache adds.
pub(super) struct State {
    now: Timestamp,
    version: u64,
    /// The newest version of which nobody is told any more how it came about.
    compacted: u64,
    collections: BTreeMap<Arc<Kind>, Collection>,
    custom: Vec<Arc<Kind>>,
    /// Pods that end by themselves, and when.
    ending: BTreeSet<(Timestamp, Arc<str>)>,
    history: usize,
    budgets_kept: bool,
    /// What watches are told beside events; each only grows.
    pub(super) signal: Signal,
    /// Of the collections that changed: they are told once the lock is gone.
    woken: Vec<Arc<Notify>>,
}

/// What a test asked of all watches: how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) bookmarks: u64,
    pub(super) ends: u64,
}

#[derive(Default)]
struct Collection {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: VecDeque<Event>,
    /// The newest version whose event fell out of the history.
    forgotten: u64,
    news: Arc<Notify>,
}

impl Store {
    pub(super) fn new(clock: Clock, history: usize, budgets_kept: bool) -> Self {
        let state = State {
            now: clock.now(),
            version: 0,
            compacted: 0,
            collections: BTreeMap::new(),
            custom: Vec::new(),
            ending: BTreeSet::new(),
            history,
            budgets_kept,
            signal: Signal::default(),
            woken: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            clock,
            changed: Notify::new(),
        }
    }

    /// Runs `act` on the objects as they are now, then wakes the watches of what it changed.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let before = state.version;
        state.settle(self.clock.now());
        let result = act(&mut state);
        let woken = std::mem::take(&mut state.woken);
        let changed = state.version != before;
        drop(state);
        if changed {
            self.changed.notify_waiters();
        }
        for news in woken {
            news.notify_waiters();
        }
        result
    }
}

impl Store {
    /// Ready after the next change of any kind.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// Kinds.
impl State {
    pub(super) fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        BUILT_IN.iter().chain(&self.custom)
    }

    pub(super) fn kind_at(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
            .cloned()
    }

    pub(super) fn kind_named(&self, api_version: &str, name: &str) -> Option<Arc<Kind>> {
        self.kinds()
            .find(|kind| kind.name == name && kind.api_version() == api_version)
            .cloned()
    }

    /// Serves a kind from now on; false if its path is taken by another one.
    pub(super) fn add_kind(&mut self, kind: Kind) -> bool {
        let known = self.kinds().find(|known| ***known == kind);
        if let Some(known) = known {
            return known.same(&kind);
        }
        // One that was there before under this name has no history here.
        self.collections.remove(&kind);
        let forgotten = Collection {
            forgotten: self.version,
            ..Collection::default()
        };
        let kind = Arc::new(kind);
        self.collections.insert(kind.clone(), forgotten);
        self.custom.push(kind);
        self.custom.sort();
        true
    }

    /// Serves a custom kind no longer: its objects are deleted, finalizers or not, and its watches are told so and end.
    pub(super) fn remove_kind(&mut self, kind: &Kind) {
        let place = self.custom.iter().position(|custom| **custom == *kind);
        let Some(kind) = place.map(|place| self.custom.remove(place)) else {
            return;
        };
        let keys: Vec<_> = self
            .all(&kind, "")
            .map(|object| object.key.clone())
            .collect();
        for key in keys {
            self.delete(&kind, &key);
        }
        self.version += 1;
        // What watches have still to read stays until the kind is back.
        if let Some(collection) = self.collections.get(&kind) {
            self.woken.push(collection.news.clone());
        }
    }

    /// Whether it is this very kind, and not one that was added later under its name.
    pub(super) fn serves(&self, kind: &Arc<Kind>) -> bool {
        self.kinds().any(|known| Arc::ptr_eq(known, kind))
    }
}

/// Objects.
impl State {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, kind: &Kind, key: &str) -> Option<&Arc<Object>> {
        self.collections.get(kind)?.objects.get(key)
    }

    /// The objects of a kind whose keys begin with `prefix`, as they are now, in the order of their keys.
    pub(super) fn all<'a>(
        &'a self,
        kind: &Kind,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let collection = self.collections.get(kind);
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let objects = collection.map(|collection| collection.objects.range::<str, _>(from));
        objects
            .into_iter()
            .flatten()
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, object)| object)
    }

    /// Stores an object, whatever was there.
    pub(super) fn put(&mut self, kind: &Arc<Kind>, key: &str, value: Value) -> Arc<Object> {
        let object = self.store(kind, key, value);
        self.follow(&object);
        object
    }

    /// Takes an object away, and returns its last state.
    pub(super) fn delete(&mut self, kind: &Arc<Kind>, key: &str) -> Option<Arc<Object>> {
        let collection = self.collections.get_mut(&**kind)?;
        let before = collection.objects.remove(key)?;
        self.version += 1;
        let after = Arc::new(before.as_of(Change::Deleted, self.version));
        self.happened(Event {
            version: self.version,
            change: Change::Deleted,
            before: Some(before),
            after: after.clone(),
        });
        self.follow(&after);
        Some(after)
    }

    fn store(&mut self, kind: &Arc<Kind>, key: &str, value: Value) -> Arc<Object> {
        self.version += 1;
        let collection = self.collections.entry(kind.clone()).or_default();
        let (key, change) = match collection.objects.get_key_value(key) {
            Some((key, _)) => (key.clone(), Change::Modified),
            None => (key.into(), Change::Added),
        };
        let after = Arc::new(Object::new(kind.clone(), key, change, self.version, value));
        let before = collection.objects.insert(after.key.clone(), after.clone());
        self.happened(Event {
            version: self.version,
            change,
            before,
            after: after.clone(),
        });
        after
    }

    fn happened(&mut self, event: Event) {
        let collection = self
            .collections
            .entry(event.after.kind.clone())
            .or_default();
        if collection.history.len() >= self.history
            && let Some(oldest) = collection.history.pop_front()
        {
            collection.forgotten = oldest.version;
        }
        collection.history.push_back(event);
        self.woken.push(collection.news.clone());
    }

    /// What the controllers of a cluster would do about a change.
    fn follow(&mut self, changed: &Arc<Object>) {
        if !self.budgets_kept || !(changed.kind.is("Pod") || changed.kind.is("PodDisruptionBudget"))
        {
            return;
        }
        let kind = builtin::named("policy", "poddisruptionbudgets");
        for (key, value) in budgets::statuses(self, changed.namespace()) {
            self.store(kind, &key, value);
        }
    }
}

/// What time brings about.
impl State {
    /// The time at which the store was last looked at.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// The pod ends at that time, unless it is gone before.
    pub(super) fn ends_at(&mut self, time: Timestamp, pod: &Arc<str>) {
        self.ending.retain(|(_, other)| other != pod);
        self.ending.insert((time, pod.clone()));
    }

    /// When something is due, if anything is.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.ending.first().map(|(time, _)| *time)
    }

    fn settle(&mut self, now: Timestamp) {
        self.now = now;
        while let Some((time, key)) = self.ending.pop_first() {
            if time > now {
                self.ending.insert((time, key));
                return;
            }
            self.end_pod(&key, time);
        }
    }

    /// The kubelet's last word: the pod's containers are gone.
    fn end_pod(&mut self, key: &str, due: Timestamp) {
        let pods = builtin::named("", "pods");
        let Some(mut pod) = self.get(pods, key).map(|pod| pod.value()) else {
            return;
        };
        let metadata = &mut pod["metadata"];
        let asked = metadata["deletionTimestamp"]
            .as_str()
            .and_then(|time| time.parse().ok());
        // One of the same name that was made since does not end.
        if asked.is_none_or(|asked: Timestamp| asked > due) {
            return;
        }
        let held = metadata["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        metadata["deletionGracePeriodSeconds"] = 0.into();
        self.put(pods, key, pod);
        // Else it goes with its last finalizer.
        if !held {
            self.delete(pods, key);
        }
    }
}
