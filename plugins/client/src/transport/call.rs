//! One request, from its turn to its answer: one deadline over all of it, no retry, except of a request that never left because its
//! connection turned out to be closed.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use kube::client::Body;
use pin_project_lite::pin_project;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Identity, Shared, Transport,
    body::{End, Ending, Listen, ResponseBody},
    class::Class,
    error::{TransportError, Wait},
    lanes::Lane,
    lease::Lease,
    limit::Limit,
    line::{Line, NoLease},
    link::{Incoming, Sent},
    refusal::{Asked, decodes, is_raw},
};

/// What one call may still do, and has done so far.
pub(crate) struct Sends {
    /// How often it may still be sent, whether it never left or the server was too busy for it.
    pub(super) left: usize,
    /// How long it waited for what is ours to give: a permit to dial, or a place on a connection.
    pub(super) withheld: Duration,
}

impl Default for Sends {
    fn default() -> Self {
        Self {
            left: 3,
            withheld: Duration::ZERO,
        }
    }
}

impl Transport {
    /// Sends `request` once, as one of `class`. Dropping the future cancels the request, and nothing else.
    #[cfg(test)]
    pub(crate) fn send(
        &self,
        request: Request<Body>,
        class: Class,
    ) -> impl Future<Output = Result<Response<ResponseBody>, TransportError>> {
        let until = match class {
            Class::Probe(until) => until,
            _ => Instant::now() + class.deadline(&self.0.shared.deadlines),
        };
        async move {
            let mut sends = Sends::default();
            self.send_until(request, class, until, &mut sends).await
        }
    }

    /// Sends `request` as one of `class`; it is to be over at `until`, and may do no more than `sends` says. Dropping the future cancels the
    /// request, and nothing else.
    pub(crate) async fn send_until(
        &self,
        mut request: Request<Body>,
        class: Class,
        until: Instant,
        sends: &mut Sends,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let shared = &self.0.shared;
        if request.headers().contains_key(header::UPGRADE) {
            return Box::pin(self.upgrade(request)).await;
        }
        // Counted before it looks: a close that does not see it is seen by it.
        let call = (class != Class::Stream).then(|| shared.calls.token());
        if shared.closing.is_cancelled() {
            return Err(TransportError::Retired);
        }
        let after = class.deadline(&shared.deadlines);
        let ends_with = match class {
            Class::Stream => &shared.closing,
            _ => &shared.killed,
        };
        let mut end = end_of_call(until, after, ends_with.clone());
        prepare(shared, &mut request)?;
        let (decodes, raw) = (decodes(request.headers()), is_raw(request.headers()));
        let theirs = request.headers_mut().remove(header::AUTHORIZATION);
        if let Some(limiter) = &shared.hooks.limiter {
            let turn = limiter.turn(Lane::of(class, &request));
            before(&mut end, turn).await.map_err(no_turn)?;
        }
        while sends.left > 0 {
            sends.left -= 1;
            let identity = self.0.identity.load_full();
            let line = &identity.line;
            // Who is no probe does not ask for it.
            let counted = matches!(class, Class::Probe(_)).then(|| line.withheld());
            let lease = before(&mut end, line.checkout(class)).await;
            if let Some(counted) = counted {
                sends.withheld += line.withheld() - counted;
            }
            let mut lease = match lease {
                Err(Ending::Deadline(after)) => return Err(no_connection(line, after)),
                Err(ending) => return Err(ending.error(Wait::Connection)),
                Ok(Err(NoLease::Failed(error))) => return Err(error),
                Ok(Err(NoLease::Retired)) if shared.closing.is_cancelled() => {
                    return Err(TransportError::Retired);
                }
                Ok(Err(NoLease::Retired)) => continue,
                Ok(Ok(lease)) => lease,
            };
            identity.sign(&mut request, theirs.as_ref());
            let sent = before(&mut end, lease.send(request)).await;
            match sent.map_err(|ending| lease.ended(ending))? {
                Sent::Answered(mut response) => {
                    if class == Class::Stream {
                        identity.mark(response.headers_mut());
                    }
                    if !response.status().is_success() {
                        let asked = Asked { identity, raw };
                        response.extensions_mut().insert(asked);
                    }
                    let answer = Answer {
                        class,
                        decodes,
                        end,
                        call,
                        lease,
                    };
                    return answer.take(shared, response);
                }
                Sent::Unsent(unsent) => request = *unsent,
                Sent::Failed(error) => return Err(error),
            }
        }
        let source = Arc::new(std::io::Error::other(
            "each connection closed before the request left",
        ));
        Err(TransportError::Reset { source })
    }
}

