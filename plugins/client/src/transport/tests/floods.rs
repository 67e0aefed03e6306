//! Servers that break or abuse HTTP/2: the connection ends, or the call at its deadline, with a clear error; and the next call has a
//! connection that is as it should be.

use std::{sync::Arc, time::Duration};

use clustercache::FailureKind::{self, Protocol, Reset, TimedOut};
use http::Request;
use kube::client::Body;
use tokio::{net::TcpStream, sync::watch};
use tokio_rustls::server::TlsStream;

use super::{
    frames::{
        ACK, CONTINUATION, CONTINUE, DATA, END_HEADERS, HEADERS, OK, PING, Peer, RESET, SETTINGS,
        WINDOW, answer, frame,
    },
    raw::RawServer,
    rig::{Open, get, soon, transport, whole},
};
use crate::{
    TransportError,
    transport::{Class, Transport},
};

type Stream = Peer<TlsStream<TcpStream>>;

/// What a server does with its first request, on this stream.
type Misdeed = fn(u32) -> Vec<u8>;

const SHORT: Duration = Duration::from_millis(500);

/// Does so for ever on its first connection, and serves on the others. Tells when the client has gone from the first.
async fn server(misdeed: Misdeed, once: bool) -> (RawServer, watch::Receiver<bool>) {
    let (gone, told) = watch::channel(false);
    let server = RawServer::serving(&[b"h2"], move |nth, stream| {
        let gone = gone.clone();
        async move {
            let mut peer: Stream = Peer::begin(stream, &[]).await;
            if nth > 0 {
                return peer.serve("ok").await;
            }
            let Some(stream) = peer.request().await else {
                return;
            };
            if once {
                peer.send(&misdeed(stream)).await;
                peer.drain().await;
            } else {
                peer.flood(&misdeed(stream)).await;
            }
            gone.send_replace(true);
        }
    });
    (server.await, told)
}

fn on(server: &RawServer) -> Transport {
    transport(server.access(), Box::new(Open), Arc::default(), |_| ())
}

/// Where nothing but the deadline ends a call.
fn impatient(server: &RawServer) -> Transport {
    transport(
        server.access(),
        Box::new(Open),
        Arc::default(),
        |deadlines| {
            deadlines.call = SHORT;
        },
    )
}

async fn text(transport: &Transport) -> Result<String, TransportError> {
    whole(get(transport, "/version").await?).await
}

#[tokio::test]
async fn a_flood_ends_its_connection_and_the_next_call_has_another() {
    let floods: [(&str, Misdeed); 8] = [
        ("ping", |_| frame(PING, 0, 0, &[7; 8])),
        ("pong", |_| frame(PING, ACK, 0, &[7; 8])),
        ("settings", |_| frame(SETTINGS, 0, 0, &[])),
        ("reset", |_| frame(RESET, 0, 1, &[0, 0, 0, 8])),
        ("window", |_| frame(WINDOW, 0, 0, &[0, 0, 0, 1])),
        ("unknown", |_| frame(0xee, 0, 0, &[])),
        ("empty continuation", |stream| {
            let end = frame(CONTINUATION, 0, stream, &[]);
            [frame(HEADERS, 0, stream, &[]), end.repeat(10_000)].concat()
        }),
        ("informational", |stream| {
            frame(HEADERS, END_HEADERS, stream, CONTINUE)
        }),
    ];
    for (name, flood) in floods {
        let (server, mut gone) = server(flood, false).await;
        let transport = on(&server);
        let error = text(&transport).await.unwrap_err();
        assert!(matches!(error.kind(), Protocol | Reset), "{name}: {error}");
        soon(gone.wait_for(|gone| *gone)).await.unwrap();
        assert_eq!(text(&transport).await.unwrap(), "ok", "{name}");
    }
}

#[tokio::test]
async fn empty_data_without_end_ends_its_connection() {
    let server = RawServer::serving(&[b"h2"], |nth, stream| async move {
        let mut peer: Stream = Peer::begin(stream, &[]).await;
        if nth > 0 {
            return peer.serve("ok").await;
        }
        let stream = peer.request().await.unwrap();
        peer.send(&frame(HEADERS, END_HEADERS, stream, OK)).await;
        peer.flood(&frame(DATA, 0, stream, &[])).await;
    })
    .await;
    let transport = on(&server);
    let error = text(&transport).await.unwrap_err();
    assert_eq!(error.kind(), Protocol, "{error}");
    assert_eq!(text(&transport).await.unwrap(), "ok");
}

