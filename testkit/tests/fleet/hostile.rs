//! A hostile server does what it was told, on the wire and above it, as an honest client sees it.

use std::time::Duration;

use clustercache_testkit::hostile::{Answer, Behaviour, HostileServer, Step, Then, http2};
use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::client::{Client, Http, handshake, soon};

fn start(behaviour: Behaviour) -> HostileServer {
    HostileServer::start("hostile", behaviour).unwrap()
}

async fn connect(server: &HostileServer) -> Client {
    let connected = soon(Client::connect(&server.access(), Http::Two)).await;
    connected.unwrap()
}

fn healthy(behaviour: Behaviour) -> Behaviour {
    behaviour
        .on("/readyz", Answer::new(200).body("ok"))
        .on("/gone", Answer::new(404).header("x-why", "no such thing"))
}

#[tokio::test]
async fn proper_answers_are_proper_over_both_protocols() {
    for (behaviour, protocol) in [
        (Behaviour::http1(), Http::One),
        (Behaviour::http2(), Http::Two),
    ] {
        let server = start(healthy(behaviour));
        let mut client = connect(&server).await;
        assert_eq!(client.protocol(), protocol);
        for _ in 0..3 {
            let answer = soon(client.text("/readyz?verbose")).await.unwrap();
            assert_eq!(answer, (StatusCode::OK, "ok".to_owned()));
        }
        let gone = soon(client.open(Method::POST, "/gone", "a body")).await;
        assert_eq!(gone.unwrap().headers()["x-why"], "no such thing");
        let counts = server.counts();
        assert_eq!((counts.connections, counts.handshakes), (1, 1));
        assert_eq!(
            (counts.requests, counts.requests_to("/readyz")),
            (4, 3),
            "{counts:?}"
        );
        drop(client);
        soon(server.when(|counts| counts.open == 0)).await;
    }
}

#[tokio::test]
async fn a_body_is_as_long_as_it_is_told_and_keeps_the_windows_of_the_client() {
    // More than any window, in pieces that fit into no frame.
    let (piece, times) = ("x".repeat(70_001), 100_u64);
    let length = piece.len() * 100;
    let steps = |answer: Answer| {
        let head = Step::Answer(answer.unfinished());
        vec![head, Step::Body(piece.clone().into(), times), Step::End]
    };
    let head = Answer::new(200).header("content-length", length.to_string());
    for behaviour in [Behaviour::http1(), Behaviour::http2()] {
        let server = start(behaviour.on("/", steps(head.clone())));
        let mut client = connect(&server).await;
        let (_, body) = soon(client.text("/")).await.unwrap();
        assert_eq!(body.len(), length);
        assert!(server.counts().sent > length as u64);
    }
}

#[tokio::test]
async fn what_is_open_takes_the_new_behaviour_with_its_next_request() {
    let server = start(healthy(Behaviour::http2()));
    let mut client = connect(&server).await;
    soon(client.text("/readyz")).await.unwrap();
    server.behave(Behaviour::http2().on_each("/", |seen| {
        let said = format!("{} {} {}", seen.connection, seen.number, seen.stream);
        Answer::new(200).body(said).into()
    }));
    let (_, said) = soon(client.text("/")).await.unwrap();
    assert_eq!(said, "1 2 3");
}

#[tokio::test]
async fn it_stops_at_every_offset_as_it_is_told() {
    let server = start(healthy(Behaviour::http1()));
    let answered = async {
        let mut client = connect(&server).await;
        client.text("/readyz").await.unwrap();
    };
    soon(Box::pin(answered)).await;
    let whole = server.counts().sent;
    for then in [Then::Close, Then::Reset] {
        let first = server.counts().connections;
        let stops = move |connection: u64| ((connection - first - 1) * 61, then);
        server.behave(healthy(Behaviour::http1()).stop_each(stops));
        for stop in (0..whole).step_by(61) {
            let before = server.counts();
            let connected = soon(Client::connect(&server.access(), Http::One)).await;
            if let Ok(mut client) = connected {
                soon(client.text("/readyz")).await.unwrap_err();
            }
            let after = soon(server.when(|counts| counts.open == 0)).await;
            assert_eq!(after.sent - before.sent, stop, "{then:?}");
        }
    }
}

#[tokio::test]
async fn a_silent_one_accepts_and_reads_and_says_nothing() {
    let server = start(Behaviour::tcp());
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    tcp.write_all(b"anybody there?").await.unwrap();
    let counts = soon(server.when(|counts| counts.received > 0)).await;
    assert_eq!((counts.open, counts.sent), (1, 0));
    drop(tcp);
    soon(server.when(|counts| counts.open == 0)).await;
}

