//! What keeps a connection: it reads and writes for all streams, and sends a ping where nothing comes: soon while calls
//! wait, after a while where only watches do. One that is not answered starts a probe; an answer to one says nothing.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{Ping, PingPong, client};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep, sleep},
};

use super::{Load, mark};
use crate::transport::{
    hooks::Signs,
    wire::{Record, Wire},
};

/// Where nobody waits for an answer, nothing comes for so many times as long before there is a ping: longer than between two probes, which
/// are heard on one connection, and so only on those that have none.
const IDLE: u32 = 10;

/// What a connection does when calls wait and nothing comes.
pub(crate) struct Pings {
    /// For so long, and for as long again after a ping.
    pub(crate) after: Duration,
    pub(crate) signs: Arc<dyn Signs>,
}

/// Runs for as long as its connection.
pub(crate) struct Keeper<T> {
    connection: client::Connection<Wire<T>, Bytes>,
    ping: Option<PingPong>,
    pings: Pings,
    silence: Option<Silence>,
    load: Arc<Load>,
    record: Arc<Record>,
    told: Box<dyn Fn() + Send>,
    /// What the server allows, once it has said so.
    allows: Option<usize>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Keeper<T> {
    pub(super) fn new(
        mut connection: client::Connection<Wire<T>, Bytes>,
        pings: Pings,
        (load, record): (Arc<Load>, Arc<Record>),
        told: Box<dyn Fn() + Send>,
    ) -> Self {
        Self {
            ping: connection.ping_pong(),
            connection,
            pings,
            silence: None,
            load,
            record,
            told,
            allows: None,
        }
    }
}

/// Somebody waits. There is none, and no timer, while nobody does.
struct Silence {
    timer: Pin<Box<Sleep>>,
    after: Duration,
    heard: u32,
    pinged: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Keeper<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.listen(cx);
        // What ends it is an error of every stream on it too.
        let over = Pin::new(&mut self.connection).poll(cx).map(|_| ());
        self.note_what_is_allowed();
        over
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Keeper<T> {
    fn listen(&mut self, cx: &mut Context<'_>) {
        let calls = self.load.calls.load(Relaxed) > 0;
        if !calls && self.load.watches.load(Relaxed) == 0 {
            self.silence = None;
            return;
        }
        let idle = self.pings.after.saturating_mul(IDLE);
        let after = if calls { self.pings.after } else { idle };
        let silence = self.silence.get_or_insert_with(|| Silence {
            timer: Box::pin(sleep(after)),
            after,
            heard: self.record.heard(),
            pinged: false,
        });
        // The answer to a ping is not waited for any longer because nobody else waits.
        if silence.after > after {
            silence.timer.as_mut().reset(Instant::now() + after);
        }
        silence.after = after;
        while silence.timer.as_mut().poll(cx).is_ready() {
            let heard = self.record.heard();
            let mut next = after;
            if heard != silence.heard {
                silence.heard = heard;
                silence.pinged = false;
            } else if !silence.pinged {
                silence.pinged = true;
                next = self.pings.after;
                if let Some(ping) = &mut self.ping {
                    // The last one's answer is taken, so that another can be sent.
                    let _ = ping.poll_pong(cx);
                    let _ = ping.send_ping(Ping::opaque());
                }
            } else if self.load.mute.swap(mark(&self.record), Relaxed) != mark(&self.record) {
                self.pings.signs.doubt();
            }
            silence.timer.as_mut().reset(Instant::now() + next);
        }
    }

    /// What it says comes first of all that comes.
    fn note_what_is_allowed(&mut self) {
        if self.allows.is_none() && self.record.heard() == 0 {
            return;
        }
        let allows = Some(self.connection.max_concurrent_send_streams());
        if self.allows != allows {
            self.allows = allows;
            self.load.is_told.store(true, Relaxed);
            (self.told)();
        }
    }
}
