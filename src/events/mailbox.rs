//! What one subscriber has not read yet: a set of keys with what happened to each, in the order in which they came into it, and no more of
//! them than it may cost (rule 13).

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
    time::Duration,
};

use super::{Changes, wake};
use crate::{
    ClusterKey,
    sync::{Mutex, lock},
};

/// One subscriber, as those see it who tell it something.
pub(super) struct Mailbox(Mutex<Inner>);

struct Inner {
    unread: Unread,
    interest: Interest,
    waker: Option<Waker>,
    closed: bool,
}

/// What a subscriber asked for. Data, not code of the user's: it is looked at under the lock.
struct Interest {
    only: Changes,
    /// None: all.
    keys: Option<BTreeSet<ClusterKey>>,
    times: BTreeSet<Duration>,
    /// Of these the engine has not heard: it tells what has passed already when it does.
    asked: BTreeSet<Duration>,
}

/// What there is to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mail {
    Cluster(ClusterKey, Changes),
    /// Too much: all clusters are to be read from the registry.
    Resync,
    /// Nothing now.
    Nothing,
    /// Nothing ever.
    Closed,
}

/// Whether what was told could be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is remembered, or of no interest.
    Well,
    /// All that was remembered is given up, and the subscriber reads everything anew.
    TooMuch,
}

impl Mailbox {
    pub(super) fn new(limit: usize) -> Self {
        Self(Mutex::new(Inner {
            unread: Unread::new(limit),
            interest: Interest {
                only: Changes::ALL,
                keys: None,
                times: BTreeSet::new(),
                asked: BTreeSet::new(),
            },
            waker: None,
            closed: false,
        }))
    }

    pub(super) fn tell(&self, key: &ClusterKey, changes: Changes) -> Told {
        self.put(key, |interest| interest.of(changes))
    }

    pub(super) fn unhealthy(&self, key: &ClusterKey, time: Duration) -> Told {
        self.put(key, |interest| {
            if interest.times.contains(&time) {
                Changes::UNHEALTHY
            } else {
                Changes::default()
            }
        })
    }

    /// `changes` is code of our own: it runs under the lock.
    fn put(&self, key: &ClusterKey, changes: impl FnOnce(&Interest) -> Changes) -> Told {
        let mut inner = lock(&self.0);
        let changes = changes(&inner.interest);
        if inner.closed || changes.is_empty() || !inner.interest.in_keys(key) {
            return Told::Well;
        }
        let dropped = inner.unread.add(key, changes);
        let waker = inner.waker.take();
        drop(inner);
        let told = if dropped.is_some() {
            Told::TooMuch
        } else {
            Told::Well
        };
        drop(dropped);
        wake(waker);
        told
    }

    pub(super) fn close(&self) {
        let waker = {
            let mut inner = lock(&self.0);
            inner.closed = true;
            inner.waker.take()
        };
        wake(waker);
    }

