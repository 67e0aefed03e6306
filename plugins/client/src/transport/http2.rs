//! One HTTP/2 connection: h2 itself, without a layer between. One task keeps it, and a request is driven by whoever waits for it. What a
//! stream may hold fits into what the connection may hold, so that nobody who does not read stalls anybody else; when calls wait and
//! nothing comes, a ping is sent, whose absence starts a probe.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{Ping, PingPong, Reason, RecvStream, SendStream, client};
use http::{HeaderMap, HeaderName, Method, Request, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use kube::client::Body;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep, sleep},
};

use super::{
    error::TransportError,
    hooks::Signs,
    link::{HEAD, INFORMATIONAL, Incoming, Sent},
    wire::{Record, Wire},
};

/// Streams on one connection; more go to another. A server may allow fewer.
pub(crate) const STREAMS: usize = 64;
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
    /// Those whose answers somebody waits for: no watches, no probes.
    pub(crate) calls: AtomicUsize,
    /// What had been heard when no answer came to a ping, and one more.
    mute: AtomicU32,
}

/// What a connection does when calls wait and nothing comes.
pub(crate) struct Pings {
    /// For so long, and for as long again after a ping.
    pub(crate) after: Duration,
    pub(crate) signs: Arc<dyn Signs>,
}

impl Http2 {
    /// Begins on `io`, and returns what has to run for as long as the connection. The server is thought to allow `streams` until it
    /// has said so.
    pub(crate) async fn begin<T>(
        io: T,
        streams: usize,
        pings: Pings,
    ) -> Result<(Self, Keeper<T>), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let record = Arc::<Record>::default();
        let (requests, mut connection) = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD)
            .max_send_buffer_size(SEND_BUFFER)
            .initial_max_send_streams(streams)
            .enable_push(false)
            .handshake(Wire::new(io, Arc::clone(&record)))
            .await?;
        let load = Arc::<Load>::default();
        let keeper = Keeper {
            ping: connection.ping_pong(),
            connection,
            pings,
            silence: None,
            load: Arc::clone(&load),
            record: Arc::clone(&record),
        };
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

    /// How many streams there may be.
    pub(crate) fn limit(&self) -> usize {
        self.requests.current_max_send_streams().min(STREAMS)
    }

    /// Whether one more stream may begin. One is kept for probes.
    pub(crate) fn has_room(&self, probe: bool) -> bool {
        let limit = self.limit();
        let kept = usize::from(!probe && limit > 1);
        self.load.streams.load(Relaxed) + kept < limit
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
        let exchange = Exchange {
            answer,
            upload: (!whole).then(|| Box::new(Upload::new(stream, body))),
            informational: 0,
        };
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

enum Broken {
    H2(h2::Error),
    Other(TransportError),
}

/// A request whose answer's head has not come.
struct Exchange {
    answer: client::ResponseFuture,
    upload: Option<Box<Upload>>,
    informational: usize,
}

impl Future for Exchange {
    type Output = Result<(Response<RecvStream>, Option<Box<Upload>>), Broken>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(Err(error)) = poll_upload(&mut this.upload, cx) {
            return Poll::Ready(Err(Broken::Other(error)));
        }
        while let Poll::Ready(Some(Ok(_))) = this.answer.poll_informational(cx) {
            this.informational += 1;
            if this.informational > INFORMATIONAL {
                let error = TransportError::informational();
                return Poll::Ready(Err(Broken::Other(error)));
            }
        }
        let response = ready!(Pin::new(&mut this.answer).poll(cx)).map_err(Broken::H2)?;
        Poll::Ready(Ok((response, this.upload.take())))
    }
}

/// A request's body on its way. A server may answer before it has all of it.
struct Upload {
    stream: SendStream<Bytes>,
    body: Body,
    next: Bytes,
}

