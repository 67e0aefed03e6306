//! Clusters that the program itself names.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::sync::watch;

use super::{ClusterSource, SourceError, SourceEvent, Upsert};
use crate::{ClusterKey, Identity};

/// A source in memory: what the program puts in is there until the program takes it out. Clones share it.
///
/// It keeps the newest state, not a queue: two changes of one cluster in a row may come as one.
///
/// ```
/// use clustercache::{ClusterAccess, ClusterKey, MemorySource, Upsert};
///
/// let source = MemorySource::new("fleet");
/// let access = ClusterAccess::builder("https://10.0.0.1:6443").token("s3cret").build()?;
/// source.upsert(Upsert::ready(ClusterKey::named("eu-1"), access));
/// source.remove(&ClusterKey::named("eu-1"));
/// # Ok::<(), clustercache::AccessError>(())
/// ```
#[derive(Clone)]
pub struct MemorySource {
    name: Arc<str>,
    shared: Arc<Shared>,
}

/// Of so many removals is known when they were.
const REMEMBERED: usize = 1_024;

struct Shared {
    clusters: Mutex<Clusters>,
    version: watch::Sender<u64>,
}

struct Clusters {
    version: u64,
    synced: bool,
    by_key: BTreeMap<ClusterKey, (u64, Upsert)>,
    /// The same by when each changed last, so that a stream is told of what changed at the cost of that.
    by_version: BTreeMap<u64, ClusterKey>,
    /// What was taken out, the newest last, for the streams that have not been told.
    removed: VecDeque<(u64, ClusterKey)>,
    /// What was taken out up to here is not in `removed` any more: who was last told before looks at everything.
    forgotten: u64,
    rereads: BTreeSet<ClusterKey>,
}

impl MemorySource {
    /// An empty source, which counts as synced: what it holds when the engine starts is all that there is at start.
    pub fn new(name: &str) -> Self {
        let clusters = Clusters {
            version: 0,
            synced: true,
            by_key: BTreeMap::new(),
            by_version: BTreeMap::new(),
            removed: VecDeque::new(),
            forgotten: 0,
            rereads: BTreeSet::new(),
        };
        let shared = Shared {
            clusters: Mutex::new(clusters),
            version: watch::Sender::new(0),
        };
        Self {
            name: name.into(),
            shared: Arc::new(shared),
        }
    }

    /// An empty source that is not synced before [`synced`](Self::synced) is called.
    pub fn unsynced(name: &str) -> Self {
        let source = Self::new(name);
        source.change(|clusters| clusters.synced = false);
        source
    }

    /// Puts a cluster in, or changes it.
    pub fn upsert(&self, cluster: Upsert) {
        self.change(|clusters| clusters.upsert(cluster));
    }

    /// Takes a cluster out.
    pub fn remove(&self, key: &ClusterKey) {
        self.change(|clusters| clusters.remove(key));
    }

    /// Says that all clusters that there are have been put in.
    pub fn synced(&self) {
        self.change(|clusters| clusters.synced = true);
    }

    /// The keys that the engine asked to read again since this was last called.
    pub fn take_rereads(&self) -> BTreeSet<ClusterKey> {
        let mut clusters = self
            .shared
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut clusters.rereads)
    }

    fn change(&self, change: impl FnOnce(&mut Clusters)) {
        let mut clusters = self
            .shared
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        clusters.version += 1;
        change(&mut clusters);
        let version = clusters.version;
        drop(clusters);
        self.shared
            .version
            .send_modify(|newest| *newest = version.max(*newest));
    }
}

impl Clusters {
    fn upsert(&mut self, cluster: Upsert) {
        let (version, key) = (self.version, cluster.key.clone());
        if let Some((before, _)) = self.by_key.insert(key.clone(), (version, cluster)) {
            self.by_version.remove(&before);
        }
        self.by_version.insert(version, key);
    }

    fn remove(&mut self, key: &ClusterKey) {
        self.rereads.remove(key);
        let Some((before, _)) = self.by_key.remove(key) else {
            return;
        };
        self.by_version.remove(&before);
        self.removed.push_back((self.version, key.clone()));
        if self.removed.len() > REMEMBERED
            && let Some((version, _)) = self.removed.pop_front()
        {
            self.forgotten = version;
        }
    }

    /// What was taken out after `seen`; `None` if that is not known any more.
    fn removed_since(&self, seen: u64) -> Option<impl Iterator<Item = &ClusterKey>> {
        let newer = self.removed.iter().rev();
        let newer = newer.take_while(move |(version, _)| *version > seen);
        (seen >= self.forgotten).then(|| newer.map(|(_, key)| key))
    }
}

impl ClusterSource for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        let told = Told {
            seen: 0,
            identities: BTreeMap::new(),
            synced: false,
        };
        let state = (
            Arc::clone(&self.shared),
            self.shared.version.subscribe(),
            told,
            true,
        );
        stream::unfold(state, |(shared, mut changes, mut told, first)| async move {
            if !first && changes.changed().await.is_err() {
                return None;
            }
            let _ = changes.borrow_and_update();
            let news = {
                let clusters = shared
                    .clusters
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                told.news(&clusters)
            };
            Some((
                stream::iter(news.into_iter().map(Ok)),
                (shared, changes, told, false),
            ))
        })
        .flatten()
        .boxed()
    }

    fn reread(&self, key: &ClusterKey) {
        let mut clusters = self
            .shared
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Nobody may ever take them out: of what is gone nothing is kept.
        if clusters.by_key.contains_key(key) {
            clusters.rereads.insert(key.clone());
        }
    }
}

