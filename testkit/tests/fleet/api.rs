//! What an API server answers: documents, objects, lists.

use clustercache_testkit::fleet::{FakeCluster, ObjectError};
use http::Method;
use serde_json::{Value, json};

use crate::client::{Client, Http, connect};

fn pod(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
        "spec": { "containers": [] },
    })
}

fn config(name: &str, value: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "value": value } })
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn http_2_and_http_1_are_chosen_by_alpn_and_http_2_can_be_off() {
    let both = FakeCluster::start("both").unwrap();
    let old = FakeCluster::builder("old").http2(false).start().unwrap();
    for (cluster, wanted, got) in [
        (&both, Http::Two, Http::Two),
        (&both, Http::One, Http::One),
        (&old, Http::Two, Http::One),
    ] {
        let mut client = Client::connect(&cluster.access(), wanted).await.unwrap();
        assert_eq!(client.protocol(), got);
        assert_eq!(client.get("/api/v1/nodes").await.0, 200);
    }
}

#[tokio::test]
async fn health_version_and_discovery_answer_as_a_real_server_does() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(
            client.text(path).await.unwrap(),
            (http::StatusCode::OK, "ok".to_owned())
        );
    }
    assert_eq!(client.get("/version").await.1["gitVersion"], "v1.37.2");
    assert_eq!(client.get("/api").await.1["versions"], json!(["v1"]));
    assert_eq!(client.get("/apis").await.1["groups"][0]["name"], "apps");
    let (_, kinds) = client.get("/api/v1").await;
    let kinds: Vec<_> = kinds["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| &kind["name"])
        .collect();
    for kind in ["configmaps", "namespaces", "nodes", "pods", "pods/eviction"] {
        assert!(kinds.iter().any(|one| **one == kind), "{kind} in {kinds:?}");
    }
    assert_eq!(
        client.get("/apis/apps/v1").await.1["resources"][0]["kind"],
        "DaemonSet"
    );
    assert_eq!(client.text("/apis/batch/v1").await.unwrap().0, 404);
    let (code, text) = client.text("/nothing/here").await.unwrap();
    assert_eq!(
        (code.as_u16(), text.as_str()),
        (404, "404 page not found\n")
    );
    let requests = cluster.counters().requests;
    assert_eq!(
        (
            requests.health,
            requests.version,
            requests.discovery,
            requests.other
        ),
        (3, 1, 5, 1)
    );
    assert_eq!(requests.total(), 10);
}

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted_with_the_servers_metadata() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, created) = client.send(Method::POST, path, &config("a", "x")).await;
    assert_eq!(
        (code, &created["kind"], &created["apiVersion"]),
        (201, &json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(created["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(
        created["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );

    let (_, again) = client.send(Method::POST, path, &config("a", "x")).await;
    assert_eq!(
        (&again["code"], &again["reason"]),
        (&json!(409), &json!("AlreadyExists"))
    );

    let one = format!("{path}/a");
    let mut changed = created.clone();
    changed["data"]["more"] = "1".into();
    let (code, updated) = client.send(Method::PUT, &one, &changed).await;
    assert_eq!(
        (code, &updated["metadata"]["uid"]),
        (200, &created["metadata"]["uid"])
    );
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let (_, conflict) = client.send(Method::PUT, &one, &changed).await;
    assert_eq!(
        (&conflict["code"], &conflict["reason"]),
        (&json!(409), &json!("Conflict"))
    );
    assert_eq!(client.get(&one).await, (200, updated.clone()));

    let (code, gone) = client.send(Method::DELETE, &one, &Value::Null).await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")));
    assert_eq!(gone["details"]["uid"], updated["metadata"]["uid"]);
    let (_, missing) = client.get(&one).await;
    assert_eq!(
        (&missing["code"], &missing["reason"], &missing["kind"]),
        (&json!(404), &json!("NotFound"), &json!("Status"))
    );
    assert_eq!(missing["message"], "configmaps \"a\" not found");

    let generated = json!({ "metadata": { "generateName": "g-" } });
    let (_, generated) = client.send(Method::POST, path, &generated).await;
    assert!(
        generated["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("g-")
    );
    let (_, homeless) = client
        .send(
            Method::POST,
            "/api/v1/namespaces/none/configmaps",
            &config("a", "x"),
        )
        .await;
    assert_eq!(homeless["message"], "namespaces \"none\" not found");
    let (_, method) = client.send(Method::PUT, path, &Value::Null).await;
    assert_eq!(method["reason"], "MethodNotAllowed");
}

#[tokio::test]
async fn a_list_is_chosen_by_namespace_label_and_field() {
    let cluster = FakeCluster::start("a").unwrap();
    for (namespace, name, app) in [("x", "a", "web"), ("x", "b", "db"), ("y", "a", "web")] {
        cluster.put(pod(namespace, name, app)).unwrap();
    }
    let mut client = connect(&cluster).await;
    let (_, all) = client.get("/api/v1/pods").await;
    assert_eq!(
        (&all["kind"], &all["apiVersion"]),
        (&json!("PodList"), &json!("v1"))
    );
    assert_eq!(
        all["metadata"]["resourceVersion"],
        cluster.version().to_string()
    );
    assert_eq!(names(&all), ["a", "b", "a"]);
    for (query, found) in [
        ("namespaces/x/pods", &["a", "b"][..]),
        ("namespaces/x/pods?labelSelector=app%3Ddb", &["b"]),
        ("pods?labelSelector=app!%3Dweb", &["b"]),
        ("pods?labelSelector=app,!gone", &["a", "b", "a"]),
        (
            "pods?fieldSelector=metadata.name%3Da,metadata.namespace%3Dy",
            &["a"],
        ),
        ("namespaces/none/pods", &[]),
    ] {
        assert_eq!(
            names(&client.get(&format!("/api/v1/{query}")).await.1),
            found,
            "{query}"
        );
    }
    assert_eq!(
        client
            .get("/api/v1/pods?fieldSelector=spec.colour%3Da")
            .await
            .0,
        400
    );
    assert_eq!(
        client.get("/api/v1/pods?resourceVersion=9999").await.1["reason"],
        "Timeout"
    );
}

#[tokio::test]
async fn all_pages_of_a_list_show_one_version_until_it_is_compacted() {
    let cluster = FakeCluster::start("a").unwrap();
    for number in 0..5 {
        cluster
            .put(pod("default", &format!("p{number}"), "x"))
            .unwrap();
    }
    let mut client = connect(&cluster).await;
    let (_, first) = client.get("/api/v1/pods?limit=2").await;
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["p0", "p1"], &json!(3))
    );
    let next = format!(
        "/api/v1/pods?limit=2&continue={}",
        first["metadata"]["continue"].as_str().unwrap()
    );

    assert!(cluster.delete("v1", "Pod", "default", "p2"));
    cluster.put(pod("default", "p11", "x")).unwrap();
    let (_, second) = client.get(&next).await;
    assert_eq!(names(&second), ["p2", "p3"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );

    cluster.compact();
    let (code, expired) = client.get(&next).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
    assert_eq!(client.get("/api/v1/pods?continue=nonsense").await.0, 400);
    assert_eq!(
        names(&client.get("/api/v1/pods?limit=1&resourceVersion=0").await.1).len(),
        5
    );
}

#[tokio::test]
async fn versions_grow_with_every_change_of_any_kind() {
    let cluster = FakeCluster::start("a").unwrap();
    let start = cluster.version();
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } });
    assert_eq!(cluster.put(node).unwrap(), start + 1);
    assert_eq!(cluster.put(pod("default", "p", "x")).unwrap(), start + 2);
    assert!(cluster.delete("v1", "Node", "", "n"));
    assert!(!cluster.delete("v1", "Node", "", "n"));
    assert_eq!(cluster.version(), start + 3);
    let odd = json!({ "apiVersion": "v2", "kind": "Pod", "metadata": { "name": "n" } });
    assert!(matches!(
        cluster.put(odd),
        Err(ObjectError::UnknownKind { .. })
    ));
}

#[tokio::test]
async fn a_body_beyond_the_limit_or_without_sense_is_refused() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let large = json!({ "metadata": { "name": "a" }, "data": { "k": "x".repeat(4 << 20) } });
    assert_eq!(client.send(Method::POST, path, &large).await.0, 413);
    assert_eq!(client.send(Method::POST, path, &json!([])).await.0, 400);
    let other = json!({ "kind": "Pod", "metadata": { "name": "a" } });
    assert_eq!(client.send(Method::POST, path, &other).await.0, 400);
    let elsewhere = json!({ "metadata": { "name": "a", "namespace": "kube-system" } });
    assert_eq!(client.send(Method::POST, path, &elsewhere).await.0, 400);
}
