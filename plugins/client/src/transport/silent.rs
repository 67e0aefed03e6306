//! A TCP stream that holds back the server's first byte until its dial has a turn as a handshake: what a server has sent costs no
//! work before that, and a server that sends nothing costs no more than a descriptor.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

pub(crate) struct Silent {
    tcp: TcpStream,
    heard: Heard,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Nothing came yet.
    Nothing,
    /// Something waits to be read. Whoever drives the dial sees that after each poll; nobody has to be woken.
    Waiting,
    /// Reading goes on as ever.
    Through,
}

impl Silent {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            heard: Heard::Nothing,
        }
    }

    /// Whether the first byte, or the end, waits to be read.
    pub(crate) fn is_waiting(&self) -> bool {
        self.heard == Heard::Waiting
    }

    pub(crate) fn let_through(&mut self) {
        self.heard = Heard::Through;
    }
}

impl AsyncRead for Silent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.heard {
            Heard::Through => Pin::new(&mut self.tcp).poll_read(cx, buf),
            Heard::Waiting => Poll::Pending,
            Heard::Nothing => {
                ready!(self.tcp.poll_read_ready(cx))?;
                self.heard = Heard::Waiting;
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Silent {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
