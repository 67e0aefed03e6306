//! A Kubernetes API server in memory: its objects, and its HTTP, without a network.
//!
//! [`FakeApi`] is a [`tower::Service`]: a kube client runs over it as it is, and so does a simulated network. The fake fleet
//! puts one behind TLS for each cluster. It has no task and no timer of its own: what time brings about happens when somebody
//! looks. What it does is checked against the real server, see `tests/conformance.rs`.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use clustercache_testkit::api::{FakeApi, Fault, Kind, Verb};
//! use serde_json::json;
//! use tower::ServiceExt;
//!
//! let api = FakeApi::new();
//! api.add_kind(Kind::custom("example.com", "v1", "Widget"))?;
//! api.put(json!({
//!     "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "a", "namespace": "default" },
//! }))?;
//!
//! let busy = api.inject(Fault::status(429).verb(Verb::List).resource("widgets.example.com"));
//! let list = || http::Request::get("/apis/example.com/v1/widgets").body(String::new());
//! assert_eq!(api.clone().oneshot(list()?).await?.status(), 429);
//! api.undo(busy);
//! assert_eq!(api.clone().oneshot(list()?).await?.status(), 200);
//! api.history().verb(Verb::List).assert_count(2);
//! # anyhow::Ok(())
//! # })?;
//! # anyhow::Ok(())
//! ```

mod answer;
mod ask;
mod budgets;
mod builder;
mod builtin;
mod cells;
mod clock;
mod columns;
mod create;
mod defaults;
mod delete;
mod discovery;
mod evict;
mod faults;
mod fields;
mod forward;
mod journal;
mod kind;
mod list;
mod names;
mod object;
mod openapi;
mod patch;
mod protobuf;
mod query;
mod request;
mod selector;
mod serve;
mod shared;
mod status;
mod store;
mod strategic;
mod table;
mod tokens;
mod watch;
mod write;

use std::{net::SocketAddr, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use self::ask::{About, Ask};
pub use self::{
    answer::{Body, Cut},
    ask::Caller,
    builder::FakeApiBuilder,
    faults::{Fault, FaultId},
    forward::PortForward,
    journal::{Entry, History},
    kind::Kind,
    request::Verb,
    store::Snapshot,
};
use self::{
    clock::{Clock, Dice},
    delete::DeleteOptions,
    faults::Faults,
    forward::Forwards,
    journal::Journal,
    store::{State, Store},
    tokens::Tokens,
};

/// An API server in memory, and the cluster that it pretends to be. Clones are handles of the same one.
#[derive(Clone)]
pub struct FakeApi {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    store: Store,
    clock: Clock,
    dice: Dice,
    faults: Faults,
    journal: Journal,
    tokens: Tokens,
    forwards: Forwards,
    /// Pods end by themselves when their grace is over.
    pods_end: bool,
    /// A pod with several budgets cannot be evicted.
    one_budget: bool,
    /// Seconds; the real server's if none.
    shortest_token: Option<i64>,
}

/// An object that a test handed in cannot be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The kind is not served.
    #[error(
        "no kind `{kind}` in `{api_version}`: it is not built in; add it by `FakeApi::add_kind`"
    )]
    UnknownKind {
        /// What the object says.
        api_version: String,
        /// What the object says.
        kind: String,
    },
    /// `metadata.name` is missing.
    #[error("an object of kind `{kind}` has no metadata.name")]
    NoName {
        /// The kind of the object.
        kind: String,
    },
    /// Another kind is served at the path of a new one.
    #[error("`{group}/{plural}` is served already, with another kind, version or scope")]
    PathTaken {
        /// Of the new kind.
        group: String,
        /// Of the new kind.
        plural: String,
    },
}

impl Default for FakeApi {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeApi {
    /// A server with the defaults. See [`FakeApiBuilder`].
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A server that is not made yet.
    pub fn builder() -> FakeApiBuilder {
        FakeApiBuilder::default()
    }

    /// The time of the server, which is that of its objects.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Whose token this is, if the server issued it and it has not ended.
    pub fn authenticate(&self, token: &str) -> Option<Caller> {
        tokens::authenticate(&self.shared, token)
    }

    /// A number from 0 to 1, of this server's seed.
    pub(crate) fn luck(&self) -> f64 {
        self.shared.dice.luck()
    }

    /// The namespaces that every cluster has; the UID of `kube-system` tells clusters apart.
    fn found(&self) {
        for name in ["default", "kube-system"] {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            self.put(namespace)
                .expect("a namespace with a name can be stored");
        }
    }
}

/// What it holds.
impl FakeApi {
    /// Stores an object as it is, status included, whatever is there already; in `default` if it names no namespace. Returns
    /// its version.
    pub fn put(&self, object: Value) -> Result<u64, ObjectError> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        self.shared.store.with(|state| {
            let Some(kind) = state.kind_named(&api_version, &kind) else {
                return Err(ObjectError::UnknownKind { api_version, kind });
            };
            let metadata = |field: &str| object["metadata"][field].as_str();
            let name = metadata("name").ok_or_else(|| ObjectError::NoName {
                kind: kind.name.to_string(),
            })?;
            let key = kind.key(metadata("namespace").unwrap_or("default"), name);
            Ok(create::put(&self.shared, state, &kind, &key, object))
        })
    }

