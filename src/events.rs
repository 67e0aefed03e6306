//! Who is told what changed (rules 13 and 14). A subscriber has a set of keys that it has not read yet, never a queue that can fill:
//! what it reads is the newest state, taken from the registry at that moment. No lock is held here while a waker is woken, cloned or
//! dropped, nor while a state is read (rule 11), and no code of a user's runs but its wakers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, ops,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use crate::{
    ClusterKey, ClusterState, hook,
    options::EventOptions,
    registry::Registry,
    sync::{Mutex, lock},
};

mod mailbox;
#[cfg(all(test, any(clustercache_shuttle, clustercache_loom)))]
pub(crate) mod model;
mod subscription;
#[cfg(test)]
pub(crate) mod tests;
mod waiters;

pub(crate) use self::waiters::Next;
use self::{
    mailbox::{Mailbox, Told},
    waiters::{Waiter, Waiters},
};
pub use subscription::{Subscribers, Subscription};

/// What happened to a cluster since it was last told, as a set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Changes(u16);

impl Changes {
    /// It was known when the subscription began, or after a resync.
    pub const KNOWN: Self = Self(1);
    /// It came to be connected (also: another connection took the place of one).
    pub const CONNECTED: Self = Self(1 << 1);
    /// Its connection went, for whatever reason.
    pub const DISCONNECTED: Self = Self(1 << 2);
    /// It has not answered for as long as this subscriber asked about.
    pub const UNHEALTHY: Self = Self(1 << 3);
    /// Its access changed.
    pub const ACCESS: Self = Self(1 << 4);
    /// Another cluster took its name.
    pub const REPLACED: Self = Self(1 << 5);
    /// It was removed, filtered out, or lost its gate.
    pub const REMOVED: Self = Self(1 << 6);
    /// Anything else of its state changed.
    pub const STATE: Self = Self(1 << 7);

    const NAMES: [(Self, &'static str); 8] = [
        (Self::KNOWN, "KNOWN"),
        (Self::CONNECTED, "CONNECTED"),
        (Self::DISCONNECTED, "DISCONNECTED"),
        (Self::UNHEALTHY, "UNHEALTHY"),
        (Self::ACCESS, "ACCESS"),
        (Self::REPLACED, "REPLACED"),
        (Self::REMOVED, "REMOVED"),
        (Self::STATE, "STATE"),
    ];

    const ALL: Self = Self(u16::MAX);

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether something of `other` is in it.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What a subscriber is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A cluster.
    Cluster {
        /// Which.
        key: ClusterKey,
        /// What happened since it was last told.
        changes: Changes,
        /// What it is now; `None` if it is no more known.
        state: Option<Box<ClusterState>>,
    },
    /// It fell too far behind: what it knows may be stale, and every known cluster follows.
    Resync,
}

impl Event {
    /// The cluster; `None` for a resync.
    pub fn key(&self) -> Option<&ClusterKey> {
        match self {
            Self::Cluster { key, .. } => Some(key),
            Self::Resync => None,
        }
    }

    /// What happened; nothing for a resync.
    pub fn changes(&self) -> Changes {
        match self {
            Self::Cluster { changes, .. } => *changes,
            Self::Resync => Changes::default(),
        }
    }
}

/// All subscribers, and all who wait for one cluster.
pub(crate) struct Events {
    hub: Arc<Hub>,
    clusters: Arc<dyn Clusters>,
    /// [`EventOptions::pending`].
    pending: usize,
    /// How often a subscriber fell too far behind.
    resyncs: Arc<Resyncs>,
}

/// What events are told about: the registry, or a model of it.
pub(crate) trait Clusters: Send + Sync {
    fn keys(&self) -> Vec<ClusterKey>;
    /// The newest; `None` if the key is not known.
    fn state(&self, key: &ClusterKey) -> Option<ClusterState>;
}

type Mailboxes = Arc<Vec<Arc<Mailbox>>>;

/// Everybody who is to be told, and may come and go while they are.
#[derive(Default)]
struct Hub(Mutex<Listeners>);

#[derive(Default)]
struct Listeners {
    /// Swapped whole when one comes or goes, which is rare, so that telling them needs no lock.
    mailboxes: Mailboxes,
    /// How many subscribers asked about each time.
    times: BTreeMap<Duration, usize>,
    waiters: Waiters,
    closed: bool,
}

impl Events {
    pub(crate) fn new(options: &EventOptions, registry: Arc<Registry>) -> Self {
        Self::over(registry, options.pending)
    }

    fn over(clusters: Arc<dyn Clusters>, pending: usize) -> Self {
        Self {
            hub: Arc::default(),
            clusters,
            pending,
            resyncs: Arc::default(),
        }
    }

    /// `notify` is called, with no lock held, when the subscriber asks about a time: there are [`newcomers`](Self::newcomers). The subscription
    /// keeps it for as long as it lives.
    pub(crate) fn subscribe(&self, notify: impl Fn() + Send + Sync + 'static) -> Subscription {
        let mailbox = Arc::new(Mailbox::new(self.pending));
        // In the list first, and the registry read after: what is published between the two is told twice rather than never.
        self.hub.add(&mailbox);
        Subscription::new(
            Arc::clone(&self.hub),
            mailbox,
            Arc::clone(&self.clusters),
            Arc::new(notify),
        )
    }

    /// The engine: this happened. What is published is published before.
    pub(crate) fn tell(&self, key: &ClusterKey, changes: Changes) {
        let (mailboxes, waiters) = self.hub.listeners(key);
        for mailbox in mailboxes.iter().flat_map(|all| all.iter()) {
            self.resyncs.told(mailbox.tell(key, changes));
        }
        waiters::wake_all(waiters);
    }