impl Identity {
    /// Puts our credential on a request: whoever built it does not choose another. Where we have none it is `theirs`, and nothing that
    /// an earlier try has left.
    pub(super) fn sign(&self, request: &mut Request<Body>, theirs: Option<&HeaderValue>) {
        self.acting.sign(request);
        match self.authorization.as_ref().or(theirs) {
            Some(value) => request
                .headers_mut()
                .insert(header::AUTHORIZATION, value.clone()),
            None => request.headers_mut().remove(header::AUTHORIZATION),
        };
    }
}

/// An answer's head is here.
struct Answer {
    class: Class,
    /// The request asked for an encoding, and whoever built it decodes.
    decodes: bool,
    end: End,
    call: Option<tokio_util::task::task_tracker::TaskTrackerToken>,
    lease: Lease,
}

impl Answer {
    fn take(
        self,
        shared: &Arc<Shared>,
        response: Response<Incoming>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let signs = &shared.hooks.signs;
        let status = response.status();
        let probe = matches!(self.class, Class::Probe(_));
        if status.is_redirection() && !probe {
            return Err(TransportError::Redirect { status });
        }
        if !probe {
            match status {
                StatusCode::UNAUTHORIZED => signs.doubt(),
                _ if status.is_success() => signs.answered(),
                _ => (),
            }
        }
        if !probe && !self.decodes && is_encoded(&response) {
            return Err(TransportError::Encoded);
        }
        let limit = Limit::of(self.class, status, &shared.limits);
        limit.admits(response.body().size_hint().lower())?;
        let refusal = status.is_client_error()
            && status != StatusCode::UNAUTHORIZED
            && status != StatusCode::TOO_MANY_REQUESTS;
        let watch = self.class == Class::Stream && status.is_success();
        let listen = match (probe, refusal, watch) {
            (false, true, _) => Listen::Refusal(Vec::new()),
            (false, false, true) => Listen::Watch,
            _ => Listen::No,
        };
        // Only what is a stream goes on without a deadline; a refusal of one does not.
        let end = if watch {
            end_of_stream(&self.lease.line, shared.closing.clone())
        } else {
            self.end
        };
        let lease = Some(self.lease.answered());
        let signs = Arc::clone(signs);
        Ok(response
            .map(|body| ResponseBody::new(body, end, limit, listen, signs, lease, self.call)))
    }
}

/// In any way at all, `identity` but for.
fn is_encoded<B>(response: &Response<B>) -> bool {
    let encodings = response.headers().get_all(header::CONTENT_ENCODING);
    encodings
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

pub(super) fn prepare(shared: &Shared, request: &mut Request<Body>) -> Result<(), TransportError> {
    let placed = shared.target.place(request);
    placed.map_err(|error| TransportError::Protocol {
        source: Arc::new(error),
    })?;
    request
        .headers_mut()
        .entry(header::USER_AGENT)
        .or_insert_with(|| shared.user_agent.clone());
    Ok(())
}

pub(super) fn end_of_call(until: Instant, after: Duration, cut: CancellationToken) -> End {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = cut.cancelled() => Ending::Retired,
            () = sleep_until(until) => Ending::Deadline(after),
        }
    })
}

fn end_of_stream(line: &Line, closing: CancellationToken) -> End {
    let drained = line.drained.clone();
    Box::pin(async move {
        drained.cancelled().await;
        if closing.is_cancelled() {
            Ending::Retired
        } else {
            Ending::Drained
        }
    })
}

/// The end comes first: what is cut fails because of that, not because its connection is gone.
pub(super) fn before<W: Future>(end: &mut End, work: W) -> Before<'_, W> {
    Before { end, work }
}

pin_project! {
    // By hand: an async function would hold the work twice, and a request on its way is large.
    pub(super) struct Before<'a, W> {
        end: &'a mut End,
        #[pin]
        work: W,
    }
}

impl<W: Future> Future for Before<'_, W> {
    type Output = Result<W::Output, Ending>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.end.as_mut().poll(cx) {
            Poll::Ready(ending) => Poll::Ready(Err(ending)),
            Poll::Pending => this.work.poll(cx).map(Ok),
        }
    }
}

fn no_connection(line: &Line, after: Duration) -> TransportError {
    match line.shortage() {
        Some(what) => TransportError::Busy { what, after },
        None => TransportError::Deadline {
            stage: Wait::Connection,
            after,
        },
    }
}

pub(super) fn no_turn(ending: Ending) -> TransportError {
    match ending {
        Ending::Deadline(after) => TransportError::Busy {
            what: "a turn under the rate limit",
            after,
        },
        ending => ending.error(Wait::Connection),
    }
}
