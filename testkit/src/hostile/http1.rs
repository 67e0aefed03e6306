//! HTTP/1.1 as a hostile server reads and writes it: heads are split at their lines and nothing is checked.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    Answer, Behaviour, Seen,
    connection::{Connection, drain},
    player::Player,
};

/// The largest head that is read of a request, in bytes.
const MOST: usize = 64 << 10;

pub(super) async fn serve(
    connection: &Connection,
    reader: &mut (impl AsyncRead + Unpin),
    player: Player,
    behaviour: &Behaviour,
) {
    if !behaviour.greeting.is_empty() {
        let greeting = player.play(behaviour.greeting.clone(), 0);
        tokio::select! {
            biased;
            () = greeting => (),
            () = drain(reader) => return,
        }
    }
    let mut buffer = BytesMut::new();
    for number in 1.. {
        let Some(head) = head_of(reader, &mut buffer).await else {
            return;
        };
        let mut words = head.split_ascii_whitespace();
        let seen = Seen {
            method: words.next().unwrap_or_default().to_owned(),
            path: words.next().unwrap_or_default().to_owned(),
            connection: connection.number,
            number,
            stream: 0,
        };
        let steps = connection.seen(&seen);
        if steps.is_empty() {
            // Who gets no answer sends no further request.
            return drain(reader).await;
        }
        // Only the client's close ends what is said without end.
        tokio::select! {
            biased;
            () = closed(reader, &mut buffer) => return,
            () = player.play(steps, 0) => (),
        }
    }
}

/// The next head, its body left out; `None` when the client has closed.
async fn head_of(reader: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> Option<String> {
    let end = loop {
        match buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(at) => break at + 4,
            None if buffer.len() > MOST => return None,
            None => more(reader, buffer).await?,
        }
    };
    let head = buffer.split_to(end);
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut body = length_of_body(&head);
    while body > 0 {
        if buffer.is_empty() {
            more(reader, buffer).await?;
        }
        let part = buffer.split_to(buffer.len().min(body));
        body -= part.len();
    }
    Some(head)
}

async fn more(reader: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> Option<()> {
    let read = reader.read_buf(buffer).await.ok()?;
    (read > 0).then_some(())
}

/// Returns when the client closes; what it sends before that is kept, up to a limit.
async fn closed(reader: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) {
    while more(reader, buffer).await.is_some() {
        if buffer.len() > MOST {
            return drain(reader).await;
        }
    }
}

fn length_of_body(head: &str) -> usize {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths
        .next()
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// The head of an answer, with the length of its body unless that is for others to say.
pub(super) fn head(answer: &Answer) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} -\r\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
    let bodyless = answer.status == 204 || answer.status == 304 || answer.status < 200;
    if answer.finished && !bodyless {
        let length = answer.body.len();
        head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}
