//! What the tasks of one connection share: its access, its signs of life, and the values that it made, in the order in which they came up.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::{
    ClusterAccess, ClusterKey, Generation, Identity, IdentityHandle,
    context::Attempt,
    hook,
    latch::Moment,
    resource::Value,
    shared::Shared,
    sync::{Mutex, lock},
    vitals::Vitals,
};

pub(crate) struct Connection {
    pub(crate) key: ClusterKey,
    pub(crate) generation: Generation,
    pub(crate) shared: Arc<Shared>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) identity: Arc<IdentityState>,
    access: ArcSwap<ClusterAccess>,
    /// Failed attempts to connect in a row, or failed rounds of probes: who dials is served by that.
    failures: AtomicU32,
    /// The connection that this one is to replace, for `predecessor`.
    predecessor: Mutex<Option<Arc<Connection>>>,
    running: Mutex<Vec<Arc<Attempt>>>,
    up: Mutex<Vec<Up>>,
    /// The slot whose teardown runs.
    tearing_down: Mutex<Option<usize>>,
}

/// A value that is up, or being torn down, and the init that made it.
#[derive(Clone)]
pub(crate) struct Up {
    pub(crate) value: Value,
    pub(crate) attempt: Arc<Attempt>,
}

/// Stands among the values for an init that found that there is none, for as long as its tasks live.
pub(crate) struct NoValue;

