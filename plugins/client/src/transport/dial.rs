//! The way up to a connection: a permit, the dialer (name and TCP), TLS, HTTP. Each stage has its own deadline, and its errors say which
//! it was.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::timeout,
};
use tokio_rustls::{Connect, TlsConnector, client::TlsStream};

use super::{
    Shared,
    error::{TransportError, Wait},
    hooks::Permit,
    silent::Silent,
    tls::Tls,
};
use crate::{ByteStream, Destination};

/// A connection that is up, below HTTP.
pub(crate) enum Connected {
    /// Boxed: it is two kilobytes, and every future on its way would hold it in line, several times.
    Tls(Box<TlsStream<Silent>>),
    /// The endpoint is plain http.
    Plain(Box<dyn ByteStream>),
}

/// What is short where a dial waits for leave of ours.
pub(crate) const PERMIT: &str = "a permit to dial";

/// Dials until TLS is up. The permit is held until the stream has spoken HTTP, so it comes back with it. `waits` is told when it begins to
/// wait for its turn, which is not the server's time, and when that is over.
pub(crate) async fn dial(
    shared: &Shared,
    tls: &Tls,
    mut permit: Box<dyn Permit>,
    mut waits: impl FnMut(bool) + Send,
) -> Result<(Connected, Box<dyn Permit>), TransportError> {
    let deadline = shared.deadlines.tls;
    let stream = tokio::select! {
        biased;
        stream = way(shared) => stream?,
        () = permit.evicted() => return Err(TransportError::Evicted),
    };
    let Tls::On { config, name } = tls else {
        return Ok((Connected::Plain(stream), permit));
    };
    let connector = TlsConnector::from(Arc::clone(config));
    let mut connect = Box::new(connector.connect(name.clone(), Silent::new(stream)));
    // Until the server says something, the dial can be given up for another cluster's.
    let silence = within(Wait::Tls, deadline, first_byte(&mut connect, &*permit));
    if let Some(stream) = silence.await?? {
        return Ok((Connected::Tls(stream), permit));
    }
    waits(true);
    permit.received().await;
    waits(false);
    if let Some(silent) = connect.get_mut() {
        silent.let_through();
    }
    let stream = within(Wait::Tls, deadline, boxed(&mut connect)).await??;
    Ok((Connected::Tls(stream), permit))
}

/// A deadline that says what it was for.
pub(crate) async fn within<T>(
    stage: Wait,
    after: Duration,
    work: impl Future<Output = T>,
) -> Result<T, TransportError> {
    timeout(after, work)
        .await
        .map_err(|_| TransportError::Deadline { stage, after })
}

/// Boxed: with a proxy it is large, and most have none.
fn way(shared: &Shared) -> BoxFuture<'_, Result<Box<dyn ByteStream>, TransportError>> {
    let target = &shared.target;
    match &target.via {
        Some(proxy) => Box::pin(proxy.connect(shared)),
        None => Box::pin(reach(shared, &target.host, target.port)),
    }
}

/// The dialer keeps its two deadlines apart; whether it does or not, it has no longer than both.
pub(crate) async fn reach(
    shared: &Shared,
    host: &str,
    port: u16,
) -> Result<Box<dyn ByteStream>, TransportError> {
    let Shared {
        target,
        hooks,
        deadlines,
        ..
    } = shared;
    let to = Destination {
        cluster: &hooks.cluster,
        host,
        port,
        addresses: &target.addresses,
        resolve: deadlines.resolve,
        connect: deadlines.connect,
    };
    let both = to.resolve + to.connect;
    within(Wait::Connect, both, hooks.dialer.dial(to)).await?
}

/// Says hello and waits for the first byte. A stream only if TLS is up without one having been held back, which is not to be seen.
async fn first_byte(
    connect: &mut Connect<Silent>,
    permit: &dyn Permit,
) -> Result<Option<Box<TlsStream<Silent>>>, TransportError> {
    let mut evicted = pin!(permit.evicted());
    poll_fn(|cx| {
        if let Poll::Ready(done) = poll_boxed(connect, cx) {
            return Poll::Ready(done.map(Some));
        }
        if connect.get_ref().is_some_and(Silent::is_waiting) {
            return Poll::Ready(Ok(None));
        }
        evicted
            .as_mut()
            .poll(cx)
            .map(|()| Err(TransportError::Evicted))
    })
    .await
}

async fn boxed(connect: &mut Connect<Silent>) -> Result<Box<TlsStream<Silent>>, TransportError> {
    poll_fn(|cx| poll_boxed(connect, cx)).await
}

fn poll_boxed(
    connect: &mut Connect<Silent>,
    cx: &mut Context<'_>,
) -> Poll<Result<Box<TlsStream<Silent>>, TransportError>> {
    let done = Pin::new(connect).poll(cx);
    done.map_ok(Box::new).map_err(TransportError::from_tls)
}

impl Connected {
    /// Whether the server chose HTTP/2. Without TLS there is no choice, and HTTP/1.1 is what is spoken.
    pub(crate) fn is_http2(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            Self::Plain(_) => false,
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn ByteStream> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(&mut **stream),
            Self::Plain(stream) => Pin::new(&mut **stream),
        }
    }
}

impl AsyncRead for Connected {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Connected {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Plain(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
