//! What a cluster's kinds were when it was last connected, for who can do with that: by another name than what is, with its age, and for as
//! long as the user said.

use std::{fmt, sync::Arc, sync::OnceLock, time::Duration};

use clustercache::{ClusterKey, IdentityHandle};
use kube::core::GroupVersionKind;
use tokio::time::Instant;

use crate::{ClusterInformers, Store, StoreError, stock::Stock};

/// Reads what was last known of clusters, connected or not; see [`Informers::last_known`](crate::Informers::last_known). Cheap to clone; reads never
/// wait.
#[derive(Clone)]
pub struct LastKnown {
    limit: Duration,
    known: Arc<papaya::HashMap<ClusterKey, Arc<Known>>>,
}

struct Known {
    identity: IdentityHandle,
    stocks: Box<[Arc<Stock>]>,
    /// When its connection ended.
    ended: OnceLock<Instant>,
}

/// Why nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LastKnownError {
    /// It was never synced as the cluster that it is now, or is no more.
    #[error("nothing was ever known of cluster {}, or it is another now", .key.shown())]
    Never {
        /// The cluster.
        key: ClusterKey,
    },
    /// It was disconnected for too long.
    #[error("what was known of cluster {} is {age:?} old, and kept for {limit:?} only", .key.shown())]
    TooOld {
        /// The cluster.
        key: ClusterKey,
        /// For how long it has been disconnected.
        age: Duration,
        /// How old it may be.
        limit: Duration,
    },
}

/// What was last known of a cluster.
pub struct Remembered {
    informers: ClusterInformers,
    ended: Option<Instant>,
}

impl LastKnown {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            known: Arc::default(),
        }
    }

    /// What was last known of a cluster: what is, while it is connected.
    pub fn get(&self, key: &ClusterKey) -> Result<Remembered, LastKnownError> {
        let known = self.known.pin().get(key).cloned();
        let known = known.filter(|known| known.identity.is_current());
        let known = known.ok_or_else(|| LastKnownError::Never { key: key.clone() })?;
        let ended = known.ended.get().copied();
        match ended.map(|ended| ended.elapsed()) {
            Some(age) if age > self.limit => Err(LastKnownError::TooOld {
                key: key.clone(),
                age,
                limit: self.limit,
            }),
            _ => Ok(Remembered {
                informers: ClusterInformers {
                    stocks: known.stocks.clone(),
                    client: None,
                },
                ended,
            }),
        }
    }

    /// A connection is up: what it knows takes the place of what the last one knew.
    pub(crate) fn begin(&self, key: &ClusterKey, identity: IdentityHandle, stocks: &[Arc<Stock>]) {
        let known = Known {
            identity,
            stocks: stocks.into(),
            ended: OnceLock::new(),
        };
        let map = self.known.pin();
        // What nobody can read any more takes no room for longer than until the next cluster connects.
        map.retain(|_, known| {
            let old = |ended: &Instant| ended.elapsed() > self.limit;
            known.identity.is_current() && !known.ended.get().is_some_and(old)
        });
        map.insert(key.clone(), Arc::new(known));
    }

    /// A connection is over, unless another has taken its place.
    pub(crate) fn end(&self, key: &ClusterKey, stocks: &[Arc<Stock>], returns: bool) {
        let map = self.known.pin();
        let Some(known) = map.get(key) else { return };
        let same = |(one, other): (&Arc<Stock>, &Arc<Stock>)| Arc::ptr_eq(one, other);
        if !known.stocks.iter().zip(stocks).all(same) {
            return;
        }
        if returns {
            let _ = known.ended.set(Instant::now());
        } else {
            map.remove(key);
        }
    }
}

impl Remembered {
    /// The objects that were read as `T`s, as they were when something was last heard of them: [`Store::freshness`] says when.
    pub fn store<T: Send + Sync + 'static>(&self) -> Result<Store<T>, StoreError> {
        self.informers.store()
    }

    /// As [`ClusterInformers::store_of`].
    pub fn store_of<T: Send + Sync + 'static>(
        &self,
        gvk: &GroupVersionKind,
    ) -> Result<Store<T>, StoreError> {
        self.informers.store_of(gvk)
    }

    /// For how long the cluster has been disconnected; `None` while it is connected.
    pub fn disconnected_for(&self) -> Option<Duration> {
        self.ended.map(|ended| ended.elapsed())
    }
}

impl fmt::Debug for LastKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastKnown")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered")
            .field("informers", &self.informers)
            .field("disconnected_for", &self.disconnected_for())
            .finish_non_exhaustive()
    }
}
