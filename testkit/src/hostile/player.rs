//! Plays steps: turns each into bytes for the connection's writer, at the pace at which that takes them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::{sync::mpsc, time::sleep};

use super::{
    Answer, Step, http1,
    http2::{self, Windows},
};

/// What a connection's writer is told.
pub(super) enum Out {
    Bytes(Bytes),
    HalfClose,
    Cut,
    Reset,
}

#[derive(Clone)]
pub(super) enum Protocol {
    Http1,
    Http2(Arc<Windows>),
}

#[derive(Clone)]
pub(super) struct Player {
    pub(super) sender: mpsc::Sender<Out>,
    pub(super) protocol: Protocol,
}

/// The connection is over.
pub(super) struct Over;

impl Player {
    /// Plays for a request, or for stream 0 where there is none. Ends early when the connection is over.
    pub(super) async fn play(&self, steps: Vec<Step>, stream: u32) {
        for step in steps {
            if self.step(step, stream).await.is_err() {
                return;
            }
        }
    }

    async fn step(&self, step: Step, stream: u32) -> Result<(), Over> {
        match step {
            Step::Write(bytes) => self.say(bytes).await,
            Step::Repeat(bytes, times) => self.repeat(bytes, times).await,
            Step::Drip(bytes, pace) => {
                for at in 0..bytes.len() {
                    sleep(pace).await;
                    self.say(bytes.slice(at..=at)).await?;
                }
                Ok(())
            }
            Step::Answer(answer) => self.answer(&answer, stream).await,
            Step::Body(bytes, times) => match &self.protocol {
                Protocol::Http1 => self.repeat(bytes, times).await,
                Protocol::Http2(windows) => {
                    for _ in 0..times {
                        self.data(windows, stream, bytes.clone(), false).await?;
                    }
                    Ok(())
                }
            },
            Step::End => match &self.protocol {
                Protocol::Http1 => Ok(()),
                Protocol::Http2(_) => self.say(http2::data(stream, b"", true)).await,
            },
            Step::Wait(time) => {
                sleep(time).await;
                Ok(())
            }
            Step::Silence => std::future::pending().await,
            Step::HalfClose => self.tell(Out::HalfClose).await,
            Step::Cut => self.tell(Out::Cut).await,
            Step::Reset => self.tell(Out::Reset).await,
        }
    }

    pub(super) async fn say(&self, bytes: Bytes) -> Result<(), Over> {
        self.tell(Out::Bytes(bytes)).await
    }

    async fn tell(&self, out: Out) -> Result<(), Over> {
        self.sender.send(out).await.map_err(|_| Over)
    }

    async fn repeat(&self, bytes: Bytes, times: u64) -> Result<(), Over> {
        /// Small ones are written many at once, so that a flood is one.
        const BLOCK: usize = 16 << 10;
        if bytes.is_empty() {
            return Ok(());
        }
        let many = (BLOCK / bytes.len()).max(1);
        let block = Bytes::from(bytes.repeat(many));
        let many = many as u64;
        for _ in 0..times / many {
            self.say(block.clone()).await?;
        }
        for _ in 0..times % many {
            self.say(bytes.clone()).await?;
        }
        Ok(())
    }

    async fn answer(&self, answer: &Answer, stream: u32) -> Result<(), Over> {
        match &self.protocol {
            Protocol::Http1 => {
                let mut bytes = BytesMut::from(&http1::head(answer)[..]);
                bytes.extend_from_slice(&answer.body);
                self.say(bytes.freeze()).await
            }
            Protocol::Http2(windows) => {
                let last = answer.finished && answer.body.is_empty();
                let headers = answer.headers.iter();
                let headers = headers.map(|(name, value)| (name.as_str(), &value[..]));
                let head = http2::headers(stream, answer.status, headers, last);
                self.say(head).await?;
                if answer.body.is_empty() {
                    return Ok(());
                }
                let body = answer.body.clone();
                self.data(windows, stream, body, answer.finished).await
            }
        }
    }

    async fn data(
        &self,
        windows: &Windows,
        stream: u32,
        mut bytes: Bytes,
        last: bool,
    ) -> Result<(), Over> {
        while !bytes.is_empty() {
            let room = windows.take(stream, bytes.len()).await?;
            let part = bytes.split_to(room);
            let end = last && bytes.is_empty();
            self.say(http2::data(stream, &part, end)).await?;
        }
        Ok(())
    }
}
