//! One version of a kind's objects, with its indexes: what a reader sees. Copies share what is equal in them, so that one is as good as free.

use std::sync::Arc;

use crate::{
    entry::{Draft, Entry, IndexKey, hash_of, hash_of_key},
    trie::{Hashed, Iter, Trie},
    version::Version,
};

#[derive(Clone)]
pub(crate) struct Objects {
    by_name: Trie<Arc<Entry>>,
    /// The first is by namespace.
    indexes: Box<[Trie<Posting>]>,
    /// As of which version of the collection this is; nothing before there was any.
    pub(crate) version: Option<Version>,
    /// What the objects take, as nearly as that is known.
    bytes: usize,
}

/// The objects under one key of an index.
#[derive(Clone)]
struct Posting {
    key: Arc<str>,
    objects: Trie<Arc<Entry>>,
}

impl Hashed for Posting {
    fn hashed(&self) -> u64 {
        hash_of_key(&self.key)
    }
}

/// What of an entry is beside its content: itself, its place in the maps, and the name.
const BESIDE: usize = 192;

impl Objects {
    /// None, with so many indexes beside that by namespace.
    pub(crate) fn new(indexes: usize) -> Self {
        Self {
            by_name: Trie::default(),
            indexes: vec![Trie::default(); indexes + 1].into(),
            version: None,
            bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Entry>> {
        let hash = hash_of(namespace, name);
        self.by_name.get(hash, |entry| entry.is(namespace, name))
    }

    pub(crate) fn iter(&self) -> Iter<'_, Arc<Entry>> {
        self.by_name.iter()
    }

    /// Those under `key` of the index.
    pub(crate) fn under(&self, index: u16, key: &str) -> Option<Iter<'_, Arc<Entry>>> {
        let index = self.indexes.get(usize::from(index))?;
        let found = index.get(hash_of_key(key), |posting| *posting.key == *key);
        found.map(|posting| posting.objects.iter())
    }

    /// Those in a namespace.
    pub(crate) fn within(&self, namespace: &str) -> Option<Iter<'_, Arc<Entry>>> {
        self.under(NAMESPACE, namespace)
    }

    /// Puts an object in, and returns it, and the one of its name that was there.
    pub(crate) fn put(&mut self, draft: Draft<'_>) -> (Arc<Entry>, Option<Arc<Entry>>) {
        let Draft {
            namespace,
            name,
            uid,
            version,
            keys,
            kept,
            bytes,
        } = draft;
        let mut keys: Vec<_> = keys
            .into_iter()
            .map(|(index, key)| IndexKey {
                key: self.shared(index, &key),
                index,
            })
            .collect();
        keys.sort_unstable_by(|one, other| (one.index, &one.key).cmp(&(other.index, &other.key)));
        keys.dedup();
        let entry = Arc::new(Entry {
            namespace: self.shared(NAMESPACE, namespace),
            name: name.into(),
            uid,
            version,
            keys: keys.into(),
            kept,
            bytes: bytes + BESIDE,
        });
        let old = self.replace(&entry);
        (entry, old)
    }

    /// The text of a key, which its objects share.
    fn shared(&self, index: u16, key: &str) -> Arc<str> {
        let index = &self.indexes[usize::from(index)];
        let known = index.get(hash_of_key(key), |posting| *posting.key == *key);
        known.map_or_else(|| key.into(), |posting| Arc::clone(&posting.key))
    }

    fn replace(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let old = self.by_name.put(Arc::clone(entry), |old| {
            old.is(&entry.namespace, &entry.name)
        });
        self.bytes += entry.bytes;
        if let Some(old) = &old {
            self.bytes -= old.bytes;
            for key in old.keys.iter().filter(|key| !entry.keys.contains(key)) {
                self.forget(key, old);
            }
        }
        for key in &entry.keys {
            self.find(key, entry);
        }
        self.find(&entry.in_namespace(), entry);
        old
    }

    /// Takes an object out.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let hash = hash_of(namespace, name);
        let old = self
            .by_name
            .remove(hash, |entry| entry.is(namespace, name))?;
        self.bytes -= old.bytes;
        for key in &old.keys {
            self.forget(key, &old);
        }
        self.forget(&old.in_namespace(), &old);
        Some(old)
    }

    /// It is found under the key.
    fn find(&mut self, key: &IndexKey, entry: &Arc<Entry>) {
        let index = &mut self.indexes[usize::from(key.index)];
        let same = |posting: &Posting| posting.key == key.key;
        let is = |old: &Arc<Entry>| old.is(&entry.namespace, &entry.name);
        if let Some(posting) = index.get_mut(hash_of_key(&key.key), same) {
            posting.objects.put(Arc::clone(entry), is);
            return;
        }
        let mut objects = Trie::default();
        objects.put(Arc::clone(entry), is);
        let posting = Posting {
            key: Arc::clone(&key.key),
            objects,
        };
        index.put(posting, same);
    }

    /// It is found under the key no more.
    fn forget(&mut self, key: &IndexKey, entry: &Arc<Entry>) {
        let index = &mut self.indexes[usize::from(key.index)];
        let (hash, same) = (hash_of_key(&key.key), |posting: &Posting| {
            posting.key == key.key
        });
        let Some(posting) = index.get_mut(hash, same) else {
            return;
        };
        let is = |old: &Arc<Entry>| old.is(&entry.namespace, &entry.name);
        posting.objects.remove(entry.hashed(), is);
        if posting.objects.is_empty() {
            index.remove(hash, same);
        }
    }
}

