//! A [`ClusterCache`] for unit tests of controllers: values are put in by hand, and clusters connect, fail and go when the test says so.
//!
//! The engine is the real one, over stand-ins for providers and a link that the test holds, so that errors, events, waits and
//! `is_current` are what they are in production. There is no network. Under a paused clock minutes pass at once.
//!
//! ```
//! # use async_trait::async_trait;
//! # use clustercache::*;
//! use clustercache_testkit::cache::TestCache;
//!
//! /// What the controller reads of each cluster; the real one asks the cluster.
//! struct Nodes;
//! # #[async_trait]
//! # impl ClusterResource for Nodes {
//! #     type Value = Vec<String>;
//! #     fn name(&self) -> &'static str { "nodes" }
//! #     async fn init(&self, _: &InitContext) -> Result<Vec<String>, InitError> { unimplemented!() }
//! # }
//!
//! /// The reconciler that is tested: how many nodes, or why that cannot be said.
//! fn reconcile(cache: &ClusterCache, key: &ClusterKey) -> String {
//!     match cache.get::<Nodes>(key) {
//!         Ok(nodes) => format!("{} nodes", nodes.len()),
//!         Err(GetError::Down(_)) => "unreachable".into(),
//!         Err(GetError::Reinitialising { .. }) => "reading again".into(),
//!         Err(_) => "waiting".into(),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestCache::builder().resource::<Nodes>().build();
//! let (cache, eu) = (test.cache(), ClusterKey::named("eu-1"));
//! assert_eq!(reconcile(&cache, &eu), "waiting");
//!
//! test.put::<Nodes>(&eu, vec!["worker".into()]).await;
//! test.connect(&eu).await;
//! assert_eq!(reconcile(&cache, &eu), "1 nodes");
//!
//! test.fail::<Nodes>(&eu, "the watch broke").await;
//! assert_eq!(reconcile(&cache, &eu), "reading again");
//! test.put::<Nodes>(&eu, vec![]).await;
//! assert_eq!(reconcile(&cache, &eu), "0 nodes");
//!
//! test.disconnect(&eu).await;
//! assert_eq!(reconcile(&cache, &eu), "unreachable");
//! # }
//! ```

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use clustercache::{
    Builder, ClusterAccess, ClusterCache, ClusterKey, ClusterResource, GetError, MemorySource,
    Phase, Requires, ResourcePhase, SourcedAccess, StandIn, Upsert,
};
use futures_util::StreamExt;
use parking_lot::Mutex;

use self::{
    link::{Link, Links},
    stock::Stock,
};
use crate::guard::PanicGuard;

mod link;
mod stock;

/// The longest that anything here waits for the engine, which needs no time.
const LIMIT: Duration = Duration::from_secs(10);

/// A cache whose clusters a test holds in its hand.
///
/// Methods that wait return when readers see what was asked for, and panic if that does not come about, with what the cluster is instead.
/// Dropping it fails the test if a provider panicked, see [`PanicGuard`].
pub struct TestCache {
    cache: ClusterCache,
    source: MemorySource,
    links: Arc<Links>,
    stocks: HashMap<TypeId, Arc<dyn AnyStock>>,
    known: Mutex<HashMap<ClusterKey, Known>>,
    guard: PanicGuard,
}

/// What the source says of a cluster.
#[derive(Clone)]
struct Known {
    upsert: Upsert,
    /// Counts the clusters of this name.
    number: u64,
}

/// Sets a [`TestCache`] up.
#[derive(Default)]
#[must_use]
pub struct TestCacheBuilder {
    stocks: HashMap<TypeId, Arc<dyn AnyStock>>,
    set_up: Vec<SetUp>,
}

type SetUp = Box<dyn FnOnce(Builder) -> Builder>;

/// A [`Stock`] whatever its type.
trait AnyStock: Any + Send + Sync {
    /// Ends the cycle of a cache, its values, and what made them.
    fn clear(&self);
}

impl<R: ClusterResource> AnyStock for Stock<R> {
    fn clear(&self) {
        Stock::clear(self);
    }
}

impl TestCacheBuilder {
    /// A resource that a cluster must have to count as connected; its values come from [`TestCache::put`]. It stands in the state by its
    /// type's name in kebab-case: `kube-client` for `KubeClient`.
    pub fn resource<R: ClusterResource>(self) -> Self {
        self.stand_in::<R>(|stand_in| stand_in)
    }

