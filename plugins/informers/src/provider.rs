//! The provider: declares kinds once for all clusters, begins their loops when a cluster connects, and hands over what they have when a
//! connection follows another.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    ClusterResource, InitContext, InitError, Requires, Resource, TeardownContext, TeardownReason,
};
use clustercache_client::KubeClient;
use futures_util::{StreamExt, stream::FuturesUnordered};
use kube::Resource as KubeResource;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    Budgets, ClusterInformers, Kind, LastKnown, LoopOptions,
    budget::Budget,
    informer::Informer,
    kind::Declared,
    machine::{Machine, Way},
    stock::{Standing, Stock, View},
    warm::Warm,
};

/// Keeps the declared kinds of each cluster at hand. Requires a [`KubeClient`].
///
/// A connection that follows another to the same cluster goes on from its objects, as far as
/// [`EndOptions::warm_bytes`](clustercache::options::EndOptions::warm_bytes) (64 MiB a cluster) has room for them after an outage.
///
/// ```
/// use clustercache::ClusterCache;
/// use clustercache_client::KubeClient;
/// use clustercache_informers::{Informers, Keep, Kind};
/// use k8s_openapi::api::core::v1::{Node, Pod};
///
/// let builder = ClusterCache::builder()
///     .resource(KubeClient::new())
///     .health_from::<KubeClient>()
///     .resource(
///         Informers::new()
///             .kind(Kind::<Node>::new().keep(Keep::Decoded))
///             .kind(Kind::<Pod>::new().index_field("node", "spec.nodeName")),
///     );
/// # let _ = builder;
/// ```
#[must_use]
pub struct Informers {
    kinds: Vec<Arc<Declared>>,
    options: LoopOptions,
    budgets: Budgets,
    first_sync: Duration,
    budget: Arc<Budget>,
    last_known: Option<LastKnown>,
}

impl Informers {
    /// Of no kind.
    pub fn new() -> Self {
        Self {
            kinds: Vec::new(),
            options: LoopOptions::default(),
            budgets: Budgets::default(),
            first_sync: Duration::from_secs(120),
            budget: Budget::new(Budgets::default()),
            last_known: None,
        }
    }

    /// Objects of this kind are to be at hand in each cluster.
    pub fn kind<K, T>(mut self, kind: Kind<K, T>) -> Self
    where
        K: KubeResource + DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        self.kinds.push(Arc::new(kind.declare()));
        self
    }

    /// Other times and limits of the loops.
    pub fn loop_options(mut self, options: LoopOptions) -> Self {
        self.options = options;
        self
    }

    /// Other budgets of all clusters together.
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budget = Budget::new(budgets.clone());
        self.budgets = budgets;
        self
    }

    /// How long the first sync of the essential kinds of a cluster may take. Default 2 min.
    pub fn first_sync(mut self, limit: Duration) -> Self {
        self.first_sync = limit;
        self
    }

    /// What a cluster's kinds were stays readable after it was disconnected, for so long, through what this returns. It takes the room
    /// that it took, and is gone with the cluster's identity. Without this nothing is kept but what the next connection may go on from.
    ///
    /// ```
    /// use std::time::Duration;
    /// use clustercache::ClusterKey;
    /// use clustercache_informers::{Informers, Kind, LastKnown, LastKnownError};
    /// use k8s_openapi::api::core::v1::Node;
    ///
    /// let mut informers = Informers::new().kind(Kind::<Node>::new());
    /// let last: LastKnown = informers.last_known(Duration::from_secs(3_600));
    /// let error = last.get(&ClusterKey::named("eu-1")).unwrap_err();
    /// assert!(matches!(error, LastKnownError::Never { .. }));
    /// ```
    pub fn last_known(&mut self, limit: Duration) -> LastKnown {
        self.last_known.insert(LastKnown::new(limit)).clone()
    }

    /// What is used of the budgets, for metrics; ask for it before the provider is given away.
    pub fn budget_use(&self) -> BudgetUse {
        BudgetUse(Arc::clone(&self.budget))
    }

    pub(crate) fn stocks(&self, warm: Option<&Warm>, now: Instant) -> Box<[Arc<Stock>]> {
        let stock = |(number, kind): (usize, &Arc<Declared>)| {
            let stock = Stock::new(Arc::clone(kind), now);
            if let Some(kept) = warm.and_then(|warm| warm.kinds.get(number)) {
                kept.put_in(&stock);
            }
            Arc::new(stock)
        };
        self.kinds.iter().enumerate().map(stock).collect()
    }

    /// The loops of all kinds: one task.
    async fn run(informers: Vec<Informer>) {
        let each = informers
            .into_iter()
            .map(|informer| Box::pin(informer.run()));
        let mut all: FuturesUnordered<_> = each.collect();
        while all.next().await.is_some() {}
    }

    fn informer(
        &self,
        stock: &Arc<Stock>,
        client: &Resource<KubeClient>,
        now: Instant,
    ) -> Informer {
        let way = if stock.pages.load(Relaxed) {
            Way::Pages
        } else {
            Way::Stream
        };
        let version = stock.view().objects.version.clone();
        let options = self.options.clone();
        let machine = Machine::new(options, way, version, now, fastrand::Rng::new());
        Informer::new(
            Arc::clone(stock),
            client.clone(),
            Arc::clone(&self.budget),
            machine,
        )
    }
}