/// The index that each store has.
pub(crate) const NAMESPACE: u16 = 0;

impl Entry {
    fn in_namespace(&self) -> IndexKey {
        IndexKey {
            index: NAMESPACE,
            key: Arc::clone(&self.namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::{entry::Kept, version::Uid};

    type Model = BTreeMap<(String, String), (u64, BTreeSet<String>)>;

    fn draft<'a>(namespace: &'a str, name: &'a str, version: u64, keys: &[String]) -> Draft<'a> {
        Draft {
            namespace,
            name,
            uid: Uid::of(""),
            version: Version::Number(version),
            keys: keys.iter().map(|key| (1, key.clone())).collect(),
            kept: Kept::Encoded("{}".into()),
            bytes: 2,
        }
    }

    fn same(objects: &Objects, model: &Model) {
        assert_eq!(objects.len(), model.len());
        assert_eq!(objects.bytes(), model.len() * (2 + BESIDE));
        let seen = |entry: &Arc<Entry>| (entry.namespace.to_string(), entry.name.to_string());
        for ((namespace, name), (version, _)) in model {
            let entry = objects.get(namespace, name).expect("it is there");
            assert_eq!(entry.version, Version::Number(*version));
        }
        for key in KEYS {
            let under = objects.under(1, key).into_iter().flatten();
            let under: BTreeMap<_, _> = under
                .map(|entry| (seen(entry), entry.version.clone()))
                .collect();
            let scanned = model.iter().filter(|(_, (_, keys))| keys.contains(key));
            let scanned: BTreeMap<_, _> = scanned
                .map(|(name, (version, _))| (name.clone(), Version::Number(*version)))
                .collect();
            assert_eq!(under, scanned, "under {key}");
        }
        for namespace in NAMESPACES {
            let within = objects.within(namespace).into_iter().flatten();
            let within: BTreeSet<_> = within.map(seen).collect();
            let scanned = model.keys().filter(|(own, _)| own == namespace);
            assert_eq!(within, scanned.cloned().collect(), "within {namespace}");
        }
        let postings = objects.indexes.iter().flat_map(Trie::iter);
        assert!(
            postings
                .into_iter()
                .all(|posting| !posting.objects.is_empty()),
            "no empty key"
        );
    }

    const KEYS: [&str; 4] = ["a", "b", "c", ""];
    const NAMESPACES: [&str; 3] = ["", "one", "two"];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn indexes_equal_a_scan_in_each_version(
            steps in prop::collection::vec(
                (0..3_usize, 0..12_u8, prop::option::weighted(0.7, prop::collection::vec(0..4_usize, 0..4))),
                1..120,
            ),
        ) {
            let (mut objects, mut model) = (Objects::new(1), Model::new());
            let mut versions = Vec::new();
            for (number, (namespace, name, keys)) in steps.into_iter().enumerate() {
                let (namespace, name) = (NAMESPACES[namespace], name.to_string());
                let id = (namespace.to_owned(), name.clone());
                if let Some(keys) = keys {
                    let keys: Vec<_> = keys.into_iter().map(|key| KEYS[key].to_owned()).collect();
                    let number = number as u64;
                    let (_, old) = objects.put(draft(namespace, &name, number, &keys));
                    let known = model.insert(id, (number, keys.into_iter().collect()));
                    prop_assert_eq!(old.is_some(), known.is_some());
                } else {
                    let old = objects.remove(namespace, &name);
                    prop_assert_eq!(old.is_some(), model.remove(&id).is_some());
                }
                if number % 16 == 0 {
                    versions.push((objects.clone(), model.clone()));
                }
            }
            versions.push((objects, model));
            for (objects, model) in &versions {
                same(objects, model);
            }
        }
    }

    #[test]
    fn equal_keys_are_one_text() {
        let mut objects = Objects::new(1);
        let (one, _) = objects.put(draft("ns", "one", 1, &["node".into()]));
        let (two, _) = objects.put(draft("ns", "two", 2, &["node".into()]));
        assert!(Arc::ptr_eq(&one.namespace, &two.namespace));
        assert!(Arc::ptr_eq(&one.keys[0].key, &two.keys[0].key));
    }
}
