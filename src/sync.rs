//! The one lock of what is model-checked: std's by default, a model checker's under a cfg of our own (never `cfg(loom)`: other crates
//! react to that). Everything else that those models need is std's own, so it stands here and nowhere else.

#[cfg(clustercache_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(clustercache_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(any(clustercache_loom, clustercache_shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Takes a lock. What it guards is changed by our own code only, between whose steps nothing panics: poison says nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
