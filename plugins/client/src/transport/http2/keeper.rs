//! What keeps a connection: it reads and writes for all streams, and sends a ping when calls wait and nothing comes, whose absence starts
//! a probe. An answer to one says nothing.

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
}

impl<T: AsyncRead + AsyncWrite + Unpin> Keeper<T> {
    pub(super) fn new(
        mut connection: client::Connection<Wire<T>, Bytes>,
        pings: Pings,
        load: Arc<Load>,
        record: Arc<Record>,
    ) -> Self {
        Self {
            ping: connection.ping_pong(),
            connection,
            pings,
            silence: None,
            load,
            record,
        }
    }
}

/// Calls wait. There is none, and no timer, while nobody does.
struct Silence {
    timer: Pin<Box<Sleep>>,
    heard: u32,
    pinged: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Keeper<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.listen(cx);
        // What ends it is an error of every stream on it too.
        Pin::new(&mut self.connection).poll(cx).map(|_| ())
    }
}

impl<T> Keeper<T> {
    fn listen(&mut self, cx: &mut Context<'_>) {
        if self.load.calls.load(Relaxed) == 0 {
            self.silence = None;
            return;
        }
        let after = self.pings.after;
        let silence = self.silence.get_or_insert_with(|| Silence {
            timer: Box::pin(sleep(after)),
            heard: self.record.heard(),
            pinged: false,
        });
        while silence.timer.as_mut().poll(cx).is_ready() {
            silence.timer.as_mut().reset(Instant::now() + after);
            let heard = self.record.heard();
            if heard != silence.heard {
                silence.heard = heard;
                silence.pinged = false;
            } else if !silence.pinged {
                silence.pinged = true;
                if let Some(ping) = &mut self.ping {
                    // The last one's answer is taken, so that another can be sent.
                    let _ = ping.poll_pong(cx);
                    let _ = ping.send_ping(Ping::opaque());
                }
            } else if self.load.mute.swap(mark(&self.record), Relaxed) != mark(&self.record) {
                self.pings.signs.doubt();
            }
        }
    }
}