    /// A resource without which a cluster counts as connected all the same.
    pub fn optional<R: ClusterResource>(self) -> Self {
        self.stand_in::<R>(StandIn::optional)
    }

    /// Anything else of the set-up: a provider that is itself what is tested (it may require those that the test puts in), options, a filter.
    ///
    /// ```
    /// # use clustercache_testkit::cache::TestCache;
    /// # use std::time::Duration;
    /// let builder = TestCache::builder().set_up(|builder| {
    ///     builder.configure(|options| options.source.linger = Duration::from_secs(5))
    /// });
    /// # let _ = builder;
    /// ```
    pub fn set_up(mut self, set_up: impl FnOnce(Builder) -> Builder + 'static) -> Self {
        self.set_up.push(Box::new(set_up));
        self
    }

    fn stand_in<R: ClusterResource>(
        mut self,
        kind: impl FnOnce(StandIn<R>) -> StandIn<R> + 'static,
    ) -> Self {
        let stock = Arc::new(Stock::<R>::default());
        let (takes, name) = (Arc::clone(&stock), name_of::<R>());
        self.stocks.insert(TypeId::of::<R>(), stock);
        self.set_up(move |builder| {
            // A name lives for ever; a test has few.
            let stand_in = StandIn::<R>::new(name.leak(), move |cx| Arc::clone(&takes).take(cx));
            builder.stand_in(kind(
                stand_in.requires(Requires::nothing().resource::<Link>()),
            ))
        })
    }

    /// Starts it on the runtime of the caller.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, and if the set-up has a mistake.
    pub fn build(self) -> TestCache {
        let (source, links) = (MemorySource::new("test"), Arc::new(Links::default()));
        let builder = ClusterCache::builder()
            .source(source.clone())
            .resource(Link(Arc::clone(&links)))
            .health_from::<Link>()
            .configure(|options| {
                // What is tried again waits for the test, not for time.
                options.retry.first = Duration::from_millis(1);
                options.retry.most = Duration::from_millis(1);
                options.source.linger = Duration::ZERO;
                options.seed = Some(0);
            });
        let builder = self
            .set_up
            .into_iter()
            .fold(builder, |builder, set_up| set_up(builder));
        let cache = match builder.start() {
            Ok(cache) => cache,
            Err(mistakes) => panic!("{mistakes}"),
        };
        TestCache {
            guard: PanicGuard::new(&cache),
            cache,
            source,
            links,
            stocks: self.stocks,
            known: Mutex::default(),
        }
    }
}

impl TestCache {
    /// Begins the set-up of one.
    pub fn builder() -> TestCacheBuilder {
        TestCacheBuilder::default()
    }

    /// The cache, as what is tested gets it.
    pub fn cache(&self) -> ClusterCache {
        self.cache.clone()
    }

    /// See [`PanicGuard::expect_panic`].
    pub fn expect_panic(&self, name: &str) {
        self.guard.expect_panic(name);
    }
}

/// Clusters come, connect, are lost and go.
impl TestCache {
    /// Makes the cluster known. It is connecting, and stays so until [`connect`](Self::connect).
    pub async fn add(&self, key: &ClusterKey) {
        self.say(key, |known| known.upsert.access = ready(key));
        self.until(key, "known", || self.cache.state(key).is_ok())
            .await;
    }

    /// As [`add`](Self::add), with labels, an access or an identity of the test's choice.
    pub async fn add_as(&self, upsert: Upsert) {
        let key = upsert.key.clone();
        self.say(&key, |known| known.upsert = upsert);
        self.until(&key, "known", || self.cache.state(&key).is_ok())
            .await;
    }

    /// Connects the cluster, whatever it was before; one that is not known is added. Each of its essential resources must have been
    /// [put](Self::put) before.
    pub async fn connect(&self, key: &ClusterKey) {
        self.say(key, |known| {
            if !matches!(known.upsert.access, SourcedAccess::Ready(_)) {
                known.upsert.access = ready(key);
            }
        });
        self.links.connect(key);
        self.until(key, "connected; was each essential resource put?", || {
            self.phase(key) == Some(Phase::Connected)
        })
        .await;
    }

