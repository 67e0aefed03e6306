//! Whatever is without end, or far too large: an error, and as good as nothing on the heap.

use std::io::Write;

use bytes::Bytes;
use clustercache::FailureKind;
use clustercache_client::{KubeClient, Limits, TransportError};
use clustercache_testkit::hostile::{Answer, Behaviour, Step, http2};
use futures_util::StreamExt;
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::WatchParams};

use crate::{
    ears,
    rig::{BOTH, H2, Protocol, Rig, healthy, soon},
};

const MIB: u64 = 1 << 20;

async fn rig() -> Rig {
    let mut limits = Limits::default();
    limits.call = MIB;
    limits.list = 2 * MIB;
    limits.line = MIB;
    Rig::of(KubeClient::new().limits(limits), |deadlines, _| {
        deadlines.call = std::time::Duration::from_secs(60);
        deadlines.list = std::time::Duration::from_secs(60);
    })
    .await
}

/// The error below an error of a client.
fn transport(error: &kube::Error) -> &TransportError {
    let mut next = Some(error as &(dyn std::error::Error + 'static));
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return found;
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && let Some(found) = io.get_ref().and_then(|inner| inner.downcast_ref())
        {
            return found;
        }
        next = error.source();
    }
    panic!("no error of ours: {error:?}")
}

/// What a call of this path fails with, on a cluster that answers so.
async fn refused(
    behaviour: impl Fn(Protocol) -> Behaviour,
    path: &str,
    is: fn(&TransportError) -> bool,
) {
    for protocol in BOTH {
        let mut rig = rig().await;
        let (key, server) = rig.add("large", behaviour(protocol));
        let client = rig.client(&key).await;
        let request = Request::get(path).body(vec![]).unwrap();
        let error = soon(path, client.request_text(request)).await.unwrap_err();
        ears::tells(&error);
        assert!(is(transport(&error)), "{error:?}");
        assert!(server.counts().sent < 64 * MIB, "{:?}", server.counts());
        assert_eq!(server.counts().requests_to(path), 1);
        // It goes on, on another connection if need be; a call that was on the old one meanwhile breaks with it.
        let goes_on = async { while client.apiserver_version().await.is_err() {} };
        soon("another call", goes_on).await;
        rig.end().await;
    }
}

fn too_large(error: &TransportError) -> bool {
    matches!(error, TransportError::TooLarge { .. })
}

fn unfinished() -> Answer {
    Answer::new(200).unfinished()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_says_that_it_is_too_large_is_refused_before_it_comes() {
    for length in [256 * MIB, u64::MAX / 2] {
        for path in ["/api/v1/nodes/a", "/api/v1/nodes"] {
            let large = move |protocol: Protocol| {
                let head = unfinished().header("content-length", length.to_string());
                let block = Bytes::from(vec![b' '; 64 << 10]);
                healthy(protocol).on(
                    "/api",
                    [Step::Answer(head), Step::Body(block, length >> 16)],
                )
            };
            refused(large, path, too_large).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_that_is_no_number_of_this_world_is_an_error() {
    let proper = |error: &TransportError| {
        matches!(
            error,
            TransportError::Protocol { .. }
                | TransportError::TooLarge { .. }
                | TransportError::Reset { .. }
        )
    };
    for length in [
        "18446744073709551614",
        "18446744073709551615",
        "340282366920938463463374607431768211456",
        "-1",
        "two",
    ] {
        let large = move |protocol: Protocol| {
            let head = unfinished().header("content-length", length);
            healthy(protocol).on(
                "/api",
                [Step::Answer(head), Step::Body("x".into(), u64::MAX)],
            )
        };
        refused(large, "/api/v1/nodes/a", proper).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_without_end_is_cut_off_at_the_limit() {
    for path in ["/api/v1/nodes/a", "/api/v1/nodes"] {
        let endless = |protocol: Protocol| {
            let block = Bytes::from(vec![b' '; 64 << 10]);
            healthy(protocol).on(
                "/api",
                [Step::Answer(unfinished()), Step::Body(block, u64::MAX)],
            )
        };
        refused(endless, path, too_large).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_without_end_is_cut_off_too() {
    let endless = |protocol: Protocol| {
        let head = Answer::new(403).unfinished();
        healthy(protocol).on(
            "/api",
            [
                Step::Answer(head),
                Step::Body(Bytes::from(vec![b'['; 64 << 10]), u64::MAX),
            ],
        )
    };
    refused(endless, "/api/v1/nodes/a", too_large).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_inflates_a_thousand_times_is_not_inflated() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..256 {
        gzip.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = Bytes::from(gzip.finish().unwrap());
    assert!((bomb.len() as u64) < MIB, "{}", bomb.len());
    let encoded = move |protocol: Protocol| {
        let answer = Answer::new(200)
            .header("content-encoding", "gzip")
            .body(bomb.clone());
        healthy(protocol).on("/api", answer)
    };
    let is = |error: &TransportError| matches!(error, TransportError::Encoded);
    refused(encoded, "/api/v1/nodes/a", is).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_line_without_end_ends_the_watch() {
    for protocol in BOTH {
        let mut rig = rig().await;
        let line = [
            Step::Answer(unfinished().body(r#"{"type":"ADDED","object":{"metadata":{"name":""#)),
            Step::Body(Bytes::from(vec![b'a'; 64 << 10]), u64::MAX),
        ];
        let (key, server) = rig.add("line", healthy(protocol).on("/api", line));
        let client = rig.client(&key).await;
        let before = rig.connected(&key).await.generation().unwrap();
        let nodes = Api::<Node>::all(client.clone());
        let events = nodes.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = Box::pin(events);
        let error = soon("the watch", events.next()).await.unwrap().unwrap_err();
        ears::tells(&error);
        assert!(too_large(transport(&error)), "{error:?}");
        assert!(server.counts().sent < 32 * MIB, "{:?}", server.counts());
        drop(events);
        client.apiserver_version().await.unwrap();
        assert_eq!(rig.connected(&key).await.generation().unwrap(), before);
        rig.end().await;
    }
}

fn improper(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Protocol { .. } | TransportError::Reset { .. }
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_headers_are_an_error_at_the_limit_of_a_head() {
    let many = |protocol: Protocol| {
        healthy(protocol).on_each("/api", |seen| {
            if seen.stream == 0 {
                let head = Step::write("HTTP/1.1 200 OK\r\n");
                return vec![head, Step::Repeat("x-header: value\r\n".into(), 1_000_000)];
            }
            let first = http2::header_block([(":status", &b"200"[..])]);
            let header = http2::header_block([("x-header", &b"value"[..])]).repeat(1_000);
            let begin = http2::frame(http2::HEADERS, 0, seen.stream, &first);
            let more = http2::frame(http2::CONTINUATION, 0, seen.stream, &header);
            let end = http2::frame(http2::CONTINUATION, 4, seen.stream, b"");
            vec![
                Step::Write(begin),
                Step::Repeat(more, 1_000),
                Step::Write(end),
            ]
        })
    };
    refused(many, "/api/v1/nodes/a", improper).await;
}

/// Four kilobytes in the table of headers, then one byte for each time that they are meant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_inflate_are_an_error_at_the_limit_of_a_head() {
    let mut rig = rig().await;
    let bomb = healthy(H2).on_each("/api", |seen| {
        let mut block = http2::header_block([(":status", &b"200"[..])]).to_vec();
        let value = vec![b'v'; 4_000];
        let mut large = http2::header_block([("x", &value[..])]).to_vec();
        large[0] = 0x40; // kept in the table, as its newest entry
        block.extend(large);
        block.extend(vec![0xbe; 16_000]);
        vec![Step::Write(http2::block(seen.stream, &block, true))]
    });
    let (key, _) = rig.add("bomb", bomb);
    let client = rig.client(&key).await;
    let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
    let error = soon("the bomb", client.request_text(request))
        .await
        .unwrap_err();
    ears::tells(&error);
    client.apiserver_version().await.unwrap();
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_brackets_are_an_error_and_no_overflow_of_a_stack() {
    let nested = "[".repeat(200_000);
    for protocol in BOTH {
        let mut rig = rig().await;
        let behaviour = healthy(protocol)
            .on("/api/v1/nodes/a", Answer::new(200).body(nested.clone()))
            .on("/api/v1/nodes/b", Answer::new(403).body(nested.clone()))
            .on(
                "/api/v1/nodes?",
                Answer::new(200).body(format!("{nested}\n")),
            );
        let (key, _) = rig.add("nested", behaviour);
        let client = rig.client(&key).await;
        for path in ["/api/v1/nodes/a", "/api/v1/nodes/b"] {
            let request = Request::get(path).body(vec![]).unwrap();
            let error = soon(path, client.request::<Node>(request))
                .await
                .unwrap_err();
            ears::tells(&error);
        }
        let nodes = Api::<Node>::all(client.clone());
        let events = nodes.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = Box::pin(events);
        let error = soon("the watch", events.next()).await.unwrap().unwrap_err();
        ears::tells(&error);
        rig.end().await;
    }
}

/// What is said to the health check is read in part, and what is said in a refusal is looked at in part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_answer_to_the_health_check_says_what_its_status_says() {
    for protocol in BOTH {
        let mut rig = rig().await;
        let endless = |status| {
            let block = Bytes::from(vec![b'['; 64 << 10]);
            [
                Step::Answer(Answer::new(status).unfinished()),
                Step::Body(block, u64::MAX),
            ]
        };
        let (ready, _) = rig.add("ready", protocol().on("/", endless(200)));
        rig.connected(&ready).await;
        let (not, _) = rig.add("not", protocol().on("/", endless(418)));
        assert_eq!(rig.failed(&not).await.kind, FailureKind::Status(418));
        rig.end().await;
    }
}
