//! TCP below TLS: it counts bytes, stops at an offset, and lets bytes out one by one.

use std::{
    io,
    net::Shutdown,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{Behaviour, Inner};

/// How a connection stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Nothing more comes, and what the client sends is read.
    #[default]
    Silence,
    /// TCP is closed on the server's side, and what the client sends is read.
    Close,
    /// The connection is reset.
    Reset,
}

/// What may be done to a connection from elsewhere than its wire.
pub(super) struct Switch {
    /// What is written is dropped.
    dropping: AtomicBool,
    /// When its socket is dropped, it is reset.
    resetting: AtomicBool,
    /// Ends the connection's tasks.
    pub(super) ended: CancellationToken,
}

impl Switch {
    pub(super) fn new(ended: CancellationToken) -> Self {
        Self {
            dropping: AtomicBool::new(false),
            resetting: AtomicBool::new(false),
            ended,
        }
    }

    pub(super) fn drop_output(&self) {
        self.dropping.store(true, Ordering::Release);
    }

    pub(super) fn reset(&self) {
        self.resetting.store(true, Ordering::Release);
        self.ended.cancel();
    }
}

pub(super) struct Wire {
    tcp: TcpStream,
    inner: Arc<Inner>,
    switch: Arc<Switch>,
    stop: Option<(u64, Then)>,
    written: u64,
    pace: Option<Duration>,
    next: Pin<Box<Sleep>>,
}

impl Wire {
    pub(super) fn new(
        tcp: TcpStream,
        number: u64,
        behaviour: &Behaviour,
        inner: Arc<Inner>,
        switch: Arc<Switch>,
    ) -> Self {
        // Small writes are what a test is about.
        let _ = tcp.set_nodelay(true);
        let wire = Self {
            tcp,
            inner,
            switch,
            stop: behaviour.stop_of(number),
            written: 0,
            pace: behaviour.pace,
            next: Box::pin(sleep(behaviour.pace.unwrap_or_default())),
        };
        wire.stop_if_due();
        wire
    }

    /// How many bytes may still be written.
    fn left(&self) -> u64 {
        self.stop.map_or(u64::MAX, |(most, _)| most - self.written)
    }

    fn stop_if_due(&self) {
        match self.stop {
            Some((most, Then::Close)) if most == self.written => {
                // It fails only on a socket that is gone already.
                let _ = SockRef::from(&self.tcp).shutdown(Shutdown::Write);
            }
            Some((most, Then::Reset)) if most == self.written => self.switch.reset(),
            _ => (),
        }
    }
}

impl Wire {
    fn count(&self, sent: impl FnOnce(u64) -> u64) {
        self.inner
            .counting
            .change(|counts| counts.sent = sent(counts.sent));
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        let read = (buf.filled().len() - before) as u64;
        self.inner.counting.change(|counts| counts.received += read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.switch.dropping.load(Ordering::Acquire) {
            return Poll::Ready(Ok(buf.len()));
        }
        let most = usize::try_from(self.left()).unwrap_or(usize::MAX);
        if most == 0 {
            // The peer's own close is noticed by reading.
            return Poll::Ready(Ok(buf.len()));
        }
        let mut room = buf.len().min(most);
        if self.pace.is_some() {
            ready!(self.next.as_mut().poll(cx));
            room = room.min(1);
        }
        // Counted before the peer can answer to it, and as far as it was not written taken back.
        self.count(|sent| sent + room as u64);
        let result = Pin::new(&mut self.tcp).poll_write(cx, &buf[..room]);
        let written = match &result {
            Poll::Ready(Ok(written)) => *written,
            _ => 0,
        };
        if written < room {
            self.count(|sent| sent - (room - written) as u64);
        }
        let written = ready!(result)?;
        if let Some(pace) = self.pace {
            self.next.as_mut().reset(Instant::now() + pace);
        }
        self.written += written as u64;
        self.stop_if_due();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stop {
            // It said that it stops in another way.
            Some((most, _)) if most == self.written => Poll::Ready(Ok(())),
            _ => Pin::new(&mut self.tcp).poll_shutdown(cx),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.switch.resetting.load(Ordering::Acquire) {
            // A close then sends RST. It fails only on a socket that is gone already.
            let _ = self.tcp.set_zero_linger();
        }
    }
}