impl Up {
    pub(crate) fn slot(&self) -> usize {
        self.attempt.slot
    }
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: ClusterKey,
        generation: Generation,
        access: ClusterAccess,
        identity: Arc<IdentityState>,
        vitals: Arc<Vitals>,
        predecessor: Option<Arc<Connection>>,
    ) -> Self {
        let slots = shared.plan.len();
        Self {
            vitals,
            key,
            generation,
            shared,
            identity,
            access: ArcSwap::from_pointee(access),
            failures: AtomicU32::new(0),
            predecessor: Mutex::new(predecessor),
            running: Mutex::default(),
            up: Mutex::new(Vec::with_capacity(slots)),
            tearing_down: Mutex::default(),
        }
    }

    /// The newest access.
    pub(crate) fn access(&self) -> ClusterAccess {
        ClusterAccess::clone(&self.access.load())
    }

    /// The engine only.
    pub(crate) fn set_access(&self, access: ClusterAccess) {
        self.access.store(Arc::new(access));
    }

    /// An init begins.
    pub(crate) fn began(&self, attempt: Arc<Attempt>) {
        lock(&self.running).push(attempt);
    }

    /// An init is over; its value, if it made one, is up. If nobody waited for it any more, the value comes back to be dropped.
    pub(crate) fn finished(&self, attempt: &Arc<Attempt>, value: Option<Value>) -> Option<Value> {
        let mut running = lock(&self.running);
        let Some(index) = running.iter().position(|other| Arc::ptr_eq(other, attempt)) else {
            return value;
        };
        if let Some(value) = value {
            let up = Up {
                value,
                attempt: Arc::clone(attempt),
            };
            lock(&self.up).push(up);
        }
        running.remove(index);
        if running.is_empty() {
            *running = Vec::new();
        }
        drop(running);
        attempt.life.moments.set(Moment::Done);
        None
    }

    /// Waits for an init no longer. Says whether there was anything to wait for.
    pub(crate) fn give_up(&self, attempt: &Arc<Attempt>) -> bool {
        let mut running = lock(&self.running);
        let index = running.iter().position(|other| Arc::ptr_eq(other, attempt));
        index.map(|index| running.remove(index)).is_some()
    }

    /// The inits that run.
    pub(crate) fn running(&self) -> Vec<Arc<Attempt>> {
        lock(&self.running).clone()
    }

    /// Readers get these no more.
    pub(crate) fn mark_retired(&self, slots: impl Fn(usize) -> bool) {
        let up = lock(&self.up);
        let taken = up.iter().filter(|up| slots(up.slot()));
        let lives: Vec<_> = taken.map(|up| Arc::clone(&up.attempt.life)).collect();
        drop(up);
        for life in lives {
            life.moments.set(Moment::Retired);
        }
    }

    /// What is up, in the order in which it came up.
    pub(crate) fn all_up(&self) -> Vec<Up> {
        lock(&self.up).clone()
    }

    pub(crate) fn value(&self, slot: usize) -> Option<Up> {
        let up = lock(&self.up);
        up.iter()
            .find(|up| up.slot() == slot && !up.value.is::<NoValue>())
            .cloned()
    }

    /// The same, unless readers get it no more: what waits for its teardown is nothing to build on.
    pub(crate) fn current(&self, slot: usize) -> Option<Up> {
        let up = lock(&self.up);
        up.iter()
            .find(|up| {
                let retired = up.attempt.life.moments.is_set(Moment::Retired);
                up.slot() == slot && !up.value.is::<NoValue>() && !retired
            })
            .cloned()
    }

    /// Takes out the init that found that a slot has no value.
    pub(crate) fn pop_none(&self, slot: usize) -> Option<Arc<Attempt>> {
        let mut up = lock(&self.up);
        let is_it = |up: &Up| up.slot() == slot && up.value.is::<NoValue>();
        let index = up.iter().position(is_it)?;
        Some(up.remove(index).attempt)
    }

    /// Takes out the newest value that is one of `slots`.
    pub(crate) fn pop(&self, slots: impl Fn(usize) -> bool) -> Option<Up> {
        let mut up = lock(&self.up);
        let index = up.iter().rposition(|up| slots(up.slot()))?;
        Some(up.remove(index))
    }

    /// The slot whose teardown runs: there is one at a time.
    pub(crate) fn tearing_down(&self) -> Option<usize> {
        *lock(&self.tearing_down)
    }

    pub(crate) fn set_tearing_down(&self, slot: Option<usize>) {
        *lock(&self.tearing_down) = slot;
    }

    pub(crate) fn predecessor(&self) -> Option<Arc<Connection>> {
        lock(&self.predecessor).clone()
    }

    /// The replacement is over: nothing of the old connection is held any more.
    pub(crate) fn forget_predecessor(&self) {
        let old = lock(&self.predecessor).take();
        drop(old);
    }

    /// The engine only.
    pub(crate) fn set_failures(&self, failures: u32) {
        self.failures.store(failures, Ordering::Relaxed);
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// What lives as long as a cluster's identity is known, and the warm state that one connection leaves to the next.
pub(crate) struct IdentityState {
    handle: IdentityHandle,
    states: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    warm: Mutex<BTreeMap<TypeId, Kept>>,
}

struct Kept {
    state: Box<dyn Any + Send + Sync>,
    bytes: usize,
    at: Instant,
}

impl IdentityState {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            handle: IdentityHandle::new(identity),
            states: Mutex::default(),
            warm: Mutex::default(),
        }
    }

    pub(crate) fn handle(&self) -> &IdentityHandle {
        &self.handle
    }

    /// The identity is known no more. Connections on their way out may keep the states for a while.
    pub(crate) fn end(&self) {
        self.handle.end();
    }

    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let states = || lock(&self.states);
        let known = states().get(&TypeId::of::<T>()).cloned();
        // `T::default` is foreign code: it does not run under the lock, and whoever is second drops its own.
        let state = known.unwrap_or_else(|| {
            let made: Arc<dyn Any + Send + Sync> = Arc::new(T::default());
            // It is dropped after this, and not under the lock, if it came second.
            let ours = || Arc::clone(&made);
            Arc::clone(states().entry(TypeId::of::<T>()).or_insert_with(ours))
        });
        state.downcast().expect("states are kept by their type")
    }

    /// Keeps `state`, unless it is larger than what is left of `most` bytes: then nothing of its type is kept. What is older than `age`
    /// takes no room, and goes.
    pub(crate) fn keep<T: Send + Sync + 'static>(
        &self,
        state: T,
        bytes: usize,
        most: usize,
        age: Duration,
        now: Instant,
    ) -> bool {
        let mut warm = lock(&self.warm);
        let is_old = |kind: &TypeId, kept: &Kept| {
            *kind == TypeId::of::<T>() || now.saturating_duration_since(kept.at) > age
        };
        let (old, rest): (BTreeMap<_, _>, _) = std::mem::take(&mut *warm)
            .into_iter()
            .partition(|(kind, kept)| is_old(kind, kept));
        *warm = rest;
        let used: usize = warm.values().map(|kept| kept.bytes).sum();
        let fits = bytes <= most.saturating_sub(used);
        if fits {
            warm.insert(
                TypeId::of::<T>(),
                Kept {
                    state: Box::new(state),
                    bytes,
                    at: now,
                },
            );
        }
        drop(warm);
        drop(old);
        fits
    }

    /// Takes what was kept, if it is not older than `age`.
    pub(crate) fn kept<T: Send + Sync + 'static>(&self, age: Duration, now: Instant) -> Option<T> {
        let kept = lock(&self.warm).remove(&TypeId::of::<T>())?;
        let fresh = now.saturating_duration_since(kept.at) <= age;
        fresh
            .then_some(kept.state)?
            .downcast()
            .ok()
            .map(|state| *state)
    }
}

