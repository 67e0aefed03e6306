//! Clusters that the program itself names.

use std::{
    collections::{BTreeMap, BTreeSet},
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

struct Shared {
    clusters: Mutex<Clusters>,
    version: watch::Sender<u64>,
}

struct Clusters {
    version: u64,
    synced: bool,
    by_key: BTreeMap<ClusterKey, (u64, Upsert)>,
    rereads: BTreeSet<ClusterKey>,
}

impl MemorySource {
    /// An empty source, which counts as synced: what it holds when the engine starts is all that there is at start.
    pub fn new(name: &str) -> Self {
        let clusters = Clusters {
            version: 0,
            synced: true,
            by_key: BTreeMap::new(),
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
        self.change(|clusters| {
            let version = clusters.version;
            clusters
                .by_key
                .insert(cluster.key.clone(), (version, cluster));
        });
    }

    /// Takes a cluster out.
    pub fn remove(&self, key: &ClusterKey) {
        self.change(|clusters| {
            clusters.by_key.remove(key);
            clusters.rereads.remove(key);
        });
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
        let mut news = Vec::new();
        self.identities.retain(|key, identity| {
            let there = clusters.by_key.contains_key(key);
            if !there {
                news.push(SourceEvent::Remove {
                    key: key.clone(),
                    identity: identity.clone(),
                });
            }
            there
        });
        for (key, (version, cluster)) in &clusters.by_key {
            if *version > self.seen {
                self.identities
                    .insert(key.clone(), cluster.identity.clone());
                news.push(SourceEvent::Upsert(cluster.clone()));
            }
        }
        self.seen = clusters.version;
        if clusters.synced && !self.synced {
            self.synced = true;
            news.push(SourceEvent::Synced);
        }
        news
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn a_new_stream_names_everything_again() {
        let source = MemorySource::new("test");
        source.upsert(cluster("a"));
        assert_eq!(next(&mut source.events()).await, "+a");
        assert_eq!(next(&mut source.events()).await, "+a");
    }
}