    /// The engine: the cluster has not answered for `time`; told to those who asked about just that.
    pub(crate) fn unhealthy(&self, key: &ClusterKey, time: Duration) {
        let mailboxes = Arc::clone(&lock(&self.hub.0).mailboxes);
        for mailbox in mailboxes.iter() {
            self.resyncs.told(mailbox.unhealthy(key, time));
        }
    }

    /// The engine: who asked about times since this was last called. Only from now on are they told of those.
    pub(crate) fn newcomers(&self) -> Newcomers {
        let mailboxes = Arc::clone(&lock(&self.hub.0).mailboxes);
        let asked = mailboxes.iter().map(|it| (Arc::clone(it), it.heard()));
        Newcomers {
            asked: asked.filter(|(_, asked)| !asked.is_empty()).collect(),
            resyncs: Arc::clone(&self.resyncs),
        }
    }

    pub(crate) fn subscribers(&self) -> Subscribers {
        let mailboxes = Arc::clone(&lock(&self.hub.0).mailboxes);
        let mut subscribers = Subscribers {
            subscribed: mailboxes.len(),
            resyncs: self.resyncs.0.load(Ordering::Relaxed),
            ..Subscribers::default()
        };
        for mailbox in mailboxes.iter() {
            let (unread, resync) = mailbox.unread();
            subscribers.most_unread = subscribers.most_unread.max(unread);
            subscribers.behind += usize::from(resync);
        }
        subscribers
    }

    /// All times that some living subscriber asked about, ascending.
    pub(crate) fn unhealthy_times(&self) -> Vec<Duration> {
        lock(&self.hub.0).times.keys().copied().collect()
    }

    /// Returns at the next `tell` for `key`, or when the engine ends. Registered when this is called, not when it is first polled.
    pub(crate) fn next(&self, key: &ClusterKey) -> Next {
        Next::register(&self.hub, key)
    }

    /// The engine ended: every stream ends, once what it was told before is read, and every wait returns.
    pub(crate) fn close(&self) {
        let (mailboxes, waiters) = {
            let mut listeners = lock(&self.hub.0);
            listeners.closed = true;
            (
                std::mem::take(&mut listeners.mailboxes),
                listeners.waiters.take_all(),
            )
        };
        for mailbox in mailboxes.iter() {
            mailbox.close();
        }
        waiters::wake_all(waiters);
    }
}

/// Subscribers that asked about times, and have not been told of any outage.
pub(crate) struct Newcomers {
    asked: Vec<(Arc<Mailbox>, BTreeSet<Duration>)>,
    resyncs: Arc<Resyncs>,
}

/// How often a subscriber fell too far behind, whoever told it.
#[derive(Default)]
struct Resyncs(AtomicU64);

impl Resyncs {
    fn told(&self, told: Told) {
        if told == Told::TooMuch {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Newcomers {
    /// The others were told of these times of a cluster's outage before.
    pub(crate) fn tell(&self, key: &ClusterKey, passed: &[Duration]) {
        for (mailbox, asked) in &self.asked {
            for time in passed.iter().filter(|time| asked.contains(time)) {
                self.resyncs.told(mailbox.unhealthy(key, *time));
            }
        }
    }
}

// === impl Events ===

impl Hub {
    /// Those to tell of `key`. Nobody, most of the time: then it costs a lock that nobody else wants.
    fn listeners(&self, key: &ClusterKey) -> (Option<Mailboxes>, Vec<Arc<Waiter>>) {
        let mut listeners = lock(&self.0);
        let some = !listeners.mailboxes.is_empty();
        (
            some.then(|| Arc::clone(&listeners.mailboxes)),
            listeners.waiters.take(key),
        )
    }

    fn add(&self, mailbox: &Arc<Mailbox>) {
        let mut listeners = lock(&self.0);
        if listeners.closed {
            drop(listeners);
            mailbox.close();
        } else {
            Arc::make_mut(&mut listeners.mailboxes).push(Arc::clone(mailbox));
        }
    }

    fn ask(&self, time: Duration) {
        *lock(&self.0).times.entry(time).or_default() += 1;
    }

    /// The caller holds the mailbox too: it is not dropped here, under the lock.
    fn remove(&self, mailbox: &Arc<Mailbox>, times: impl IntoIterator<Item = Duration>) {
        let mut listeners = lock(&self.0);
        let is_it = |other: &Arc<Mailbox>| Arc::ptr_eq(other, mailbox);
        if let Some(index) = listeners.mailboxes.iter().position(is_it) {
            Arc::make_mut(&mut listeners.mailboxes).remove(index);
        }
        for time in times {
            if let Some(asked) = listeners.times.get_mut(&time) {
                *asked -= 1;
                if *asked == 0 {
                    listeners.times.remove(&time);
                }
            }
        }
    }
}

/// A waker is foreign code, and most are woken by the engine: one that panics is its owner's loss alone.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker
        && hook::catch(|| waker.wake()).is_err()
    {
        tracing::warn!("a waker of a subscriber panicked");
    }
}

impl Clusters for Registry {
    fn keys(&self) -> Vec<ClusterKey> {
        Self::keys(self)
    }

    fn state(&self, key: &ClusterKey) -> Option<ClusterState> {
        Self::state(self, key)
    }
}

// === impl Changes ===

impl ops::BitOr for Changes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl ops::BitOrAssign for Changes {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in Self::NAMES.iter().filter(|(bit, _)| self.contains(*bit)) {
            write!(f, "{separator}{name}")?;
            separator = " | ";
        }
        if self.is_empty() {
            f.write_str("(none)")?;
        }
        Ok(())
    }
}
