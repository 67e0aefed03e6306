//! Which kinds a cluster serves, asked over the wire: of a server that says it all at once, and of one that does not.

use std::sync::Arc;

use clustercache_testkit::api::Fault;
use futures_util::{future::join_all, poll};
use http::Request;
use kube::{
    Api,
    api::ListParams,
    core::{DynamicObject, GroupVersionKind},
    discovery::Scope,
};
use serde_json::{Value, json};

use super::rig::{Rig, soon};
use crate::{ClusterClient, DiscoveryError, about::About, discovery::AGAIN_AFTER};

fn client(rig: &Rig) -> ClusterClient {
    ClusterClient::new(
        rig.transport.clone(),
        Arc::<About>::default(),
        Arc::default(),
    )
}

fn deployment() -> GroupVersionKind {
    GroupVersionKind::gvk("apps", "v1", "Deployment")
}

fn discovery_requests(rig: &Rig) -> u64 {
    rig.cluster.counters().requests.discovery
}

/// As a real server has it: verbs and subresources, one group that is stale.
fn aggregated(rig: &Rig) {
    let group =
        |name: &str, versions: Value| json!({ "metadata": { "name": name }, "versions": versions });
    let list = |groups: Value| json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups });
    let scale = json!({
        "subresource": "scale", "verbs": ["get", "patch"],
        "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
    });
    let deployments = json!({
        "resource": "deployments", "scope": "Namespaced", "verbs": ["get", "list"], "subresources": [scale],
        "responseKind": { "group": "apps", "version": "v1", "kind": "Deployment" },
    });
    let nodes = json!({
        "resource": "nodes", "scope": "Cluster", "verbs": ["get"],
        "responseKind": { "group": "", "version": "v1", "kind": "Node" },
    });
    let core = list(json!([group(
        "",
        json!([{ "version": "v1", "resources": [nodes] }])
    )]));
    let apps = group(
        "apps",
        json!([{ "version": "v1", "freshness": "Current", "resources": [deployments] }]),
    );
    let metrics = group(
        "metrics.k8s.io",
        json!([{ "version": "v1beta1", "freshness": "Stale", "resources": null }]),
    );
    rig.cluster.answer("/api", 200, core.to_string());
    rig.cluster
        .answer("/apis", 200, list(json!([apps, metrics])).to_string());
}

#[tokio::test]
async fn a_kind_that_is_not_known_at_compile_time_is_found_and_used_and_asked_for_once() {
    let rig = Rig::new("dynamic");
    rig.cluster
        .api()
        .inject(Fault::without_aggregated_discovery());
    let client = client(&rig);
    let pod = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "default" } });
    rig.cluster.put(pod).unwrap();
    for _ in 0..2 {
        let (resource, capabilities) = soon(client.resolve(&deployment())).await.unwrap();
        assert_eq!(
            (&*resource.plural, capabilities.scope),
            ("deployments", Scope::Namespaced)
        );
        assert!(capabilities.operations.contains(&"watch".to_owned()));
        let api = Api::<DynamicObject>::all_with(client.client(), &resource);
        assert_eq!(
            soon(api.list(&ListParams::default()))
                .await
                .unwrap()
                .items
                .len(),
            1
        );
    }
    // `/api` and `/apis`, and the one version of each of six groups.
    assert_eq!(discovery_requests(&rig), 8);
    let (node, _) = soon(client.resolve(&GroupVersionKind::gvk("", "v1", "Node")))
        .await
        .unwrap();
    assert_eq!((&*node.api_version, &*node.plural), ("v1", "nodes"));
}

#[tokio::test]
async fn typed_calls_ask_for_no_discovery() {
    let rig = Rig::new("typed");
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(client(&rig).client());
    soon(nodes.list(&ListParams::default())).await.unwrap();
    assert_eq!(discovery_requests(&rig), 0);
}

#[tokio::test]
async fn a_server_that_says_it_all_at_once_is_asked_twice() {
    let rig = Rig::new("aggregated");
    aggregated(&rig);
    let client = client(&rig);
    let (resource, capabilities) = soon(client.resolve(&deployment())).await.unwrap();
    assert_eq!(resource.api_version, "apps/v1");
    let (scale, of_scale) = &capabilities.subresources[0];
    assert_eq!(
        (&*scale.plural, &*scale.api_version, &*scale.kind),
        ("scale", "autoscaling/v1", "Scale")
    );
    assert_eq!(
        (&of_scale.scope, &of_scale.operations[..]),
        (&Scope::Namespaced, &["get".to_owned(), "patch".into()][..])
    );
    let discovery = soon(client.discovery()).await.unwrap();
    let kinds: Vec<_> = discovery.kinds().map(|gvk| gvk.kind).collect();
    assert_eq!(kinds, ["Node", "Deployment"]);
    assert_eq!(
        discovery.preferred_version("metrics.k8s.io"),
        Some("v1beta1")
    );
    assert_eq!(discovery_requests(&rig), 2);
}