impl Default for Informers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|kind| &kind.resource).collect();
        f.debug_struct("Informers")
            .field("kinds", &kinds)
            .field("options", &self.options)
            .field("budgets", &self.budgets)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ClusterResource for Informers {
    type Value = ClusterInformers;

    fn name(&self) -> &'static str {
        "informers"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().resource::<KubeClient>()
    }

    fn init_timeout(&self) -> Duration {
        self.first_sync
    }

    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = self.options.mistakes();
        mistakes.extend(self.budgets.mistakes());
        for (number, kind) in self.kinds.iter().enumerate() {
            let Declared {
                resource,
                what,
                indexes,
                ..
            } = &**kind;
            let same =
                |other: &Arc<Declared>| other.type_id == kind.type_id && other.what.gvk == what.gvk;
            if self.kinds[..number].iter().any(same) {
                mistakes.push(format!("{resource} are declared twice as the same type; read one of them as another, or declare them once"));
            }
            for (at, index) in indexes.iter().enumerate() {
                if indexes[..at].contains(index) {
                    mistakes.push(format!(
                        "{resource} have two indexes {index:?}; name one of them otherwise"
                    ));
                }
            }
        }
        mistakes
    }

    async fn init(&self, cx: &InitContext) -> Result<ClusterInformers, InitError> {
        let client = cx.get::<KubeClient>()?;
        let warm = Warm::taken(cx, &client).await;
        let now = Instant::now();
        let stocks = self.stocks(warm.as_ref(), now);
        drop(warm);
        let loops = stocks
            .iter()
            .map(|stock| self.informer(stock, &client, now));
        cx.spawn(Self::run(loops.collect()));
        for stock in stocks.iter().filter(|stock| stock.kind.essential) {
            synced(stock).await?;
        }
        if let Some(last) = &self.last_known {
            last.begin(cx.key(), cx.identity(), &stocks);
        }
        Ok(ClusterInformers {
            stocks,
            client: Some(client),
        })
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        for stock in &value.stocks {
            stock.retire();
        }
        let returns = matches!(cx.reason(), TeardownReason::Down | TeardownReason::Replaced);
        if let Some(last) = &self.last_known {
            last.end(cx.key(), &value.stocks, returns);
        }
        if returns {
            let warm = Warm::of(&value);
            let bytes = warm.bytes();
            cx.keep(warm, bytes);
        }
    }
}

/// Waits until a kind can be read, or is refused to us.
async fn synced(stock: &Stock) -> Result<(), InitError> {
    loop {
        let mut changed = std::pin::pin!(stock.changed());
        changed.as_mut().enable();
        let View {
            standing, trouble, ..
        } = &*stock.view();
        match (standing, trouble) {
            (Standing::Synced { .. }, _) => return Ok(()),
            (Standing::Refused | Standing::OverBudget, Some(trouble)) => {
                return Err(InitError::retry(trouble.clone()));
            }
            _ => changed.await,
        }
    }
}

/// What is used of the [`Budgets`] by all clusters together.
#[derive(Clone)]
pub struct BudgetUse(Arc<Budget>);

impl BudgetUse {
    /// Lists that are being read.
    pub fn lists(&self) -> usize {
        self.0.listing()
    }

    /// Lists that wait for their turn.
    pub fn lists_waiting(&self) -> usize {
        self.0.waiting()
    }

    /// Bytes held for pages of lists.
    pub fn list_bytes(&self) -> usize {
        self.0.held()
    }

    /// Bytes that are cached.
    pub fn cached_bytes(&self) -> usize {
        self.0.cached()
    }
}

impl fmt::Debug for BudgetUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetUse")
            .field("lists", &self.lists())
            .field("lists_waiting", &self.lists_waiting())
            .field("list_bytes", &self.list_bytes())
            .field("cached_bytes", &self.cached_bytes())
            .finish()
    }
}
