//! Bytes between a client and one port of a pod, whatever protocol the client speaks.

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::mpsc,
};

/// At most this of the port's bytes is in one frame.
const CHUNK: usize = 16 << 10;

/// What a client sends to a port.
pub(super) enum Input {
    Bytes(Bytes),
    /// No more will come, and what the port still says is wanted.
    End,
}

/// Carries bytes until the port has ended, or the client wants nothing of it any more: then `input` has no sender.
/// `frame` makes a frame of the port's bytes, for `out`.
pub(super) async fn carry(
    mut port: TcpStream,
    mut input: mpsc::Receiver<Input>,
    out: &mpsc::Sender<Bytes>,
    frame: impl Fn(&[u8]) -> Bytes + Send,
) {
    let (read, write) = port.split();
    tokio::select! {
        () = down(read, out, frame) => (),
        () = up(&mut input, write) => (),
    }
}

async fn down(mut from: ReadHalf<'_>, out: &mpsc::Sender<Bytes>, frame: impl Fn(&[u8]) -> Bytes) {
    let mut chunk = vec![0; CHUNK];
    // A port that breaks has ended.
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        if out.send(frame(&chunk[..read])).await.is_err() {
            return;
        }
    }
}

async fn up(input: &mut mpsc::Receiver<Input>, mut to: WriteHalf<'_>) {
    let mut open = true;
    while let Some(sent) = input.recv().await {
        let taken = match sent {
            // A port that hears nothing may have said something that is still to be carried.
            _ if !open => continue,
            Input::Bytes(bytes) => to.write_all(&bytes).await,
            Input::End => to.shutdown().await,
        };
        open = taken.is_ok();
    }
}
