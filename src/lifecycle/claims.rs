//! Which source's word counts for a key. Keeps "several sources may name a key: the first registered wins", "removal is by
//! identity" (rule 9), and "a stream that restarts removes nothing before its next `Synced`".
//!
//! What counts is the claim of the first registered source among those that the filters let in; where none is let in, that of the
//! first registered source. A filter that shuts out a high claim so makes room for a lower one.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{ClusterKey, Identity, Upsert, options::SourceOptions};

#[cfg(test)]
mod tests;

/// What all sources say. The first registered source that names a key wins it.
#[derive(Debug)]
pub(crate) struct Claims {
    sources: Vec<Source>,
    /// Never empty for a key, and in the order of the sources.
    named: BTreeMap<ClusterKey, Vec<Entry>>,
    /// When lower sources wait no longer for the first `Synced` of higher ones; `None` once that was, or if it is never.
    waits_until: Option<Instant>,
    waited: bool,
}

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
    /// Other sources that name the key, in their order.
    pub(crate) shadowed: Vec<usize>,
}

impl Claim {
    /// Also of when the credential ends, by which no two accesses differ.
    fn says_the_same(&self, other: &Self) -> bool {
        use crate::SourcedAccess::Ready;
        let ends_the_same = match (&self.upsert.access, &other.upsert.access) {
            (Ready(one), Ready(other)) => one.is_identical(other),
            _ => true,
        };
        self == other && ends_the_same
    }
}

#[derive(Debug, Default)]
struct Source {
    /// Counts its streams.
    stream: u64,
    /// Whether this stream was synced: then nothing of an older one is left.
    synced: bool,
    synced_once: bool,
}

#[derive(Debug)]
struct Entry {
    source: usize,
    /// The stream that named it last.
    stream: u64,
    upsert: Upsert,
    owned: bool,
}

impl Claims {
    /// For this many sources, which all begin now.
    pub(crate) fn new(sources: usize, now: Instant, options: &SourceOptions) -> Self {
        Self {
            sources: (0..sources).map(|_| Source::default()).collect(),
            named: BTreeMap::new(),
            waits_until: now.checked_add(options.higher_first),
            waited: false,
        }
    }

    /// Takes a word; the keys for which what counts has changed come out, sorted.
    pub(crate) fn say(&mut self, source: usize, word: Word) -> Vec<ClusterKey> {
        match word {
            Word::Began => {
                let state = &mut self.sources[source];
                state.stream += 1;
                state.synced = false;
                Vec::new()
            }
            Word::Synced => self.synced(source),
            Word::Upsert { upsert, owned } => {
                let stream = self.sources[source].stream;
                let key = upsert.key.clone();
                self.change(key, |entries| {
                    let entry = Entry {
                        source,
                        stream,
                        upsert,
                        owned,
                    };
                    match entries.binary_search_by_key(&source, |entry| entry.source) {
                        Ok(at) => entries[at] = entry,
                        Err(at) => entries.insert(at, entry),
                    }
                })
            }
            Word::Remove { key, identity } => self.change(key, |entries| {
                entries.retain(|entry| {
                    let by_name = matches!(identity, Identity::ByCa | Identity::ByCaOf(_));
                    let same = by_name || identity == entry.upsert.identity;
                    entry.source != source || !same
                });
            }),
        }
    }

    /// When [`timer`](Self::timer) is to be called: the wait for higher sources ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let somebody_may_wait = self.open() + 1 < self.sources.len();
        self.waits_until.filter(|_| somebody_may_wait)
    }

    pub(crate) fn timer(&mut self, now: Instant) -> Vec<ClusterKey> {
        if self.waits_until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        self.waits_until = None;
        let before = self.open();
        self.waited = true;
        let after = self.open();
        let opened = |entries: &[Entry]| opens(entries, before, after);
        let named = self.named.iter();
        named
            .filter(|(_, entries)| opened(entries))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// What counts for a key; `None`: nobody names it.
    pub(crate) fn get(&self, key: &ClusterKey) -> Option<Claim> {
        let entries = self.named.get(key)?;
        let winner = winner(entries)?;
        let others = entries.iter().map(|entry| entry.source);
        Some(Claim {
            source: winner.source,
            upsert: winner.upsert.clone(),
            owned: winner.owned && winner.source <= self.open(),
            shadowed: others.filter(|&source| source != winner.source).collect(),
        })
    }

    /// Whether every source has been synced once.
    pub(crate) fn all_synced(&self) -> bool {
        self.sources.iter().all(|source| source.synced_once)
    }

    fn change(&mut self, key: ClusterKey, change: impl FnOnce(&mut Vec<Entry>)) -> Vec<ClusterKey> {
        let before = self.get(&key);
        let entries = self
            .named
            .entry(key.clone())
            .or_insert_with(|| Vec::with_capacity(1));
        change(entries);
        if entries.is_empty() {
            self.named.remove(&key);
        }
        let after = self.get(&key);
        let same = match (&before, &after) {
            (Some(before), Some(after)) => before.says_the_same(after),
            (before, after) => before == after,
        };
        (!same).then_some(key).into_iter().collect()
    }

    fn synced(&mut self, source: usize) -> Vec<ClusterKey> {
        let before = self.open();
        let state = &mut self.sources[source];
        if state.synced {
            return Vec::new();
        }
        state.synced = true;
        state.synced_once = true;
        let stream = state.stream;
        let after = self.open();
        let mut changed = Vec::new();
        self.named.retain(|key, entries| {
            let count = entries.len();
            entries.retain(|entry| entry.source != source || entry.stream == stream);
            // One claim less shows at least in what is shadowed.
            if entries.len() < count || opens(entries, before, after) {
                changed.push(key.clone());
            }
            !entries.is_empty()
        });
        changed
    }

    /// The lowest source that waits for no other: the first that was never synced.
    fn open(&self) -> usize {
        let first = self.sources.iter().position(|source| !source.synced_once);
        first.filter(|_| !self.waited).unwrap_or(usize::MAX - 1)
    }
}

fn winner(entries: &[Entry]) -> Option<&Entry> {
    let let_in = entries.iter().find(|entry| entry.owned);
    let_in.or(entries.first())
}

/// Whether what counts is let in only now that the sources up to `after` wait no longer, where those up to `before` did not.
fn opens(entries: &[Entry], before: usize, after: usize) -> bool {
    winner(entries)
        .is_some_and(|winner| winner.owned && (before < winner.source && winner.source <= after))
}
