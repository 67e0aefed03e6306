//! What readers get of a cluster: the stores of all kinds that were declared.

use std::{
    any::TypeId,
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use clustercache::Resource;
use clustercache_client::KubeClient;
use kube::core::GroupVersionKind;
use tokio::time::Instant;

use crate::{
    Store, StoreError, StoreWaitError,
    error::Trouble,
    stock::{Standing, Stock},
    store,
};

/// The informers of one connected cluster.
///
/// ```no_run
/// use clustercache::{ClusterCache, ClusterKey};
/// use clustercache_informers::Informers;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # fn reconcile(cache: &ClusterCache, key: &ClusterKey) -> Result<(), Box<dyn std::error::Error>> {
/// let pods = cache.get::<Informers>(key)?.store::<Pod>()?;
/// for pod in pods.by_index("node", "worker-1")? {
///     println!("{:?}", pod.metadata.name);
/// }
/// # Ok(())
/// # }
/// ```
pub struct ClusterInformers {
    pub(crate) stocks: Box<[Arc<Stock>]>,
    /// None of those that are fed by hand.
    pub(crate) client: Option<Resource<KubeClient>>,
}

impl ClusterInformers {
    /// The objects that are read as `T`s, as they are now. Never waits.
    pub fn store<T: Send + Sync + 'static>(&self) -> Result<Store<T>, StoreError> {
        Store::of(Arc::clone(self.stock::<T>()?))
    }

    /// The objects of a kind that are read as `T`s: where several are, as with [`DynamicObject`](kube::core::DynamicObject).
    pub fn store_of<T: Send + Sync + 'static>(
        &self,
        gvk: &GroupVersionKind,
    ) -> Result<Store<T>, StoreError> {
        Store::of(Arc::clone(self.stock_of::<T>(gvk)?))
    }

    /// Waits until the kind that is read as `T` is synced; woken by that, never by a timer. Dropping the future cancels nothing.
    pub async fn wait_synced<T: Send + Sync + 'static>(
        &self,
        limit: Duration,
    ) -> Result<Store<T>, StoreWaitError> {
        let stock = self.stock::<T>().map_err(StoreWaitError::Store)?;
        store::wait_for(stock, |_| true, limit).await
    }

    /// As [`wait_synced`](Self::wait_synced), of a kind that is named.
    pub async fn wait_synced_of<T: Send + Sync + 'static>(
        &self,
        gvk: &GroupVersionKind,
        limit: Duration,
    ) -> Result<Store<T>, StoreWaitError> {
        let stock = self.stock_of::<T>(gvk).map_err(StoreWaitError::Store)?;
        store::wait_for(stock, |_| true, limit).await
    }

    /// What is informed here, and how it stands: for pages that people read, and for metrics.
    pub fn informed(&self) -> Vec<Informed> {
        self.stocks
            .iter()
            .map(|stock| Informed::of(stock))
            .collect()
    }

    #[inline]
    fn stock<T: 'static>(&self) -> Result<&Arc<Stock>, StoreError> {
        let is = |stock: &&Arc<Stock>| stock.kind.type_id == TypeId::of::<T>();
        let mut found = self.stocks.iter().filter(is);
        let what = std::any::type_name::<T>();
        match (found.next(), found.next()) {
            (Some(stock), None) => Ok(stock),
            (None, _) => Err(StoreError::NotCached { what: what.into() }),
            (Some(_), Some(_)) => Err(StoreError::Ambiguous { what }),
        }
    }

    fn stock_of<T: 'static>(&self, gvk: &GroupVersionKind) -> Result<&Arc<Stock>, StoreError> {
        let is = |stock: &&Arc<Stock>| {
            stock.kind.type_id == TypeId::of::<T>() && stock.kind.what.gvk == *gvk
        };
        self.stocks
            .iter()
            .find(is)
            .ok_or_else(|| StoreError::NotCached {
                what: format!(
                    "{} of {}/{} as {}",
                    gvk.kind,
                    gvk.group,
                    gvk.version,
                    std::any::type_name::<T>()
                ),
            })
    }
}

impl fmt::Debug for ClusterInformers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources = self.stocks.iter().map(|stock| &stock.resource);
        f.debug_list().entries(resources).finish()
    }
}

/// How a kind stands in a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Informed {
    /// The kind, as in `deployments.apps`.
    pub resource: Arc<str>,
    /// Whether it can be read.
    pub readable: bool,
    /// Since when it is synced.
    pub synced_since: Option<Instant>,
    /// When its list or watch last said anything.
    pub heard: Instant,
    /// What goes wrong now.
    pub trouble: Option<Trouble>,
    /// Objects in it.
    pub objects: usize,
    /// What they take, in bytes: JSON as it is, decoded objects as five times their JSON.
    pub bytes: usize,
    /// Lists begun, pages not counted.
    pub lists: u64,
    /// Watches begun from a version.
    pub watches: u64,
    /// Events of watches.
    pub events: u64,
    /// Objects that were added, of lists and of watches.
    pub added: u64,
    /// Objects that were changed.
    pub modified: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Objects that came and did not fit their type.
    pub undecodable: u64,
}

impl Informed {
    fn of(stock: &Stock) -> Self {
        let view = stock.view();
        let synced_since = match view.standing {
            Standing::Synced { since, .. } => Some(since),
            _ => None,
        };
        let counts = &stock.counts;
        Self {
            resource: Arc::clone(&stock.resource),
            readable: synced_since.is_some(),
            synced_since,
            heard: stock.heard(),
            trouble: view.trouble.clone(),
            objects: view.objects.len(),
            bytes: view.objects.bytes(),
            lists: counts.lists.load(Relaxed),
            watches: counts.watches.load(Relaxed),
            events: counts.events.load(Relaxed),
            added: counts.added.load(Relaxed),
            modified: counts.modified.load(Relaxed),
            deleted: counts.deleted.load(Relaxed),
            undecodable: counts.undecodable.load(Relaxed),
        }
    }
}
