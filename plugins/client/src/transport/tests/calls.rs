//! What happens to one call: deadlines, what it proves, and that nothing it meets spoils the next.

use std::{sync::Arc, time::Duration};

use clustercache::FailureKind;
use clustercache_testkit::fleet::FakeCluster;
use http::StatusCode;

use super::{
    raw::{RawServer, Then},
    rig::{Open, Rig, get, soon, transport, whole},
};
use crate::{TransportError, Wait};

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_head_that_does_not_come_ends_at_the_deadline_and_says_so() {
    let rig = Rig::with(FakeCluster::start("head").unwrap(), |d| d.call = SHORT);
    rig.text("/version").await.unwrap();
    rig.cluster.hang("/version");
    let error = rig.get("/version").await.err().unwrap();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Head,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.kind(), FailureKind::TimedOut);
}

#[tokio::test]
async fn a_body_that_stops_ends_at_the_deadline_and_says_so() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_owned();
    let server = RawServer::start(vec![(cut, Then::Hang)]).await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |d| {
        d.call = SHORT;
    });
    let response = get(&transport, "/version").await.unwrap();
    let error = whole(response).await.err().unwrap();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Body,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_body_that_is_cut_is_a_reset() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_owned();
    let server = RawServer::start(vec![(cut, Then::Reset)]).await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    let error = async { whole(get(&transport, "/version").await?).await }
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), FailureKind::Reset, "{error}");
}

#[tokio::test]
async fn what_is_no_http_is_told_apart() {
    let server = RawServer::start(vec![("SSH-2.0-x\r\n\r\n".into(), Then::Hang)]).await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    let error = get(&transport, "/version").await.err().unwrap();
    assert_eq!(error.kind(), FailureKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(1 << 20));
    let server = RawServer::start(vec![(endless, Then::Hang)]).await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    let error = get(&transport, "/version").await.err().unwrap();
    assert_eq!(error.kind(), FailureKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_watch_has_a_deadline_until_its_head_only() {
    let rig = Rig::with(FakeCluster::start("watch").unwrap(), |d| d.call = SHORT);
    let mut watch = rig.watch().await;
    // A call that begins later ends at the same deadline.
    rig.cluster.hang("/version");
    rig.get("/version").await.err().unwrap();
    rig.cluster
        .put(serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .unwrap();
    let frame = soon(http_body_util::BodyExt::frame(&mut watch))
        .await
        .unwrap();
    frame.unwrap();
    rig.cluster.hang("/api/v1/nodes");
    let error = rig.get("/api/v1/nodes?watch=true").await.err().unwrap();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Head,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_idle_costs_no_call() {
    let rig = Rig::new("idle");
    rig.text("/version").await.unwrap();
    rig.cluster.close_connections();
    rig.connections_over().await;
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn a_kube_client_survives_a_dead_server_and_works_again_when_it_is_back() {
    let rig = Rig::with(FakeCluster::start("dead").unwrap(), |d| d.call = SHORT);
    let client = kube::Client::new(rig.transport.clone(), "default");
    client.apiserver_version().await.unwrap();
    for fault in [
        FakeCluster::refuse,
        FakeCluster::black_hole,
        FakeCluster::silence_new_connections,
    ] {
        fault(&rig.cluster);
        rig.transport.replace_pooled();
        for _ in 0..3 {
            let error = soon(client.apiserver_version()).await.unwrap_err();
            let kube::Error::Service(error) = error else {
                panic!("{error}")
            };
            assert!(error.downcast_ref::<TransportError>().is_some(), "{error}");
        }
        rig.cluster.heal();
        // What was dialled into the fault may still be on its way.
        rig.transport.replace_pooled();
        client.apiserver_version().await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_and_a_silent_server_are_told_apart() {
    let rig = Rig::with(FakeCluster::start("kinds").unwrap(), |d| d.tls = SHORT);
    rig.cluster.refuse();
    assert_eq!(
        rig.get("/version").await.err().unwrap().kind(),
        FailureKind::Refused
    );
    rig.cluster.heal();
    rig.cluster.silence_new_connections();
    let error = rig.get("/version").await.err().unwrap();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Tls,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_redirect_is_an_error_and_one_request() {
    let rig = Rig::new("redirect");
    rig.cluster.answer("/version", 302, "");
    let error = rig.get("/version").await.err().unwrap();
    assert!(matches!(error, TransportError::Redirect { status } if status == StatusCode::FOUND));
    assert_eq!(rig.cluster.counters().requests.total(), 1);
}

#[tokio::test]
async fn only_what_an_api_server_says_is_a_sign_of_life() {
    let rig = Rig::new("signs");
    for (status, body, signs) in [
        (200, "ok", (1, 0, 0)),
        (204, "", (1, 0, 0)),
        (403, r#"{"kind":"Status","code":403}"#, (1, 0, 0)),
        (404, r#"{"kind":"Status","code":404}"#, (1, 0, 0)),
        (403, "<html>", (0, 0, 0)),
        (404, "", (0, 0, 0)),
        (401, r#"{"kind":"Status","code":401}"#, (0, 0, 1)),
        (429, r#"{"kind":"Status","code":429}"#, (0, 0, 0)),
        (503, r#"{"kind":"Status","code":503}"#, (0, 0, 0)),
    ] {
        rig.cluster.answer("/version", status, body);
        let (a, b, c) = rig.heard.all();
        rig.text("/version").await.unwrap();
        let (answered, bytes, doubts) = rig.heard.all();
        assert_eq!(
            (answered - a, bytes - b, doubts - c),
            signs,
            "{status} {body}"
        );
    }
}

#[tokio::test]
async fn bytes_on_a_watch_are_signs_of_life() {
    let rig = Rig::new("bytes");
    let mut watch = rig.watch().await;
    for name in ["a", "b"] {
        let node =
            serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        rig.cluster.put(node).unwrap();
        soon(http_body_util::BodyExt::frame(&mut watch))
            .await
            .unwrap()
            .unwrap();
    }
    let (answered, bytes, _) = rig.heard.all();
    assert!(answered == 1 && bytes >= 2, "{answered} {bytes}");
}
