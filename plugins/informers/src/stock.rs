//! What the loop of a kind and its readers share: the newest view, swapped whole. Readers load it; nobody waits for anybody (rule 1).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use clustercache::Generation;
use tokio::{sync::Notify, time::Instant};

use crate::{
    error::{StoreError, Trouble},
    kind::Declared,
    objects::Objects,
};

/// One kind of one cluster.
pub(crate) struct Stock {
    pub(crate) kind: Arc<Declared>,
    pub(crate) resource: Arc<str>,
    view: ArcSwap<View>,
    /// Woken by each new view.
    changed: Notify,
    retired: AtomicBool,
    begun: Instant,
    /// Milliseconds after `begun` at which something came last.
    heard: AtomicU64,
    pub(crate) counts: Counts,
    /// The server does not know streams of what there is.
    pub(crate) pages: AtomicBool,
}

/// What a reader sees: objects, and how they stand.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) objects: Objects,
    pub(crate) standing: Standing,
    /// What goes wrong now.
    pub(crate) trouble: Option<Trouble>,
}

#[derive(Clone, Copy)]
pub(crate) enum Standing {
    /// Nothing is known.
    Unsynced,
    Synced {
        since: Instant,
        generation: Option<Generation>,
    },
    /// By the trouble that there is.
    Refused,
    OverBudget,
}

/// What was done for a kind.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) lists: AtomicU64,
    pub(crate) watches: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) added: AtomicU64,
    pub(crate) modified: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) undecodable: AtomicU64,
}

impl Stock {
    pub(crate) fn new(kind: Arc<Declared>, now: Instant) -> Self {
        let view = View {
            objects: Objects::new(kind.indexes.len()),
            standing: Standing::Unsynced,
            trouble: None,
        };
        Self {
            resource: kind.resource.as_str().into(),
            kind,
            view: ArcSwap::from_pointee(view),
            changed: Notify::new(),
            retired: AtomicBool::new(false),
            begun: now,
            heard: AtomicU64::new(0),
            counts: Counts::default(),
            pages: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The loop only.
    pub(crate) fn publish(&self, view: View) {
        self.view.store(Arc::new(view));
        self.changed.notify_waiters();
    }

    /// The newest view, if it can be read.
    #[inline]
    pub(crate) fn readable(&self) -> Result<Arc<View>, StoreError> {
        let view = self.view();
        match view.standing {
            Standing::Synced { .. } => Ok(view),
            _ => Err(self.why_not(&view)),
        }
    }

    #[cold]
    fn why_not(&self, view: &View) -> StoreError {
        let resource = Arc::clone(&self.resource);
        match (view.standing, view.trouble.clone()) {
            (Standing::OverBudget, _) => StoreError::OverBudget { resource },
            (Standing::Refused, Some(trouble)) => StoreError::Refused { resource, trouble },
            (_, trouble) => StoreError::NotSynced { resource, trouble },
        }
    }

    /// Woken by the next view, if it comes after this call.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// No view comes any more.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    pub(crate) fn hear(&self, now: Instant) {
        let after = now.saturating_duration_since(self.begun).as_millis();
        self.heard
            .store(u64::try_from(after).unwrap_or(u64::MAX), Relaxed);
    }

    /// When something came last.
    pub(crate) fn heard(&self) -> Instant {
        self.begun + Duration::from_millis(self.heard.load(Relaxed))
    }
}
