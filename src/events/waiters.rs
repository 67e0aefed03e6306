//! Who waits for the next change of one cluster. A key is here only while somebody who lives waits for it.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{Hub, wake};
use crate::{
    ClusterKey,
    sync::{Mutex, lock},
};

/// Ends at the next change of a cluster, or when the engine does.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Next {
    hub: Arc<Hub>,
    key: ClusterKey,
    id: u64,
    waiter: Arc<Waiter>,
}

#[derive(Default)]
pub(super) struct Waiter(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    done: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
pub(super) struct Waiters {
    next: u64,
    by_key: BTreeMap<ClusterKey, BTreeMap<u64, Arc<Waiter>>>,
}

impl Next {
    pub(super) fn register(hub: &Arc<Hub>, key: &ClusterKey) -> Self {
        let waiter = Arc::new(Waiter::default());
        let mut listeners = lock(&hub.0);
        let id = (!listeners.closed).then(|| listeners.waiters.add(key, &waiter));
        drop(listeners);
        if id.is_none() {
            lock(&waiter.0).done = true;
        }
        Self {
            hub: Arc::clone(hub),
            key: key.clone(),
            id: id.unwrap_or_default(),
            waiter,
        }
    }
}

impl Future for Next {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Cloned before the lock and dropped after it: a waker is foreign code.
        let mut waker = Some(cx.waker().clone());
        let mut waiting = lock(&self.waiter.0);
        let done = waiting.done;
        if !done {
            std::mem::swap(&mut waiting.waker, &mut waker);
        }
        drop(waiting);
        if done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        let removed = lock(&self.hub.0).waiters.remove(&self.key, self.id);
        drop(removed);
    }
}

pub(super) fn wake_all(waiters: Vec<Arc<Waiter>>) {
    for waiter in waiters {
        let waker = {
            let mut waiting = lock(&waiter.0);
            waiting.done = true;
            waiting.waker.take()
        };
        wake(waker);
    }
}

impl Waiters {
    fn add(&mut self, key: &ClusterKey, waiter: &Arc<Waiter>) -> u64 {
        self.next += 1;
        let id = self.next;
        let of_key = self.by_key.entry(key.clone()).or_default();
        of_key.insert(id, Arc::clone(waiter));
        id
    }

    pub(super) fn take(&mut self, key: &ClusterKey) -> Vec<Arc<Waiter>> {
        if self.by_key.is_empty() {
            return Vec::new();
        }
        let taken = self.by_key.remove(key);
        taken.map_or_else(Vec::new, |waiters| waiters.into_values().collect())
    }

    pub(super) fn take_all(&mut self) -> Vec<Arc<Waiter>> {
        let taken = std::mem::take(&mut self.by_key);
        taken
            .into_values()
            .flat_map(BTreeMap::into_values)
            .collect()
    }

    fn remove(&mut self, key: &ClusterKey, id: u64) -> Option<Arc<Waiter>> {
        let of_key = self.by_key.get_mut(key)?;
        let removed = of_key.remove(&id);
        if of_key.is_empty() {
            self.by_key.remove(key);
        }
        removed
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.by_key.len()
    }
}
