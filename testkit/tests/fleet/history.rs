//! What a fleet tells of the requests that it was sent.

use clustercache_testkit::{
    api::{self, Verb},
    fleet::{AnsweredBy, FakeCluster, Fleet, PathClass, ShownCredential},
};
use futures_util::poll;
use http::Method;
use serde_json::json;

use crate::client::{connect, soon};

#[tokio::test]
async fn requests_are_counted_by_verb_resource_and_credential_whoever_answered() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    client.get("/api/v1/pods").await;
    client.get("/api/v1/pods").await;
    client.get("/apis/apps/v1/deployments").await;
    client.get("/version").await;
    let config = json!({ "metadata": { "name": "a" } });
    let path = "/api/v1/namespaces/default/configmaps";
    client.send(Method::POST, path, &config).await;
    client.show("wrong");
    client.get("/api/v1/pods").await;
    cluster.answer("/api/v1/nodes", 502, "");
    client.text("/api/v1/nodes").await.unwrap();

    let all = cluster.history();
    all.assert_count(7);
    let pods = || cluster.history().verb(Verb::List).resource("pods");
    pods().assert_count(3);
    pods().code(401).assert_count(1);
    pods().answered_by(AnsweredBy::Api).assert_count(2);
    let wrong = ShownCredential::Token("wrong".into());
    let wrong = cluster.history().credential(&wrong);
    wrong.assert_count(2);
    let answers: Vec<_> = wrong.entries().iter().map(|entry| entry.answer).collect();
    assert_eq!(
        answers,
        [
            Some((401, AnsweredBy::Authentication)),
            Some((502, AnsweredBy::Front))
        ]
    );
    cluster.history().class(PathClass::Version).assert_count(1);
    cluster.history().verb(Verb::Get).assert_count(0);
    cluster
        .history()
        .resource("configmaps")
        .code(201)
        .assert_count(1);
    // What did not get through is not the API server's.
    assert_eq!(cluster.api().history().count(), 5);

    let times: Vec<_> = all.entries().iter().map(|entry| entry.request.at).collect();
    assert!(times.is_sorted() && times.last() <= Some(&cluster.api().now()));
    cluster.forget_history();
    cluster.history().assert_count(0);
}

#[tokio::test]
async fn a_request_without_an_answer_is_remembered_as_such() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let hanging = cluster.inject(api::Fault::hang());
    let asked = cluster.next_request(|_| true);
    let mut answer = Box::pin(client.text("/api/v1/pods"));
    assert!(poll!(&mut answer).is_pending());
    tokio::select! {
        _ = &mut answer => panic!("it hangs"),
        _ = asked => {}
    }
    cluster.history().unanswered().assert_count(1);
    // Forgotten while it hangs, it does not come back.
    cluster.forget_history();
    hanging.undo();
    soon(answer).await.unwrap();
    cluster.history().assert_count(0);
}

#[tokio::test]
async fn more_requests_are_counted_than_remembered() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    for _ in 0..300 {
        client.text("/readyz").await.unwrap();
    }
    let history = cluster.history();
    history.assert_count(300);
    assert_eq!(history.entries().len(), 256);
    history.clone().code(200).assert_count(300);
    history.unanswered().assert_count(0);
}

#[tokio::test]
async fn a_fleet_adds_up_what_its_clusters_counted() {
    let fleet = Fleet::start(3).await.unwrap();
    for cluster in fleet.clusters() {
        let mut client = connect(cluster).await;
        client.get("/api/v1/pods").await;
        client.watch("/api/v1/pods?watch=1").await;
    }
    let counters = fleet.counters();
    assert_eq!(
        (counters.connections_accepted, counters.tls_handshakes),
        (3, 3)
    );
    assert_eq!(counters.requests.total(), 6);
    fleet.history().resource("pods").assert_count(6);
    fleet.history().verb(Verb::Watch).assert_at_least(3);
    let times = fleet.history();
    let times = times.entries().iter().map(|entry| entry.request.at);
    assert!(times.is_sorted());
    let one = fleet[0].counters();
    assert!(one.bytes_received > 100 && one.bytes_sent > 500, "{one:?}");
    assert!(counters.bytes_sent >= 3 * 500);
}

#[tokio::test]
async fn bytes_can_be_waited_for() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    client.get("/version").await;
    let before = cluster.counters().bytes_sent;
    let more = cluster.when(move |counters| counters.bytes_sent > before + 100);
    let (counters, _) = tokio::join!(soon(more), client.get("/api"));
    assert!(counters.bytes_sent > before + 100);
}

#[tokio::test]
#[should_panic(expected = "1 requests, fewer than 2")]
async fn an_assertion_that_fails_says_what_there_was() {
    let cluster = FakeCluster::start("a").unwrap();
    connect(&cluster).await.get("/api/v1/pods").await;
    cluster.history().assert_at_least(2);
}
