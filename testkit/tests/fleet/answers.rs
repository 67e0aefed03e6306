//! Faults of the answers.

use std::time::Duration;

use clustercache_testkit::fleet::{FakeCluster, PathClass};
use futures_util::poll;
use serde_json::json;

use crate::client::{Client, Http, connect, soon};

#[tokio::test]
async fn an_answer_is_given_to_every_path_that_begins_so_and_before_any_authentication() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    client.show("wrong");
    cluster.answer("/", 503, "down for a while");
    let (code, body) = client.text("/readyz").await.unwrap();
    assert_eq!((code.as_u16(), body.as_str()), (503, "down for a while"));

    cluster.answer("/readyz", 500, r#"{"broken":true}"#);
    assert_eq!(
        client.get("/readyz/etcd").await,
        (500, json!({ "broken": true }))
    );
    assert_eq!(client.text("/version").await.unwrap().0, 503);
    cluster.answer("/", 204, "");
    assert_eq!(
        client.text("/readyz").await.unwrap().0,
        204,
        "the last one that was set counts"
    );

    cluster.answer_normally();
    assert_eq!(client.get("/readyz").await.0, 401);
    assert!(
        cluster.seen_tokens().contains("wrong"),
        "tokens are recorded whatever is answered"
    );
}

#[tokio::test]
async fn what_is_forbidden_is_403_with_a_status() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    cluster.forbid("/api/v1/nodes");
    let (code, status) = client.get("/api/v1/nodes?limit=1").await;
    assert_eq!(
        (code, &status["reason"], &status["kind"]),
        (403, &json!("Forbidden"), &json!("Status"))
    );
    assert_eq!(client.get("/api/v1/pods").await.0, 200);
    cluster.heal();
    assert_eq!(client.get("/api/v1/nodes").await.0, 200);
}

#[tokio::test]
async fn what_hangs_is_answered_when_it_no_longer_does_and_holds_up_nothing_else() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    cluster.hang("/readyz");
    let asked = cluster.next_request(|request| request.class == PathClass::Health);
    let mut hanging = connect(&cluster).await;
    let mut answer = Box::pin(hanging.text("/readyz"));
    assert!(poll!(&mut answer).is_pending());
    let waited = tokio::spawn(asked);
    assert_eq!(client.get("/version").await.0, 200);
    assert!(poll!(&mut answer).is_pending());
    soon(waited).await.unwrap();
    cluster.answer_normally();
    assert_eq!(soon(answer).await.unwrap().0, 200);
}

#[tokio::test]
async fn a_hanging_request_can_be_given_up_by_its_client() {
    let cluster = FakeCluster::start("a").unwrap();
    cluster.hang("/");
    let mut client = connect(&cluster).await;
    let asked = cluster.next_request(|_| true);
    let request = tokio::spawn(async move { client.text("/readyz").await });
    soon(asked).await;
    request.abort();
    soon(cluster.connections_closed()).await;
}

#[tokio::test]
async fn latency_comes_before_every_answer() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    cluster.latency(Duration::from_secs(3600));
    let asked = cluster.next_request(|_| true);
    let mut late = Box::pin(client.text("/readyz"));
    tokio::select! {
        _ = &mut late => panic!("an hour has not passed"),
        _ = asked => {}
    }
    drop(late);
    cluster.latency(Duration::from_millis(1));
    assert_eq!(connect(&cluster).await.get("/version").await.0, 200);
}

#[tokio::test]
async fn who_is_told_to_go_away_is_answered_and_keeps_its_watches_only() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let mut watch = client.watch("/api/v1/nodes?watch=true").await;
    cluster.goaway_chance(1.0);
    assert_eq!(client.get("/api/v1/nodes").await.0, 200);
    // Until the client has heard it, it may ask once more.
    soon(async { while client.text("/version").await.is_ok() {} }).await;
    cluster
        .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "new" } }))
        .unwrap();
    assert_eq!(watch.change().await, ("ADDED".into(), "new".into()));
    cluster.end_watches();
    assert_eq!(watch.next().await, None);
    soon(client.connection).await.unwrap().unwrap();
    soon(cluster.connections_closed()).await;

    // HTTP/1.1 has no such frame.
    let mut old = Client::connect(&cluster.access(), Http::One).await.unwrap();
    for _ in 0..3 {
        assert_eq!(old.get("/api/v1/nodes").await.0, 200);
    }
    cluster.heal();
    let mut client = connect(&cluster).await;
    for _ in 0..20 {
        assert_eq!(client.get("/api/v1/nodes").await.0, 200);
    }
}
