//! What all clusters of a provider share: one timer, one follower of the issuer source, and the shared keys. A cluster that has nothing due has
//! no task and no timer of its own.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clustercache::ClusterKey;
use futures_util::{FutureExt, StreamExt};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    EtcdIssuerSource, EtcdKeyCounts, IssuerChange, KeyAlgorithm, backoff, policy::KeyCell,
    provider::Settings, tenant::Tenant,
};

/// Between two of a staggered re-issue, on average.
const APART: Duration = Duration::from_millis(10);

/// A follower that lived so long did not fail at once.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Keeper {
    pub(crate) settings: Settings,
    pub(crate) source: Arc<dyn EtcdIssuerSource>,
    pub(crate) counts: Arc<EtcdKeyCounts>,
    shared_keys: Mutex<BTreeMap<KeyAlgorithm, Arc<KeyCell>>>,
    rotations: AtomicU64,
    numbers: AtomicU64,
    agenda: Mutex<Agenda>,
    /// Something is due sooner than it was.
    sooner: Arc<Notify>,
}

#[derive(Default)]
struct Agenda {
    /// While there is a tenant.
    tasks: Option<[AbortOnDropHandle<()>; 2]>,
    /// By number; the same name may be that of several: in two caches, or of one that ends.
    tenants: HashMap<u64, Entry>,
    by_key: HashMap<ClusterKey, BTreeSet<u64>>,
    due: BTreeSet<(Instant, u64)>,
}

struct Entry {
    tenant: Weak<Tenant>,
    due: Option<Instant>,
}

impl Keeper {
    pub(crate) fn new(
        settings: Settings,
        source: Arc<dyn EtcdIssuerSource>,
        counts: Arc<EtcdKeyCounts>,
    ) -> Self {
        Self {
            settings,
            source,
            counts,
            shared_keys: Mutex::default(),
            rotations: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            agenda: Mutex::default(),
            sooner: Arc::default(),
        }
    }

