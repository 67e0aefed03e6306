//! One accepted connection as the network sees it: an I/O wrapper *under* TLS whose state can change at any moment.
//!
//! - [`Flow::Open`]: bytes pass, at their pace.
//! - [`Flow::Paused`]: nothing is read and nothing written, as if the process were stopped; nothing is lost.
//! - [`Flow::Swallowed`]: what comes in is read and dropped, what goes out is dropped; the peer sees neither an answer
//!   nor a FIN. The peer's own close is noticed, so that a test can see that a client let go.
//! - [`Flow::Reset`]: the connection ends with a RST. What was swallowed cannot come back, so there is no way from
//!   `Swallowed` to `Open`.

use std::{
    io,
    mem::MaybeUninit,
    net::Shutdown,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use arc_swap::ArcSwap;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
};
use tokio_util::sync::CancellationToken;

use super::{cluster::Inner, connection_fault::Stop, pace::Pace, spoken::Cut, terms::Terms};
use crate::hostile::Then;

/// What becomes of a connection's bytes, the worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Flow {
    #[default]
    Open,
    Paused,
    Swallowed,
    Reset,
}

/// No fault has stopped the connection.
const NOBODY: u64 = u64::MAX;

/// The switch of one connection. The connection's task holds the other end, a [`FaultIo`].
pub(super) struct Wire {
    flow: AtomicU8,
    terms: ArcSwap<Terms>,
    /// The fault that stopped it within its bytes.
    stopped_by: AtomicU64,
    /// What an answer has asked for: see `spoken.rs`.
    cut: Mutex<Option<Cut>>,
    pub(super) has_cut: AtomicBool,
    /// Told of each change of the terms.
    pub(super) changed: Arc<Notify>,
    reader: AtomicWaker,
    writer: AtomicWaker,
    /// Ends the connection's task, and whatever it spawned.
    pub(super) ended: CancellationToken,
}

impl Wire {
    pub(super) fn new(terms: Arc<Terms>, ended: CancellationToken) -> Self {
        Self {
            flow: AtomicU8::new(terms.flow as u8),
            terms: ArcSwap::new(terms),
            stopped_by: AtomicU64::new(NOBODY),
            cut: Mutex::new(None),
            has_cut: AtomicBool::new(false),
            changed: Arc::default(),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
            ended,
        }
    }

    pub(super) fn flow(&self) -> Flow {
        match self.flow.load(Ordering::Acquire) {
            0 => Flow::Open,
            1 => Flow::Paused,
            2 => Flow::Swallowed,
            _ => Flow::Reset,
        }
    }

    pub(super) fn terms(&self) -> Arc<Terms> {
        self.terms.load_full()
    }

    /// From now on these terms hold.
    pub(super) fn apply(&self, terms: Arc<Terms>) {
        let stopped_by = self.stopped_by.load(Ordering::Acquire);
        let flow = match stopped_by {
            NOBODY => terms.flow,
            fault if terms.stop(fault) => terms.flow.max(Flow::Swallowed),
            _ => Flow::Reset,
        };
        let served_by = |terms: &Terms| terms.hostile.as_ref().map(|holding| holding.id);
        let left = served_by(&self.terms()).is_some_and(|id| served_by(&terms) != Some(id));
        self.terms.store(terms);
        self.set(flow);
        self.changed.notify_waiters();
        self.wake();
        if left {
            self.ended.cancel();
        }
    }

    /// Changes the flow. Swallowed bytes are gone, so what was swallowed and is to flow again is reset.
    pub(super) fn set(&self, flow: Flow) {
        let now = self.flow();
        if now == Flow::Reset || now == flow {
            return;
        }
        let next = if now == Flow::Swallowed {
            Flow::Reset
        } else {
            flow
        };
        self.flow.store(next as u8, Ordering::Release);
        self.wake();
        if next == Flow::Reset {
            self.ended.cancel();
        }
    }

    fn wake(&self) {
        self.reader.wake();
        self.writer.wake();
    }

    /// A fault stops it here. What is closed was closed by [`FaultIo`].
    pub(super) fn stop(&self, fault: u64, then: Then) {
        self.stopped_by.store(fault, Ordering::Release);
        self.set(if then == Then::Reset {
            Flow::Reset
        } else {
            Flow::Swallowed
        });
    }

    /// Asks for a cut within what is said from now on.
    pub(super) fn ask_for(&self, cut: Cut) {
        *self.cut.lock() = Some(cut);
        self.has_cut.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn with_cut<T>(&self, act: impl FnOnce(&mut Option<Cut>) -> T) -> T {
        let mut cut = self.cut.lock();
        let result = act(&mut cut);
        self.has_cut.store(cut.is_some(), Ordering::Release);
        result
    }
}

/// A TCP stream whose bytes flow as its [`Wire`] says.
pub(super) struct FaultIo {
    socket: TcpStream,
    pub(super) wire: Arc<Wire>,
    cluster: Arc<Inner>,
    written: u64,
    /// The fault that stops it at an offset, and how much was written when it began to hold.
    stop: Option<(u64, u64)>,
    pace: Option<Box<Pace>>,
    number: u64,
}

impl FaultIo {
    pub(super) fn new(
        socket: TcpStream,
        wire: Arc<Wire>,
        cluster: Arc<Inner>,
        number: u64,
    ) -> Self {
        Self {
            socket,
            wire,
            cluster,
            written: 0,
            stop: None,
            pace: None,
            number,
        }
    }

