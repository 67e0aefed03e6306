//! The objects of one fake cluster, and the history from which its watches are fed.
//!
//! One version counter a cluster, as etcd has. There is no queue for a watch: each reads the history from its own position,
//! and one that is behind what is kept is told so (410), as on a real server.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    kinds::Kind,
    object::{Key, Object},
    status::Status,
};

/// Events that are kept for watches that resume.
const HISTORY: usize = 1024;

/// What happened to an object. `before` is what it was, `after` what it is; for a deletion, its last state.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Arc<Object>,
    pub(super) deleted: bool,
}

/// What watches are woken by. Each field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) version: u64,
    /// Times that a test asked for bookmarks.
    pub(super) bookmarks: u64,
    /// Times that a test ended all watches.
    pub(super) ends: u64,
}

pub(super) struct Store {
    state: Mutex<State>,
    signal: watch::Sender<Signal>,
}

#[derive(Default)]
pub(super) struct State {
    version: u64,
    objects: BTreeMap<Key, Arc<Object>>,
    history: VecDeque<Event>,
    /// The newest version whose event is no longer kept.
    compacted: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        let signal = watch::Sender::new(Signal::default());
        Self {
            state: Mutex::new(State::default()),
            signal,
        }
    }

    pub(super) fn signals(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    pub(super) fn signal(&self, change: impl FnOnce(&mut Signal)) {
        self.signal.send_modify(change);
    }

    /// Runs `act` on the objects as they are, and wakes the watches if it changed something.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let before = state.version;
        let result = act(&mut state);
        let version = state.version;
        drop(state);
        if version != before {
            self.signal
                .send_modify(|signal| signal.version = signal.version.max(version));
        }
        result
    }
}

impl State {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Stores what `make` makes for the next version.
    pub(super) fn put(&mut self, key: &Key, make: impl FnOnce(u64) -> Value) -> Arc<Object> {
        let version = self.version + 1;
        let after = Arc::new(Object::new(key.clone(), version, &make(version)));
        let before = self.objects.insert(key.clone(), after.clone());
        self.happened(Event {
            version,
            before,
            after: after.clone(),
            deleted: false,
        });
        after
    }

    pub(super) fn delete(&mut self, key: &Key) -> Option<Arc<Object>> {
        let before = self.objects.remove(key)?;
        let version = self.version + 1;
        let mut last = before.value();
        last["metadata"]["resourceVersion"] = version.to_string().into();
        let after = Arc::new(Object::new(key.clone(), version, &last));
        self.happened(Event {
            version,
            before: Some(before),
            after: after.clone(),
            deleted: true,
        });
        Some(after)
    }

    fn happened(&mut self, event: Event) {
        self.version = event.version;
        if self.history.len() == HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.version;
        }
        self.history.push_back(event);
    }

    /// Forgets the history: every older version is too old from now on.
    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
        self.history = VecDeque::new();
    }

    /// Forgets everything. Versions go on growing.
    pub(super) fn clear(&mut self) {
        self.objects.clear();
        self.version += 1;
        self.compact();
    }

    /// The events after `version`, oldest first.
    pub(super) fn since(&self, version: u64) -> Result<impl Iterator<Item = &Event>, Status> {
        if version < self.compacted {
            return Err(Status::too_old(version, self.compacted));
        }
        let start = self
            .history
            .partition_point(|event| event.version <= version);
        Ok(self.history.range(start..))
    }

    /// The objects of a kind, in one namespace or all, as they were at `version`, in the order of their keys.
    pub(super) fn at(
        &self,
        version: u64,
        kind: &'static Kind,
        namespace: Option<&str>,
    ) -> Result<Vec<Arc<Object>>, Status> {
        let belongs = |key: &Key| {
            key.kind == kind && namespace.is_none_or(|namespace| *key.namespace == *namespace)
        };
        let first = Key {
            kind,
            namespace: namespace.unwrap_or_default().into(),
            name: "".into(),
        };
        let now = self
            .objects
            .range(first..)
            .take_while(|(key, _)| belongs(key));
        if version >= self.version {
            return Ok(now.map(|(_, object)| object.clone()).collect());
        }
        let mut then: BTreeMap<_, _> = now
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let later: Vec<_> = self
            .since(version)?
            .filter(|event| belongs(&event.after.key))
            .collect();
        for event in later.into_iter().rev() {
            match &event.before {
                Some(before) => then.insert(before.key.clone(), before.clone()),
                None => then.remove(&event.after.key),
            };
        }
        Ok(then.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::kinds::KINDS, *};

    fn key(name: &str) -> Key {
        Key {
            kind: &KINDS[0],
            namespace: "default".into(),
            name: name.into(),
        }
    }

    fn names(state: &State, version: u64) -> Vec<String> {
        state
            .at(version, &KINDS[0], None)
            .unwrap()
            .iter()
            .map(|object| object.key.name.to_string())
            .collect()
    }

    #[test]
    fn an_older_version_is_seen_as_it_was() {
        let mut state = State::default();
        let mut seen = vec![names(&state, 0)];
        for step in 0..60_u64 {
            let key = key(&format!("o{}", step * 7 % 5));
            if step % 3 == 2 {
                state.delete(&key);
            } else {
                state.put(&key, |_| json!({ "metadata": {} }));
            }
            if usize::try_from(state.version()).unwrap() == seen.len() {
                seen.push(names(&state, state.version()));
            }
        }
        for (version, names_then) in (0..).zip(&seen) {
            assert_eq!(&names(&state, version), names_then, "at {version}");
        }
    }

    #[test]
    fn a_version_that_is_not_kept_is_too_old() {
        let mut state = State::default();
        for _ in 0..=HISTORY {
            state.put(&key("a"), |_| json!({ "metadata": {} }));
        }
        assert!(state.since(0).is_err());
        assert_eq!(state.since(1).unwrap().count(), HISTORY);
        state.compact();
        assert_eq!(state.since(state.version()).unwrap().count(), 0);
        assert!(state.since(state.version() - 1).is_err());
    }
}
