//! Requests for another protocol: exec, attach and port-forward by websocket. HTTP/2 has no upgrade, so each has a connection of its own
//! beside it, of HTTP/1.1. It is a stream: only its head has a deadline, and it is cut as a watch is, when the transport closes or some
//! time after its client certificate was replaced. Whoever holds the upgraded stream holds one end of a pipe; a task of the transport
//! has the connection, so that nothing of it is left where nobody looks.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{Request, Response, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::{
    io::{AsyncWriteExt, DuplexStream, copy, duplex, split},
    time::{Instant, sleep, timeout},
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    Identity, Shared, Transport,
    body::{End, Ending, Listen, ResponseBody},
    call::{before, end_of_call, no_turn, prepare},
    class::Class,
    dial::{Connected, dial},
    error::{TransportError, Wait},
    lanes::Lane,
    limit::Limit,
    link::{HEAD, Incoming, too_many_informational},
    tasks::Tasks,
};

/// What may be on its way in the pipe, each way: one TLS record.
const PIPE: usize = 16 << 10;

impl Transport {
    /// Sends a request that asks for an upgrade. What is answered instead of one is an answer as any other.
    pub(super) async fn upgrade(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let shared = &self.0.shared;
        if shared.closing.is_cancelled() {
            return Err(TransportError::Retired);
        }
        let after = shared.deadlines.call;
        let mut end = end_of_call(Instant::now() + after, after, shared.closing.clone());
        prepare(shared, &mut request)?;
        if let Some(limiter) = &shared.hooks.limiter {
            let turn = limiter.turn(Lane::of(Class::Call, &request));
            before(&mut end, turn).await.map_err(no_turn)?;
        }
        let permit = before(&mut end, shared.hooks.gate.permit()).await;
        let permit = permit.map_err(|ending| match ending {
            Ending::Deadline(after) => {
                let what = "a permit to dial";
                TransportError::Busy { what, after }
            }
            ending => ending.error(Wait::Connection),
        })?;
        // Who we are now, not before we waited.
        let (identity, _live) = self.lasting();
        let Identity { line, upgrades, .. } = &*identity;
        let tls = line.tls.http1();
        let dialled = before(&mut end, dial(shared, &tls, permit, |_| ())).await;
        let (connected, permit) = dialled.map_err(|ending| ending.error(Wait::Connection))??;
        let (pipe, failure) = piped(upgrades, connected, shared.deadlines.close);
        let up = http1::Builder::new()
            .max_buf_size(HEAD as usize)
            .handshake(TokioIo::new(pipe));
        let (mut sender, connection) = up.await.map_err(TransportError::from_hyper)?;
        upgrades.spawn(connection.with_upgrades());
        drop(permit);
        let theirs = request.headers_mut().remove(header::AUTHORIZATION);
        identity.sign(&mut request, theirs.as_ref());
        shared.target.origin(&mut request);
        let too_many = too_many_informational(&mut request);
        let sent = too_many.run_until_cancelled(sender.send_request(request));
        let answer = before(&mut end, sent).await;
        let answer = answer.map_err(|ending| ending.error(Wait::Head))?;
        let answer = answer.ok_or_else(TransportError::informational)?;
        // What became of the connection says more than that the pipe ended.
        let response = answer.map_err(|error| {
            let failure = failure.get().cloned();
            failure.unwrap_or_else(|| TransportError::from_hyper(error))
        })?;
        taken(shared, response, end)
    }

    /// Who we are, for an upgrade that will be cut as one of this certificate's.
    fn lasting(&self) -> (Arc<Identity>, TaskTrackerToken) {
        loop {
            let identity = self.0.identity.load_full();
            // Counted before it looks: a certificate that does not see it when it is retired is seen to be.
            let live = identity.upgrades.token();
            if !identity.upgrades.killed.is_cancelled() || self.0.shared.closing.is_cancelled() {
                return (identity, live);
            }
        }
    }
}

impl Shared {
    /// For the upgrades with one client certificate. They have no grace when they are cut.
    pub(super) fn upgrades(&self) -> Tasks {
        Tasks::new(&self.tasks, self.closing.child_token())
    }

    /// The certificate of these was replaced: they go on for `streams`.
    pub(super) fn retire(&self, upgrades: &Tasks, streams: Duration) {
        let upgrades = upgrades.clone();
        let cut = async move {
            tokio::select! {
                () = upgrades.gone() => (),
                () = sleep(streams) => (),
            }
            upgrades.killed.cancel();
        };
        // Not of its own tasks, for which it waits.
        Tasks::new(&self.tasks, self.killed.clone()).spawn(cut);
    }
}

fn taken(
    shared: &Arc<Shared>,
    response: Response<hyper::body::Incoming>,
    end: End,
) -> Result<Response<ResponseBody>, TransportError> {
    let status = response.status();
    let signs = &shared.hooks.signs;
    if status.is_redirection() {
        return Err(TransportError::Redirect { status });
    }
    let listen = match status {
        StatusCode::UNAUTHORIZED => {
            signs.doubt();
            Listen::No
        }
        StatusCode::TOO_MANY_REQUESTS => Listen::No,
        _ if status.is_client_error() => Listen::Refusal(Vec::new()),
        _ => Listen::No,
    };
    let limit = Limit::of(Class::Stream, status, &shared.limits);
    let signs = Arc::clone(signs);
    Ok(response.map(|body| {
        let body = Incoming::H1(body);
        ResponseBody::new(body, end, limit, listen, signs, None, None)
    }))
}

/// Carries bytes between the connection and the end of a pipe that is returned, until either ends, or upgrades are cut. The cell says
/// how the connection failed, if it did.
fn piped(
    upgrades: &Tasks,
    connected: Connected,
    close: Duration,
) -> (DuplexStream, Arc<OnceLock<TransportError>>) {
    let (ours, theirs) = duplex(PIPE);
    let failure = Arc::<OnceLock<_>>::default();
    let told = Arc::clone(&failure);
    upgrades.spawn(async move {
        if let Err(error) = carry(connected, ours, close).await {
            let _ = told.set(TransportError::from_tls(error));
        }
    });
    (theirs, failure)
}

/// Whoever ends first ends both: a websocket is not closed by halves.
async fn carry(connected: Connected, pipe: DuplexStream, close: Duration) -> io::Result<()> {
    let (mut from_server, mut to_server) = split(connected);
    let (mut from_user, mut to_user) = split(pipe);
    tokio::select! {
        down = copy(&mut from_server, &mut to_user) => down.map(drop),
        up = copy(&mut from_user, &mut to_server) => {
            up?;
            // The server is told, if it listens.
            let _ = timeout(close, to_server.shutdown()).await;
            Ok(())
        }
    }
}
