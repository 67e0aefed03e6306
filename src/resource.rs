//! A provider: what makes one value a cluster, and tears it down.

use std::{
    any::{Any, TypeId},
    fmt,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    ClusterAccess, ClusterKey, InitContext, TeardownContext,
    latch::{Moment, Moments},
};

mod erased;
mod error;
mod health;
mod stand_in;
mod standing;

pub(crate) use erased::{Health, Provider, ResourceKey, Value, erase, erase_health};
pub use error::{FailureKind, InitError};
pub(crate) use error::{Then, chain, escaped, is_hostile};
pub use health::{Answer, CheckContext, CheckError, HealthCheck, Route};
pub use stand_in::StandIn;
pub use standing::{Reporter, Standing};

/// A provider of one kind of value, made for every cluster when it is reachable and torn down when it is not.
///
/// The provider is shared by all clusters; what belongs to one goes into the value. Its hooks run on tasks of a connection, never
/// on the engine's: one that panics or never ends is counted, becomes an error of that cluster's resource, and delays nobody else.
///
/// ```
/// use async_trait::async_trait;
/// use clustercache::{ClusterResource, InitContext, InitError, Requires};
///
/// struct Greeting;
///
/// #[async_trait]
/// impl ClusterResource for Greeting {
///     type Value = String;
///     fn name(&self) -> &'static str {
///         "greeting"
///     }
///     fn requires(&self) -> Requires {
///         Requires::nothing().access()
///     }
///     async fn init(&self, cx: &InitContext) -> Result<String, InitError> {
///         Ok(format!("hello, {}", cx.access()?.endpoint().url()))
///     }
/// }
/// ```
#[async_trait]
pub trait ClusterResource: Sized + Send + Sync + 'static {
    /// What readers get.
    type Value: Send + Sync + 'static;

    /// For logs, metrics and errors; short and in kebab-case, such as `kube-client`.
    fn name(&self) -> &'static str;

    /// What it needs. Asked once, when the cache is built.
    fn requires(&self) -> Requires {
        Requires::nothing()
    }

    /// How long one `init` may take; time spent waiting for a permit to dial does not count. Default 10 s.
    fn init_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How long one `teardown` may take. Default 5 s.
    fn teardown_timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// What is wrong with what it was given, each saying what, and what to give instead: constructors are infallible, and `start()` reports
    /// every mistake at once.
    fn mistakes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes the value. An error from `?` is tried again with backoff; see [`InitError`] for the other two.
    ///
    /// Cancelled by being dropped: when the connection ends, or at its timeout. What must live on goes through
    /// [`InitContext::spawn`]. Waiting for a cluster in here is an error at once (`WouldDeadlock`).
    async fn init(&self, cx: &InitContext) -> Result<Self::Value, InitError>;

    /// Ends the value: exactly once for each that `init` returned, after those built on it, before those it was built on. No
    /// reader gets it any more; one that still holds it keeps usable memory, and does not delay this.
    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        let _ = (value, cx);
    }

    /// Takes a new credential into a living value. Asked only of those that [`Requires::access`]. One that panics, or blocks its thread for
    /// longer than [`init_timeout`](Self::init_timeout), counts as [`Refresh::Rebuild`].
    fn refresh(&self, value: &Self::Value, access: &ClusterAccess) -> Refresh {
        let _ = (value, access);
        Refresh::Rebuild
    }
}

/// What a provider makes of a new credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// The value does not depend on it.
    Unchanged,
    /// The value has it now.
    InPlace,
    /// The value must be made anew: the whole connection is, beside the living one.
    Rebuild,
}

/// What a provider needs before its `init`.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Requires {
    pub(crate) needs: Vec<Need>,
    pub(crate) access: bool,
}

/// One resource that another needs.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) type_id: TypeId,
    pub(crate) type_name: &'static str,
    /// Up before, and restarted with it; else only ordered after it, and read if it is there.
    pub(crate) required: bool,
}

impl Requires {
    /// Nothing at all.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// `R` is up before, and stays usable through our teardown; when it is made anew, so are we.
    pub fn resource<R: ClusterResource>(self) -> Self {
        self.need::<R>(true)
    }

    /// Ordered after `R` if that is registered: after it is up, not applicable, or has failed once. Read by
    /// [`InitContext::try_get`]; we are not restarted when it comes or goes.
    pub fn wants<R: ClusterResource>(self) -> Self {
        self.need::<R>(false)
    }

    /// We read the cluster's access, and are asked [`ClusterResource::refresh`] when its credential changes.
    pub fn access(mut self) -> Self {
        self.access = true;
        self
    }

    fn need<R: ClusterResource>(mut self, required: bool) -> Self {
        self.needs.push(Need {
            type_id: TypeId::of::<R>(),
            type_name: std::any::type_name::<R>(),
            required,
        });
        self
    }
}

/// A value that a provider made for a cluster. It derefs to the value; holding one keeps the memory usable, and nothing else.
pub struct Resource<R: ClusterResource>(Arc<Live<R>>);

pub(crate) struct Live<R: ClusterResource> {
    value: R::Value,
    life: Arc<Life>,
}

/// One init and its outcome: whose it is, how far it is, and whether it still is what readers get.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) key: ClusterKey,
    pub(crate) generation: Generation,
    pub(crate) incarnation: u32,
    pub(crate) moments: Moments,
}

impl<R: ClusterResource> Resource<R> {
    pub(crate) fn new(value: R::Value, life: Arc<Life>) -> Self {
        Self(Arc::new(Live { value, life }))
    }

    pub(crate) fn erased(self) -> Value {
        self.0
    }

    #[inline]
    pub(crate) fn from_erased(value: &Value) -> Option<Self> {
        Self::of(Arc::clone(value))
    }

    #[inline]
    pub(crate) fn of(value: Arc<dyn Any + Send + Sync>) -> Option<Self> {
        value.downcast::<Live<R>>().ok().map(Self)
    }

    #[inline]
    pub(crate) fn value_of(value: &Value) -> Option<&R::Value> {
        value.downcast_ref::<Live<R>>().map(|live| &live.value)
    }

    /// The cluster it belongs to.
    pub fn key(&self) -> &ClusterKey {
        &self.0.life.key
    }

    /// The connection it belongs to.
    pub fn generation(&self) -> Generation {
        self.0.life.generation
    }

    /// Of the n-th init of this resource within the connection, from 1; failed ones count.
    pub fn incarnation(&self) -> u32 {
        self.0.life.incarnation
    }

    /// Whether readers still get this very value.
    pub fn is_current(&self) -> bool {
        !self.0.life.moments.is_set(Moment::Retired)
    }

    /// Returns when readers no longer get this value. Inside `init` and `teardown` it is an error at once.
    pub async fn retired(&self) -> Result<(), crate::WouldDeadlock> {
        crate::hook::may_wait("retired")?;
        crate::hook::guarded(self.0.life.moments.wait(Moment::Retired)).await;
        Ok(())
    }
}

impl<R: ClusterResource> Clone for Resource<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: ClusterResource> Deref for Resource<R> {
    type Target = R::Value;

    fn deref(&self) -> &R::Value {
        &self.0.value
    }
}

impl<R: ClusterResource> fmt::Debug for Resource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Life {
            key,
            generation,
            incarnation,
            ..
        } = &*self.0.life;
        write!(
            f,
            "Resource({} {generation} incarnation {incarnation}, current {})",
            key.shown(),
            self.is_current()
        )
    }
}

/// The number of a connection. It only grows, over all clusters of a cache: two connections never share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Generation(pub(crate) u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.0)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
