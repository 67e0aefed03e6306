//! What all clusters share: how many lists are read at once, how many bytes of pages are held for that, and how many bytes are cached in all.
//! A fleet that starts, or that a control plane's restart makes list again, never takes more than that.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::options::Budgets;

pub(crate) struct Budget {
    limits: Budgets,
    lists: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// In KiB.
    pages: Arc<Semaphore>,
    cached: AtomicUsize,
}

/// Leave to read a list. Given back when dropped.
pub(crate) struct Turn(#[expect(dead_code, reason = "held, and given back")] OwnedSemaphorePermit);

/// Leave to hold so much of a page.
pub(crate) struct Held(OwnedSemaphorePermit);

impl Budget {
    pub(crate) fn new(limits: Budgets) -> Arc<Self> {
        Arc::new(Self {
            lists: Arc::new(Semaphore::new(limits.lists.min(Semaphore::MAX_PERMITS))),
            pages: Arc::new(Semaphore::new(kib(limits.list_bytes) as usize)),
            waiting: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
            limits,
        })
    }

    /// Waits for a turn to list: who came first is first.
    pub(crate) async fn turn(&self) -> Turn {
        self.waiting.fetch_add(1, Relaxed);
        let _less = Less(&self.waiting);
        let lists = Arc::clone(&self.lists);
        Turn(lists.acquire_owned().await.expect("it is never closed"))
    }

    /// Lists that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Lists that are being read.
    pub(crate) fn listing(&self) -> usize {
        self.limits.lists - self.lists.available_permits().min(self.limits.lists)
    }

    /// Waits for room for the least that a page is taken for.
    pub(crate) async fn hold(&self, bytes: usize) -> Held {
        let least = kib(bytes).min(kib(self.limits.list_bytes)).max(1);
        let pages = Arc::clone(&self.pages);
        Held(
            pages
                .acquire_many_owned(least)
                .await
                .expect("it is never closed"),
        )
    }

    /// Room for all of `bytes`; false if there is none: nobody waits for more while holding some.
    pub(crate) fn hold_more(&self, held: &mut Held, bytes: usize) -> bool {
        let more =
            kib(bytes).saturating_sub(u32::try_from(held.0.num_permits()).unwrap_or(u32::MAX));
        if more == 0 {
            return true;
        }
        match Arc::clone(&self.pages).try_acquire_many_owned(more) {
            Ok(permit) => {
                held.0.merge(permit);
                true
            }
            Err(_) => false,
        }
    }

    /// Bytes of pages that are held.
    pub(crate) fn held(&self) -> usize {
        let left = self.pages.available_permits();
        (kib(self.limits.list_bytes) as usize).saturating_sub(left) << 10
    }

    /// What a kind has cached was `before`, and is `now`. False if there is no room for that.
    pub(crate) fn cache(&self, before: usize, now: usize) -> bool {
        let all = if now >= before {
            let more = now - before;
            self.cached.fetch_add(more, Relaxed) + more
        } else {
            let less = before - now;
            self.cached.fetch_sub(less, Relaxed) - less
        };
        now <= before || all <= self.limits.cached_bytes
    }

    /// Bytes that are cached in all clusters.
    pub(crate) fn cached(&self) -> usize {
        self.cached.load(Relaxed)
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10))
        .unwrap_or(u32::MAX)
        .min(MOST)
}

/// What a semaphore can count.
const MOST: u32 = u32::MAX >> 3;

struct Less<'a>(&'a AtomicUsize);

impl Drop for Less<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