    /// The cluster is lost at once, and down. Its values are torn down: connecting again needs others.
    pub async fn disconnect(&self, key: &ClusterKey) {
        self.links.disconnect(key);
        self.until(key, "down", || {
            // Again at each change: it has no effect on a link that is not up yet.
            self.links.lose(key);
            !self.phase(key).is_some_and(Phase::is_connected)
        })
        .await;
    }

    /// The cluster answers no health check from now on: after 5 s it is suspect, then down, and `unhealthy_for` comes at its time, all as
    /// in production (and at once under a paused clock). [`connect`](Self::connect) ends it.
    pub fn silence(&self, key: &ClusterKey) {
        self.links.silence(key);
    }

    /// Its source says that it may not be connected yet. A living connection stays, unless the options say otherwise.
    pub async fn gate(&self, key: &ClusterKey, why: &str) {
        self.say(key, |known| {
            known.upsert.access = SourcedAccess::Gated(why.into());
        });
        self.until(key, "gated", || {
            let state = self.cache.state(key);
            state.is_ok_and(|state| state.gate.as_deref() == Some(why))
        })
        .await;
    }

    /// Its source has an access that was refused. A living connection stays.
    pub async fn refuse(&self, key: &ClusterKey, why: &str) {
        self.say(key, |known| {
            known.upsert.access = SourcedAccess::Refused(why.into());
        });
        self.until(key, "refused", || {
            let state = self.cache.state(key);
            state.is_ok_and(|state| state.refused.as_deref() == Some(why))
        })
        .await;
    }

    /// The cluster is gone, at once: nothing lingers here.
    pub async fn remove(&self, key: &ClusterKey) {
        self.known.lock().remove(key);
        self.links.disconnect(key);
        self.source.remove(key);
        self.until(key, "gone", || self.cache.state(key).is_err())
            .await;
    }

    /// Another cluster has the same name: nothing of the old one is served, handles say that it was replaced, and the new one is
    /// connecting until [`connect`](Self::connect).
    pub async fn replace(&self, key: &ClusterKey) {
        let old = self.cache.cluster(key);
        self.links.disconnect(key);
        self.say(key, |known| {
            known.number += 1;
            known.upsert = Upsert {
                access: ready(key),
                ..known.upsert.clone().with_uid(uid(known.number))
            };
        });
        self.until(key, "replaced", || {
            old.as_ref().map_or_else(
                |_| self.cache.state(key).is_ok(),
                |old| old.state().is_err(),
            )
        })
        .await;
    }
}

/// What they have.
impl TestCache {
    /// The cluster's `R` is this value from now on: at once if it is connected, else when it connects. A value that is there is torn down and
    /// replaced. It lives as long as the connection: the next one needs another.
    ///
    /// # Panics
    ///
    /// If `R` was not given to the builder.
    pub async fn put<R: ClusterResource>(&self, key: &ClusterKey, value: R::Value) {
        self.stock::<R>().put(key, stock::Next::value(value));
        self.replaced::<R>(key).await;
    }

    /// As [`put`](Self::put), with a value for each connection.
    ///
    /// # Panics
    ///
    /// If `R` was not given to the builder.
    pub async fn put_each<R: ClusterResource>(
        &self,
        key: &ClusterKey,
        value: impl Fn() -> R::Value + Send + Sync + 'static,
    ) {
        self.stock::<R>().put(key, stock::Next::each(value));
        self.replaced::<R>(key).await;
    }

    /// The cluster's `R` goes bad, and is re-initialising until something is [put](Self::put) again. Of an `R` that is not up, the next
    /// `init` fails.
    ///
    /// # Panics
    ///
    /// If `R` was not given to the builder.
    pub async fn fail<R: ClusterResource>(&self, key: &ClusterKey, error: impl Display) {
        let (stock, error) = (self.stock::<R>(), error.to_string());
        if self.is_up::<R>(key) {
            stock.empty(key);
            self.until(key, "without it", || {
                stock.lose(key, &error);
                !self.is_up::<R>(key)
            })
            .await;
        } else {
            stock.put(key, stock::Next::fails(error));
        }
    }