    /// An object, with `kind` and `apiVersion`. `namespace` is ignored for kinds that have none.
    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.store.with(|state| {
            let kind = state.kind_named(api_version, kind)?;
            state
                .get(&kind, &kind.key(namespace, name))
                .map(|object| object.value())
        })
    }

    /// Deletes an object, finalizers or not, and says whether there was one.
    pub fn delete(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> bool {
        self.shared.store.with(|state| {
            let kind = state.kind_named(api_version, kind);
            kind.is_some_and(|kind| state.delete(&kind, &kind.key(namespace, name)).is_some())
        })
    }

    /// Ends a pod as a kubelet does whose containers are gone: at once, unless finalizers hold it. False if there is none.
    pub fn finish_pod(&self, namespace: &str, name: &str) -> bool {
        let pods = builtin::named("", "pods");
        let key = pods.key(namespace, name);
        let shared = &self.shared;
        let finish =
            |state: &mut _| delete::delete(shared, state, pods, &key, &DeleteOptions::at_once());
        shared.store.with(finish).is_ok()
    }

    /// Who is dialled from now on for a port of a pod, by whom asks for its `portforward`. Who stands for none refuses connections. The pod
    /// must be there, on a node, when a client asks.
    ///
    /// ```
    /// # use clustercache_testkit::api::FakeApi;
    /// # let (api, etcd) = (FakeApi::new(), ([127, 0, 0, 1], 12379).into());
    /// api.forward_port("kube-system", "etcd-a", 2379, etcd);
    /// ```
    pub fn forward_port(&self, namespace: &str, pod: &str, port: u16, to: SocketAddr) {
        self.shared.forwards.set(namespace, pod, port, Some(to));
    }

    /// Nobody is dialled any more for a port of a pod: it refuses. Connections that there are go on.
    pub fn refuse_port(&self, namespace: &str, pod: &str, port: u16) {
        self.shared.forwards.set(namespace, pod, port, None);
    }

    /// Ends a namespace as its controller does: all that is in it goes, finalizers or not. False if there is none.
    pub fn finish_namespace(&self, name: &str) -> bool {
        let namespaces = builtin::named("", "namespaces");
        self.shared
            .store
            .with(|state| delete::finish_namespace(state, namespaces, name))
    }

    /// Serves a kind from now on.
    pub fn add_kind(&self, kind: Kind) -> Result<(), ObjectError> {
        let (group, plural) = (kind.group.to_string(), kind.plural.to_string());
        let added = self.shared.store.with(|state| state.add_kind(kind));
        if added {
            Ok(())
        } else {
            Err(ObjectError::PathTaken { group, plural })
        }
    }

    /// Serves a custom kind no longer: its objects are deleted, finalizers or not, its watches are told so and end, its paths are 404.
    pub fn remove_kind(&self, group: &str, plural: &str) {
        let kind = Kind::custom(group, "", "").with_plural(plural);
        self.shared.store.with(|state| state.remove_kind(&kind));
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.shared.store.with(|state| state.version())
    }

    /// Forgets all events until now: a watch, a list or a next page from an older version is `Expired`.
    pub fn compact(&self) {
        self.shared.store.with(State::compact);
    }

    /// A backup of everything, to be [restored](Self::restore).
    pub fn snapshot(&self) -> Snapshot {
        self.shared.store.with(|state| state.snapshot())
    }

    /// Everything is as it was in a backup: versions go back, and are given out again. All watches end.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.shared.store.with(|state| state.restore(snapshot));
    }

    /// Becomes another cluster: none of the old objects, other UIDs. Versions go on growing; all watches end.
    pub fn replace(&self) {
        self.shared.store.with(State::clear);
        self.found();
    }

    /// Sends a bookmark on every watch that allows them. Else there is one a minute, and one before a timeout.
    pub fn send_bookmarks(&self) {
        self.shared.store.with(|state| {
            state.signal.bookmarks += 1;
            state.wake_all();
        });
    }

    /// Ends every open watch as a timeout does.
    pub fn end_watches(&self) {
        self.shared.store.with(|state| {
            state.signal.ends += 1;
            state.wake_all();
        });
    }
}

/// What it does wrong.
impl FakeApi {
    /// Injects a fault, which holds until it is undone.
    pub fn inject(&self, fault: Fault) -> FaultId {
        let id = self.shared.faults.inject(fault);
        self.shared.store.with(State::wake_all);
        id
    }

    /// Undoes a fault. One that was undone before stays so.
    pub fn undo(&self, fault: FaultId) {
        self.shared.faults.undo(|id| id == fault);
        self.shared.store.with(State::wake_all);
    }

    /// Undoes all faults.
    pub fn undo_all(&self) {
        self.shared.faults.undo(|_| true);
        self.shared.store.with(State::wake_all);
    }
}

/// What it was asked.
impl FakeApi {
    /// All requests until now.
    pub fn history(&self) -> History {
        self.shared.journal.until_now()
    }

    /// Forgets all requests until now, counters included.
    pub fn forget_history(&self) {
        self.shared.journal.forget();
    }
}
