//! A stream that holds back the server's first byte until its dial has a turn as a handshake: what a server has sent costs no
//! work before that, and a server that sends nothing costs no more than a descriptor.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ByteStream;

pub(crate) struct Silent {
    stream: Box<dyn ByteStream>,
    heard: Heard,
}

#[derive(Clone, Copy)]
enum Heard {
    /// Nothing came yet.
    Nothing,
    /// The first byte, or the end, is here and held back. Whoever drives the dial sees that after each poll; nobody has to be woken.
    Waiting(Option<u8>),
    /// That may be read now.
    First(Option<u8>),
    /// Reading goes on as ever.
    Through,
}

impl Silent {
    pub(crate) fn new(stream: Box<dyn ByteStream>) -> Self {
        Self {
            stream,
            heard: Heard::Nothing,
        }
    }

    /// Whether the first byte, or the end, waits to be read.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.heard, Heard::Waiting(_))
    }

    pub(crate) fn let_through(&mut self) {
        self.heard = match self.heard {
            Heard::Waiting(first) => Heard::First(first),
            Heard::Nothing => Heard::Through,
            later => later,
        };
    }
}

impl AsyncRead for Silent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.heard {
            Heard::Through => Pin::new(&mut self.stream).poll_read(cx, buf),
            Heard::Waiting(_) => Poll::Pending,
            Heard::First(None) => Poll::Ready(Ok(())),
            Heard::First(Some(first)) => {
                if buf.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
                buf.put_slice(&[first]);
                self.heard = Heard::Through;
                // What came with it, if it is there. After an error, the next read fails or is the end.
                let _ = Pin::new(&mut self.stream).poll_read(cx, buf);
                Poll::Ready(Ok(()))
            }
            Heard::Nothing => {
                let mut first = [0];
                let mut held = ReadBuf::new(&mut first);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut held))?;
                self.heard = Heard::Waiting(held.filled().first().copied());
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
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
