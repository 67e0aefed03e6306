//! Providers and values without their types, for the engine.

use std::{
    any::{Any, TypeId},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use typemap_rev::{TypeMap, TypeMapKey};

use super::{
    Answer, CheckContext, CheckError, ClusterResource, HealthCheck, InitError, Life, Live, Refresh,
    Requires, Resource,
};
use crate::{ClusterAccess, InitContext, TeardownContext};

/// An `Arc<Live<R>>`.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// The key of an `R` in a snapshot.
pub(crate) struct ResourceKey<R>(PhantomData<R>);

impl<R: ClusterResource> TypeMapKey for ResourceKey<R> {
    type Value = Resource<R>;
}

/// A [`ClusterResource`] without its types.
pub(crate) trait Provider: Send + Sync {
    fn name(&self) -> &'static str;
    fn type_id(&self) -> TypeId;
    fn requires(&self) -> Requires;
    fn mistakes(&self) -> Vec<String> {
        Vec::new()
    }
    fn init_timeout(&self) -> Duration;
    fn teardown_timeout(&self) -> Duration;
    fn init<'a>(
        &'a self,
        cx: &'a InitContext,
        life: Arc<Life>,
    ) -> BoxFuture<'a, Result<Value, InitError>>;
    fn teardown<'a>(&'a self, value: Value, cx: &'a TeardownContext) -> BoxFuture<'a, ()>;
    fn refresh(&self, value: &Value, access: &ClusterAccess) -> Refresh;
    /// Puts the value where readers find it.
    fn publish(&self, value: &Value, into: &mut TypeMap);
}

/// A [`HealthCheck`] without its types.
pub(crate) trait Health: Send + Sync {
    fn check<'a>(
        &'a self,
        value: &'a Value,
        cx: &'a CheckContext,
    ) -> BoxFuture<'a, Result<Answer, CheckError>>;
    fn replace_pooled(&self, value: &Value);
}

pub(crate) fn erase<R: ClusterResource>(provider: Arc<R>) -> Arc<dyn Provider> {
    Arc::new(Erased(provider))
}

pub(crate) fn erase_health<R: HealthCheck>(provider: Arc<R>) -> Arc<dyn Health> {
    Arc::new(Erased(provider))
}

struct Erased<R>(Arc<R>);

/// The engine hands a provider only values that it made.
fn live<R: ClusterResource>(value: &Value) -> &Live<R> {
    value
        .downcast_ref()
        .expect("a provider gets its own values")
}

impl<R: ClusterResource> Provider for Erased<R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn type_id(&self) -> TypeId {
        TypeId::of::<R>()
    }

    fn requires(&self) -> Requires {
        self.0.requires()
    }

    fn mistakes(&self) -> Vec<String> {
        self.0.mistakes()
    }

    fn init_timeout(&self) -> Duration {
        self.0.init_timeout()
    }

    fn teardown_timeout(&self) -> Duration {
        self.0.teardown_timeout()
    }

    fn init<'a>(
        &'a self,
        cx: &'a InitContext,
        life: Arc<Life>,
    ) -> BoxFuture<'a, Result<Value, InitError>> {
        Box::pin(async move { Ok(Resource::<R>::new(self.0.init(cx).await?, life).erased()) })
    }

    fn teardown<'a>(&'a self, value: Value, cx: &'a TeardownContext) -> BoxFuture<'a, ()> {
        let resource = Resource::<R>::from_erased(&value).expect("a provider gets its own values");
        drop(value);
        self.0.teardown(resource, cx)
    }

    fn refresh(&self, value: &Value, access: &ClusterAccess) -> Refresh {
        self.0.refresh(&live::<R>(value).value, access)
    }

    fn publish(&self, value: &Value, into: &mut TypeMap) {
        if let Some(resource) = Resource::<R>::from_erased(value) {
            into.insert::<ResourceKey<R>>(resource);
        }
    }
}

impl<R: HealthCheck> Health for Erased<R> {
    fn check<'a>(
        &'a self,
        value: &'a Value,
        cx: &'a CheckContext,
    ) -> BoxFuture<'a, Result<Answer, CheckError>> {
        self.0.check(&live::<R>(value).value, cx)
    }

    fn replace_pooled(&self, value: &Value) {
        self.0.replace_pooled(&live::<R>(value).value);
    }
}