/// What one stream has told so far.
struct Told {
    seen: u64,
    identities: BTreeMap<ClusterKey, Identity>,
    synced: bool,
}

impl Told {
    fn news(&mut self, clusters: &Clusters) -> Vec<SourceEvent> {
        let mut news = self.removals(clusters);
        for (_, key) in clusters.by_version.range(self.seen + 1..) {
            let Some((_, cluster)) = clusters.by_key.get(key) else {
                continue;
            };
            self.identities
                .insert(key.clone(), cluster.identity.clone());
            news.push(SourceEvent::Upsert(cluster.clone()));
        }
        self.seen = clusters.version;
        if clusters.synced && !self.synced {
            self.synced = true;
            news.push(SourceEvent::Synced);
        }
        news
    }

    fn removals(&mut self, clusters: &Clusters) -> Vec<SourceEvent> {
        let gone = |key: &&ClusterKey| !clusters.by_key.contains_key(*key);
        let gone: Vec<ClusterKey> = match clusters.removed_since(self.seen) {
            Some(removed) => removed.filter(gone).cloned().collect(),
            None => self.identities.keys().filter(gone).cloned().collect(),
        };
        let remove = |key: ClusterKey| {
            let identity = self.identities.remove(&key)?;
            Some(SourceEvent::Remove { key, identity })
        };
        gone.into_iter().filter_map(remove).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn cluster(name: &str) -> Upsert {
        Upsert::refused(ClusterKey::named(name), "test")
    }

    async fn next(stream: &mut BoxStream<'static, Result<SourceEvent, SourceError>>) -> String {
        match stream.next().await.unwrap().unwrap() {
            SourceEvent::Upsert(cluster) => format!("+{}", cluster.key.name()),
            SourceEvent::Remove { key, .. } => format!("-{}", key.name()),
            SourceEvent::Synced => "synced".into(),
        }
    }

    #[tokio::test]
    async fn names_all_then_synced_then_changes() {
        let source = MemorySource::new("test");
        source.upsert(cluster("a"));
        source.upsert(cluster("b"));
        let mut events = source.events();
        assert_eq!(
            [
                next(&mut events).await,
                next(&mut events).await,
                next(&mut events).await
            ],
            ["+a", "+b", "synced"]
        );
        source.upsert(cluster("c"));
        source.remove(&ClusterKey::named("a"));
        assert_eq!(
            [next(&mut events).await, next(&mut events).await],
            ["-a", "+c"]
        );
    }

    #[tokio::test]
    async fn of_names_that_come_and_go_no_reread_is_left() {
        let source = MemorySource::new("test");
        for name in ["a", "b"] {
            let key = ClusterKey::named(name);
            source.upsert(cluster(name));
            source.reread(&key);
            source.remove(&key);
            source.reread(&key);
        }
        assert!(source.take_rereads().is_empty());
    }

    /// What a stream says, against what the source holds, for changes in any order read in any portions.
    #[test]
    fn a_stream_that_reads_when_it_likes_knows_what_there_is() {
        let mut rng = fastrand::Rng::with_seed(7);
        let source = MemorySource::new("test");
        let mut events = source.events();
        let mut known = BTreeMap::new();
        for round in 0..200 {
            // Sometimes more than is remembered.
            let changes = [1, 3, 40, 3 * REMEMBERED][rng.usize(0..4) % (1 + round % 4)];
            for _ in 0..changes {
                let name = rng.u8(0..40).to_string();
                if rng.bool() {
                    let uid = rng.u8(0..3).to_string();
                    source.upsert(cluster(&name).with_uid(uid));
                } else {
                    source.remove(&ClusterKey::named(&name));
                }
            }
            while let Some(Some(event)) = events.next().now_or_never() {
                match event.unwrap() {
                    SourceEvent::Upsert(cluster) => {
                        known.insert(cluster.key.clone(), cluster.identity);
                    }
                    SourceEvent::Remove { key, identity } => {
                        assert_eq!(known.remove(&key), Some(identity), "by what it said before");
                    }
                    SourceEvent::Synced => {}
                }
            }
            let clusters = source.shared.clusters.lock().unwrap();
            let there = clusters.by_key.iter();
            let there = there.map(|(key, (_, cluster))| (key.clone(), cluster.identity.clone()));
            assert_eq!(known, there.collect());
            assert_eq!(clusters.by_version.len(), clusters.by_key.len());
            assert!(clusters.removed.len() <= REMEMBERED);
        }
    }

    #[test]
    fn one_change_of_many_clusters_costs_that_one() {
        let source = MemorySource::new("test");
        for n in 0..1_000 {
            source.upsert(cluster(&n.to_string()));
        }
        let mut told = Told {
            seen: 0,
            identities: BTreeMap::new(),
            synced: false,
        };
        told.news(&source.shared.clusters.lock().unwrap());
        source.upsert(cluster("7"));
        source.remove(&ClusterKey::named("8"));
        let clusters = source.shared.clusters.lock().unwrap();
        assert_eq!(clusters.by_version.range(told.seen + 1..).count(), 1);
        assert_eq!(clusters.removed_since(told.seen).unwrap().count(), 1);
        assert_eq!(told.news(&clusters).len(), 2);
    }

    #[tokio::test]
    async fn a_new_stream_names_everything_again() {
        let source = MemorySource::new("test");
        source.upsert(cluster("a"));
        assert_eq!(next(&mut source.events()).await, "+a");
        assert_eq!(next(&mut source.events()).await, "+a");
    }
}