/// Fails if the body does; what becomes of the stream is known to whoever waits for the answer.
fn poll_upload(
    upload: &mut Option<Box<Upload>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), TransportError>> {
    let Some(going) = upload else {
        return Poll::Ready(Ok(()));
    };
    let done = ready!(going.poll(cx));
    *upload = None;
    Poll::Ready(done)
}

impl Upload {
    fn new(stream: SendStream<Bytes>, body: Body) -> Self {
        Self {
            stream,
            body,
            next: Bytes::new(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        loop {
            if self.next.is_empty() {
                match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => self.next = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => {
                        self.stream.send_reset(Reason::CANCEL);
                        let source = Arc::new(error);
                        return Poll::Ready(Err(TransportError::Protocol { source }));
                    }
                    None => {
                        let _ = self.stream.send_data(Bytes::new(), true);
                        return Poll::Ready(Ok(()));
                    }
                }
                continue;
            }
            self.stream.reserve_capacity(self.next.len());
            let Some(Ok(room)) = ready!(self.stream.poll_capacity(cx)) else {
                return Poll::Ready(Ok(()));
            };
            let part = self.next.split_to(room.min(self.next.len()));
            let last = self.next.is_empty() && self.body.is_end_stream();
            if self.stream.send_data(part, last).is_err() || last {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// The body of an answer.
pub(crate) struct Received {
    stream: RecvStream,
    upload: Option<Box<Upload>>,
    record: Arc<Record>,
    /// What is still to come, if the server has said.
    announced: Option<u64>,
}

impl Received {
    fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        upload: Option<Box<Upload>>,
        record: Arc<Record>,
    ) -> Self {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.filter(|_| !stream.is_end_stream());
        Self {
            announced: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            stream,
            upload,
            record,
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        // What becomes of the rest of a request that is answered is the server's business.
        let _ = poll_upload(&mut self.upload, cx);
        loop {
            return Poll::Ready(match ready!(self.stream.poll_data(cx)) {
                // What comes next, by whoever reads this.
                Some(Ok(data)) if data.is_empty() && !self.stream.is_end_stream() => continue,
                Some(Ok(data)) => {
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    if let Some(left) = &mut self.announced {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    Some(Ok(Frame::data(data)))
                }
                // It has said all, and does not want the rest of the request.
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => None,
                Some(Err(error)) => Some(Err(TransportError::from_h2(error, &self.record))),
                None => None,
            });
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.announced
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Runs for as long as its connection.
pub(crate) struct Keeper<T> {
    connection: client::Connection<Wire<T>, Bytes>,
    ping: Option<PingPong>,
    pings: Pings,
    silence: Option<Silence>,
    load: Arc<Load>,
    record: Arc<Record>,
}

/// Calls wait. There is none, and no timer, while nobody does.
struct Silence {
    timer: Pin<Box<Sleep>>,
    heard: u32,
    pinged: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Keeper<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.listen(cx);
        // What ends it is an error of every stream on it too.
        Pin::new(&mut self.connection).poll(cx).map(|_| ())
    }
}

impl<T> Keeper<T> {
    fn listen(&mut self, cx: &mut Context<'_>) {
        if self.load.calls.load(Relaxed) == 0 {
            self.silence = None;
            return;
        }
        let after = self.pings.after;
        let silence = self.silence.get_or_insert_with(|| Silence {
            timer: Box::pin(sleep(after)),
            heard: self.record.heard(),
            pinged: false,
        });
        while silence.timer.as_mut().poll(cx).is_ready() {
            silence.timer.as_mut().reset(Instant::now() + after);
            let heard = self.record.heard();
            if heard != silence.heard {
                silence.heard = heard;
                silence.pinged = false;
            } else if !silence.pinged {
                silence.pinged = true;
                if let Some(ping) = &mut self.ping {
                    // The last one's answer is taken, so that another can be sent.
                    let _ = ping.poll_pong(cx);
                    let _ = ping.send_ping(Ping::opaque());
                }
            } else if self.load.mute.swap(mark(&self.record), Relaxed) != mark(&self.record) {
                self.pings.signs.doubt();
            }
        }
    }
}