    /// What a write does now; registers the task for the next change.
    fn write_flow(&self, cx: &Context<'_>) -> Flow {
        self.wire.writer.register(cx.waker());
        self.wire.flow()
    }

    /// How much may still be written, and how it stops then.
    fn left(&mut self, terms: &Terms) -> Option<(u64, u64, Then)> {
        let Some((id, Stop { after, then })) = terms.stop else {
            self.stop = None;
            return None;
        };
        let since = match self.stop {
            Some((known, since)) if known == id => since,
            _ => self.written,
        };
        self.stop = Some((id, since));
        Some((after.saturating_sub(self.written - since), id, then))
    }

    fn stop(&self, fault: u64, then: Then) {
        self.close(then);
        self.wire.stop(fault, then);
    }

    /// The server's side of TCP, where a connection stops so.
    pub(super) fn close(&self, then: Then) {
        if then == Then::Close {
            // It fails only on a socket that is gone already.
            let _ = SockRef::from(&self.socket).shutdown(Shutdown::Write);
        }
    }

    fn write(
        &mut self,
        cx: &mut Context<'_>,
        buf: &[u8],
        terms: &Terms,
    ) -> Poll<io::Result<usize>> {
        if self.pace.is_none() && !terms.is_paced() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
            self.cluster.counting.sent(written);
            return Poll::Ready(Ok(written));
        }
        let number = self.number;
        let pace = self
            .pace
            .get_or_insert_with(|| Box::new(Pace::new(number, terms)));
        ready!(pace.poll_room(&mut self.socket, cx, terms, &self.cluster.counting))?;
        let taken = pace.take(buf, terms);
        // What cannot leave yet leaves when it is flushed, or when there is something to read.
        let _ = self.drain(cx, terms)?;
        Poll::Ready(Ok(taken))
    }

    /// Lets out what is due.
    fn drain(&mut self, cx: &mut Context<'_>, terms: &Terms) -> Poll<io::Result<()>> {
        let Some(pace) = &mut self.pace else {
            return Poll::Ready(Ok(()));
        };
        ready!(pace.poll_drain(&mut self.socket, cx, terms, &self.cluster.counting))?;
        if !terms.is_paced() {
            self.pace = None;
        }
        Poll::Ready(Ok(()))
    }
}

fn reset<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for FaultIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.wire.reader.register(cx.waker());
        match self.wire.flow() {
            Flow::Open => {
                if self.pace.is_some() {
                    let terms = self.wire.terms();
                    let _ = self.drain(cx, &terms)?;
                }
                let before = buf.filled().len();
                ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
                let read = buf.filled().len() - before;
                self.cluster.counting.received(read);
                Poll::Ready(Ok(()))
            }
            Flow::Paused => Poll::Pending,
            Flow::Swallowed => loop {
                let mut lost = [MaybeUninit::uninit(); 1024];
                let mut lost = ReadBuf::uninit(&mut lost);
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut lost))?;
                if lost.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                self.cluster.counting.received(lost.filled().len());
            },
            Flow::Reset => reset(),
        }
    }
}

impl AsyncWrite for FaultIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.write_flow(cx) {
            Flow::Open => {}
            Flow::Paused => return Poll::Pending,
            Flow::Swallowed => return Poll::Ready(Ok(buf.len())),
            Flow::Reset => return reset(),
        }
        let terms = self.wire.terms();
        let left = self.left(&terms);
        let room = left.map_or(buf.len(), |(left, ..)| {
            usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()))
        });
        if let (0, Some((_, fault, then))) = (room, left) {
            // What went before has left.
            ready!(self.drain(cx, &terms))?;
            self.stop(fault, then);
            return match then {
                Then::Reset => reset(),
                Then::Silence | Then::Close => Poll::Ready(Ok(buf.len())),
            };
        }
        let written = ready!(self.write(cx, &buf[..room], &terms))?;
        self.written += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.write_flow(cx) {
            Flow::Open => {
                let terms = self.wire.terms();
                ready!(self.drain(cx, &terms))?;
                Pin::new(&mut self.socket).poll_flush(cx)
            }
            Flow::Paused => Poll::Pending,
            Flow::Swallowed => Poll::Ready(Ok(())),
            Flow::Reset => reset(),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.write_flow(cx) {
            Flow::Open => {
                let terms = self.wire.terms();
                ready!(self.drain(cx, &terms))?;
                Pin::new(&mut self.socket).poll_shutdown(cx)
            }
            Flow::Paused => Poll::Pending,
            Flow::Swallowed => Poll::Ready(Ok(())),
            Flow::Reset => reset(),
        }
    }
}

impl Drop for FaultIo {
    fn drop(&mut self) {
        if self.wire.flow() == Flow::Reset {
            // A close then sends RST. It fails only on a socket that is gone already.
            let _ = self.socket.set_zero_linger();
        }
    }
}