    /// Nobody will read it any more.
    pub(super) fn abandon(&self) {
        let mut inner = lock(&self.0);
        inner.closed = true;
        let waker = inner.waker.take();
        let unread = std::mem::replace(&mut inner.unread, Unread::new(0));
        drop(inner);
        drop((waker, unread));
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.0).closed
    }

    /// What came first.
    pub(super) fn take(&self) -> Mail {
        lock(&self.0).take()
    }

    /// The same, and if there is nothing now, `waker` is woken when there is.
    pub(super) fn take_or_wake(&self, waker: Waker) -> Mail {
        let mut waker = Some(waker);
        let mut inner = lock(&self.0);
        let mail = inner.take();
        if mail == Mail::Nothing {
            std::mem::swap(&mut inner.waker, &mut waker);
        }
        drop(inner);
        // The old one, or the new one that was not needed, is dropped here: after the lock.
        drop(waker);
        mail
    }

    /// What is unread of this cluster, which is about to be read for another reason; `None` if it is of no interest.
    pub(super) fn take_of(&self, key: &ClusterKey) -> Option<Changes> {
        let mut inner = lock(&self.0);
        let changes = inner.unread.take_of(key);
        let interest = &inner.interest;
        interest.in_keys(key).then(|| interest.of(changes))
    }

    /// The keys of interest; `None`: all.
    pub(super) fn keys(&self) -> Option<Vec<ClusterKey>> {
        let inner = lock(&self.0);
        let keys = inner.interest.keys.as_ref();
        keys.map(|keys| keys.iter().cloned().collect())
    }

    pub(super) fn only(&self, changes: Changes) {
        lock(&self.0).interest.only = changes;
    }

    pub(super) fn only_key(&self, key: ClusterKey) {
        let mut inner = lock(&self.0);
        inner
            .interest
            .keys
            .get_or_insert_with(BTreeSet::new)
            .insert(key);
    }

    /// Whether it is a new one.
    pub(super) fn ask(&self, time: Duration) -> bool {
        let mut inner = lock(&self.0);
        !inner.interest.times.contains(&time) && inner.interest.asked.insert(time)
    }

    /// The engine has heard of what was asked: from now on that is told.
    pub(super) fn heard(&self) -> BTreeSet<Duration> {
        let mut inner = lock(&self.0);
        let asked = std::mem::take(&mut inner.interest.asked);
        inner.interest.times.extend(&asked);
        asked
    }

    /// How many clusters there are to read, and whether it is all of them.
    pub(super) fn unread(&self) -> (usize, bool) {
        let unread = &lock(&self.0).unread;
        (unread.keys.len(), unread.resync)
    }

    pub(super) fn times(&self) -> BTreeSet<Duration> {
        let inner = lock(&self.0);
        let Interest { times, asked, .. } = &inner.interest;
        times.union(asked).copied().collect()
    }
}

impl Inner {
    fn take(&mut self) -> Mail {
        loop {
            return match self.unread.take() {
                // Told before the subscriber narrowed its interest.
                Mail::Cluster(key, _) if !self.interest.in_keys(&key) => continue,
                Mail::Cluster(key, changes) => match self.interest.of(changes) {
                    none if none.is_empty() => continue,
                    changes => Mail::Cluster(key, changes),
                },
                Mail::Nothing if self.closed => Mail::Closed,
                mail => mail,
            };
        }
    }
}

impl Interest {
    /// `UNHEALTHY` is here only if it was asked for, and then always of interest.
    fn of(&self, changes: Changes) -> Changes {
        changes.and(self.only | Changes::KNOWN | Changes::UNHEALTHY)
    }

    fn in_keys(&self, key: &ClusterKey) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
    }
}

/// Pure: a set (of maps that give back their memory when they empty) that remembers the order in which its members came, and gives up what it holds when they become too many.
struct Unread {
    limit: usize,
    keys: BTreeMap<ClusterKey, (u64, Changes)>,
    order: BTreeMap<u64, ClusterKey>,
    next: u64,
    /// What is told meanwhile needs no remembering: all will be read anew.
    resync: bool,
}

impl Unread {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            keys: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 0,
            resync: false,
        }
    }

    /// Returns what it gave up, for the caller to drop outside of its lock.
    fn add(&mut self, key: &ClusterKey, changes: Changes) -> Option<Self> {
        if self.resync {
            return None;
        }
        if let Some((_, known)) = self.keys.get_mut(key) {
            *known |= changes;
            return None;
        }
        if self.keys.len() >= self.limit {
            let mut fresh = Self::new(self.limit);
            fresh.resync = true;
            return Some(std::mem::replace(self, fresh));
        }
        self.keys.insert(key.clone(), (self.next, changes));
        self.order.insert(self.next, key.clone());
        self.next += 1;
        None
    }

    fn take(&mut self) -> Mail {
        if std::mem::take(&mut self.resync) {
            return Mail::Resync;
        }
        let Some((_, key)) = self.order.pop_first() else {
            return Mail::Nothing;
        };
        let changes = self
            .keys
            .remove(&key)
            .map_or(Changes::default(), |(_, changes)| changes);
        Mail::Cluster(key, changes)
    }

    fn take_of(&mut self, key: &ClusterKey) -> Changes {
        match self.keys.remove(key) {
            Some((at, changes)) => {
                self.order.remove(&at);
                changes
            }
            None => Changes::default(),
        }
    }
}
