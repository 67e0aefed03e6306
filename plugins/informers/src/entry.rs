//! One object as a store keeps it: its name and versions at hand, the rest in the way that was chosen for its kind.

use std::{
    any::Any,
    hash::BuildHasher,
    sync::{Arc, LazyLock},
};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::{
    trie::Hashed,
    version::{Uid, Version},
};

/// An object of a store. It never changes; a change is another one.
pub(crate) struct Entry {
    /// Empty for what is in none.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Uid,
    pub(crate) version: Version,
    /// By what it is found.
    pub(crate) keys: Box<[IndexKey]>,
    /// What it takes, in bytes, as nearly as that is known.
    pub(crate) bytes: usize,
    pub(crate) kept: Kept,
}

/// A key of one of the store's indexes, shared with the index.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct IndexKey {
    pub(crate) index: u16,
    pub(crate) key: Arc<str>,
}

/// How an object is there.
#[derive(Clone)]
pub(crate) enum Kept {
    /// As what readers get: an `Arc` of it.
    Decoded(Arc<dyn Any + Send + Sync>),
    /// As its JSON, to be decoded when it is read.
    Encoded(Box<str>),
    /// Its JSON does not fit its type, for this reason.
    Broken(Arc<str>),
}

/// An object on its way into a store.
pub(crate) struct Draft<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: Uid,
    pub(crate) version: Version,
    pub(crate) keys: DraftKeys,
    pub(crate) kept: Kept,
    /// What it takes, in bytes, as nearly as that is known.
    pub(crate) bytes: usize,
}

/// The number of an index, and a key in it.
pub(crate) type DraftKeys = SmallVec<[(u16, String); 4]>;

impl Entry {
    pub(crate) fn is(&self, namespace: &str, name: &str) -> bool {
        *self.name == *name && *self.namespace == *namespace
    }
}

impl Hashed for Arc<Entry> {
    fn hashed(&self) -> u64 {
        hash_of(&self.namespace, &self.name)
    }
}

/// Names are another party's: whoever chooses them does not know the seed.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

pub(crate) fn hash_of(namespace: &str, name: &str) -> u64 {
    SEED.hash_one((namespace, name))
}

pub(crate) fn hash_of_key(key: &str) -> u64 {
    SEED.hash_one(key)
}
