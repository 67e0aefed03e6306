//! The server's side of HTTP/2, frame by frame, for what no proper server says.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// `:status: 200` as HPACK has it.
pub(super) const OK: &[u8] = &[0x88];
/// `:status: 100`.
pub(super) const CONTINUE: &[u8] = &[0x08, 3, b'1', b'0', b'0'];

pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// That streams after `last` were not looked at.
pub(super) fn goaway(last: u32, reason: u32) -> Vec<u8> {
    frame(
        GOAWAY,
        0,
        0,
        &[last.to_be_bytes(), reason.to_be_bytes()].concat(),
    )
}

/// A whole answer.
pub(super) fn answer(stream: u32, body: &str) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, OK);
    [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

pub(super) struct Peer<S> {
    stream: S,
    /// Whether it answers pings.
    pub(super) pongs: bool,
    pub(super) pings: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Reads the client's preface, and says nothing.
    pub(super) async fn silent(mut stream: S) -> Self {
        let mut preface = [0; 24];
        let _ = stream.read_exact(&mut preface).await;
        Self {
            stream,
            pongs: true,
            pings: 0,
        }
    }

    /// Reads the client's preface, and says its settings.
    pub(super) async fn begin(stream: S, settings: &[u8]) -> Self {
        let mut peer = Self::silent(stream).await;
        peer.send(&frame(SETTINGS, 0, 0, settings)).await;
        peer
    }

    /// Whether there was somebody who reads it.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// The same for ever; returns when the client has gone.
    pub(super) async fn flood(&mut self, bytes: &[u8]) {
        let bytes = bytes.repeat(1 + (16 << 10) / bytes.len());
        while self.send(&bytes).await {}
    }

    /// The next frame; what has to be acknowledged is.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        self.stream.read_exact(&mut payload).await.ok()?;
        if kind == SETTINGS && flags & ACK == 0 {
            self.send(&frame(SETTINGS, ACK, 0, &[])).await;
        }
        if kind == PING && flags & ACK == 0 {
            self.pings += 1;
            if self.pongs {
                self.send(&frame(PING, ACK, 0, &payload)).await;
            }
        }
        let stream = u32::from_be_bytes(stream);
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// The stream of the next request.
    pub(super) async fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.next().await?;
            if frame.kind == HEADERS {
                return Some(frame.stream);
            }
        }
    }

    /// Answers what is asked, until the client has gone.
    pub(super) async fn serve(&mut self, body: &str) {
        while let Some(stream) = self.request().await {
            self.send(&answer(stream, body)).await;
        }
    }

    /// Reads until the client has gone.
    pub(super) async fn drain(&mut self) {
        while self.next().await.is_some() {}
    }
}
