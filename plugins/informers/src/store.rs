//! What reconcilers read: the objects of a kind in one cluster at one moment. Nothing in here waits for the loop, and everything that is read
//! from one store is of one version.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use clustercache::Generation;
use kube::core::{Selector, SelectorExt};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    entry::{Entry, Kept},
    error::{Misplaced, ReadError, StoreError, StoreWaitError},
    stock::{Standing, Stock, View},
    version::Version,
};

/// The objects of a kind in one cluster, at the moment at which it was [asked for](crate::ClusterInformers::store): all that is read from it is
/// of one version. Ask for it where you need it: one that is kept does not change, and holds what was there.
pub struct Store<T> {
    stock: Arc<Stock>,
    view: Arc<View>,
    read: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Store<T> {
    pub(crate) fn of(stock: Arc<Stock>) -> Result<Self, StoreError> {
        let view = stock.readable()?;
        Ok(Self::at(stock, view))
    }

    pub(crate) fn at(stock: Arc<Stock>, view: Arc<View>) -> Self {
        Self {
            stock,
            view,
            read: PhantomData,
        }
    }

    /// The object of this name, in a namespace or in none.
    ///
    /// ```
    /// use clustercache_informers::{ReadError, Store};
    /// use k8s_openapi::api::core::v1::{Node, Pod};
    ///
    /// fn both(nodes: &Store<Node>, pods: &Store<Pod>) -> Result<bool, ReadError> {
    ///     Ok(nodes.get(None, "worker")?.is_some() && pods.get("default", "web")?.is_some())
    /// }
    /// # let _ = both;
    /// ```
    pub fn get<'n>(
        &self,
        namespace: impl Into<Option<&'n str>>,
        name: &str,
    ) -> Result<Option<Arc<T>>, ReadError> {
        let namespace = namespace.into().unwrap_or_default();
        let entry = self.view.objects.get(namespace, name);
        entry.map(|entry| self.read(entry)).transpose()
    }

