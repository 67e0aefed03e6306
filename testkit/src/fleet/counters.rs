//! What a fake cluster counts, and how a test waits for a count instead of asking again and again.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
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
pub(super) struct Counting(watch::Sender<Counters>);

impl Counting {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Counters::default()))
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Counters)) {
        self.0.send_modify(change);
    }

    pub(super) fn request(&self, class: PathClass) {
        self.change(|counters| *counters.requests.slot(class) += 1);
    }

    pub(super) fn now(&self) -> Counters {
        *self.0.borrow()
    }

    /// Returns the first state, beginning with the present one, for which `wanted` holds.
    ///
    /// A state that lasts shorter than it takes to look may be missed; counts that only grow cannot be.
    pub(super) async fn when(&self, wanted: impl FnMut(&Counters) -> bool) -> Counters {
        let mut states = self.0.subscribe();
        let state = states
            .wait_for(wanted)
            .await
            .expect("the sender lives as long as self");
        *state
    }
}
