//! What a fake cluster counts, and how a test waits for a count instead of asking again and again.

use std::{
    iter::Sum,
    ops::Add,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::sync::watch;

/// What happened at a fake cluster since it started, over all of its endpoints. `*_open` are of this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// TCP connections accepted.
    pub connections_accepted: u64,
    /// TCP connections that are open, black-holed ones included.
    pub connections_open: u64,
    /// TLS handshakes that were completed.
    pub tls_handshakes: u64,
    /// TLS handshakes that failed, also because the client went away.
    pub tls_failures: u64,
    /// Requests whose head was read.
    pub requests: Requests,
    /// Watches that are open.
    pub watches_open: u64,
    /// Requests answered 401 for want of a valid credential.
    pub auth_failures: u64,
    /// Bytes received, on TCP.
    pub bytes_received: u64,
    /// Bytes sent, on TCP: what the kernel took.
    pub bytes_sent: u64,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connections_accepted: self.connections_accepted + other.connections_accepted,
            connections_open: self.connections_open + other.connections_open,
            tls_handshakes: self.tls_handshakes + other.tls_handshakes,
            tls_failures: self.tls_failures + other.tls_failures,
            requests: self.requests + other.requests,
            watches_open: self.watches_open + other.watches_open,
            auth_failures: self.auth_failures + other.auth_failures,
            bytes_received: self.bytes_received + other.bytes_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
        }
    }
}

impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Requests by the class of their path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Requests {
    /// `/readyz`, `/livez`, `/healthz`.
    pub health: u64,
    /// `/version`.
    pub version: u64,
    /// `/api`, `/apis` and the documents of their groups.
    pub discovery: u64,
    /// Reads of one object.
    pub get: u64,
    /// Lists.
    pub list: u64,
    /// Watches.
    pub watch: u64,
    /// Creates, updates and deletes.
    pub write: u64,
    /// Everything else.
    pub other: u64,
}

impl Add for Requests {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            health: self.health + other.health,
            version: self.version + other.version,
            discovery: self.discovery + other.discovery,
            get: self.get + other.get,
            list: self.list + other.list,
            watch: self.watch + other.watch,
            write: self.write + other.write,
            other: self.other + other.other,
        }
    }
}

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self {
            health,
            version,
            discovery,
            get,
            list,
            watch,
            write,
            other,
        } = self;
        health + version + discovery + get + list + watch + write + other
    }

    /// Those of one class.
    pub fn of(&self, class: PathClass) -> u64 {
        let mut copy = *self;
        *copy.slot(class)
    }

    fn slot(&mut self, class: PathClass) -> &mut u64 {
        match class {
            PathClass::Health => &mut self.health,
            PathClass::Version => &mut self.version,
            PathClass::Discovery => &mut self.discovery,
            PathClass::Get => &mut self.get,
            PathClass::List => &mut self.list,
            PathClass::Watch => &mut self.watch,
            PathClass::Write => &mut self.write,
            PathClass::Other => &mut self.other,
        }
    }
}

/// The class of a request, by its path and verb. Each is counted in the field of [`Requests`] that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PathClass {
    /// `/readyz`, `/livez`, `/healthz`.
    Health,
    /// `/version`.
    Version,
    /// `/api`, `/apis` and the documents of their groups.
    Discovery,
    /// A read of one object.
    Get,
    /// A list.
    List,
    /// A watch.
    Watch,
    /// A create, an update or a delete, and any other verb on objects.
    Write,
    /// A path that no API server has.
    Other,
}

/// The counters of one cluster: one value, replaced at each change.
pub(super) struct Counting {
    now: watch::Sender<Counters>,
    /// How many wait for a count. Nobody else is told of each byte.
    waiting: AtomicUsize,
}

/// Somebody who waits for a count.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counting {
    pub(super) fn new() -> Self {
        Self {
            now: watch::Sender::new(Counters::default()),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whoever waits for a count looks at it after this: it took the lock before, or takes it later.
    pub(super) fn change(&self, change: impl FnOnce(&mut Counters)) {
        self.now.send_if_modified(|counters| {
            change(counters);
            self.waiting.load(Ordering::Relaxed) > 0
        });
    }

    pub(super) fn request(&self, class: PathClass) {
        self.change(|counters| *counters.requests.slot(class) += 1);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.change(|counters| counters.bytes_received += bytes as u64);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.change(|counters| counters.bytes_sent += bytes as u64);
    }

    pub(super) fn now(&self) -> Counters {
        *self.now.borrow()
    }

    /// Returns the first state, beginning with the present one, for which `wanted` holds.
    ///
    /// A state that lasts shorter than it takes to look may be missed; counts that only grow cannot be.
    pub(super) async fn when(&self, wanted: impl FnMut(&Counters) -> bool) -> Counters {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let mut states = self.now.subscribe();
        let state = states
            .wait_for(wanted)
            .await
            .expect("the sender lives as long as self");
        *state
    }
}