#[tokio::test]
async fn all_who_wait_have_one_request_and_who_goes_away_leaves_it_to_them() {
    let rig = Rig::new("single");
    aggregated(&rig);
    let client = client(&rig);
    let gvk = deployment();
    let mut first = Box::pin(client.discovery());
    assert!(poll!(&mut first).is_pending());
    let mut others: Vec<_> = (0..50).map(|_| Box::pin(client.resolve(&gvk))).collect();
    for other in &mut others {
        assert!(poll!(other).is_pending());
    }
    drop(first);
    for found in soon(join_all(others)).await {
        found.unwrap();
    }
    assert_eq!(discovery_requests(&rig), 2);
}

#[tokio::test]
async fn a_kind_is_missing_only_if_the_server_said_so() {
    let rig = Rig::new("missing");
    aggregated(&rig);
    let client = client(&rig);
    let resolve = async |group: &str, version: &str| {
        let gvk = GroupVersionKind::gvk(group, version, "Thing");
        soon(client.resolve(&gvk)).await.unwrap_err()
    };
    assert!(matches!(
        resolve("apps", "v1").await,
        DiscoveryError::NoSuchKind { .. }
    ));
    assert!(matches!(
        resolve("apps", "v2").await,
        DiscoveryError::NoSuchKind { .. }
    ));
    assert!(matches!(
        resolve("metrics.k8s.io", "v1beta1").await,
        DiscoveryError::CannotSay { .. }
    ));
    assert_eq!(discovery_requests(&rig), 2);
}

#[tokio::test]
async fn of_an_old_server_one_version_that_fails_does_not_take_the_others_with_it() {
    let rig = Rig::new("old");
    rig.cluster
        .api()
        .inject(Fault::without_aggregated_discovery());
    rig.cluster
        .answer("/apis/apps/v1", 500, "the extension server is down");
    let client = client(&rig);
    let error = soon(client.resolve(&deployment())).await.unwrap_err();
    assert!(matches!(error, DiscoveryError::CannotSay { .. }), "{error}");
    soon(client.resolve(&GroupVersionKind::gvk("", "v1", "Pod")))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_could_not_be_asked_is_an_error_that_says_why_and_the_next_asks_again() {
    let rig = Rig::new("refused");
    let client = client(&rig);
    rig.cluster.forbid("/api");
    let error = soon(client.discovery()).await.unwrap_err();
    assert!(
        matches!(error, DiscoveryError::Answered { status: 403, .. }),
        "{error}"
    );
    rig.cluster
        .answer("/api", 200, "{\"kind\":\"\\u001b[31m\"}");
    let error = soon(client.discovery()).await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Malformed { .. }), "{error}");
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
    rig.cluster.answer("/api", 404, "");
    let error = soon(client.discovery()).await.unwrap_err();
    assert!(
        matches!(error, DiscoveryError::Answered { status: 404, .. }),
        "{error}"
    );
    rig.cluster.answer_normally();
    soon(client.discovery()).await.unwrap();
}

#[tokio::test]
async fn only_a_kind_that_is_gone_makes_a_call_doubt_what_is_known() {
    let rig = Rig::new("gone");
    let client = client(&rig).client();
    let status = async |path: &str| {
        let request = Request::get(path)
            .body(kube::client::Body::empty())
            .unwrap();
        soon(client.send(request)).await.unwrap().status().as_u16()
    };
    assert_eq!(status("/api/v1/nodes/none").await, 404);
    assert!(!rig.transport.missed_a_kind(), "an object is missing");
    assert_eq!(status("/apis/none.io/v1/things").await, 404);
    assert!(rig.transport.missed_a_kind());
    assert!(!rig.transport.missed_a_kind(), "it was heeded");
}

#[tokio::test]
async fn after_a_call_that_found_its_kind_gone_the_cluster_is_asked_again() {
    let rig = Rig::new("again");
    let client = client(&rig);
    soon(client.discovery()).await.unwrap();
    let asked = discovery_requests(&rig);
    let request = Request::get("/apis/none.io/v1/things").body(kube::client::Body::empty());
    let answer = soon(client.client().send(request.unwrap())).await.unwrap();
    assert_eq!(answer.status(), 404);
    // Not before some seconds have passed since it was asked.
    tokio::time::sleep(AGAIN_AFTER).await;
    soon(client.discovery()).await.unwrap();
    assert!(discovery_requests(&rig) > asked);
}
