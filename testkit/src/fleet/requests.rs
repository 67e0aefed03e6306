//! What a fake cluster saw of a request, and those who wait for one.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::counters::PathClass;
use crate::api::Verb;

/// A request as the server saw it, before anything was answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestSeen {
    /// When its head was read, by the cluster's clock.
    pub at: Timestamp,
    /// `GET`, `POST` and so on.
    pub method: http::Method,
    /// What was to be done, as roles name it; `get` for a path that is no object's.
    pub verb: Verb,
    /// `pods`, `deployments.apps` or `pods/eviction`; empty for a path that is no object's.
    pub resource: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark; empty if there is none.
    pub query: String,
    /// The class under which it was counted.
    pub class: PathClass,
    /// What the client showed, valid or not.
    pub credential: ShownCredential,
    /// The endpoint on which it came in.
    pub endpoint: SocketAddr,
    /// The number of its connection: requests with the same one shared a connection of this endpoint.
    pub connection: u64,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: http::Version,
}

/// What a client showed. A token wins over a certificate in this record, not in authentication.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ShownCredential {
    /// Neither a token nor a certificate.
    Nothing,
    /// A bearer token, valid or not.
    Token(String),
    /// A certificate with this common name, valid or not.
    Certificate(String),
}

type Wanted = Box<dyn Fn(&RequestSeen) -> bool + Send + Sync>;

struct Waiter {
    wanted: Wanted,
    answer: Mutex<Option<oneshot::Sender<RequestSeen>>>,
}

/// Waits for a request, since it was made; ready when there was one. It never is if the cluster ends.
#[must_use]
pub struct NextRequest {
    answered: oneshot::Receiver<RequestSeen>,
    /// Without it the cluster forgets this wait.
    _waiter: Arc<Waiter>,
}

impl Future for NextRequest {
    type Output = RequestSeen;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<RequestSeen> {
        // The sender is held by our own waiter, so that it is never dropped before it was used.
        Pin::new(&mut self.answered)
            .poll(cx)
            .map(|seen| seen.expect("polled after it was ready"))
    }
}

/// Those who wait for a request. Nothing is kept for nobody.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Vec<Weak<Waiter>>>);

impl Waiters {
    /// The first request from now on for which `wanted` holds.
    pub(super) fn next(
        &self,
        wanted: impl Fn(&RequestSeen) -> bool + Send + Sync + 'static,
    ) -> NextRequest {
        let (answer, answered) = oneshot::channel();
        let waiter = Arc::new(Waiter {
            wanted: Box::new(wanted),
            answer: Mutex::new(Some(answer)),
        });
        self.0.lock().push(Arc::downgrade(&waiter));
        NextRequest {
            answered,
            _waiter: waiter,
        }
    }

    /// Tells whoever waits for it. Their predicates run outside the lock.
    pub(super) fn tell(&self, seen: &RequestSeen) {
        let waiting: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut found = false;
        for waiter in waiting.iter().filter(|waiter| (waiter.wanted)(seen)) {
            found = true;
            if let Some(answer) = waiter.answer.lock().take() {
                // Its future was dropped between the upgrade and here.
                let _ = answer.send(seen.clone());
            }
        }
        if found || waiting.is_empty() {
            let mut all = self.0.lock();
            all.retain(|waiter| {
                waiter
                    .upgrade()
                    .is_some_and(|waiter| waiter.answer.lock().is_some())
            });
        }
    }
}
