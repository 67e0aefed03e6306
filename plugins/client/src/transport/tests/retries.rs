//! What becomes of a call for which a server is too busy: sent again, few times, in its deadline, and nothing is done twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use clustercache_testkit::fleet::FakeCluster;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;

use super::{
    frames::{END_HEADERS, END_STREAM, HEADERS, Peer, RESET, frame},
    raw::{RawServer, Then, answer},
    rig::{Open, Rig, readyz, soon, transport, whole},
};
use crate::{
    TransportError,
    transport::{Class, Transport, body::ResponseBody},
};

async fn call(
    transport: &Transport,
    method: Method,
    path: &str,
) -> Result<Response<ResponseBody>, TransportError> {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::from(b"{}".to_vec())).unwrap();
    let class = Class::of(&request);
    soon(transport.call_as(request, class)).await
}

fn busy(status: u16, retry_after: &str) -> (String, Then) {
    let busy = format!(
        "HTTP/1.1 {status} X\r\nretry-after: {retry_after}\r\ncontent-length: 4\r\n\r\nbusy"
    );
    (busy, Then::Next)
}

async fn against(answers: Vec<(String, Then)>) -> (RawServer, Transport) {
    let server = RawServer::start(answers).await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    (server, transport)
}

#[tokio::test]
async fn a_server_that_was_too_busy_for_a_moment_costs_no_call() {
    for (method, status) in [
        (Method::GET, 429),
        (Method::GET, 503),
        (Method::PUT, 429),
        (Method::POST, 429),
        (Method::DELETE, 429),
    ] {
        let answers = vec![busy(status, "0"), (answer(200, "done"), Then::Next)];
        let (_server, transport) = against(answers).await;
        let done = call(&transport, method, "/version").await.unwrap();
        assert_eq!(whole(done).await.unwrap(), "done");
        assert_eq!(transport.retries(), 1);
    }
}

#[tokio::test]
async fn what_may_have_been_done_is_not_sent_again() {
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let answers = vec![busy(503, "0"), (answer(200, "done"), Then::Next)];
        let (_server, transport) = against(answers).await;
        let refused = call(&transport, method, "/version").await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(whole(refused).await.unwrap(), "busy");
        assert_eq!(transport.retries(), 0);
    }
}

#[tokio::test]
async fn a_server_that_is_too_busy_for_ever_is_asked_three_times() {
    for status in [429, 503] {
        let rig = Rig::new("ever");
        rig.cluster.answer("/version", status, "busy");
        let refused = call(&rig.transport, Method::GET, "/version").await.unwrap();
        assert_eq!(refused.status().as_u16(), status);
        assert_eq!(whole(refused).await.unwrap(), "busy");
        assert_eq!(rig.cluster.counters().requests.total(), 3);
        assert_eq!(rig.transport.retries(), 2);
        assert_eq!(rig.transport.0.shared.hooks.counts.retries(), 2);
    }
}

#[tokio::test]
async fn a_server_that_asks_for_more_than_the_deadline_has_is_not_waited_for() {
    for retry_after in ["10", "3600", "99999999999999999999999"] {
        let answers = vec![busy(503, retry_after), (answer(200, "done"), Then::Next)];
        let (_server, transport) = against(answers).await;
        let refused = call(&transport, Method::GET, "/version").await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            whole(refused).await.unwrap(),
            "busy",
            "its answer is as it was"
        );
    }
}

#[tokio::test]
async fn a_probe_is_asked_once() {
    let rig = Rig::new("once");
    rig.cluster.answer("/readyz", 429, "busy");
    let until = Instant::now() + crate::Deadlines::default().probe;
    let reply = soon(readyz(&rig.transport, until)).await.unwrap();
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rig.cluster.counters().requests.total(), 1);
}

#[tokio::test]
async fn close_ends_a_wait_between_two_tries() {
    let rig = Rig::with(FakeCluster::start("between").unwrap(), |deadlines| {
        deadlines.list = Duration::from_secs(600);
    });
    rig.cluster.answer("/api/v1/pods", 503, "busy");
    let (call, ()) = tokio::join!(call(&rig.transport, Method::GET, "/api/v1/pods"), async {
        soon(rig.cluster.when(|counters| counters.requests.list == 1)).await;
        soon(rig.close()).await;
    });
    assert!(matches!(call.err(), Some(TransportError::Retired)));
    assert_eq!(rig.cluster.counters().requests.total(), 1);
}

#[tokio::test]
async fn a_call_is_sent_three_times_at_most_whatever_becomes_of_each() {
    const REFUSED: u32 = 7;
    /// `:status: 503` as HPACK has it.
    const BUSY: &[u8] = &[0x08, 3, b'5', b'0', b'3'];
    let asked = Arc::<AtomicUsize>::default();
    let server = RawServer::serving(&[b"h2"], {
        let asked = Arc::clone(&asked);
        move |_, stream| {
            let asked = Arc::clone(&asked);
            async move {
                let mut peer = Peer::begin(stream, &[]).await;
                while let Some(stream) = peer.request().await {
                    let last = asked.fetch_add(1, Relaxed) % 3 == 2;
                    let said = if last {
                        frame(HEADERS, END_HEADERS | END_STREAM, stream, BUSY)
                    } else {
                        frame(RESET, 0, stream, &REFUSED.to_be_bytes())
                    };
                    peer.send(&said).await;
                }
            }
        }
    })
    .await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    let busy = call(&transport, Method::GET, "/version").await.unwrap();
    assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(asked.load(Relaxed), 3);
    assert_eq!(transport.retries(), 0, "none was left");
}
