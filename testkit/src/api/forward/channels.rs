//! `v4.channel.k8s.io`: a websocket of which each message begins with the number of a channel. Each port has two: an even one for its
//! bytes, and the next for what went wrong with it. The first message of each says which port it is.

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, Stream, StreamExt as _, future::join_all};
use tokio::{pin, sync::mpsc, time::timeout};

use super::{
    CLOSE_WITHIN, PortForward,
    carry::{Input, carry},
    write,
};

pub(super) const PROTOCOL: &str = "v4.channel.k8s.io";

pub(super) async fn run(
    forward: &PortForward,
    ports: &[u16],
    sink: impl Sink<Bytes> + Unpin,
    stream: impl Stream<Item = Bytes> + Unpin,
) {
    let (out, frames) = mpsc::channel(1);
    let mut inputs = Vec::new();
    let mut carried = Vec::new();
    // More channels than a byte can number cannot be told apart.
    for (channel, port) in (0..=u8::MAX).step_by(2).zip(ports) {
        let (input, received) = mpsc::channel(1);
        inputs.push(input);
        carried.push(one(forward, channel, *port, received, out.clone()));
    }
    drop(out);
    let reading = read(stream, inputs);
    // The connection ends when all of its ports have.
    let over = async { tokio::join!(join_all(carried), write(sink, frames)) };
    pin!(reading, over);
    tokio::select! {
        () = &mut reading => drop(over.await),
        // It is closed when the client says so, too.
        _ = &mut over => drop(timeout(CLOSE_WITHIN, reading).await),
    }
}

/// Hands out what the client sends, until it ends: then nobody has a sender.
async fn read(mut stream: impl Stream<Item = Bytes> + Unpin, inputs: Vec<mpsc::Sender<Input>>) {
    while let Some(mut bytes) = stream.next().await {
        if bytes.is_empty() {
            continue;
        }
        let channel = usize::from(bytes.split_to(1)[0]);
        // Nobody listens to what a client says in a channel for errors, and to what it sends a port that has ended.
        if let Some(input) = inputs.get(channel / 2).filter(|_| channel % 2 == 0) {
            let _ = input.send(Input::Bytes(bytes)).await;
        }
    }
}

async fn one(
    forward: &PortForward,
    channel: u8,
    port: u16,
    input: mpsc::Receiver<Input>,
    out: mpsc::Sender<Bytes>,
) {
    let frame = move |channel: u8, bytes: &[u8]| {
        let mut frame = BytesMut::with_capacity(1 + bytes.len());
        frame.extend_from_slice(&[channel]);
        frame.extend_from_slice(bytes);
        frame.freeze()
    };
    for channel in [channel, channel + 1] {
        let _ = out.send(frame(channel, &port.to_le_bytes())).await;
    }
    match forward.dial(port).await {
        Ok(dialled) => carry(dialled, input, &out, |bytes| frame(channel, bytes)).await,
        Err(why) => {
            let _ = out.send(frame(channel + 1, why.as_bytes())).await;
        }
    }
}
