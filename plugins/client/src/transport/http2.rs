//! One HTTP/2 connection: h2 itself, without a layer between. One task keeps it, and a request is driven by whoever waits for it. What a
//! stream may hold fits into what the connection may hold, so that nobody who does not read stalls anybody else.

mod exchange;
mod keeper;

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::{Reason, client};
use http::{HeaderMap, HeaderName, Method, Request, Response, header};
use http_body::Body as _;
use kube::client::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use self::exchange::{Broken, Exchange};
pub(crate) use self::{
    exchange::Received,
    keeper::{Keeper, Pings},
};
use super::{
    class::Class,
    error::TransportError,
    link::{HEAD, Incoming, Sent},
    wire::{Record, Wire},
};

/// Streams on one connection; more go to another. A server may allow fewer.
pub(crate) const STREAMS: usize = 64;
/// As many as are begun with before the server has said how many it allows: a call and a probe. One that is more than it turns out to
/// allow could go nowhere else: what h2 was given it sends, and be it to take it back.
const FIRST: usize = 2;
/// What may come on one stream before it is read: a megabyte each round trip is enough for large lists from far away.
const STREAM_WINDOW: u32 = 1 << 20;
/// And on all of them: as much as all streams together, so that bodies that nobody reads stall no other.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 64;
const _: () = assert!(CONNECTION_WINDOW as usize == STREAM_WINDOW as usize * STREAMS);
/// What a request's body may have waiting to be written.
const SEND_BUFFER: usize = 64 << 10;

/// Sends requests. The connection closes when all are dropped and the last stream has ended.
#[derive(Clone)]
pub(crate) struct Http2 {
    requests: client::SendRequest<Bytes>,
    pub(crate) load: Arc<Load>,
    record: Arc<Record>,
    /// A request waits until the server allows one more stream.
    opening: bool,
}

/// What a connection has to do.
#[derive(Default)]
pub(crate) struct Load {
    /// Streams, counted before they begin and until they have ended.
    pub(crate) streams: AtomicUsize,
    /// Those whose answers somebody waits for.
    pub(crate) calls: AtomicUsize,
    pub(crate) watches: AtomicUsize,
    /// What had been heard when no answer came to a ping, and one more.
    mute: AtomicU32,
    /// The server has said how many streams it allows.
    is_told: AtomicBool,
}

impl Load {
    /// Those of a class, where they are counted: probes have an end of their own.
    pub(crate) fn of(&self, class: Class) -> Option<&AtomicUsize> {
        match class {
            Class::Call | Class::List => Some(&self.calls),
            Class::Stream => Some(&self.watches),
            Class::Probe(_) => None,
        }
    }
}

impl Http2 {
    /// Begins on `io`, and returns what has to run for as long as the connection. `told` runs whenever the server has said how many
    /// streams it allows.
    pub(crate) async fn begin<T>(
        io: T,
        pings: Pings,
        told: impl Fn() + Send + 'static,
    ) -> Result<(Self, Keeper<T>), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let record = Arc::<Record>::default();
        let (requests, connection) = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD)
            .max_send_buffer_size(SEND_BUFFER)
            .initial_max_send_streams(FIRST)
            .enable_push(false)
            .handshake(Wire::new(io, Arc::clone(&record)))
            .await?;
        let load = Arc::<Load>::default();
        let (shared, told) = ((Arc::clone(&load), Arc::clone(&record)), Box::new(told));
        let keeper = Keeper::new(connection, pings, shared, told);
        let sender = Self {
            requests,
            load,
            record,
            opening: false,
        };
        Ok((sender, keeper))
    }

    /// Whether it takes no more requests: it is over, or the server goes away.
    pub(crate) fn is_closed(&self) -> bool {
        // What is cloned has no request that waits to begin: it is ready, or closed.
        let polled = self
            .requests
            .clone()
            .poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    /// Whether the server has said how many streams it allows.
    pub(crate) fn is_told(&self) -> bool {
        self.load.is_told.load(Relaxed)
    }

    /// How many streams there may be, as far as is known.
    pub(crate) fn limit(&self) -> usize {
        self.requests.current_max_send_streams().min(STREAMS)
    }

    /// Whether one more stream may begin. One is kept for probes.
    pub(crate) fn has_room(&self, probe: bool) -> bool {
        let limit = self.limit();
        let kept = usize::from(!probe && limit > 1);
        self.load.streams.load(Relaxed) + kept < limit
    }

    /// Whether there is a stream on it.
    pub(crate) fn is_used(&self) -> bool {
        self.load.streams.load(Relaxed) > 0
    }

    /// A ping was not answered, and nothing came since.
    pub(crate) fn is_mute(&self) -> bool {
        self.load.mute.load(Relaxed) == mark(&self.record)
    }

    /// Whether a request waits because the server allows no more streams than there are.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening && self.limit() > 0
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Sent {
        let (parts, body) = request.into_parts();
        // h2 takes what it sends, and a server may go away without having looked at it.
        let again = body.try_clone();
        let mut head = Request::new(());
        head.method_mut().clone_from(&parts.method);
        head.uri_mut().clone_from(&parts.uri);
        head.headers_mut().clone_from(&parts.headers);
        strip(head.headers_mut());
        announce(&mut head, &body);
        let unsent = |again| Sent::Unsent(Box::new(Request::from_parts(parts, again)));

        let whole = body.is_end_stream();
        self.record.ask();
        let (answer, stream) = match self.requests.send_request(head, whole) {
            Ok(sent) => sent,
            // Not begun with: the connection was over before.
            Err(error) if error.is_go_away() || error.is_io() => return unsent(body),
            Err(error) => return Sent::Failed(self.failed(error)),
        };
        self.opening = true;
        // An error is of the connection: whether it is of this stream too, the answer says.
        let _ = poll_fn(|cx| self.requests.poll_ready(cx)).await;
        self.opening = false;
        let exchange = Exchange::new(answer, (!whole).then_some((stream, body)));
        match (exchange.await, again) {
            (Ok((response, upload)), _) => {
                let (parts, stream) = response.into_parts();
                let body = Received::new(stream, &parts.headers, upload, Arc::clone(&self.record));
                Sent::Answered(Response::from_parts(parts, Incoming::H2(body)))
            }
            (Err(Broken::H2(error)), Some(again)) if is_unsent(&error) => unsent(again),
            (Err(Broken::H2(error)), _) => Sent::Failed(self.failed(error)),
            (Err(Broken::Other(error)), _) => Sent::Failed(error),
        }
    }

    fn failed(&self, error: h2::Error) -> TransportError {
        TransportError::from_h2(error, &self.record)
    }
}

/// Whether the server says that it did not look at a request: RFC 9113, 6.8 and 8.7.
fn is_unsent(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || refused)
}

/// Never 0, which says that it is not mute.
fn mark(record: &Record) -> u32 {
    record.heard() | 1 << 31
}

/// What belongs to an HTTP/1.1 connection: RFC 9113, 8.2.2.
fn strip(headers: &mut HeaderMap) {
    const PROXY: HeaderName = HeaderName::from_static("proxy-connection");
    const KEEP: HeaderName = HeaderName::from_static("keep-alive");
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::TE,
        KEEP,
        PROXY,
    ] {
        headers.remove(name);
    }
}

/// Says how long the body is, if that is known.
fn announce(head: &mut Request<()>, body: &Body) {
    let Some(length) = body.size_hint().exact() else {
        return;
    };
    let empty = matches!(*head.method(), Method::GET | Method::HEAD | Method::DELETE);
    if length > 0 || !empty {
        let headers = head.headers_mut();
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| length.into());
    }
}