#[tokio::test]
async fn what_is_not_as_the_protocol_says_is_an_error_of_its_kind() {
    let misdeeds: [(&str, Misdeed, FailureKind); 7] = [
        (
            "header of 1 MiB",
            |stream| {
                let value = [0x7f, 0x81, 0xff, 0x3f]; // a string of 1,048,575 bytes
                let begin = [&[0x88, 0x00, 1, b'x'][..], &value].concat();
                let more = frame(CONTINUATION, 0, stream, &[b'x'; 16 << 10]).repeat(64);
                [frame(HEADERS, 0, stream, &begin), more].concat()
            },
            Protocol,
        ),
        (
            "a million headers",
            |stream| {
                let header = [0x00, 1, b'x', 1, b'y'].repeat(3_000);
                let more = frame(CONTINUATION, 0, stream, &header).repeat(350);
                [frame(HEADERS, 0, stream, OK), more].concat()
            },
            Protocol,
        ),
        (
            "two lengths",
            |stream| {
                let head = [0x88, 0x5c, 1, b'1', 0x5c, 1, b'2'];
                frame(HEADERS, END_HEADERS, stream, &head)
            },
            Protocol,
        ),
        (
            "a frame of 16 MiB",
            |stream| {
                let mut data = frame(DATA, 0, stream, &[]);
                data[..3].copy_from_slice(&[0xff; 3]);
                data
            },
            Protocol,
        ),
        (
            "a body before its head",
            |stream| answer(stream, "x").split_off(10),
            Protocol,
        ),
        (
            "reset",
            |stream| frame(RESET, 0, stream, &[0, 0, 0, 2]),
            Reset,
        ),
        ("nothing", |_| Vec::new(), TimedOut),
    ];
    for (name, misdeed, kind) in misdeeds {
        let (server, _) = server(misdeed, true).await;
        let transport = match kind {
            TimedOut => impatient(&server),
            _ => on(&server),
        };
        let error = text(&transport).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        transport.replace_pooled();
        assert_eq!(text(&transport).await.unwrap(), "ok", "{name}");
    }
}

#[tokio::test]
async fn a_window_of_zero_ends_at_the_deadline() {
    let server = RawServer::serving(&[b"h2"], |_, stream| async move {
        let zero = [0, 4, 0, 0, 0, 0];
        let mut peer: Stream = Peer::begin(stream, &zero).await;
        peer.drain().await;
    })
    .await;
    let transport = impatient(&server);
    let body = Body::from(vec![b'x'; 1 << 20]);
    let request = Request::post("/api/v1/pods").body(body).unwrap();
    let error = soon(transport.send(request, Class::Call)).await.err();
    assert_eq!(error.unwrap().kind(), TimedOut);
}

#[tokio::test]
async fn informational_answers_over_http1_are_few_too() {
    use super::raw::Then;
    let some = |count| "HTTP/1.1 100 Continue\r\n\r\n".repeat(count);
    let last = super::raw::answer(200, "ok");
    for (count, good) in [(8, true), (9, false), (100_000, false)] {
        let answers = vec![(some(count) + &last, Then::Hang)];
        let server = RawServer::start(answers).await;
        let transport = on(&server);
        match text(&transport).await {
            Ok(text) => assert!(good && text == "ok", "{count}"),
            Err(error) => assert!(!good && error.kind() == Protocol, "{count}: {error}"),
        }
    }
}

#[tokio::test]
async fn informational_answers_to_an_upgrade_are_few_too() {
    let flood = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000);
    let server = RawServer::start(vec![(flood, super::raw::Then::Hang)]).await;
    let request = Request::get("/exec").header("upgrade", "websocket");
    let request = request.body(Body::empty()).unwrap();
    let error = soon(on(&server).send(request, Class::Call)).await.err();
    assert_eq!(error.unwrap().kind(), Protocol);
}

#[tokio::test]
async fn an_answer_over_http1_whose_length_is_in_doubt_is_an_error() {
    use super::raw::Then;
    for head in [
        "content-length: 2\r\ncontent-length: 3\r\n\r\nok",
        "content-length: -1\r\n\r\nok",
        "content-length: 18446744073709551615\r\n\r\nok",
        "content-length: 2, 3\r\n\r\nok",
        "content-length: 99999999999999999999999\r\n\r\nok",
        "transfer-encoding: chunked\r\n\r\nzz\r\nok\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nok\r\n",
        "transfer-encoding: chunked\r\n\r\n2\r\nokay\r\n",
    ] {
        let answers = vec![(format!("HTTP/1.1 200 OK\r\n{head}"), Then::Hang)];
        let server = RawServer::start(answers).await;
        let error = text(&on(&server)).await.unwrap_err();
        assert_eq!(error.kind(), Protocol, "{head:?}: {error}");
    }
}

#[tokio::test]
async fn bytes_beyond_an_answer_are_no_answer_to_the_next_request() {
    use super::raw::Then;
    let two = super::raw::answer(200, "one") + &super::raw::answer(200, "smuggled");
    let server = RawServer::start(vec![(two, Then::Hang), (String::new(), Then::Hang)]).await;
    let transport = impatient(&server);
    assert_eq!(text(&transport).await.unwrap(), "one");
    for _ in 0..3 {
        assert_ne!(text(&transport).await.unwrap_or_default(), "smuggled");
    }
}
