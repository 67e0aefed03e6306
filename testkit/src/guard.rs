//! Fails a test in which a provider or a source panicked that was not expected to. A cache catches such panics, counts them and goes
//! on, so that without this a test would not notice.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use clustercache::ClusterCache;
use parking_lot::Mutex;

/// Looks at a cache's count of panics when it is dropped, and panics if there was one that the test did not expect, or none where it did.
///
/// Drop it last, after [`shutdown`](ClusterCache::shutdown), so that teardowns count too. While the test fails for another reason it says
/// nothing.
///
/// ```
/// # use clustercache::*;
/// use clustercache_testkit::guard::PanicGuard;
///
/// async fn test(cache: ClusterCache) {
///     let panics = PanicGuard::new(&cache);
///     panics.expect_panic("flaky"); // by the provider's or the source's name
///     // …
/// }
/// # let _ = test;
/// ```
#[must_use = "it looks when it is dropped: bind it to a name for the whole test"]
pub struct PanicGuard {
    cache: ClusterCache,
    expected: Mutex<BTreeSet<Box<str>>>,
}

impl PanicGuard {
    /// Guards the test that has this cache.
    pub fn new(cache: &ClusterCache) -> Self {
        Self {
            cache: cache.clone(),
            expected: Mutex::default(),
        }
    }

    /// The provider or source of this name is to panic in this test, once or more.
    pub fn expect_panic(&self, name: &str) {
        self.expected.lock().insert(name.into());
    }

    /// The panics so far that were not expected, by provider or source.
    pub fn unexpected(&self) -> BTreeMap<Box<str>, u64> {
        let mut panics = self.cache.counters().panics();
        panics.retain(|name, _| !self.expected.lock().contains(name));
        panics
    }

    fn verdict(&self) -> Result<(), String> {
        let unexpected = self.unexpected();
        if !unexpected.is_empty() {
            let each = unexpected
                .iter()
                .map(|(name, count)| format!("{name} ({count} times)"));
            return Err(format!(
                "panics that the test did not expect: {}; their messages are above",
                each.collect::<Vec<_>>().join(", ")
            ));
        }
        let panics = self.cache.counters().panics();
        let expected = self.expected.lock();
        match expected.iter().find(|name| !panics.contains_key(*name)) {
            Some(name) => Err(format!("{name} was expected to panic, and did not")),
            None => Ok(()),
        }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if let Err(why) = self.verdict()
            && !thread::panicking()
        {
            panic!("{why}");
        }
    }
}
