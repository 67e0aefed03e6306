//! Our own way to an API server, below a `kube::Client`: one for each connection of a cluster. Endpoint, credential and the connections
//! made with it are one value, read once for each time that a request is sent, so that a credential goes nowhere but to its own
//! endpoint. It never waits or fails in `poll_ready`, and when it is closed nothing of it is left.

mod body;
mod call;
mod class;
mod classify;
mod dial;
mod echo;
mod error;
mod hooks;
mod http2;
mod impersonate;
mod lanes;
mod lease;
mod limit;
mod limiter;
mod line;
mod link;
mod probe;
mod proxy;
mod refusal;
mod retry;
mod silent;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod tls;
mod upgrade;
mod verify;
mod wire;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use clustercache::{AccessChange, ClusterAccess, Refresh};
use http::{HeaderValue, Request, Response, StatusCode, header};
use kube::client::Body;
use secrecy::ExposeSecret;
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

pub(crate) use self::dial::within;
pub use self::error::{Part, TlsReason, TransportError, Wait};
use self::{
    body::ResponseBody,
    impersonate::Acting,
    line::{Line, NoLease},
    target::Target,
    tasks::Tasks,
    tls::{AccessProblem, Tls},
};
pub(crate) use self::{class::Class, hooks::Hooks, lanes::Lane, limiter::Limiter, probe::Fresh};
use crate::{Deadlines, Limits};

/// Sends requests to one cluster. Clones share everything; when the last is dropped, what is open ends.
#[derive(Clone)]
pub(crate) struct Transport(Arc<Inner>);

struct Inner {
    identity: ArcSwap<Identity>,
    shared: Arc<Shared>,
}

/// Who we are, and the connections on which we are that. One value: a request that has the one has the other.
struct Identity {
    access: ClusterAccess,
    authorization: Option<HeaderValue>,
    acting: Acting,
    line: Arc<Line>,
    /// Upgraded connections that were dialled with this client certificate; their end is its.
    upgrades: Tasks,
}

/// What does not change in a transport's life.
pub(crate) struct Shared {
    target: Target,
    hooks: Hooks,
    deadlines: Arc<Deadlines>,
    limits: Arc<Limits>,
    user_agent: HeaderValue,
    /// No new calls; watches end.
    closing: CancellationToken,
    /// Everything ends.
    killed: CancellationToken,
    /// Calls in flight, without watches.
    calls: TaskTracker,
    tasks: TaskTracker,
    /// Calls that were sent again.
    retries: AtomicU64,
    /// A call found that the server does not serve its kind.
    missed_a_kind: AtomicBool,
}

impl Transport {
    /// Judges the access; nothing is dialled before the first request.
    pub(crate) fn new(
        access: ClusterAccess,
        hooks: Hooks,
        deadlines: Arc<Deadlines>,
        limits: Arc<Limits>,
        user_agent: HeaderValue,
    ) -> Result<Self, AccessProblem> {
        let tls = Tls::new(&access)?;
        let shared = Arc::new(Shared {
            target: Target::new(&access)?,
            hooks,
            deadlines,
            limits,
            user_agent,
            closing: CancellationToken::new(),
            killed: CancellationToken::new(),
            calls: TaskTracker::new(),
            tasks: TaskTracker::new(),
            retries: AtomicU64::new(0),
            missed_a_kind: AtomicBool::new(false),
        });
        let line = Line::new(&shared, tls);
        let identity = Identity::new(access, line, shared.upgrades());
        Ok(Self(Arc::new(Inner {
            identity: ArcSwap::from_pointee(identity),
            shared,
        })))
    }

    /// Takes a new credential: the next request has it. A new client certificate has connections of its own from then on; watches stay
    /// on the old ones for a while. Another endpoint or CA, or a credential that cannot be used, is not taken.
    pub(crate) fn refresh(&self, access: &ClusterAccess) -> Refresh {
        let Inner { identity, shared } = &*self.0;
        let old = identity.load_full();
        match old.access.change_to(access) {
            AccessChange::None => return Refresh::Unchanged,
            AccessChange::Credential => (),
            AccessChange::Endpoint => return Refresh::Rebuild,
        }
        let keep = same_certificate(&old.access, access);
        let tls = if keep { None } else { Some(Tls::new(access)) };
        let Ok(tls) = tls.transpose() else {
            return Refresh::Rebuild;
        };
        let old = identity.rcu(|now| {
            let (line, upgrades) = match &tls {
                Some(tls) => (Line::new(shared, tls.clone()), shared.upgrades()),
                None => (Arc::clone(&now.line), now.upgrades.clone()),
            };
            Identity::new(access.clone(), line, upgrades)
        });
        if !keep {
            let left = left_of(&old.access);
            let drain = shared.deadlines.drain;
            let streams = left.map_or(drain, |left| left.min(drain));
            old.line.retire(streams);
            shared.retire(&old.upgrades, streams);
        }
        Refresh::InPlace
    }

