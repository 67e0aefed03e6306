//! What a connection says *within* TLS: where an answer has asked for it, the connection stops at a byte of a head, or after all
//! that was said before.

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::wire::{FaultIo, Wire};
use crate::hostile::Then;

/// How a connection is to stop, and by which fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) fault: u64,
    pub(super) then: Then,
    pub(super) at: At,
}

/// Where it is to stop.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// After so many more bytes, from the next head on.
    Head { left: u64, begun: bool },
    /// When all is written that was said until now. What an HTTP/2 stream has said may still wait to be framed while earlier
    /// frames are flushed: so it is the second flush after the word that counts.
    Flushed { first: bool },
}

/// A TLS stream that can be stopped within what it says.
pub(super) struct Spoken {
    tls: TlsStream<FaultIo>,
    wire: Arc<Wire>,
    /// Over HTTP/2.
    frames: Option<Frames>,
}

impl Spoken {
    pub(super) fn new(tls: TlsStream<FaultIo>, http2: bool) -> Self {
        let wire = tls.get_ref().0.wire.clone();
        Self {
            tls,
            wire,
            frames: http2.then(Frames::default),
        }
    }

    fn cut(&self) -> Option<Cut> {
        if self.wire.has_cut.load(Ordering::Acquire) {
            self.wire.with_cut(|cut| *cut)
        } else {
            None
        }
    }

    /// All that may leave has left.
    fn stop(&self, cut: Cut) {
        self.wire.with_cut(|asked| *asked = None);
        self.tls.get_ref().0.close(cut.then);
        self.wire.stop(cut.fault, cut.then);
    }

    /// How many of these bytes come before the head begins in which it is to stop: all, if none begins here.
    fn before_head(&self, buf: &[u8]) -> usize {
        match &self.frames {
            Some(frames) => frames.next_head(buf).unwrap_or(buf.len()),
            None => 0,
        }
    }

    fn said(&mut self, bytes: &[u8]) {
        if let Some(frames) = &mut self.frames {
            frames.pass(bytes);
        }
    }

    fn write_head(
        &mut self,
        cx: &mut Context<'_>,
        buf: &[u8],
        cut: Cut,
        left: u64,
        begun: bool,
    ) -> Poll<io::Result<usize>> {
        let before = if begun { 0 } else { self.before_head(buf) };
        if left == 0 && before == 0 {
            ready!(Pin::new(&mut self.tls).poll_flush(cx))?;
            self.stop(cut);
            return Poll::Ready(Ok(buf.len()));
        }
        let begins = begun || before < buf.len();
        let of_head = usize::try_from(left).unwrap_or(usize::MAX);
        let room = buf.len().min(before.saturating_add(of_head));
        let written = ready!(Pin::new(&mut self.tls).poll_write(cx, &buf[..room]))?;
        self.said(&buf[..written]);
        let of_head = written.saturating_sub(before) as u64;
        let at = At::Head {
            left: left - of_head,
            begun: begins && written >= before,
        };
        self.wire.with_cut(|asked| *asked = Some(Cut { at, ..cut }));
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for Spoken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for Spoken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(cut) = self.cut()
            && let At::Head { left, begun } = cut.at
        {
            return self.write_head(cx, buf, cut, left, begun);
        }
        let written = ready!(Pin::new(&mut self.tls).poll_write(cx, buf))?;
        self.said(&buf[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tls).poll_flush(cx))?;
        let Some(cut) = self.cut() else {
            return Poll::Ready(Ok(()));
        };
        match cut.at {
            At::Flushed { first: true } => {
                let at = At::Flushed { first: false };
                self.wire.with_cut(|asked| *asked = Some(Cut { at, ..cut }));
                cx.waker().wake_by_ref();
            }
            At::Flushed { first: false } => self.stop(cut),
            At::Head { .. } => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

/// Where in the frames of HTTP/2 a connection is.
#[derive(Default)]
struct Frames {
    /// What was said of the head of a frame that is not whole yet.
    head: [u8; Self::HEAD],
    known: usize,
    /// What is to come of the payload of a frame.
    payload: usize,
}

impl Frames {
    /// The length of a frame's head, and where its type stands.
    const HEAD: usize = 9;
    const KIND: usize = 3;
    const HEADERS: u8 = 1;

    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let some = self.payload.min(bytes.len());
                self.payload -= some;
                bytes = &bytes[some..];
                continue;
            }
            let some = (Self::HEAD - self.known).min(bytes.len());
            self.head[self.known..self.known + some].copy_from_slice(&bytes[..some]);
            self.known += some;
            bytes = &bytes[some..];
            if self.known == Self::HEAD {
                self.payload = length(&self.head);
                self.known = 0;
            }
        }
    }

    /// Where in these bytes a frame of headers begins. One whose head does not begin and say its type here is not seen.
    fn next_head(&self, bytes: &[u8]) -> Option<usize> {
        if self.known > 0 {
            return None;
        }
        let mut at = self.payload;
        loop {
            let head = bytes.get(at..)?;
            if *head.get(Self::KIND)? == Self::HEADERS {
                return Some(at);
            }
            at += Self::HEAD + length(head.get(..Self::HEAD)?);
        }
    }
}

fn length(head: &[u8]) -> usize {
    head[..3]
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::http2;

    #[test]
    fn the_next_frame_of_headers_is_found_wherever_writes_are_cut() {
        let said = [
            http2::settings(&[(1, 2)]),
            http2::data(1, b"some body", false),
            http2::headers(3, 200, [], false),
        ]
        .concat();
        let start = said.len() - http2::headers(3, 200, [], false).len();
        for cut in (0..start).filter(|cut| {
            // Not within the head of another frame.
            let mut frames = Frames::default();
            frames.pass(&said[..*cut]);
            frames.known == 0
        }) {
            let mut frames = Frames::default();
            frames.pass(&said[..cut]);
            assert_eq!(
                frames.next_head(&said[cut..]),
                Some(start - cut),
                "at {cut}"
            );
        }
        let mut frames = Frames::default();
        assert_eq!(frames.next_head(&said[..start]), None);
        frames.pass(&said);
        assert_eq!((frames.known, frames.payload), (0, 0));
    }
}
