//! The subscriber's side: a stream that reads the newest state of what its mailbox names (rules 13 and 14).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
    vec,
};

use futures_util::Stream;

use super::{
    Changes, Clusters, Event, Hub,
    mailbox::{Mail, Mailbox},
};
use crate::{ClusterKey, ClusterState};

/// Called when a subscriber asks about a time.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// A stream of events. It starts with every known cluster ([`Changes::KNOWN`], with [`Changes::CONNECTED`] if it is connected), and ends
/// when the engine does.
///
/// Between two reads the changes of one cluster become one event: all that happened, and the state as it is when the event is read,
/// so a cluster that went and came back says [`Changes::DISCONNECTED`] and [`Changes::CONNECTED`], and its state says which holds. Clusters
/// are told in the order in which they first changed. A subscriber may read as slowly as it likes: nobody waits for it, and when more than
/// [`pending`](crate::options::EventOptions::pending) clusters wait to be read it is told [`Event::Resync`], and then every known cluster.
/// A cluster that is not named then is gone; what else happened meanwhile, such as [`Changes::UNHEALTHY`], is to be seen in the states.
///
/// The usual subscription of a reconciler is "again when a cluster connects, disconnects, or has not answered for five minutes":
///
/// ```
/// use std::time::Duration;
/// use clustercache::{Changes, ClusterKey, Subscription};
/// use futures_util::{Stream, StreamExt};
///
/// fn triggers(events: Subscription) -> impl Stream<Item = ClusterKey> {
///     events
///         .only(Changes::CONNECTED | Changes::DISCONNECTED)
///         .unhealthy_for(Duration::from_secs(300))
///         // A resync names no cluster; each of them follows.
///         .filter_map(async |event| event.key().cloned())
/// }
/// # let _ = triggers;
/// ```
#[must_use = "a subscription does nothing unless it is polled"]
pub struct Subscription {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
    clusters: Arc<dyn Clusters>,
    notify: Notify,
    walk: Walk,
}

/// How all subscribers together fare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscribers {
    /// How many there are.
    pub subscribed: usize,
    /// Those that fell too far behind, and have not noticed yet.
    pub behind: usize,
    /// How many changed clusters the slowest of them has not read yet.
    pub most_unread: usize,
    /// How often one fell too far behind, since the cache was built.
    pub resyncs: u64,
}

/// Over every known cluster: at the beginning, and after a resync. A walk that has begun comes to its end, so a subscriber that is always
/// behind still learns of every cluster.
enum Walk {
    NotBegun,
    At(vec::IntoIter<ClusterKey>),
}

impl Subscription {
    pub(super) fn new(
        hub: Arc<Hub>,
        mailbox: Arc<Mailbox>,
        clusters: Arc<dyn Clusters>,
        notify: Notify,
    ) -> Self {
        Self {
            hub,
            mailbox,
            clusters,
            notify,
            walk: Walk::NotBegun,
        }
    }

    /// Also tells [`Changes::UNHEALTHY`] when a cluster has not answered for `time`: that long after its last success, once an outage, and
    /// at once of an outage that has lasted longer; for a cluster that was never connected, that long after its first failed attempt. May be called several times; each time is told.
    /// [`only`](Self::only) does not silence it.
    pub fn unhealthy_for(self, time: Duration) -> Self {
        if self.mailbox.ask(time) {
            self.hub.ask(time);
            (self.notify)();
        }
        self
    }

    /// Leaves out all changes but these; an event of which nothing is left is not told. [`Changes::KNOWN`] always is, and so is what
    /// [`unhealthy_for`](Self::unhealthy_for) asked for.
    pub fn only(self, changes: Changes) -> Self {
        self.mailbox.only(changes);
        self
    }

    /// Leaves out all clusters but this one, and others that this is called with.
    pub fn key(self, key: &ClusterKey) -> Self {
        self.mailbox.only_key(key.clone());
        self
    }

    /// The next cluster of the walk, if there is one.
    fn step(&mut self) -> Option<Event> {
        let Walk::At(keys) = &mut self.walk else {
            return None;
        };
        for key in keys {
            // Its changes are taken before its state is read: what comes after is told again.
            let Some(mut changes) = self.mailbox.take_of(&key) else {
                continue;
            };
            let state = self.clusters.state(&key);
            match &state {
                Some(state) if state.phase.is_connected() => {
                    changes |= Changes::KNOWN | Changes::CONNECTED;
                }
                Some(_) => changes |= Changes::KNOWN,
                // Gone since the walk began, and that is told of by itself, or was before.
                None if changes.is_empty() => continue,
                None => {}
            }
            return Some(cluster(key, changes, state));
        }
        // Its memory, too.
        self.walk = Walk::At(Vec::new().into_iter());
        None
    }

    #[cfg(test)]
    pub(super) fn unread(&self) -> usize {
        self.mailbox.unread().0
    }

    fn begin_walk(&mut self) {
        let keys = self.mailbox.keys();
        self.walk = Walk::At(keys.unwrap_or_else(|| self.clusters.keys()).into_iter());
    }

    fn open(&mut self, mail: Mail) -> Poll<Option<Event>> {
        match mail {
            Mail::Cluster(key, changes) => {
                let state = self.clusters.state(&key);
                Poll::Ready(Some(cluster(key, changes, state)))
            }
            Mail::Resync => {
                self.begin_walk();
                Poll::Ready(Some(Event::Resync))
            }
            Mail::Nothing => Poll::Pending,
            Mail::Closed => Poll::Ready(None),
        }
    }
}

fn cluster(key: ClusterKey, mut changes: Changes, state: Option<ClusterState>) -> Event {
    if state.is_none() {
        changes |= Changes::REMOVED;
    }
    Event::Cluster {
        key,
        changes,
        state: state.map(Box::new),
    }
}

impl Stream for Subscription {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if matches!(self.walk, Walk::NotBegun) {
            if self.mailbox.is_closed() {
                return Poll::Ready(None);
            }
            self.begin_walk();
        }
        if let Some(event) = self.step() {
            return Poll::Ready(Some(event));
        }
        let mail = match self.mailbox.take() {
            Mail::Nothing => self.mailbox.take_or_wake(cx.waker().clone()),
            mail => mail,
        };
        self.open(mail)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.remove(&self.mailbox, self.mailbox.times());
        self.mailbox.abandon();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
