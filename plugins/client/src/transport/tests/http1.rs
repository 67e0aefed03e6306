//! Servers without HTTP/2: one connection for each request at a time, a few of them kept.

use std::sync::Arc;

use clustercache_testkit::fleet::FakeCluster;
use futures_util::future::join_all;
use http_body_util::BodyExt;

use super::{
    raw::{RawServer, Then},
    rig::{Open, Rig, get, soon, transport, whole},
    streams::ask,
};
use crate::TransportError;

fn rig(name: &str) -> Rig {
    Rig::with(
        FakeCluster::builder(name).http2(false).start().unwrap(),
        |_| (),
    )
}

#[tokio::test]
async fn requests_one_after_the_other_share_a_connection() {
    let rig = rig("sequence");
    for _ in 0..5 {
        rig.text("/version").await.unwrap();
    }
    assert_eq!(rig.cluster.counters().connections_accepted, 1);
}

#[tokio::test]
async fn requests_side_by_side_have_a_connection_each_and_a_few_are_kept() {
    let rig = rig("parallel");
    rig.cluster.hang("/version");
    let (answers, ()) = tokio::join!(join_all((0..10).map(|_| rig.text("/version"))), async {
        soon(rig.cluster.when(|counters| counters.requests.version == 10)).await;
        rig.cluster.answer_normally();
    });
    for answer in answers {
        answer.unwrap();
    }
    soon(rig.cluster.when(|counters| counters.connections_open == 4)).await;
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 10);
}

#[tokio::test]
async fn a_watch_holds_its_connection_and_calls_go_past_it() {
    let rig = rig("past");
    let mut watch = rig.watch().await;
    rig.text("/version").await.unwrap();
    rig.cluster.end_watches();
    assert!(soon(watch.frame()).await.is_none());
    // Read to its end, the watch's connection serves again.
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn a_body_that_is_dropped_unread_spoils_no_other_request() {
    let rig = rig("dropped");
    let watch = rig.watch().await;
    drop(watch);
    rig.text("/version").await.unwrap();
    soon(rig.cluster.when(|counters| counters.watches_open == 0)).await;
    rig.text("/version").await.unwrap();
}

#[tokio::test]
async fn connections_that_the_server_closed_cost_no_call() {
    let rig = rig("closed");
    rig.text("/version").await.unwrap();
    rig.cluster.close_connections();
    rig.connections_over().await;
    rig.text("/version").await.unwrap();
}

#[tokio::test]
async fn an_answer_that_closes_its_connection_costs_the_next_call_nothing() {
    let last = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".to_owned();
    let server = RawServer::start(vec![(last, Then::Next)]).await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    for _ in 0..5 {
        let response = get(&transport, "/version").await.unwrap();
        assert_eq!(whole(response).await.unwrap(), "ok");
    }
}

#[tokio::test]
async fn there_are_only_so_many_connections_and_who_waits_for_one_says_nothing_of_the_cluster() {
    let cluster = FakeCluster::builder("many").http2(false).start().unwrap();
    let rig = Rig::with(cluster, |deadlines| {
        deadlines.list = std::time::Duration::from_millis(100);
    });
    let watches = join_all((0..64).map(|_| rig.watch())).await;
    let error = rig.get("/api/v1/nodes").await.err().unwrap();
    assert!(matches!(error, TransportError::Busy { .. }), "{error}");
    // Of calls that gave up nothing is kept, however many there are.
    for _ in 0..20 {
        join_all((0..20).map(|_| rig.get("/api/v1/nodes"))).await;
    }
    // Probes have one more.
    for _ in 0..2 {
        assert_eq!(ask(&rig.transport).await.unwrap(), 200);
        let error = rig.get("/api/v1/nodes").await.err().unwrap();
        assert!(matches!(error, TransportError::Busy { .. }), "{error}");
    }
    assert_eq!(rig.cluster.counters().connections_accepted, 65);
    let waiting = rig.transport.0.identity.load().line.waiting();
    assert!(waiting <= 64, "{waiting}");
    drop(watches);
    rig.text("/version").await.unwrap();
    soon(rig.close()).await;
    soon(rig.cluster.connections_closed()).await;
}
