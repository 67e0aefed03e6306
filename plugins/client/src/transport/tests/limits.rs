//! What a cluster sends is another party's data: an answer that is too large is an error before it is held, whatever it says of itself.

use std::sync::Arc;

use http::Request;
use kube::{api::ListParams, client::Body};

use super::{
    raw::{RawServer, Then, answer},
    rig::{Heard, Open, get, limited, soon, transport, whole},
};
use crate::{
    Limits, Part, TransportError,
    transport::{Class, Transport},
};

const LIMIT: u64 = 64 << 10;

/// On a server that answers everything with these bytes, and says no more.
async fn on(answer: String) -> (RawServer, Transport) {
    on_with(answer, Then::Hang).await
}

async fn on_with(answer: String, then: Then) -> (RawServer, Transport) {
    let server = RawServer::start(vec![(answer, then)]).await;
    let limits = Limits {
        call: LIMIT,
        list: LIMIT * 2,
        line: LIMIT,
        ..Limits::default()
    };
    let transport = limited(
        server.access(),
        Box::new(Open),
        Arc::default(),
        |_| (),
        limits,
    );
    (server, transport)
}

fn is(error: &TransportError, part: Part) -> bool {
    matches!(error, TransportError::TooLarge { what, limit } if *what == part && *limit >= LIMIT)
}

#[tokio::test]
async fn an_answer_that_says_it_is_too_large_is_not_begun_with() {
    for length in [LIMIT * 2 + 1, 256 << 20, u64::MAX - 2] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let (_server, transport) = on(head).await;
        let error = get(&transport, "/version").await.err().unwrap();
        assert!(is(&error, Part::Call), "{error}");
        let error = get(&transport, "/api/v1/pods").await.err().unwrap();
        assert!(is(&error, Part::List), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_say_how_large_it_is_ends_at_its_limit() {
    let endless = "x".repeat(256 << 10);
    let chunk = format!("{:x}\r\n{endless}\r\n", endless.len());
    for (path, status, part) in [
        ("/version", 200, Part::Call),
        ("/api/v1/pods", 200, Part::List),
        ("/api/v1/pods?watch=true", 200, Part::Line),
        ("/version", 500, Part::Call),
        ("/api/v1/pods", 403, Part::Call),
        ("/api/v1/pods?watch=true", 410, Part::Call),
    ] {
        for rest in [
            format!("\r\n{endless}"),
            format!("transfer-encoding: chunked\r\n\r\n{chunk}"),
        ] {
            let (_server, transport) = on(format!("HTTP/1.1 {status} X\r\n{rest}")).await;
            let response = get(&transport, path).await.unwrap();
            let error = whole(response).await.unwrap_err();
            assert!(is(&error, part), "{path} {status}: {error}");
        }
    }
}

#[tokio::test]
async fn a_list_may_be_larger_than_a_call_and_a_watch_may_be_without_end() {
    let lines = format!("{}\n", "x".repeat(1023)).repeat(100);
    let (_server, transport) = on_with(answer(200, &lines), Then::Next).await;
    for path in ["/api/v1/pods", "/api/v1/pods?watch=true"] {
        let response = get(&transport, path).await.unwrap();
        assert_eq!(whole(response).await.unwrap().len(), lines.len(), "{path}");
    }
}

#[tokio::test]
async fn a_head_without_end_and_one_of_a_million_headers_are_errors() {
    let million = "x: y\r\n".repeat(1 << 20);
    let few = "x: y\r\n".repeat(101);
    for head in ["x".repeat(1 << 20), million, format!("{few}\r\n")] {
        let (_server, transport) = on(format!("HTTP/1.1 200 OK\r\nx: {head}")).await;
        let error = get(&transport, "/version").await.err().unwrap();
        assert!(error.text().contains("too large"), "{}", error.text());
        assert_eq!(error.kind(), clustercache::FailureKind::Protocol);
    }
}

#[tokio::test]
async fn an_encoded_answer_is_an_error_unless_its_request_asked_for_it() {
    let (_server, transport) =
        on("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok".into()).await;
    let error = get(&transport, "/version").await.err().unwrap();
    assert!(matches!(error, TransportError::Encoded), "{error}");
    let request = Request::get("/version").header("accept-encoding", "gzip");
    let request = request.body(Body::empty()).unwrap();
    let class = Class::of(&request);
    let response = soon(transport.send(request, class)).await.unwrap();
    assert_eq!(whole(response).await.unwrap(), "ok");
    let (_server, transport) =
        on(answer(200, "ok").replace("\r\n\r\n", "\r\nContent-Encoding: Identity\r\n\r\n")).await;
    let response = get(&transport, "/version").await.unwrap();
    assert_eq!(whole(response).await.unwrap(), "ok");
}

#[tokio::test]
async fn a_kube_client_holds_no_line_without_end() {
    let (_server, transport) =
        on(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(256 << 10))).await;
    let client = kube::Client::new(transport, "default");
    let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::all(client);
    let params = kube::api::WatchParams::default();
    let events = soon(pods.watch(&params, "0")).await.unwrap();
    let mut events = std::pin::pin!(events);
    let event = soon(futures_util::StreamExt::next(&mut events)).await;
    let error = event.unwrap().unwrap_err();
    assert!(all(&error).contains("Limits::line"), "{}", all(&error));
}

#[tokio::test]
async fn brackets_without_end_are_an_error_and_no_deep_recursion() {
    let brackets = "[".repeat(200_000);
    let server = RawServer::start(vec![(answer(200, &brackets), Then::Next)]).await;
    let transport = transport(
        server.access(),
        Box::new(Open),
        Arc::<Heard>::default(),
        |_| (),
    );
    let client = kube::Client::new(transport, "default");
    let request = || Request::get("/api/v1/pods").body(Vec::new()).unwrap();
    let error = soon(client.request::<serde_json::Value>(request())).await;
    assert!(all(&error.unwrap_err()).contains("recursion limit"));
    let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::all(client);
    let error = soon(pods.list(&ListParams::default())).await.unwrap_err();
    assert!(matches!(error, kube::Error::SerdeError(_)), "{error}");
}

fn all(error: &dyn std::error::Error) -> String {
    let next = error.source().map(all).unwrap_or_default();
    format!("{error}: {next}")
}
