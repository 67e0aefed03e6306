//! Watches.

use clustercache_testkit::fleet::FakeCluster;
use serde_json::{Value, json};

use crate::client::{Client, Http, connect, soon};

fn config(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
    })
}

fn change(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_from_a_version_sees_every_later_change_in_order() {
    let cluster = FakeCluster::start("a").unwrap();
    for http in [Http::One, Http::Two] {
        let mut client = Client::connect(&cluster.access(), http).await.unwrap();
        let version = cluster.version();
        cluster.put(config("a", "x")).unwrap();
        let mut events = client
            .watch(&format!(
                "/api/v1/configmaps?watch=true&resourceVersion={version}"
            ))
            .await;
        assert_eq!(events.change().await, change("ADDED", "a"));
        cluster.put(config("a", "y")).unwrap();
        cluster
            .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }))
            .unwrap();
        cluster.delete("v1", "ConfigMap", "default", "a");
        let event = events.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["kind"]),
            (&json!("MODIFIED"), &json!("ConfigMap"))
        );
        let event = events.next().await.unwrap();
        assert_eq!(event["type"], "DELETED");
        assert_eq!(
            event["object"]["metadata"]["resourceVersion"],
            cluster.version().to_string()
        );
    }
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_there_is() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let mut events = client.watch("/api/v1/namespaces?watch=1").await;
    assert_eq!(events.change().await, change("ADDED", "default"));
    assert_eq!(events.change().await, change("ADDED", "kube-system"));

    let query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut events = client
        .watch(&format!("/api/v1/namespaces?watch=1&{query}"))
        .await;
    events.next().await.unwrap();
    events.next().await.unwrap();
    let end = events.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
}

#[tokio::test]
async fn a_watch_with_a_selector_sees_objects_come_and_go_by_their_labels() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let version = cluster.version();
    let path = format!(
        "/api/v1/namespaces/default/configmaps?watch=true&labelSelector=app%3Dx&resourceVersion={version}"
    );
    let mut events = client.watch(&path).await;
    cluster.put(config("a", "y")).unwrap();
    cluster.put(config("a", "x")).unwrap();
    cluster.put(config("a", "y")).unwrap();
    cluster.put(config("b", "x")).unwrap();
    assert_eq!(events.change().await, change("ADDED", "a"));
    assert_eq!(events.change().await, change("DELETED", "a"));
    assert_eq!(events.change().await, change("ADDED", "b"));
}

#[tokio::test]
async fn a_version_that_is_too_old_is_an_error_event_and_the_end() {
    let cluster = FakeCluster::start("a").unwrap();
    let version = cluster.version();
    cluster.put(config("a", "x")).unwrap();
    cluster.compact();
    let mut client = connect(&cluster).await;
    let mut events = client
        .watch(&format!(
            "/api/v1/configmaps?watch=true&resourceVersion={version}"
        ))
        .await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(events.next().await, None);
    cluster.when(|counters| counters.watches_open == 0).await;
}

#[tokio::test]
async fn bookmarks_come_only_to_those_who_allow_them_and_name_the_newest_version() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let version = cluster.version();
    let path = format!("/api/v1/configmaps?watch=true&resourceVersion={version}");
    let mut without = client.watch(&path).await;
    let mut with = client
        .watch(&format!("{path}&allowWatchBookmarks=true"))
        .await;
    cluster
        .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }))
        .unwrap();
    cluster.send_bookmarks();
    let bookmark = with.next().await.unwrap();
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["kind"]),
        (&json!("BOOKMARK"), &json!("ConfigMap"))
    );
    assert_eq!(
        bookmark["object"]["metadata"]["resourceVersion"],
        cluster.version().to_string()
    );
    cluster.put(config("a", "x")).unwrap();
    assert_eq!(without.change().await, change("ADDED", "a"));
}

#[tokio::test]
async fn a_watch_ends_cleanly_at_its_timeout_and_when_told() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let path = format!(
        "/api/v1/configmaps?watch=true&resourceVersion={}",
        cluster.version()
    );
    // The last bookmark comes two seconds before the end, if there is anything new to say: here, of another kind.
    cluster
        .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }))
        .unwrap();
    let mut short = client
        .watch(&format!("{path}&timeoutSeconds=3&allowWatchBookmarks=true"))
        .await;
    assert_eq!(short.change().await.0, "BOOKMARK");
    assert_eq!(short.next().await, None);

    let mut long = client.watch(&path).await;
    cluster.put(config("a", "x")).unwrap();
    cluster.end_watches();
    assert_eq!(long.change().await, change("ADDED", "a"));
    assert_eq!(long.next().await, None);
    assert_eq!(client.get("/api/v1/nodes").await.0, 200);
    assert_eq!(cluster.counters().connections_accepted, 1);
}

#[tokio::test]
async fn many_watches_see_every_change_once_and_in_order() {
    const CHANGES: usize = 400;
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let path = format!(
        "/api/v1/configmaps?watch=true&resourceVersion={}",
        cluster.version()
    );
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(client.watch(&path).await);
    }
    soon(cluster.when(|counters| counters.watches_open == 20)).await;
    for number in 0..CHANGES {
        cluster.put(config(&number.to_string(), "x")).unwrap();
    }
    for watch in &mut watches {
        for number in 0..CHANGES {
            assert_eq!(watch.change().await, change("ADDED", &number.to_string()));
        }
    }
    drop(watches);
    soon(cluster.when(|counters| counters.watches_open == 0)).await;
}