#[tokio::test]
async fn without_tls_it_says_what_it_was_told_and_nothing_else() {
    let drip = Step::Drip("2.0".into(), Duration::from_millis(1));
    let server = start(Behaviour::tcp().greeting([Step::write("SSH-"), drip, Step::HalfClose]));
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let mut said = String::new();
    soon(tcp.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "SSH-2.0");
}

#[tokio::test]
async fn an_end_is_clean_cut_or_a_reset() {
    let said = |end: Step| Behaviour::http1().on("/", [Step::write("so far"), end]);
    for (end, clean, kind) in [
        (Step::HalfClose, true, None),
        (Step::Cut, false, Some(std::io::ErrorKind::UnexpectedEof)),
        (
            Step::Reset,
            false,
            Some(std::io::ErrorKind::ConnectionReset),
        ),
    ] {
        let server = start(said(end));
        let mut tls = handshake(&server.access(), &[b"http/1.1"]).await.unwrap();
        tls.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut read = Vec::new();
        let ended = soon(tls.read_to_end(&mut read)).await;
        assert_eq!(ended.is_ok(), clean);
        assert_eq!(ended.err().map(|error| error.kind()), kind);
        if kind.is_none() {
            assert_eq!(read, b"so far");
        }
    }
}

#[tokio::test]
async fn one_byte_after_the_other_is_enough_for_a_patient_client() {
    let slow = healthy(Behaviour::http1()).byte_every(Duration::from_micros(10));
    let server = start(slow);
    let mut client = connect(&server).await;
    let (_, body) = soon(client.text("/readyz")).await.unwrap();
    assert_eq!(body, "ok");
}

#[tokio::test]
async fn a_flood_goes_on_until_the_client_goes() {
    let flood = Behaviour::http2().on("/", Step::for_ever(http2::ping([7; 8])));
    let server = start(flood);
    let mut tls = handshake(&server.access(), &[b"h2"]).await.unwrap();
    tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    tls.write_all(&http2::settings(&[])).await.unwrap();
    let path: [(&str, &[u8]); 2] = [(":method", b"GET"), (":path", b"/")];
    let block = http2::header_block(path);
    tls.write_all(&http2::block(1, &block, true)).await.unwrap();
    let mut read = vec![0; 1 << 20];
    soon(tls.read_exact(&mut read)).await.unwrap();
    assert!(read.ends_with(&[7; 4]) || read.windows(8).any(|eight| eight == [7; 8]));
    assert_eq!(server.counts().requests_to("/"), 1);
    drop(tls);
    soon(server.when(|counts| counts.open == 0)).await;
}

#[tokio::test]
async fn resets_and_ends_of_http2_are_those_that_it_was_told() {
    let behaviour = Behaviour::http2()
        .on_each("/reset", |seen| {
            vec![Step::Write(http2::rst_stream(
                seen.stream,
                http2::ENHANCE_YOUR_CALM,
            ))]
        })
        .on_each("/last", |seen| {
            vec![
                Step::Write(http2::goaway(seen.stream, http2::NO_ERROR)),
                Step::Answer(Answer::new(200).body("bye")),
            ]
        });
    let server = start(behaviour);
    let mut client = connect(&server).await;
    let reset = soon(client.text("/reset")).await.unwrap_err();
    assert!(
        format!("{reset:?}").contains("ENHANCE_YOUR_CALM"),
        "{reset:?}"
    );
    let (_, said) = soon(client.text("/last")).await.unwrap();
    assert_eq!(said, "bye");
    soon(client.connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn nothing_is_left_of_it_whatever_it_was_doing() {
    let behaviour = Behaviour::http2()
        .on("/flood", Step::for_ever(http2::settings(&[])))
        .on("/silent", Step::Silence);
    let server = start(behaviour);
    let mut tls = handshake(&server.access(), &[b"http/1.1", b"h2"])
        .await
        .unwrap();
    let _other = TcpStream::connect(server.addr()).await.unwrap();
    soon(server.when(|counts| counts.open == 2)).await;
    soon(server.shutdown()).await;
    assert_eq!(server.counts().open, 0);
    let mut byte = [0];
    // What came before the end may still be read.
    while soon(tls.read(&mut byte)).await.is_ok_and(|read| read > 0) {}
}

/// Headers that no proper server sends are sent.
#[tokio::test]
async fn a_head_may_be_of_any_size() {
    let many = (0..20_000).map(|number| (format!("x-{number}"), "v"));
    let mut answer = Answer::new(200);
    for (name, value) in many {
        answer = answer.header(name, value);
    }
    for behaviour in [Behaviour::http1(), Behaviour::http2()] {
        let server = start(behaviour.on("/", answer.clone()));
        let mut client = connect(&server).await;
        let refused = soon(client.open(Method::GET, "/", "")).await;
        assert!(refused.is_err());
        assert!(server.counts().sent > 100_000, "{:?}", server.counts());
    }
}
