//! The stream below an HTTP/2 connection, as whoever keeps the connection sees it: that something came, what of TLS broke it, and
//! whether what comes is a flood of small frames that nobody asked for, each of which costs us work and the server nothing. What a server
//! says when it goes away ends here: h2 would log it, and it may repeat our token (rule 19).

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// So many frames without data may come in [`SPAN`], or else [`EACH`] for each request.
const FLOOD: u32 = 10_000;
// Long: what is short of processors, as under a flood, takes fewer frames a second, and it is one all the same.
const SPAN: Duration = Duration::from_secs(30);
const EACH: u32 = 8;

pub(crate) struct Wire<T> {
    io: T,
    record: Arc<Record>,
    frames: Frames,
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Record {
    asked: AtomicU32,
    heard: AtomicU32,
    broke: OnceLock<rustls::Error>,
}

impl Record {
    /// A request is sent.
    pub(crate) fn ask(&self) {
        self.asked.fetch_add(1, Relaxed);
    }

    /// Differs from what it was if something came meanwhile.
    pub(crate) fn heard(&self) -> u32 {
        self.heard.load(Relaxed)
    }

    /// What of TLS ended the connection: h2 keeps the text of an error only.
    pub(crate) fn broke(&self) -> Option<&rustls::Error> {
        self.broke.get()
    }
}

impl<T> Wire<T> {
    pub(crate) fn new(io: T, record: Arc<Record>) -> Self {
        Self {
            io,
            record,
            frames: Frames::new(Instant::now()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if let Err(error) = ready!(Pin::new(&mut this.io).poll_read(cx, buf)) {
            let inner = error.get_ref();
            if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                let _ = this.record.broke.set(tls.clone());
            }
            return Poll::Ready(Err(error));
        }
        let came = &mut buf.filled_mut()[before..];
        if !came.is_empty() {
            this.record.heard.fetch_add(1, Relaxed);
        }
        if this.frames.is_flood(came, &this.record.asked, Instant::now) {
            let flood = "a flood of HTTP/2 frames without data";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, flood)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Counts frames by their heads, across reads.
struct Frames {
    head: [u8; 9],
    /// How much of a head is here.
    have: usize,
    /// How much of a payload came, and how much is to come.
    came: usize,
    rest: usize,
    /// Frames without data since then, and how many requests there were at that time.
    small: u32,
    since: Instant,
    asked: u32,
}

impl Frames {
    fn new(now: Instant) -> Self {
        Self {
            head: [0; 9],
            have: 0,
            came: 0,
            rest: 0,
            small: 0,
            since: now,
            asked: 0,
        }
    }

    fn is_flood(
        &mut self,
        mut came: &mut [u8],
        asked: &AtomicU32,
        now: impl Fn() -> Instant,
    ) -> bool {
        while !came.is_empty() {
            let payload = self.rest.min(came.len());
            let (payload, next) = came.split_at_mut(payload);
            self.take_payload(payload);
            came = next;
            let head = (self.head.len() - self.have).min(came.len());
            self.head[self.have..self.have + head].copy_from_slice(&came[..head]);
            self.have += head;
            came = &mut came[head..];
            if self.have < self.head.len() {
                return false;
            }
            self.take_head();
            if self.small == FLOOD && self.is_too_many(asked.load(Relaxed), now()) {
                return true;
            }
        }
        false
    }

    /// Of a GOAWAY the last stream and the code are read; a text behind them is struck out.
    fn take_payload(&mut self, payload: &mut [u8]) {
        const GOAWAY: u8 = 7;
        const READ: usize = 8;
        if self.head[3] == GOAWAY {
            let read = READ.saturating_sub(self.came).min(payload.len());
            payload[read..].fill(b'-');
        }
        self.came += payload.len();
        self.rest -= payload.len();
    }

    fn take_head(&mut self) {
        const DATA: u8 = 0;
        let [a, b, c, kind, ..] = self.head;
        (self.have, self.came) = (0, 0);
        self.rest = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.small += u32::from(kind != DATA || self.rest == 0);
    }

    fn is_too_many(&mut self, asked: u32, now: Instant) -> bool {
        let requests = asked.wrapping_sub(self.asked);
        let flood = now - self.since < SPAN && requests < FLOOD / EACH;
        (self.small, self.since, self.asked) = (0, now, asked);
        flood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(9 + payload, 0);
        frame
    }

    #[test]
    fn a_flood_is_seen_however_it_is_cut() {
        let (start, none) = (Instant::now(), AtomicU32::new(0));
        let mut ping = frame(6, 0, 8).repeat(FLOOD as usize);
        for cut in [1, 7, 17, 1000, FLOOD as usize * 17] {
            let mut frames = Frames::new(start);
            let mut parts = ping.chunks_mut(cut);
            assert!(parts.any(|came| frames.is_flood(came, &none, || start)));
        }
        let one_less = &mut ping[17..];
        assert!(!Frames::new(start).is_flood(one_less, &none, || start));
    }

    #[test]
    fn what_a_server_says_when_it_goes_away_is_struck_out_however_it_is_cut() {
        let (start, none) = (Instant::now(), AtomicU32::new(0));
        let mut whole = frame(0, 0, 20);
        whole.extend(frame(7, 0, 8));
        let mut said = frame(7, 0, 14);
        said[17..].copy_from_slice(b"s3cret");
        whole.extend(&said);
        whole.extend(frame(0, 0, 20));
        let mut expected = whole.clone();
        expected[29 + 17 + 17..29 + 17 + 23].fill(b'-');
        for cut in 1..whole.len() {
            let (mut frames, mut came) = (Frames::new(start), whole.clone());
            for part in came.chunks_mut(cut) {
                assert!(!frames.is_flood(part, &none, || start));
            }
            assert_eq!(came, expected, "cut at {cut}");
        }
    }

    #[test]
    fn all_frames_but_data_count() {
        let (start, none) = (Instant::now(), AtomicU32::new(0));
        for kind in [1, 3, 4, 6, 8, 9, 200] {
            let mut small = frame(kind, 0, 5).repeat(FLOOD as usize);
            assert!(Frames::new(start).is_flood(&mut small, &none, || start));
        }
        let mut data = frame(0, 0, 1).repeat(FLOOD as usize * 2);
        assert!(!Frames::new(start).is_flood(&mut data, &none, || start));
        let mut empty = frame(0, 0, 0).repeat(FLOOD as usize);
        assert!(Frames::new(start).is_flood(&mut empty, &none, || start));
    }

    #[test]
    fn what_was_asked_for_or_comes_over_a_longer_time_is_no_flood() {
        let (start, asked) = (Instant::now(), AtomicU32::new(0));
        let mut ping = frame(6, 0, 8).repeat(FLOOD as usize);
        let mut frames = Frames::new(start);
        for second in 1..5 {
            assert!(!frames.is_flood(&mut ping, &asked, || start + SPAN * second));
        }
        let now = || start + SPAN * 4;
        for _ in 0..5 {
            asked.fetch_add(FLOOD / EACH, Relaxed);
            assert!(!frames.is_flood(&mut ping, &asked, now));
        }
        assert!(frames.is_flood(&mut ping, &asked, now));
    }
}
