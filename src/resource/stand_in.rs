//! For unit tests: values of a provider that somebody else makes.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::{
    ClusterResource, InitError, Life, Provider, Refresh, Requires, Resource, Value,
    erased::ResourceKey,
};
use crate::{ClusterAccess, InitContext, TeardownContext};

/// For unit tests: takes the place of the provider `R`, with values that a function makes. Readers get them by `get::<R>` as if `R`
/// itself had made them; the engine, and all that it promises, is the real one. Registered by
/// [`Builder::stand_in`](crate::Builder::stand_in).
///
/// A value's teardown drops it, a new credential is taken without asking it, and the place of the health check is none that it can take.
/// `clustercache-testkit` has a cache of these, whose values and failures a test sets by hand.
///
/// ```
/// # use async_trait::async_trait;
/// # use clustercache::*;
/// struct Quota;
///
/// #[async_trait]
/// impl ClusterResource for Quota {
///     type Value = u64;
///     fn name(&self) -> &'static str { "quota" }
///     async fn init(&self, _: &InitContext) -> Result<u64, InitError> {
///         unimplemented!("asks the cluster")
///     }
/// }
///
/// let stand_in = StandIn::<Quota>::new("quota", |_| async { Ok(7) });
/// let builder = ClusterCache::builder().stand_in(stand_in.optional());
/// # let _ = builder;
/// ```
#[must_use]
pub struct StandIn<R: ClusterResource> {
    name: &'static str,
    requires: Requires,
    pub(crate) essential: bool,
    make: Make<R>,
}

type Make<R> = Box<
    dyn Fn(InitContext) -> BoxFuture<'static, Result<<R as ClusterResource>::Value, InitError>>
        + Send
        + Sync,
>;

impl<R: ClusterResource> StandIn<R> {
    /// An essential one that requires nothing. `make` is its `init`; it may take as long as it likes.
    pub fn new<F>(
        name: &'static str,
        make: impl Fn(InitContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<R::Value, InitError>> + Send + 'static,
    {
        Self {
            name,
            requires: Requires::nothing(),
            essential: true,
            make: Box::new(move |cx| Box::pin(make(cx))),
        }
    }

    /// What it requires.
    pub fn requires(mut self, requires: Requires) -> Self {
        self.requires = requires;
        self
    }

    /// The cluster counts as connected without it.
    pub fn optional(mut self) -> Self {
        self.essential = false;
        self
    }
}

impl<R: ClusterResource> Provider for StandIn<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn type_id(&self) -> std::any::TypeId {
        std::any::TypeId::of::<R>()
    }

    fn requires(&self) -> Requires {
        self.requires.clone()
    }

    fn mistakes(&self) -> Vec<String> {
        Vec::new()
    }

    fn init_timeout(&self) -> Duration {
        // Years: a test decides how long it takes, also one that lets days pass in simulated time.
        Duration::from_secs(u64::from(u32::MAX))
    }

    fn teardown_timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn init<'a>(
        &'a self,
        cx: &'a InitContext,
        life: Arc<Life>,
    ) -> BoxFuture<'a, Result<Value, InitError>> {
        let made = (self.make)(cx.clone());
        Box::pin(async move { Ok(Resource::<R>::new(made.await?, life).erased()) })
    }

    fn teardown<'a>(&'a self, value: Value, _: &'a TeardownContext) -> BoxFuture<'a, ()> {
        Box::pin(async move { drop(value) })
    }

    fn refresh(&self, _: &Value, _: &ClusterAccess) -> Refresh {
        Refresh::Unchanged
    }

    fn publish(&self, value: &Value, into: &mut typemap_rev::TypeMap) {
        if let Some(resource) = Resource::<R>::from_erased(value) {
            into.insert::<ResourceKey<R>>(resource);
        }
    }
}
