//! The values of one resource that a test has put in, by cluster, until an `init` takes them.

use std::{collections::HashMap, sync::Arc};

use clustercache::{ClusterKey, ClusterResource, Generation, InitContext, InitError};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(super) struct Stock<R: ClusterResource> {
    by_key: Mutex<HashMap<ClusterKey, Place<R>>>,
    changed: Notify,
}

struct Place<R: ClusterResource> {
    /// What the next `init` makes; `None`: it waits.
    next: Option<Next<R>>,
    /// It has been made.
    taken: bool,
    /// Of the newest `init` that made a value.
    up: Option<InitContext>,
}

/// What an `init` makes.
pub(super) enum Next<R: ClusterResource> {
    Value(R::Value),
    Each(Arc<dyn Fn() -> R::Value + Send + Sync>),
    Fails(String),
    NotApplicable(String),
}

impl<R: ClusterResource> Next<R> {
    pub(super) fn value(value: R::Value) -> Self {
        Self::Value(value)
    }

    pub(super) fn each(value: impl Fn() -> R::Value + Send + Sync + 'static) -> Self {
        Self::Each(Arc::new(value))
    }

    pub(super) fn fails(error: String) -> Self {
        Self::Fails(error)
    }

    pub(super) fn not_applicable(why: &str) -> Self {
        Self::NotApplicable(why.into())
    }
}

impl<R: ClusterResource> Stock<R> {
    pub(super) fn put(&self, key: &ClusterKey, next: Next<R>) {
        self.change(key, |place| {
            (place.next, place.taken) = (Some(next), false);
        });
    }

    /// The next `init` waits.
    pub(super) fn empty(&self, key: &ClusterKey) {
        self.change(key, |place| {
            (place.next, place.taken) = (None, false);
        });
    }

    /// What is up goes bad.
    pub(super) fn lose(&self, key: &ClusterKey, error: &str) {
        let up = self
            .by_key
            .lock()
            .get(key)
            .and_then(|place| place.up.clone());
        if let Some(cx) = up {
            cx.failed(error);
        }
    }

    /// Whether what was put last has been made into a value.
    pub(super) fn is_taken(&self, key: &ClusterKey) -> bool {
        self.by_key.lock().get(key).is_some_and(|place| place.taken)
    }

    /// Whether the value that this init made is what was put last.
    pub(super) fn is_newest(
        &self,
        key: &ClusterKey,
        generation: Generation,
        incarnation: u32,
    ) -> bool {
        let all = self.by_key.lock();
        let made = all.get(key).filter(|place| place.taken);
        made.and_then(|place| place.up.as_ref())
            .is_some_and(|cx| (cx.generation(), cx.incarnation()) == (generation, incarnation))
    }

    pub(super) fn clear(&self) {
        let places = std::mem::take(&mut *self.by_key.lock());
        drop(places);
    }

    fn change(&self, key: &ClusterKey, change: impl FnOnce(&mut Place<R>)) {
        change(self.by_key.lock().entry(key.clone()).or_default());
        self.changed.notify_waiters();
    }

    /// The `init`: waits for something to be put.
    pub(super) async fn take(self: Arc<Self>, cx: InitContext) -> Result<R::Value, InitError> {
        let next = loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(next) = self.next(&cx) {
                break next;
            }
            changed.await;
        };
        match next {
            Next::Value(value) => Ok(value),
            Next::Each(make) => Ok(make()),
            Next::Fails(error) => Err(InitError::retry(error)),
            Next::NotApplicable(why) => Err(InitError::not_applicable(why)),
        }
    }

    fn next(&self, cx: &InitContext) -> Option<Next<R>> {
        let mut all = self.by_key.lock();
        let place = all.get_mut(cx.key())?;
        let next = place.next.take()?;
        match &next {
            Next::Each(make) => place.next = Some(Next::Each(Arc::clone(make))),
            Next::NotApplicable(why) => place.next = Some(Next::NotApplicable(why.clone())),
            Next::Value(_) | Next::Fails(_) => {}
        }
        let makes = matches!(next, Next::Value(_) | Next::Each(_));
        place.taken = makes;
        if makes {
            place.up = Some(cx.clone());
        }
        Some(next)
    }
}

impl<R: ClusterResource> Default for Stock<R> {
    fn default() -> Self {
        Self {
            by_key: Mutex::default(),
            changed: Notify::default(),
        }
    }
}

impl<R: ClusterResource> Default for Place<R> {
    fn default() -> Self {
        Self {
            next: None,
            taken: false,
            up: None,
        }
    }
}
