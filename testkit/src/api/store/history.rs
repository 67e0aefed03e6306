//! What was: the events that watches resume from, older versions, backups.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use tokio::sync::Notify;

use super::{Collection, Event, State};
use crate::api::{kind::Kind, object::Object};

/// The version that was asked for is not kept; `oldest` is.
#[derive(Debug, PartialEq)]
pub(in crate::api) struct TooOld {
    pub(in crate::api) oldest: u64,
}

/// All objects as they were at one moment, as a backup of etcd has them.
#[derive(Clone)]
pub struct Snapshot {
    version: u64,
    objects: BTreeMap<Arc<Kind>, BTreeMap<Arc<str>, Arc<Object>>>,
}

impl Snapshot {
    /// The newest version in it.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// History.
impl State {
    /// The events of a kind after `version`, oldest first.
    pub(in crate::api) fn since(
        &self,
        kind: &Kind,
        version: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Event>, TooOld> {
        let collection = self.collections.get(kind);
        let oldest = self
            .compacted
            .max(collection.map_or(0, |collection| collection.forgotten));
        if version < oldest {
            return Err(TooOld { oldest });
        }
        let events = collection.map(|collection| {
            let start = collection
                .history
                .partition_point(|event| event.version <= version);
            collection.history.range(start..)
        });
        Ok(events.into_iter().flatten())
    }

    /// The objects of a kind whose keys begin with `prefix`, as they were at `version`, in the order of their keys.
    pub(in crate::api) fn at(
        &self,
        kind: &Kind,
        prefix: &str,
        version: u64,
    ) -> Result<Vec<Arc<Object>>, TooOld> {
        if version >= self.version {
            return Ok(self.all(kind, prefix).cloned().collect());
        }
        let later = self.since(kind, version)?;
        let mut then: BTreeMap<_, _> = self
            .all(kind, prefix)
            .map(|object| (object.key.clone(), object.clone()))
            .collect();
        for event in later
            .rev()
            .filter(|event| event.after.key.starts_with(prefix))
        {
            match &event.before {
                Some(before) => then.insert(before.key.clone(), before.clone()),
                None => then.remove(&event.after.key),
            };
        }
        Ok(then.into_values().collect())
    }

    /// What wakes the watches of a kind.
    pub(in crate::api) fn news(&mut self, kind: &Arc<Kind>) -> Arc<Notify> {
        let collection = self.collections.entry(kind.clone()).or_default();
        collection.news.clone()
    }

    pub(in crate::api) fn wake_all(&mut self) {
        let news = self
            .collections
            .values()
            .map(|collection| collection.news.clone());
        self.woken.extend(news);
    }

    /// Forgets the history: every older version is too old from now on.
    pub(in crate::api) fn compact(&mut self) {
        self.compacted = self.version;
        for collection in self.collections.values_mut() {
            collection.history = VecDeque::new();
        }
    }

    pub(in crate::api) fn snapshot(&self) -> Snapshot {
        let objects = |(kind, collection): (&Arc<Kind>, &Collection)| {
            (kind.clone(), collection.objects.clone())
        };
        Snapshot {
            version: self.version,
            objects: self.collections.iter().map(objects).collect(),
        }
    }

    /// Everything is as it was in the snapshot, versions too; nothing of the history is known, and watches end.
    pub(in crate::api) fn restore(&mut self, snapshot: &Snapshot) {
        self.version = snapshot.version;
        self.ending.clear();
        for (kind, collection) in &mut self.collections {
            collection.objects = snapshot.objects.get(kind).cloned().unwrap_or_default();
            collection.forgotten = 0;
        }
        for (kind, objects) in &snapshot.objects {
            if !self.collections.contains_key(kind) && self.kinds().any(|known| known == kind) {
                let collection = Collection {
                    objects: objects.clone(),
                    ..Collection::default()
                };
                self.collections.insert(kind.clone(), collection);
            }
        }
        self.compact();
        self.signal.ends += 1;
        self.wake_all();
    }

    /// Forgets all objects. Versions go on growing.
    pub(in crate::api) fn clear(&mut self) {
        self.version += 1;
        self.ending.clear();
        for collection in self.collections.values_mut() {
            collection.objects.clear();
        }
        self.compact();
        self.signal.ends += 1;
        self.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use jiff::Timestamp;

    use super::*;
    use crate::api::{builtin, clock::Clock, store::Store};

    const HISTORY: usize = 100;

    fn state() -> State {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        Store::new(clock, HISTORY, false).state.into_inner()
    }

    fn config() -> &'static Arc<Kind> {
        builtin::named("", "configmaps")
    }

    fn put(state: &mut State, key: &str) {
        state.put(config(), key, json!({ "metadata": { "name": key } }));
    }

    fn names(state: &State, version: u64) -> Vec<String> {
        let objects = state.at(config(), "", version).unwrap();
        objects
            .iter()
            .map(|object| object.key.to_string())
            .collect()
    }

    #[test]
    fn an_older_version_is_seen_as_it_was() {
        let mut state = state();
        let mut seen = vec![names(&state, 0)];
        for step in 0..60_u64 {
            let key = format!("default/o{}", step * 7 % 5);
            if step % 3 == 2 {
                state.delete(config(), &key);
            } else {
                put(&mut state, &key);
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
        let mut state = state();
        for _ in 0..=HISTORY {
            put(&mut state, "default/a");
        }
        assert_eq!(state.since(config(), 0).err(), Some(TooOld { oldest: 1 }));
        assert_eq!(state.since(config(), 1).unwrap().count(), HISTORY);
        // Other kinds have a history of their own.
        assert_eq!(
            state.since(builtin::named("", "pods"), 0).unwrap().count(),
            0
        );
        state.compact();
        assert_eq!(state.since(config(), state.version()).unwrap().count(), 0);
        assert!(
            state
                .since(builtin::named("", "pods"), state.version() - 1)
                .is_err()
        );
    }

    #[test]
    fn a_list_has_the_order_of_etcd() {
        let mut state = state();
        for key in ["a/x", "a-b/x", "a/b", "b/a"] {
            put(&mut state, key);
        }
        assert_eq!(
            names(&state, state.version()),
            ["a-b/x", "a/b", "a/x", "b/a"]
        );
    }

    #[test]
    fn a_restored_snapshot_brings_back_objects_and_versions() {
        let mut state = state();
        put(&mut state, "default/a");
        let snapshot = state.snapshot();
        put(&mut state, "default/b");
        state.delete(config(), "default/a");
        state.restore(&snapshot);
        assert_eq!(
            (names(&state, 1), state.version()),
            (vec!["default/a".to_owned()], 1)
        );
        put(&mut state, "default/c");
        assert_eq!(state.since(config(), 1).unwrap().count(), 1);
    }
}
