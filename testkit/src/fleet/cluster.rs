//! One fake cluster: its handle from start to end, what it holds and what it saw.
//!
//! How it is reached and by whom is in `identity.rs`, its faults are in `control.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    FleetError,
    auth::Auth,
    counters::{Counters, Counting},
    endpoint::Endpoint,
    faults::FaultSwitch,
    identity::new_token,
    journal::{Journal, RequestHistory},
    requests::{NextRequest, RequestSeen, Waiters},
    serve,
    tls::Identity,
};
use crate::{
    api::{FakeApi, ObjectError},
    pki::ClusterCa,
};

/// What the tasks of a cluster share. It outlives the last handle only until they end.
pub(super) struct Inner {
    pub(super) name: String,
    pub(super) runtime: Handle,
    pub(super) tasks: TaskTracker,
    pub(super) ended: CancellationToken,
    pub(super) identity: Mutex<Identity>,
    /// The current one is the last.
    pub(super) endpoints: Mutex<Vec<Arc<Endpoint>>>,
    pub(super) auth: Auth,
    pub(super) faults: FaultSwitch,
    pub(super) api: FakeApi,
    pub(super) counting: Counting,
    pub(super) journal: Journal,
    pub(super) waiters: Waiters,
}

/// A fake API server and the cluster that it pretends to be. Clones are handles of the same one.
///
/// Dropping the last handle closes its ports and ends its tasks; [`shutdown`](Self::shutdown) also waits for that.
#[derive(Clone)]
pub struct FakeCluster(Arc<Owner>);

struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Inner {
    fn stop(&self) {
        self.ended.cancel();
        self.tasks.close();
        for endpoint in self.endpoints.lock().iter() {
            if let Err(error) = endpoint.close() {
                tracing::warn!(%error, cluster = %self.name, "the port did not close as it should");
            }
        }
    }
}

/// How a [`FakeCluster`] is to be.
#[derive(Clone)]
#[must_use]
pub struct FakeClusterBuilder {
    name: String,
    http2: bool,
    api: Option<FakeApi>,
    ca: Option<ClusterCa>,
}

impl FakeClusterBuilder {
    /// Whether the server speaks HTTP/2 beside HTTP/1.1. The default: it does.
    pub fn http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self
    }

    /// What it serves, where that is not to be a [`FakeApi`] with the defaults.
    pub fn api(mut self, api: FakeApi) -> Self {
        self.api = Some(api);
        self
    }

    /// The CA, where that is not to be one of its own.
    pub fn ca(mut self, ca: ClusterCa) -> Self {
        self.ca = Some(ca);
        self
    }

    /// Starts it on the runtime of the caller, on a port of its own. It listens when this returns.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> Result<FakeCluster, FleetError> {
        let endpoint = Endpoint::with_port().map_err(FleetError::Listen)?;
        self.start_at(endpoint)
    }

    pub(super) fn start_at(self, endpoint: Arc<Endpoint>) -> Result<FakeCluster, FleetError> {
        let ca = match self.ca {
            Some(ca) => ca,
            None => ClusterCa::new(&format!("{}-ca", self.name))?,
        };
        let inner = Arc::new(Inner {
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
            identity: Mutex::new(Identity::new(ca, endpoint.addr.ip(), self.http2)),
            endpoints: Mutex::new(vec![endpoint.clone()]),
            auth: Auth::new(new_token(&self.name), FakeCluster::ADMIN),
            faults: FaultSwitch::new(),
            api: self.api.unwrap_or_default(),
            counting: Counting::new(),
            journal: Journal::default(),
            waiters: Waiters::default(),
            name: self.name,
        });
        serve::begin(&inner, endpoint);
        Ok(FakeCluster(Arc::new(Owner(inner))))
    }
}

/// Starting and ending.
impl FakeCluster {
    /// The user of client certificates that is accepted at the start.
    pub const ADMIN: &str = "fleet-admin";

    /// A cluster that is not started yet.
    pub fn builder(name: impl Into<String>) -> FakeClusterBuilder {
        FakeClusterBuilder {
            name: name.into(),
            http2: true,
            api: None,
            ca: None,
        }
    }

    /// Starts a cluster with the defaults. See [`FakeClusterBuilder::start`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(name: impl Into<String>) -> Result<Self, FleetError> {
        Self::builder(name).start()
    }

    /// Closes its ports and begins to end its tasks, whoever else holds a handle.
    pub fn stop(&self) {
        self.inner().stop();
    }

    /// Closes its ports and waits until all of its tasks are gone, and all of its sockets with them.
    pub async fn shutdown(&self) {
        self.stop();
        self.inner().tasks.wait().await;
        let endpoints = self.inner().endpoints.lock().clone();
        for shared in endpoints.iter().filter_map(|endpoint| endpoint.shared()) {
            shared.ended().await;
        }
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }
}

/// What it holds. [`FakeCluster::api`] has more of that; these are short for what tests do most.
impl FakeCluster {
    /// What it serves: its objects, its faults by verb and resource, and what it was asked.
    pub fn api(&self) -> &FakeApi {
        &self.inner().api
    }

    /// Stores an object as it is, whatever is there already, in `default` if it names no namespace. Returns its version.
    pub fn put(&self, object: Value) -> Result<u64, ObjectError> {
        self.api().put(object)
    }

    /// Deletes an object, and says whether there was one. `namespace` is ignored for kinds that have none.
    pub fn delete(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> bool {
        self.api().delete(api_version, kind, namespace, name)
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.api().version()
    }

    /// Forgets all events until now: a watch or a next page from an older version is `Expired` (410).
    pub fn compact(&self) {
        self.api().compact();
    }

    /// Sends a bookmark on every watch that allows them. Else there is one a minute, and one before a timeout.
    pub fn send_bookmarks(&self) {
        self.api().send_bookmarks();
    }

    /// Ends every open watch as a timeout does; their connections stay open.
    pub fn end_watches(&self) {
        self.api().end_watches();
    }
}

/// What it saw.
impl FakeCluster {
    /// The counters as they are now.
    pub fn counters(&self) -> Counters {
        self.inner().counting.now()
    }

    /// Waits until the counters are as wanted, and returns them. Returns at once if they are.
    ///
    /// A state that lasts shorter than it takes to look may be missed; counts that only grow cannot be.
    pub async fn when(&self, wanted: impl FnMut(&Counters) -> bool) -> Counters {
        self.inner().counting.when(wanted).await
    }

    /// Waits until no connection is open. A black-holed one counts as open until its client closes it.
    pub async fn connections_closed(&self) {
        self.when(|counters| counters.connections_open == 0).await;
    }

    /// The next request for which `wanted` holds. It waits from this call on, not from the first poll.
    pub fn next_request(
        &self,
        wanted: impl Fn(&RequestSeen) -> bool + Send + Sync + 'static,
    ) -> NextRequest {
        self.inner().waiters.next(wanted)
    }

    /// The requests that it was sent: also those that were answered 401, and those that a fault stopped in front of what it
    /// serves.
    pub fn history(&self) -> RequestHistory {
        self.inner().journal.until_now()
    }

    /// Forgets all requests until now. Its counters go on.
    pub fn forget_history(&self) {
        self.inner().journal.forget();
    }

    /// How many tasks it has: one a port of its own, one a connection, one a running HTTP/2 stream.
    pub fn tasks(&self) -> usize {
        self.inner().tasks.len()
    }
}