    fn begin(self: &Arc<Self>) -> [AbortOnDropHandle<()>; 2] {
        let (sooner, source) = (Arc::clone(&self.sooner), Arc::clone(&self.source));
        let timer = tokio::spawn(keep_time(Arc::downgrade(self), sooner));
        let follower = tokio::spawn(follow(Arc::downgrade(self), source));
        [timer, follower].map(AbortOnDropHandle::new)
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The first begins the work, which the last ends.
    pub(crate) fn register(self: &Arc<Self>, tenant: &Arc<Tenant>) {
        let mut agenda = self.lock();
        agenda.tasks.get_or_insert_with(|| self.begin());
        let entry = Entry {
            tenant: Arc::downgrade(tenant),
            due: None,
        };
        agenda.tenants.insert(tenant.number, entry);
        let numbers = agenda.by_key.entry(tenant.key.clone()).or_default();
        numbers.insert(tenant.number);
    }

    pub(crate) fn forget(&self, tenant: &Tenant) {
        let mut agenda = self.lock();
        let entry = agenda.tenants.remove(&tenant.number);
        if let Some(at) = entry.and_then(|entry| entry.due) {
            agenda.due.remove(&(at, tenant.number));
        }
        if let Some(numbers) = agenda.by_key.get_mut(&tenant.key) {
            numbers.remove(&tenant.number);
            if numbers.is_empty() {
                agenda.by_key.remove(&tenant.key);
            }
        }
        let nobody = agenda.tenants.is_empty();
        let tasks = agenda.tasks.take_if(|_| nobody);
        drop(agenda);
        drop(tasks);
    }

    /// Looks at it then, and no sooner.
    pub(crate) fn schedule(&self, tenant: &Tenant, at: Instant) {
        let mut agenda = self.lock();
        let Agenda { tenants, due, .. } = &mut *agenda;
        let Some(entry) = tenants.get_mut(&tenant.number) else {
            return;
        };
        if let Some(old) = entry.due.replace(at) {
            due.remove(&(old, tenant.number));
        }
        due.insert((at, tenant.number));
        let is_first = due.first() == Some(&(at, tenant.number));
        drop(agenda);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// A key that all clusters share.
    pub(crate) fn shared_key(&self, algorithm: KeyAlgorithm) -> Arc<KeyCell> {
        let mut keys = self
            .shared_keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(keys.entry(algorithm).or_default())
    }

    /// How often keys were rotated.
    pub(crate) fn rotation(&self) -> u64 {
        self.rotations.load(Ordering::Acquire)
    }

    /// No key that is used now is used for another certificate; each certificate is issued again, one after the other.
    pub(crate) fn rotate(&self) {
        self.rotations.fetch_add(1, Ordering::AcqRel);
        let agenda = self.lock();
        let tenants = agenda.tenants.values();
        let tenants: Vec<_> = tenants.filter_map(|entry| entry.tenant.upgrade()).collect();
        drop(agenda);
        let now = Instant::now();
        for tenant in tenants {
            self.schedule(&tenant, now + self.stagger());
        }
    }

    /// How long one of all waits, so that not all do the same at once.
    pub(crate) fn stagger(&self) -> Duration {
        let tenants = u32::try_from(self.lock().tenants.len()).unwrap_or(u32::MAX);
        APART.saturating_mul(tenants).mul_f64(fastrand::f64())
    }

    fn issuer_changed(&self, change: &IssuerChange) {
        let agenda = self.lock();
        let numbers = agenda.by_key.get(&change.cluster);
        let tenants = numbers.into_iter().flatten();
        let tenants = tenants.filter_map(|number| agenda.tenants.get(number)?.tenant.upgrade());
        let tenants: Vec<_> = tenants.collect();
        drop(agenda);
        for tenant in tenants {
            tenant.issuer_changed(change.version.as_ref());
        }
    }

    fn take_due(&self, now: Instant) -> Vec<Arc<Tenant>> {
        let mut agenda = self.lock();
        let mut tenants = Vec::new();
        while let Some((at, number)) = agenda.due.first().copied()
            && at <= now
        {
            agenda.due.pop_first();
            let entry = agenda.tenants.get_mut(&number);
            let tenant = entry.and_then(|entry| {
                entry.due = None;
                entry.tenant.upgrade()
            });
            tenants.extend(tenant);
        }
        tenants
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().due.first().map(|(at, _)| *at)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_time(keeper: Weak<Keeper>, sooner: Arc<Notify>) {
    loop {
        let next = {
            let Some(keeper) = keeper.upgrade() else {
                return;
            };
            for tenant in keeper.take_due(Instant::now()) {
                // On a task of its own: it calls what users gave.
                tokio::spawn(async move { tenant.look() });
            }
            keeper.next_due()
        };
        match next {
            None => sooner.notified().await,
            Some(at) => tokio::select! {
                () = sleep_until(at) => {}
                () = sooner.notified() => {}
            },
        }
    }
}

/// Hears of changes. A stream that ends, fails or panics is asked for again.
async fn follow(keeper: Weak<Keeper>, source: Arc<dyn EtcdIssuerSource>) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let following = AssertUnwindSafe(follow_once(&keeper, &*source)).catch_unwind();
        let why = following.await.unwrap_or_else(|_| "it panicked".to_owned());
        if began.elapsed() > LONG {
            failures = 0;
        }
        failures += 1;
        let why = why.escape_debug();
        if failures == 2 {
            tracing::warn!(%why, "changes of etcd CAs are not seen just now");
        } else {
            tracing::debug!(%why, failures, "the stream of changes of etcd CAs ended");
        }
        sleep(backoff::wait(failures)).await;
    }
}

async fn follow_once(keeper: &Weak<Keeper>, source: &dyn EtcdIssuerSource) -> String {
    let mut changes = source.changes();
    loop {
        match changes.next().await {
            None => return "it ended".to_owned(),
            Some(Err(error)) => return error.to_string(),
            Some(Ok(change)) => {
                let Some(keeper) = keeper.upgrade() else {
                    return "nobody wants it".to_owned();
                };
                keeper.issuer_changed(&change);
            }
        }
    }
}
