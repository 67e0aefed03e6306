//! One accepted connection as the network sees it: an I/O wrapper *under* TLS whose state can change at any moment.
//!
//! - [`Flow::Open`]: bytes pass.
//! - [`Flow::Paused`]: nothing is read and nothing written, as if the process were stopped; nothing is lost.
//! - [`Flow::Swallowed`]: what comes in is read and dropped, what goes out is dropped; the peer sees neither an answer
//!   nor a FIN. The peer's own close is noticed, so that a test can see that a client let go.
//! - [`Flow::Reset`]: the connection ends with a RST. What was swallowed cannot come back, so there is no way from
//!   `Swallowed` to `Open`.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
};

use futures_util::task::AtomicWaker;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

/// What becomes of a connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Flow {
    Open,
    Paused,
    Swallowed,
    Reset,
}

/// The switch of one connection. The connection's task holds the other end, a [`FaultIo`].
pub(super) struct Wire {
    flow: AtomicU8,
    reader: AtomicWaker,
    writer: AtomicWaker,
    /// Ends the connection's task, and whatever it spawned.
    pub(super) ended: CancellationToken,
}

impl Wire {
    pub(super) fn new(flow: Flow, ended: CancellationToken) -> Self {
        Self {
            flow: AtomicU8::new(flow as u8),
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
        self.reader.wake();
        self.writer.wake();
        if next == Flow::Reset {
            self.ended.cancel();
        }
    }
}

/// A TCP stream whose bytes flow as its [`Wire`] says.
pub(super) struct FaultIo {
    socket: TcpStream,
    wire: Arc<Wire>,
}

impl FaultIo {
    pub(super) fn new(socket: TcpStream, wire: Arc<Wire>) -> Self {
        Self { socket, wire }
    }

    /// What a write does now; registers the task for the next change.
    fn write_flow(&self, cx: &Context<'_>) -> Flow {
        self.wire.writer.register(cx.waker());
        self.wire.flow()
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
            Flow::Open => Pin::new(&mut self.socket).poll_read(cx, buf),
            Flow::Paused => Poll::Pending,
            Flow::Swallowed => loop {
                let mut lost = [MaybeUninit::uninit(); 1024];
                let mut lost = ReadBuf::uninit(&mut lost);
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut lost))?;
                if lost.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
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
            Flow::Open => Pin::new(&mut self.socket).poll_write(cx, buf),
            Flow::Paused => Poll::Pending,
            Flow::Swallowed => Poll::Ready(Ok(buf.len())),
            Flow::Reset => reset(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.write_flow(cx) {
            Flow::Open => Pin::new(&mut self.socket).poll_flush(cx),
            Flow::Paused => Poll::Pending,
            Flow::Swallowed => Poll::Ready(Ok(())),
            Flow::Reset => reset(),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.write_flow(cx) {
            Flow::Open => Pin::new(&mut self.socket).poll_shutdown(cx),
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