    /// Whether there is an object of this name: nothing is decoded to say so.
    pub fn contains<'n>(&self, namespace: impl Into<Option<&'n str>>, name: &str) -> bool {
        let namespace = namespace.into().unwrap_or_default();
        self.view.objects.get(namespace, name).is_some()
    }

    /// All objects, in no order. One that cannot be read makes this an error that names it; [`iter`](Self::iter) goes on beyond it.
    pub fn list(&self) -> Result<Vec<Arc<T>>, ReadError> {
        self.iter().collect()
    }

    /// All objects, in no order, each decoded when its turn comes.
    pub fn iter(&self) -> impl Iterator<Item = Result<Arc<T>, ReadError>> {
        self.view.objects.iter().map(|entry| self.read(entry))
    }

    /// Those in a namespace, in no order.
    pub fn within(&self, namespace: &str) -> Result<Vec<Arc<T>>, ReadError> {
        let entries = self.view.objects.within(namespace);
        entries
            .into_iter()
            .flatten()
            .map(|entry| self.read(entry))
            .collect()
    }

    /// Those under `key` of an index that the kind was declared with, in no order.
    pub fn by_index(&self, index: &str, key: &str) -> Result<Vec<Arc<T>>, ReadError> {
        let number = self.number(index)?;
        let entries = self.view.objects.under(number, key);
        entries
            .into_iter()
            .flatten()
            .map(|entry| self.read(entry))
            .collect()
    }

    /// How many are under `key` of an index: nothing is decoded to say so.
    pub fn count_by_index(&self, index: &str, key: &str) -> Result<usize, ReadError> {
        let number = self.number(index)?;
        let entries = self.view.objects.under(number, key);
        Ok(entries.map_or(0, |entries| entries.len()))
    }

    fn number(&self, index: &str) -> Result<u16, ReadError> {
        let known = self
            .stock
            .kind
            .indexes
            .iter()
            .position(|known| known == index);
        let number = known.and_then(|at| u16::try_from(at + 1).ok());
        number.ok_or_else(|| ReadError::NoIndex {
            resource: Arc::clone(&self.stock.resource),
            index: index.into(),
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.view.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How fresh it is.
    pub fn freshness(&self) -> Freshness {
        let (synced_since, generation) = match self.view.standing {
            Standing::Synced { since, generation } => (Some(since), generation),
            _ => (None, None),
        };
        Freshness {
            synced_since,
            generation,
            heard: self.stock.heard(),
            version: self.view.objects.version.clone(),
            troubled: self.view.trouble.clone(),
        }
    }

    /// Whether it was synced by this connection, or one after it: by a list, or by a watch that went on where an older connection
    /// was. What is destroyed on the word of a store should ask for that.
    pub fn synced_since(&self, generation: Generation) -> bool {
        self.freshness()
            .generation
            .is_some_and(|synced| synced >= generation)
    }

    /// Waits until `done` says that the newest store is as it should be, and returns that; woken by changes, never by a timer. `done` is asked
    /// about the newest store only: what came and went in between is not seen. Dropping the future cancels nothing.
    pub async fn wait_for(
        &self,
        done: impl FnMut(&Self) -> bool,
        limit: Duration,
    ) -> Result<Self, StoreWaitError> {
        wait_for(&self.stock, done, limit).await
    }

    #[inline]
    fn read(&self, entry: &Entry) -> Result<Arc<T>, ReadError> {
        let object = match &entry.kept {
            Kept::Decoded(object) => Arc::clone(object),
            Kept::Encoded(json) => (self.stock.kind.recipe.read)(json)
                .map_err(|error| self.undecodable(entry, &error.to_string()))?,
            Kept::Broken(why) => return Err(self.undecodable(entry, why)),
        };
        Ok(object
            .downcast()
            .expect("a kind is kept as what it is read"))
    }

    #[cold]
    fn undecodable(&self, entry: &Entry, why: &str) -> ReadError {
        ReadError::Undecodable {
            resource: Arc::clone(&self.stock.resource),
            namespace: Arc::clone(&entry.namespace),
            name: entry.name.clone(),
            why: why.into(),
        }
    }
}

impl<T: kube::Resource + Send + Sync + 'static> Store<T> {
    /// Those whose labels match, in no order. Nothing is decoded of the others but their labels.
    pub fn matching(&self, selector: &Selector) -> Result<Vec<Arc<T>>, ReadError> {
        let mut found = Vec::new();
        for entry in self.view.objects.iter() {
            let matches = match &entry.kept {
                Kept::Encoded(json) => {
                    let labelled = serde_json::from_str::<Labelled>(json).map_err(Misplaced::from);
                    let labelled =
                        labelled.map_err(|error| self.undecodable(entry, &error.to_string()))?;
                    selector.matches(&labelled.metadata.labels.unwrap_or_default())
                }
                // Whether one that cannot be read matches cannot be said.
                Kept::Decoded(_) | Kept::Broken(_) => {
                    let object = self.read(entry)?;
                    match &object.meta().labels {
                        Some(labels) => selector.matches(labels),
                        None => selector.matches(&std::collections::BTreeMap::new()),
                    }
                }
            };
            if matches {
                found.push(self.read(entry)?);
            }
        }
        Ok(found)
    }
}

#[derive(Deserialize)]
struct Labelled {
    #[serde(default)]
    metadata: Labels,
}

#[derive(Default, Deserialize)]
struct Labels {
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<String, String>>,
}

/// As good as never, and can be added to any time.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

pub(crate) async fn wait_for<T: Send + Sync + 'static>(
    stock: &Arc<Stock>,
    mut done: impl FnMut(&Store<T>) -> bool,
    limit: Duration,
) -> Result<Store<T>, StoreWaitError> {
    let deadline = Instant::now() + limit.min(NEVER);
    let mut passed = false;
    loop {
        // Enabled before the look: a change between the two wakes us.
        let mut changed = std::pin::pin!(stock.changed());
        changed.as_mut().enable();
        let store = Store::of(Arc::clone(stock));
        if let Ok(store) = &store
            && done(store)
        {
            return Ok(Store::at(Arc::clone(stock), Arc::clone(&store.view)));
        }
        if stock.is_retired() {
            return Err(StoreWaitError::Retired);
        }
        if passed {
            return Err(match store {
                Ok(_) => StoreWaitError::Deadline {
                    resource: Arc::clone(&stock.resource),
                    after: limit,
                },
                Err(why) => StoreWaitError::NotReadable { after: limit, why },
            });
        }
        // What it is at the deadline is looked at then.
        passed = tokio::time::timeout_at(deadline, changed).await.is_err();
    }
}

/// How fresh a store is: as data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Freshness {
    /// Since when all that was there is known, and what changes comes.
    pub synced_since: Option<Instant>,
    /// Which connection synced it last.
    pub generation: Option<Generation>,
    /// When its list or watch last said anything, bookmarks included: about one a minute comes of a watch where nothing happens.
    pub heard: Instant,
    pub(crate) version: Option<Version>,
    pub(crate) troubled: Option<crate::Trouble>,
}

impl Freshness {
    /// The resource version of the collection that the store is of.
    pub fn resource_version(&self) -> Option<String> {
        self.version.as_ref().map(ToString::to_string)
    }

    /// What goes wrong with it now: the objects are those that were there before.
    pub fn trouble(&self) -> Option<&crate::Trouble> {
        self.troubled.as_ref()
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self {
            stock: Arc::clone(&self.stock),
            view: Arc::clone(&self.view),
            read: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("resource", &self.stock.resource)
            .field("objects", &self.view.objects.len())
            .field("version", &self.view.objects.version)
            .finish_non_exhaustive()
    }
}