/// Whoever is last drops what users put in, and that may be the engine: a panic of theirs must not be its own.
impl Drop for IdentityState {
    fn drop(&mut self) {
        self.end();
        let states = std::mem::take(
            self.states
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let warm = std::mem::take(self.warm.get_mut().unwrap_or_else(PoisonError::into_inner));
        states.into_values().for_each(drop_caught);
        for kept in warm.into_values() {
            drop_caught(kept.state);
        }
    }
}

fn drop_caught<T>(of_users: T) {
    if hook::catch(|| drop(of_users)).is_err() {
        tracing::warn!("the state that a provider kept of a cluster panicked in its drop");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    #[derive(Default)]
    struct Key(Mutex<u32>);

    #[test]
    fn identity_state_is_one_a_type() {
        let state = IdentityState::new(Identity::ByCa);
        *state.get::<Key>().0.lock().unwrap() = 7;
        assert_eq!(*state.get::<Key>().0.lock().unwrap(), 7);
    }

    #[test]
    fn warm_state_is_taken_once_and_bounded_in_bytes_and_age() {
        let (state, now) = (IdentityState::new(Identity::ByCa), Instant::now());
        let minute = Duration::from_secs(60);
        assert!(state.keep("a", 10, 10, minute, now));
        assert!(
            !state.keep(7_u8, 1, 10, minute, now),
            "no room beside the other"
        );
        assert_eq!(state.kept::<&str>(minute, now), Some("a"));
        assert_eq!(state.kept::<&str>(minute, now), None);
        state.keep("b", 10, 10, minute, now);
        assert_eq!(
            state.kept::<&str>(minute, now + minute * 2),
            None,
            "too old"
        );
        state.keep("c", 10, 10, minute, now);
        assert!(
            state.keep(7_u8, 1, 10, minute, now + minute * 2),
            "what is too old takes no room"
        );
        assert_eq!(state.kept::<&str>(Duration::MAX, now), None);
    }

    /// Makes another of itself while it is made, and looks whether the lock is free when it is dropped.
    struct Twice;

    static TWICE: LazyLock<IdentityState> = LazyLock::new(|| IdentityState::new(Identity::ByCa));
    static MADE: AtomicU32 = AtomicU32::new(0);
    static DROPPED_FREELY: AtomicU32 = AtomicU32::new(0);

    impl Default for Twice {
        fn default() -> Self {
            if MADE.fetch_add(1, Ordering::Relaxed) == 0 {
                TWICE.get::<Self>();
            }
            Self
        }
    }

    impl Drop for Twice {
        fn drop(&mut self) {
            let free = TWICE.states.try_lock().is_ok();
            DROPPED_FREELY.fetch_add(u32::from(free), Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_is_second_to_make_an_identity_state_drops_its_own_under_no_lock() {
        TWICE.get::<Twice>();
        assert_eq!(MADE.load(Ordering::Relaxed), 2);
        assert_eq!(DROPPED_FREELY.load(Ordering::Relaxed), 1);
    }
}