    /// The cluster has no such thing as `R`.
    ///
    /// # Panics
    ///
    /// If `R` was not given to the builder.
    pub async fn not_applicable<R: ClusterResource>(&self, key: &ClusterKey, why: &str) {
        let stock = self.stock::<R>();
        stock.put(key, stock::Next::not_applicable(why));
        if self.phase(key).is_some_and(Phase::is_connected) {
            self.until(key, "without it", || {
                stock.lose(key, why);
                let got = self.cache.get::<R>(key);
                matches!(got, Err(GetError::NotApplicable { .. }))
            })
            .await;
        }
    }

    /// Returns when readers have what was put last, if they have anything.
    async fn replaced<R: ClusterResource>(&self, key: &ClusterKey) {
        if !self.phase(key).is_some_and(Phase::is_connected) {
            return;
        }
        let stock = self.stock::<R>();
        self.until(key, "given what was put", || {
            if !stock.is_taken(key) {
                stock.lose(key, "another value was put in its place");
                self.cache.reconsider::<R>(key);
            }
            let got = self.cache.get::<R>(key);
            got.is_ok_and(|got| stock.is_newest(key, got.generation(), got.incarnation()))
        })
        .await;
    }
}

// === impl TestCache ===

impl TestCache {
    fn phase(&self, key: &ClusterKey) -> Option<Phase> {
        self.cache.state(key).ok().map(|state| state.phase)
    }

    fn is_up<R: ClusterResource>(&self, key: &ClusterKey) -> bool {
        let name = name_of::<R>();
        self.cache.state(key).is_ok_and(|state| {
            let mut all = state.resources.iter();
            all.any(|resource| resource.name == name && resource.phase == ResourcePhase::Up)
        })
    }

    fn say(&self, key: &ClusterKey, change: impl FnOnce(&mut Known)) {
        let mut all = self.known.lock();
        let known = all.entry(key.clone()).or_insert_with(|| Known {
            upsert: Upsert {
                access: ready(key),
                ..Upsert::refused(key.clone(), "").with_uid(uid(0))
            },
            number: 0,
        });
        change(known);
        self.source.upsert(known.upsert.clone());
    }

    fn stock<R: ClusterResource>(&self) -> Arc<Stock<R>> {
        let stock = self.stocks.get(&TypeId::of::<R>()).cloned();
        let stock = stock.and_then(|stock| (stock as Arc<dyn Any + Send + Sync>).downcast().ok());
        stock.unwrap_or_else(|| {
            panic!(
                "{0} is not a resource of this TestCache; give it to the builder by .resource::<{0}>()",
                std::any::type_name::<R>()
            )
        })
    }

    /// Looks at once, and at each change of the cluster.
    async fn until(&self, key: &ClusterKey, what: &str, mut is: impl FnMut() -> bool) {
        let mut events = self.cache.subscribe().key(key);
        let wait = async { while !is() && events.next().await.is_some() {} };
        let _ = tokio::time::timeout(LIMIT, wait).await;
        if !is() {
            let is = self.cache.state(key).map_or_else(
                |error| error.to_string(),
                |state| format!("it is {}: {:?}", state.phase, state.resources),
            );
            panic!("cluster {} did not come to be {what}; {is}", key.shown());
        }
    }
}

impl Drop for TestCache {
    fn drop(&mut self) {
        self.links.clear();
        self.stocks.values().for_each(|stock| stock.clear());
    }
}

fn uid(number: u64) -> String {
    format!("test-{number}")
}

/// An address that is nobody's.
fn ready(key: &ClusterKey) -> SourcedAccess {
    let access = ClusterAccess::builder("https://cluster.invalid:6443")
        .token(key.to_string())
        .build();
    match access {
        Ok(access) => SourcedAccess::Ready(access),
        Err(error) => SourcedAccess::Refused(error.to_string().into()),
    }
}

/// `KubeClient` is `kube-client`: what providers name themselves.
fn name_of<R>() -> String {
    let path = std::any::type_name::<R>();
    let plain = path.split('<').next().unwrap_or(path);
    let mut name = String::new();
    let mut after_lower = false;
    for letter in plain.rsplit("::").next().unwrap_or(plain).chars() {
        if letter.is_uppercase() && after_lower {
            name.push('-');
        }
        after_lower = !letter.is_uppercase();
        name.extend(letter.to_lowercase());
    }
    name
}
