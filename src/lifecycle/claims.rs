//! Which source's word counts for a key.

use tokio::time::Instant;

use crate::{ClusterKey, Identity, Upsert, options::SourceOptions};

/// What all sources say. The first registered source that names a key wins it.
#[derive(Debug)]
pub(crate) struct Claims {}

/// What one source says.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    /// Its stream begins (again): what it does not name before its next `Synced` is removed then.
    Began,
    Upsert {
        upsert: Upsert,
        /// Whether the filters let it in.
        owned: bool,
    },
    Remove {
        key: ClusterKey,
        identity: Identity,
    },
    Synced,
}

/// What counts for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) source: usize,
    pub(crate) upsert: Upsert,
    /// Let in by the filters, and not waiting for a higher source's first `Synced`.
    pub(crate) owned: bool,
    /// Other sources that name the key.
    pub(crate) shadowed: Vec<usize>,
}

impl Claims {
    /// For this many sources, which all begin now.
    pub(crate) fn new(sources: usize, now: Instant, options: &SourceOptions) -> Self {
        let _ = (sources, now, options);
        todo!()
    }

    /// Takes a word; the keys for which what counts has changed come out.
    pub(crate) fn say(&mut self, source: usize, word: Word) -> Vec<ClusterKey> {
        let _ = (source, word);
        todo!()
    }

    /// When [`timer`](Self::timer) is to be called: the wait for higher sources ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        todo!()
    }

    pub(crate) fn timer(&mut self, now: Instant) -> Vec<ClusterKey> {
        let _ = now;
        todo!()
    }

    /// What counts for a key; `None`: nobody names it.
    pub(crate) fn get(&self, key: &ClusterKey) -> Option<Claim> {
        let _ = key;
        todo!()
    }

    /// Whether every source has been synced once.
    pub(crate) fn all_synced(&self) -> bool {
        todo!()
    }
}
