//! A new client certificate: new requests go over a new connection at once, and watches end on the old one, in their time.

use std::time::Duration;

use clustercache::{ClusterAccess, Refresh};
use clustercache_testkit::{
    fleet::{FakeCluster, ShownCredential},
    pki::Validity,
};
use http_body_util::BodyExt;

use super::rig::{Rig, access, soon};

fn certified(cluster: &FakeCluster, user: &str, validity: Validity) -> ClusterAccess {
    cluster.accept_user(user);
    let credential = cluster.client_certificate(user, validity).unwrap();
    access(&cluster.access_with(credential))
}

/// A rig with a watch that was opened as `old`.
fn rig(name: &str, validity: Validity, drain: Duration) -> Rig {
    let cluster = FakeCluster::start(name).unwrap();
    let access = certified(&cluster, "old", validity);
    Rig::on(cluster, access, |deadlines| deadlines.drain = drain)
}

fn node(cluster: &FakeCluster, name: &str) {
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    cluster.put(node).unwrap();
}

#[tokio::test]
async fn new_requests_use_a_new_connection_at_once_and_a_watch_lives_on_the_old_one() {
    let rig = rig("swap", Validity::years(), Duration::from_secs(600));
    let mut watch = rig.watch().await;
    let new = certified(&rig.cluster, "new", Validity::years());
    assert_eq!(rig.transport.refresh(&new), Refresh::InPlace);
    let seen = rig.cluster.next_request(|_| true);
    rig.text("/version").await.unwrap();
    let seen = soon(seen).await;
    assert_eq!(seen.credential, ShownCredential::Certificate("new".into()));
    assert_eq!(rig.cluster.counters().connections_open, 2);

    node(&rig.cluster, "a");
    soon(watch.frame()).await.unwrap().unwrap();
    // The last stream's end is the old connection's.
    drop(watch);
    soon(rig.cluster.when(|counters| counters.connections_open == 1)).await;
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn an_idle_old_connection_closes_at_once() {
    let rig = rig("idle-swap", Validity::years(), Duration::from_secs(600));
    rig.text("/version").await.unwrap();
    rig.transport
        .refresh(&certified(&rig.cluster, "new", Validity::years()));
    soon(rig.cluster.connections_closed()).await;
    rig.connections_over().await;
}

#[tokio::test]
async fn a_watch_on_the_old_connection_ends_without_error_when_its_time_is_over() {
    let rig = rig("drain", Validity::years(), Duration::from_millis(50));
    let mut watch = rig.watch().await;
    rig.transport
        .refresh(&certified(&rig.cluster, "new", Validity::years()));
    assert!(soon(watch.frame()).await.is_none());
    soon(rig.cluster.connections_closed()).await;
}

#[tokio::test]
async fn a_watch_does_not_outlive_the_certificate_that_it_was_opened_with() {
    let lasting = Validity::lasting(Duration::from_secs(2));
    let rig = rig("expiry", lasting, Duration::from_secs(600));
    let mut watch = rig.watch().await;
    rig.transport
        .refresh(&certified(&rig.cluster, "new", Validity::years()));
    assert!(soon(watch.frame()).await.is_none());
    rig.text("/version").await.unwrap();
}

#[tokio::test]
async fn from_a_token_to_a_certificate_is_a_new_connection_and_another_token_beside_it_is_not() {
    let rig = Rig::new("kinds");
    rig.text("/version").await.unwrap();
    rig.transport
        .refresh(&certified(&rig.cluster, "new", Validity::years()));
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn when_the_pooled_connection_is_replaced_watches_end_to_resume_and_calls_go_on() {
    let rig = rig("replace", Validity::years(), Duration::from_secs(600));
    let mut watch = rig.watch().await;
    rig.cluster.hang("/version");
    let (call, ()) = tokio::join!(rig.text("/version"), async {
        soon(rig.cluster.when(|counters| counters.requests.version == 1)).await;
        rig.transport.replace_pooled();
        assert!(soon(watch.frame()).await.is_none());
        rig.cluster.answer_normally();
    });
    call.unwrap();
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}
