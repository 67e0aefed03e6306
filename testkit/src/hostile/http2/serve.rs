//! The server's side of an HTTP/2 connection: frames are read, requests are told to players, and settings and pings are answered.

use std::sync::Arc;

use bytes::Buf;
use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    Windows,
    frames::{
        ACK, CONTINUATION, END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, PADDED, PING, PRIORITY,
        RST_STREAM, SETTINGS, WINDOW_UPDATE, settings,
    },
};
use crate::hostile::{
    Behaviour, Seen,
    connection::Connection,
    player::{Over, Player, Protocol},
};

/// What a client says first.
const PREFACE: usize = 24;

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

struct Session<'a> {
    connection: &'a Connection,
    player: Player,
    windows: Arc<Windows>,
    headers: Decoder<'static>,
    /// The stream whose header block is not over, and what there is of it.
    open: Option<(u32, Vec<u8>)>,
    requests: u64,
}

pub(in super::super) async fn serve(
    connection: &Connection,
    reader: &mut (impl AsyncRead + Unpin),
    player: Player,
    behaviour: &Behaviour,
) {
    let Protocol::Http2(windows) = &player.protocol else {
        return;
    };
    let mut session = Session {
        connection,
        windows: Arc::clone(windows),
        player,
        headers: Decoder::new(),
        open: None,
        requests: 0,
    };
    // However it ends: it is over.
    let _ = session.run(reader, behaviour).await;
}

impl Session<'_> {
    async fn run(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        behaviour: &Behaviour,
    ) -> Result<(), Over> {
        if let Some(chosen) = &behaviour.settings {
            self.player.say(settings(chosen)).await?;
        }
        self.play(behaviour.greeting.clone(), 0);
        let mut preface = [0; PREFACE];
        reader.read_exact(&mut preface).await.map_err(|_| Over)?;
        loop {
            let frame = Frame::read(reader).await.ok_or(Over)?;
            self.take(frame).await?;
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Over> {
        let Frame {
            kind,
            flags,
            stream,
            ..
        } = frame;
        match kind {
            HEADERS => {
                self.open = Some((stream, frame.block()?.to_vec()));
                self.headers_so_far(flags)
            }
            CONTINUATION => {
                let open = self.open.as_mut().ok_or(Over)?;
                open.1.extend_from_slice(&frame.payload);
                self.headers_so_far(flags)
            }
            SETTINGS if flags & ACK == 0 => {
                self.settings(&frame.payload);
                self.player.say(super::frame(SETTINGS, ACK, 0, b"")).await
            }
            PING if flags & ACK == 0 => {
                let counting = &self.connection.inner.counting;
                counting.change(|counts| counts.pongs += 1);
                let pong = super::frame(PING, ACK, 0, &frame.payload);
                self.player.say(pong).await
            }
            WINDOW_UPDATE => {
                let more = (&frame.payload[..]).try_get_u32().map_err(|_| Over)?;
                self.windows.more(stream, more);
                Ok(())
            }
            RST_STREAM => {
                let counting = &self.connection.inner.counting;
                counting.change(|counts| counts.resets += 1);
                self.windows.close(stream);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn settings(&self, mut payload: &[u8]) {
        while let (Ok(setting), Ok(value)) = (payload.try_get_u16(), payload.try_get_u32()) {
            if setting == INITIAL_WINDOW_SIZE {
                self.windows.initial(value);
            }
        }
    }

    fn headers_so_far(&mut self, flags: u8) -> Result<(), Over> {
        if flags & END_HEADERS == 0 {
            return Ok(());
        }
        let (stream, block) = self.open.take().ok_or(Over)?;
        let headers = self.headers.decode(&block).map_err(|_| Over)?;
        let value = |wanted: &str| {
            let found = headers.iter().find(|(name, _)| name == wanted.as_bytes());
            let value = found.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
            value.unwrap_or_default()
        };
        self.requests += 1;
        let seen = Seen {
            method: value(":method"),
            path: value(":path"),
            connection: self.connection.number,
            number: self.requests,
            stream,
        };
        self.windows.open(stream);
        let steps = self.connection.seen(&seen);
        self.play(steps, stream);
        Ok(())
    }

    /// In a task of its own: one request's steps wait for no other's.
    fn play(&self, steps: Vec<crate::hostile::Step>, stream: u32) {
        let player = self.player.clone();
        let ended = self.connection.switch.ended.clone();
        let playing = async move {
            ended
                .run_until_cancelled_owned(player.play(steps, stream))
                .await
        };
        self.connection.inner.tasks.spawn(async move {
            playing.await;
        });
    }
}

impl Frame {
    async fn read(reader: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await.ok()?;
        let mut head = &head[..];
        let length = usize::try_from(head.get_uint(3)).ok()?;
        let (kind, flags, stream) = (head.get_u8(), head.get_u8(), head.get_u32());
        let mut payload = vec![0; length];
        reader.read_exact(&mut payload).await.ok()?;
        Some(Self {
            kind,
            flags,
            stream: stream & 0x7fff_ffff,
            payload,
        })
    }

    /// The header block in a HEADERS frame, without what stands around it.
    fn block(&self) -> Result<&[u8], Over> {
        let mut block = &self.payload[..];
        if self.flags & PADDED != 0 {
            let padding = usize::from(block.try_get_u8().map_err(|_| Over)?);
            let left = block.len().checked_sub(padding).ok_or(Over)?;
            block = &block[..left];
        }
        if self.flags & PRIORITY != 0 {
            block = block.get(5..).ok_or(Over)?;
        }
        Ok(block)
    }
}
