//! `portforward.k8s.io` over SPDY, which may be within a websocket. For each connection to a port the client opens two streams with the
//! same number of request: one for what went wrong, one for the bytes.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::{Sink, Stream, StreamExt as _, stream::FuturesUnordered};
use http::HeaderName;
use tokio::sync::mpsc;

use super::{
    PortForward,
    carry::{Input, carry},
    spdy::{self, Decoder, Frame, Malformed, Replies},
    write,
};

pub(super) const UPGRADE: &str = "SPDY/3.1";
/// Where a client says which protocols it speaks over that.
pub(super) const VERSIONS: HeaderName = HeaderName::from_static("x-stream-protocol-version");
pub(super) const PROTOCOL: &str = "portforward.k8s.io";
/// Both, as a protocol within a websocket.
pub(super) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

pub(super) async fn run(
    forward: &PortForward,
    sink: impl Sink<Bytes> + Unpin,
    stream: impl Stream<Item = Bytes> + Unpin,
) {
    let (out, frames) = mpsc::channel(1);
    let (begin, pairs) = mpsc::channel(1);
    let session = Session {
        out: out.clone(),
        begin,
        waiting: HashMap::new(),
        inputs: HashMap::new(),
    };
    let reading = async {
        // A client that speaks otherwise is hung up on, as one that ends.
        let _: Result<(), Malformed> = session.read(stream).await;
    };
    tokio::join!(reading, carry_all(forward, pairs, out), write(sink, frames));
}

/// The two streams of a connection to a port.
struct Pair {
    errors: u32,
    data: u32,
    port: u16,
    input: mpsc::Receiver<Input>,
}

/// What a stream is of its pair.
enum Taken {
    First,
    Second(Pair),
}

/// What a client has begun.
struct Session {
    out: mpsc::Sender<Bytes>,
    begin: mpsc::Sender<Pair>,
    /// Streams for errors by request, whose other stream is still to come.
    waiting: HashMap<String, u32>,
    /// Where the bytes of streams go.
    inputs: HashMap<u32, mpsc::Sender<Input>>,
}

impl Session {
    /// Hands out what the client sends, until it ends: then nobody has a sender.
    async fn read(
        mut self,
        mut stream: impl Stream<Item = Bytes> + Unpin,
    ) -> Result<(), Malformed> {
        let (mut decoder, mut replies) = (Decoder::new(), Replies::new()?);
        while let Some(bytes) = stream.next().await {
            decoder.push(&bytes);
            while let Some(frame) = decoder.next()? {
                match frame {
                    Frame::Open { stream, headers } => {
                        let Some(taken) = self.open(stream, &headers) else {
                            self.say(spdy::refused(stream)).await;
                            continue;
                        };
                        // Before any bytes of the port: a client passes over those of a stream that is not taken.
                        self.say(replies.taken(stream)?).await;
                        if let Taken::Second(pair) = taken {
                            // Whoever serves pairs does so as long as this reads.
                            let _ = self.begin.send(pair).await;
                        }
                    }
                    Frame::Data { stream, bytes, end } => self.data(stream, bytes, end).await,
                    Frame::Reset { stream } => drop(self.inputs.remove(&stream)),
                    Frame::Ping { id } => self.say(spdy::pong(id)).await,
                    Frame::Leave => return Ok(()),
                    Frame::Other => {}
                }
            }
        }
        Ok(())
    }

    async fn say(&self, frame: Bytes) {
        // It is heard as long as this reads.
        let _ = self.out.send(frame).await;
    }

    /// Nothing, if the stream is none of those that this knows.
    fn open(&mut self, stream: u32, headers: &HashMap<String, String>) -> Option<Taken> {
        let request = headers.get("requestid")?;
        let port = headers.get("port")?.parse().ok()?;
        match &**headers.get("streamtype")? {
            "error" => {
                self.waiting.insert(request.clone(), stream);
                Some(Taken::First)
            }
            "data" => {
                let errors = self.waiting.remove(request)?;
                let (input, received) = mpsc::channel(1);
                self.inputs.insert(stream, input);
                Some(Taken::Second(Pair {
                    errors,
                    data: stream,
                    port,
                    input: received,
                }))
            }
            _ => None,
        }
    }

    async fn data(&self, stream: u32, bytes: Bytes, end: bool) {
        // Clients end their streams for errors at once; and what is for a port that has ended is for nobody.
        let Some(input) = self.inputs.get(&stream) else {
            return;
        };
        if !bytes.is_empty() {
            let _ = input.send(Input::Bytes(bytes)).await;
        }
        if end {
            let _ = input.send(Input::End).await;
        }
    }
}

/// Serves each pair as it begins, all side by side, until no more can begin and all have ended.
async fn carry_all(
    forward: &PortForward,
    mut pairs: mpsc::Receiver<Pair>,
    out: mpsc::Sender<Bytes>,
) {
    let mut carried = FuturesUnordered::new();
    let mut more = true;
    loop {
        tokio::select! {
            pair = pairs.recv(), if more => match pair {
                Some(pair) => carried.push(one(forward, pair, &out)),
                None => more = false,
            },
            Some(()) = carried.next() => (),
            else => return,
        }
    }
}

async fn one(forward: &PortForward, pair: Pair, out: &mpsc::Sender<Bytes>) {
    let Pair {
        errors,
        data,
        port,
        input,
    } = pair;
    match forward.dial(port).await {
        Ok(dialled) => {
            carry(dialled, input, out, |bytes| spdy::data(data, bytes, false)).await;
        }
        Err(why) => {
            let _ = out.send(spdy::data(errors, why.as_bytes(), false)).await;
        }
    }
    for stream in [data, errors] {
        let _ = out.send(spdy::data(stream, b"", true)).await;
    }
}
