//! The caches of these tests: each fails its test if a panic was counted that the test did not expect, and names who panicked (rule 7).

use std::{fmt, ops::Deref};

use clustercache::{
    ClusterCache, ClusterResource, ClusterSource, Engine, HealthCheck, StartError, Upsert,
    options::Options,
};
use clustercache_testkit::guard::PanicGuard;

/// A [`ClusterCache`] that looks at its count of panics when the test drops it. Its clones are plain.
pub struct Cache {
    cache: ClusterCache,
    guard: PanicGuard,
}

impl Cache {
    fn new(cache: ClusterCache) -> Self {
        let guard = PanicGuard::new(&cache);
        Self { cache, guard }
    }

    /// This provider or source is to panic in this test.
    pub fn expect_panic(&self, name: &str) {
        self.guard.expect_panic(name);
    }
}

impl Deref for Cache {
    type Target = ClusterCache;

    fn deref(&self) -> &ClusterCache {
        &self.cache
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cache, f)
    }
}

/// The cache's own builder, for a [`Cache`].
#[derive(Default)]
pub struct Builder(clustercache::Builder);

impl Builder {
    pub fn source(self, source: impl ClusterSource) -> Self {
        Self(self.0.source(source))
    }

    pub fn filter(self, filter: impl Fn(&Upsert) -> bool + Send + Sync + 'static) -> Self {
        Self(self.0.filter(filter))
    }

    pub fn resource<R: ClusterResource>(self, provider: R) -> Self {
        Self(self.0.resource(provider))
    }

    pub fn optional<R: ClusterResource>(self, provider: R) -> Self {
        Self(self.0.optional(provider))
    }

    pub fn health_from<R: HealthCheck>(self) -> Self {
        Self(self.0.health_from::<R>())
    }

    pub fn configure(self, change: impl FnOnce(&mut Options)) -> Self {
        Self(self.0.configure(change))
    }

    pub fn start(self) -> Result<Cache, StartError> {
        self.0.start().map(Cache::new)
    }

    pub fn build(self) -> Result<(Cache, Engine), StartError> {
        let (cache, engine) = self.0.build()?;
        Ok((Cache::new(cache), engine))
    }
}