    /// The connections in use do not answer: the next request dials anew, and watches end, to resume there. Upgrades have connections of
    /// their own, and go on.
    pub(crate) fn replace_pooled(&self) {
        let Inner { identity, shared } = &*self.0;
        let old = identity.rcu(|now| {
            let line = Line::new(shared, now.line.tls.clone());
            Identity::new(now.access.clone(), line, now.upgrades.clone())
        });
        old.line.retire(Duration::ZERO);
    }

    /// Returns when a connection is up, or has failed to come up. It has the deadlines of a dial, and none over a permit's wait.
    pub(crate) async fn connected(&self) -> Result<(), TransportError> {
        let Inner { identity, shared } = &*self.0;
        while !shared.closing.is_cancelled() {
            let line = Arc::clone(&identity.load().line);
            match line.checkout(Class::Call).await {
                Ok(_) => return Ok(()),
                Err(NoLease::Failed(error)) => return Err(error),
                // There is a newer one: the client certificate was replaced meanwhile.
                Err(NoLease::Retired) => (),
            }
        }
        Err(TransportError::Retired)
    }

    /// New calls fail at once, watches end at once, calls in flight get `grace`; then all connections are cut. When this returns, no
    /// task and no descriptor of the transport is left. Dropped before, it has begun all of that and cuts at once.
    pub(crate) async fn close(&self, grace: Duration) {
        let Inner { identity, shared } = &*self.0;
        let cut = shared.killed.clone().drop_guard();
        shared.closing.cancel();
        identity.load().line.retire(Duration::ZERO);
        shared.calls.close();
        // What is not done by then is cut.
        let _ = timeout(grace, shared.calls.wait()).await;
        drop(cut);
        shared.tasks.close();
        shared.tasks.wait().await;
    }

    /// How long discovery may take.
    pub(crate) fn list_deadline(&self) -> Duration {
        self.0.shared.deadlines.list
    }

    /// Whether a call found that the server does not serve its kind, since this was asked last.
    pub(crate) fn missed_a_kind(&self) -> bool {
        self.0.shared.missed_a_kind.swap(false, Relaxed)
    }

    /// An API server says of an object that is missing why, in a `Status`; of a kind that is missing it says nothing but 404.
    fn note<B>(&self, answer: &Response<B>) {
        let says_why = |value: &HeaderValue| value.as_bytes().starts_with(b"application/");
        let kind = answer.headers().get(header::CONTENT_TYPE);
        if answer.status() == StatusCode::NOT_FOUND && !kind.is_some_and(says_why) {
            self.0.shared.missed_a_kind.store(true, Relaxed);
        }
    }

    /// How many tasks there are.
    #[cfg(test)]
    fn tasks(&self) -> usize {
        self.0.shared.tasks.len()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        self.shared.killed.cancel();
    }
}

impl Identity {
    fn new(access: ClusterAccess, line: Arc<Line>, upgrades: Tasks) -> Self {
        let authorization = access.credential().token().map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
                .expect("an access checks that its token can stand in a header");
            // Not to be printed, nor kept in the compression tables of HTTP/2.
            value.set_sensitive(true);
            value
        });
        Self {
            acting: Acting::of(access.credential().impersonation()),
            access,
            authorization,
            line,
            upgrades,
        }
    }
}

/// How long the credential is still good.
// The one place where a calendar time is a duration: a certificate ends by it, and our side of the connection with it.
#[allow(clippy::disallowed_methods)]
fn left_of(access: &ClusterAccess) -> Option<Duration> {
    let ends = access.credential().expires()?;
    Some(ends.duration_since(SystemTime::now()).unwrap_or_default())
}

fn same_certificate(old: &ClusterAccess, new: &ClusterAccess) -> bool {
    let certificate = |access: &ClusterAccess| access.credential().client_certificate().is_some();
    let (had, has) = (
        old.credential().client_certificate(),
        new.credential().client_certificate(),
    );
    match (had, has) {
        (Some(old), Some(new)) => {
            old.chain() == new.chain() && old.key().secret_der() == new.key().secret_der()
        }
        _ => certificate(old) == certificate(new),
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, TransportError>> + Send>>;

    /// Always ready: an error here would end a `kube::Client` for ever, and waiting would stall all its calls behind one.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let class = Class::of(&request);
        let transport = self.clone();
        Box::pin(async move {
            let result = transport.call_as(request, class).await;
            transport.0.shared.hooks.counts.count(class, &result);
            let answer = result.inspect(|answer| transport.note(answer))?;
            transport.plain(answer).await
        })
    }
}

/// A transport whose calls are all bulk.
#[derive(Clone)]
pub(crate) struct Bulk(pub(crate) Transport);

impl Service<Request<Body>> for Bulk {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = <Transport as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.extensions_mut().insert(Lane::Bulk);
        self.0.call(request)
    }
}
