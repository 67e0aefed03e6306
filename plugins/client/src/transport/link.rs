//! One connection that is up: HTTP/2 shared by all requests, or HTTP/1.1 for one at a time. Heads are limited here, and so is what
//! a server can make us hold.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    dial::Connected,
    error::TransportError,
    http2::{Http2, Pings, Received},
    tasks::Tasks,
};

/// The most that a head may take, in bytes.
pub(crate) const HEAD: u32 = 32 << 10;
/// How many informational answers, `100 Continue` and the like, may come before the one that counts.
pub(crate) const INFORMATIONAL: usize = 8;

/// What sends requests on a connection. The connection closes when all are dropped and the last answer has ended.
pub(crate) enum Link {
    H2(Http2),
    H1(http1::SendRequest<Body>),
}

/// What became of a request.
pub(crate) enum Sent {
    Answered(Response<Incoming>),
    /// The server has not looked at it, if anything of it has left at all: it may be sent again, whatever it asks for.
    Unsent(Box<Request<Body>>),
    Failed(TransportError),
}

impl Link {
    /// Begins HTTP on `stream`, as the server chose by ALPN. `told` runs whenever a server of HTTP/2 has said how many streams it allows,
    /// `ended` when the connection is over.
    pub(crate) async fn begin(
        stream: Connected,
        shared: &Shared,
        tasks: &Tasks,
        told: impl Fn() + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, TransportError> {
        if stream.is_http2() {
            let pings = Pings {
                after: shared.deadlines.ping,
                signs: Arc::clone(&shared.hooks.signs),
            };
            let begun = Http2::begin(stream, pings, told).await;
            let (sender, keeper) = begun.map_err(|source| TransportError::Handshake {
                source: Arc::new(source),
            })?;
            tasks.spawn_then(keeper, ended);
            return Ok(Self::H2(sender));
        }
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD as usize)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| TransportError::Handshake {
                source: Arc::new(source),
            })?;
        tasks.spawn_then(connection, ended);
        Ok(Self::H1(sender))
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::H2(sender) => sender.is_closed(),
            Self::H1(sender) => sender.is_closed(),
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Sent {
        match self {
            Self::H2(sender) => sender.send(request).await,
            Self::H1(sender) => {
                // The last answer has been read; its connection may not have seen that yet.
                if sender.ready().await.is_err() {
                    return Sent::Unsent(Box::new(request));
                }
                send_http1(sender, request).await
            }
        }
    }
}

async fn send_http1(sender: &mut http1::SendRequest<Body>, mut request: Request<Body>) -> Sent {
    let too_many = too_many_informational(&mut request);
    let answer = tokio::select! {
        biased;
        () = too_many.cancelled() => return Sent::Failed(TransportError::informational()),
        answer = sender.try_send_request(request) => answer,
    };
    match answer {
        Ok(response) => Sent::Answered(response.map(Incoming::H1)),
        Err(error) => failed(error),
    }
}

/// Cancelled when the answers to this request that are none are too many.
pub(crate) fn too_many_informational(request: &mut Request<Body>) -> CancellationToken {
    let too_many = CancellationToken::new();
    let (count, told) = (AtomicUsize::new(0), too_many.clone());
    hyper::ext::on_informational(request, move |_| {
        if count.fetch_add(1, Relaxed) == INFORMATIONAL {
            told.cancel();
        }
    });
    too_many
}

fn failed(mut error: TrySendError<Request<Body>>) -> Sent {
    match error.take_message() {
        Some(request) => Sent::Unsent(Box::new(request)),
        None => Sent::Failed(TransportError::from_hyper(error.into_error())),
    }
}

/// The body of an answer as it comes.
pub(crate) enum Incoming {
    H2(Received),
    H1(hyper::body::Incoming),
}

impl Incoming {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match self {
            Self::H2(body) => body.poll_frame(cx),
            Self::H1(body) => {
                let frame = Pin::new(body).poll_frame(cx);
                frame.map_err(TransportError::from_hyper)
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::H2(body) => body.is_end_stream(),
            Self::H1(body) => body.is_end_stream(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::H2(body) => body.size_hint(),
            Self::H1(body) => body.size_hint(),
        }
    }
}
