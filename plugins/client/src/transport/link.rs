//! One connection that is up: HTTP/2 shared by all requests, or HTTP/1.1 for one at a time. Heads are limited here, and so is what
//! a server can make us hold.

use std::sync::Arc;

use super::{dial::Connected, error::TransportError, tasks::Tasks};
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::TokioIo;
use kube::client::Body;

/// The most that a head may take, in bytes.
pub(super) const HEAD: u32 = 32 << 10;
/// What may come on one HTTP/2 stream before it is read: a megabyte each round trip is enough for large lists from far away.
const STREAM_WINDOW: u32 = 1 << 20;
/// And on all streams: bodies that nobody reads do not stall watches and probes before there are sixteen of them.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// What a request's body may have waiting to be written.
const SEND_BUFFER: usize = 64 << 10;

/// What sends requests on a connection. The connection closes when all are dropped and the last answer has ended.
pub(crate) enum Link {
    H2(http2::SendRequest<Body>),
    H1(http1::SendRequest<Body>),
}

/// What became of a request.
pub(crate) enum Sent {
    Answered(Response<Incoming>),
    /// Nothing of it has left: the connection was closed before.
    Unsent(Box<Request<Body>>),
    Failed(TransportError),
}

impl Link {
    /// Begins HTTP on `stream`, as the server chose by ALPN. `ended` runs when an HTTP/1.1 connection is over.
    pub(crate) async fn begin(
        stream: Connected,
        tasks: &Tasks,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, TransportError> {
        let h2 = stream.is_http2();
        let io = TokioIo::new(stream);
        let failed = |error| TransportError::Handshake {
            source: Arc::new(error),
        };
        if h2 {
            let (sender, connection) = http2::Builder::new(tasks.clone())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(HEAD)
                .max_send_buf_size(SEND_BUFFER)
                .handshake(io)
                .await
                .map_err(failed)?;
            // What ends it is an error of every request on it too.
            tasks.spawn(connection);
            return Ok(Self::H2(sender));
        }
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD as usize)
            .handshake(io)
            .await
            .map_err(failed)?;
        tasks.spawn(async move {
            let _ = connection.await;
            ended();
        });
        Ok(Self::H1(sender))
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::H2(sender) => sender.is_closed(),
            Self::H1(sender) => sender.is_closed(),
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Sent {
        let answer = match self {
            Self::H2(sender) => sender.try_send_request(request).await,
            Self::H1(sender) => {
                // The last answer has been read; its connection may not have seen that yet.
                if sender.ready().await.is_err() {
                    return Sent::Unsent(Box::new(request));
                }
                sender.try_send_request(request).await
            }
        };
        match answer {
            Ok(response) => Sent::Answered(response),
            Err(error) => failed(error),
        }
    }
}

fn failed(mut error: TrySendError<Request<Body>>) -> Sent {
    match error.take_message() {
        Some(request) => Sent::Unsent(Box::new(request)),
        None => Sent::Failed(TransportError::from_hyper(error.into_error())),
    }
}
