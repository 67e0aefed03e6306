//! The one lock, and the one cell, of what is model-checked: std's by default, a model checker's under a cfg of our own (never `cfg(loom)`: other crates
//! react to that). Everything else that those models need is std's own, so it stands here and nowhere else.

#[cfg(clustercache_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(clustercache_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(any(clustercache_loom, clustercache_shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// The cell that readers load: arc-swap's, whose reads take no lock.
#[cfg(not(any(clustercache_loom, clustercache_shuttle)))]
pub(crate) use arc_swap::ArcSwap as Swap;
/// What a load gives.
#[cfg(not(any(clustercache_loom, clustercache_shuttle)))]
pub(crate) type Loaded<T> = arc_swap::Guard<std::sync::Arc<T>>;

#[cfg(any(clustercache_loom, clustercache_shuttle))]
pub(crate) use cell::{Loaded, Swap};

/// A cell with the same promises, which a checker can schedule.
#[cfg(any(clustercache_loom, clustercache_shuttle))]
mod cell {
    use std::sync::Arc;

    use super::{Mutex, lock};

    pub(crate) type Loaded<T> = Arc<T>;

    pub(crate) struct Swap<T>(Mutex<Arc<T>>);

    impl<T> Swap<T> {
        pub(crate) fn from_pointee(value: T) -> Self {
            Self(Mutex::new(Arc::new(value)))
        }

        pub(crate) fn load(&self) -> Loaded<T> {
            self.load_full()
        }

        pub(crate) fn load_full(&self) -> Arc<T> {
            Arc::clone(&lock(&self.0))
        }

        pub(crate) fn store(&self, value: Arc<T>) {
            let old = std::mem::replace(&mut *lock(&self.0), value);
            drop(old);
        }
    }
}

/// Between steps of a map that a checker does not see into: there it may let another go on.
#[cfg(not(any(clustercache_loom, clustercache_shuttle)))]
#[inline]
pub(crate) fn between_steps() {}
#[cfg(clustercache_loom)]
pub(crate) use loom::thread::yield_now as between_steps;
#[cfg(clustercache_shuttle)]
pub(crate) use shuttle::thread::yield_now as between_steps;

/// Takes a lock. What it guards is changed by our own code only, between whose steps nothing panics: poison says nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
