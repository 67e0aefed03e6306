//! The pace of a connection: what the server sends waits for its latency, and leaves within its bandwidth.
//!
//! It has no task: whoever flushes the connection, or reads from it, lets out what is due.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::AsyncWrite,
    time::{Instant, Sleep, sleep_until},
};

use super::{counters::Counting, terms::Terms};

/// Bytes that wait at most; beyond that, writing waits.
const ROOM: usize = 256 << 10;

/// What a limited connection sends at a time: as much as takes so long.
const SLICE: Duration = Duration::from_millis(10);

pub(super) struct Pace {
    waiting: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    /// When the last that was taken is due: nothing overtakes.
    last_due: Instant,
    /// When the bandwidth allows the next byte.
    next: Instant,
    timer: Pin<Box<Sleep>>,
    random: fastrand::Rng,
}

impl Pace {
    /// Of the connection with this number.
    pub(super) fn new(number: u64, terms: &Terms) -> Self {
        let now = Instant::now();
        let seed = terms.latency.as_ref().map_or(0, |(_, seed)| *seed);
        // Neighbouring seeds and numbers must not draw alike.
        let mut seeds = fastrand::Rng::with_seed(seed);
        let random = fastrand::Rng::with_seed(seeds.u64(..).wrapping_add(number));
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            last_due: now,
            next: now,
            timer: Box::pin(sleep_until(now)),
            random,
        }
    }

    /// Ready when there is room.
    pub(super) fn poll_room(
        &mut self,
        socket: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
        terms: &Terms,
        counting: &Counting,
    ) -> Poll<io::Result<()>> {
        let full = |pace: &Self| pace.bytes >= ROOM;
        while full(self) {
            ready!(self.poll_next(socket, cx, terms, counting))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes some bytes, which leave in their turn.
    pub(super) fn take(&mut self, bytes: &[u8], terms: &Terms) -> usize {
        let latency = terms.latency.as_ref();
        let late = latency.map_or(Duration::ZERO, |(latency, _)| latency.at(self.random.f64()));
        let taken = bytes.len().min(ROOM);
        self.last_due = self.last_due.max(Instant::now() + late);
        let bytes = Bytes::copy_from_slice(&bytes[..taken]);
        self.waiting.push_back((self.last_due, bytes));
        self.bytes += taken;
        taken
    }

    /// Ready when nothing waits.
    pub(super) fn poll_drain(
        &mut self,
        socket: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
        terms: &Terms,
        counting: &Counting,
    ) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            ready!(self.poll_next(socket, cx, terms, counting))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Lets out some of what waits. Faults that no longer hold delay nothing.
    fn poll_next(
        &mut self,
        socket: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
        terms: &Terms,
        counting: &Counting,
    ) -> Poll<io::Result<()>> {
        let Some((due, bytes)) = self.waiting.front_mut() else {
            return Poll::Ready(Ok(()));
        };
        let now = Instant::now();
        let late = terms.latency.as_ref().map(|_| *due);
        let limited = terms.bandwidth.map(|_| self.next);
        if let Some(at) = late.into_iter().chain(limited).max().filter(|at| *at > now) {
            if self.timer.deadline() != at {
                self.timer.as_mut().reset(at);
            }
            ready!(self.timer.as_mut().poll(cx));
        }
        let slice = terms.bandwidth.map_or(usize::MAX, |rate| {
            let bytes = u128::from(rate.get()) * SLICE.as_millis() / 1000;
            usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
        });
        let room = bytes.len().min(slice);
        let written = ready!(Pin::new(socket).poll_write(cx, &bytes[..room]))?;
        counting.sent(written);
        bytes.advance(written);
        if bytes.is_empty() {
            self.waiting.pop_front();
        }
        self.bytes -= written;
        if let Some(rate) = terms.bandwidth {
            // Far below the range of a double's exact integers.
            #[expect(clippy::cast_precision_loss)]
            let took = Duration::from_secs_f64(written as f64 / rate.get() as f64);
            self.next = self.next.max(now) + took;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::fleet::{
        ConnectionFault, Latency,
        terms::{Holding, Terms},
    };

    fn terms(fault: ConnectionFault) -> Terms {
        Terms::of(&[Holding::new(1, fault.into(), 0)], 0)
    }

    /// When each byte arrives, in milliseconds, of some that are sent one after the other at once.
    async fn arrivals(number: u64, fault: ConnectionFault, bytes: u8) -> Vec<u128> {
        let (mut out, mut into) = tokio::io::duplex(1 << 16);
        let (terms, counting) = (terms(fault), Counting::new());
        let begun = Instant::now();
        let mut pace = Pace::new(number, &terms);
        for byte in 0..bytes {
            assert_eq!(pace.take(&[byte], &terms), 1);
        }
        let reading = tokio::spawn(async move {
            let mut times = Vec::new();
            for byte in 0..bytes {
                assert_eq!(into.read_u8().await.unwrap(), byte, "in order");
                times.push(begun.elapsed().as_millis());
            }
            times
        });
        poll_fn(|cx| pace.poll_drain(&mut out, cx, &terms, &counting))
            .await
            .unwrap();
        assert_eq!(counting.now().bytes_sent, u64::from(bytes));
        reading.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_late_comes_in_order_and_by_its_seed_and_number() {
        let ms = Duration::from_millis;
        let fixed = ConnectionFault::latency(Latency::fixed(ms(40)));
        assert!(
            arrivals(0, fixed, 5)
                .await
                .iter()
                .all(|at| (40..=41).contains(at))
        );
        let spread = |seed| {
            let fault = ConnectionFault::latency(Latency::between(ms(10), ms(1000)));
            fault.seed(seed)
        };
        let first = arrivals(3, spread(7), 20).await;
        assert!(first.iter().all(|at| (10..=1001).contains(at)), "{first:?}");
        assert_eq!(first, arrivals(3, spread(7), 20).await);
        assert_ne!(first, arrivals(3, spread(8), 20).await);
        assert_ne!(first, arrivals(4, spread(7), 20).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bandwidth_is_kept_to_the_byte() {
        let times = arrivals(0, ConnectionFault::bandwidth(10), 30).await;
        for (byte, at) in (0..).zip(times) {
            assert!(
                (byte * 100..=byte * 100 + 1).contains(&at),
                "{byte} at {at}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_leaves_at_once_when_nothing_is_wrong_any_more() {
        let (mut out, _into) = tokio::io::duplex(1 << 16);
        let hour = Latency::fixed(Duration::from_secs(3600));
        let (late, counting) = (terms(ConnectionFault::latency(hour)), Counting::new());
        let mut pace = Pace::new(0, &late);
        pace.take(b"late", &late);
        let begun = Instant::now();
        let none = Terms::default();
        poll_fn(|cx| pace.poll_drain(&mut out, cx, &none, &counting))
            .await
            .unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(counting.now().bytes_sent, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_waits_than_there_is_room_for() {
        let (mut out, _into) = tokio::io::duplex(1);
        let slow = terms(ConnectionFault::bandwidth(1));
        let (mut pace, counting) = (Pace::new(0, &slow), Counting::new());
        assert_eq!(pace.take(&vec![0; 2 * ROOM], &slow), ROOM);
        let full = poll_fn(|cx| {
            // The first byte leaves, and makes room for one.
            Poll::Ready(pace.poll_room(&mut out, cx, &slow, &counting))
        });
        assert!(full.await.is_ready());
        assert_eq!(pace.take(b"x", &slow), 1);
        let full = poll_fn(|cx| Poll::Ready(pace.poll_room(&mut out, cx, &slow, &counting)));
        assert!(full.await.is_pending());
    }
}
