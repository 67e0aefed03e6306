//! Who asks, and what stands in the way: tokens, reviews, budgets, and ports that lead nowhere.

use serde_json::json;

use super::{NONE, PODS, at, clear, pod, unscheduled};
use crate::script::Script;

pub(super) async fn tokens(s: &mut Script) {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    s.post(accounts, &json!({ "metadata": { "name": "robot" } }))
        .await;
    let path = format!("{accounts}/robot/token");
    s.post(&path, &json!({ "spec": { "expirationSeconds": 60 } }))
        .await;
    let request = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": { "audiences": ["x"], "expirationSeconds": 1200 } });
    s.post(&path, &request).await;
    s.post(&format!("{accounts}/none/token"), &request).await;
    s.get(&path).await;
    clear(s, accounts).await;
}

pub(super) async fn reviews(s: &mut Script) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({ "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1" });
    let answer = s.post(path, &review).await;
    assert!(
        answer["status"]["userInfo"]["groups"]
            .as_array()
            .is_some_and(|groups| groups.len() == 2),
        "{answer}"
    );
    s.get(path).await;
}

/// What stands in the way of a port, before anything is dialled.
pub(super) async fn forwards(s: &mut Script) {
    let forward = |pod: &str| format!("{PODS}/{pod}/portforward?ports=80");
    let websocket = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    s.post(PODS, &unscheduled("u")).await;
    for pod in ["none", "u"] {
        s.get(&forward(pod)).await;
        s.ask("POST", &forward(pod), &[], &NONE).await;
    }
    for method in ["PUT", "DELETE", "PATCH"] {
        s.ask(method, &forward("u"), &[], &NONE).await;
    }
    for ports in ["many", "80,", "70000", "-1"] {
        let path = format!("{PODS}/u/portforward?ports={ports}");
        s.get(&path).await;
    }
    let mut old = s.over_http_1().await;
    old.ask("GET", &forward("none"), &websocket, &NONE).await;
    old.ask("GET", &forward("u"), &websocket, &NONE).await;
    s.take_steps_of(old);
    s.post(PODS, &pod("a", "here")).await;
    let node = json!({
        "metadata": { "name": "here" }, "status": { "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }] },
    });
    s.post("/api/v1/nodes", &node).await;
    s.get(&forward("a")).await;
    s.ask("POST", &forward("a"), &[], &NONE).await;
    s.delete("/api/v1/nodes/here", &NONE).await;
    clear(s, PODS).await;
}

pub(super) async fn evictions(s: &mut Script) {
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let eviction = |name: &str| json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    let evict = |name: &str| format!("{PODS}/{name}/eviction");
    s.post(&evict("none"), &eviction("none")).await;
    s.post(PODS, &pod("a", "n")).await;
    s.post(&evict("a"), &eviction("other")).await;
    let budget = json!({
        "metadata": { "name": "one" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "a" } } },
    });
    let mut one = s.post(budgets, &budget).await;
    s.patch(
        &format!("{PODS}/a/status"),
        "merge-patch",
        &json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
    } }),
    )
    .await;
    s.post(&evict("a"), &eviction("a")).await;
    one["status"] = json!({
        "observedGeneration": 1, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0,
    });
    let mut one = s.put(&format!("{budgets}/one/status"), &one).await;
    s.post(&evict("a"), &eviction("a")).await;
    let mut two = budget.clone();
    two["metadata"]["name"] = "two".into();
    s.post(budgets, &two).await;
    s.post(&evict("a"), &eviction("a")).await;
    s.delete(&at(budgets, "two"), &NONE).await;
    one["status"]["disruptionsAllowed"] = 1.into();
    s.put(&format!("{budgets}/one/status"), &one).await;
    let mut dry = eviction("a");
    dry["deleteOptions"] = json!({ "dryRun": ["All"] });
    s.post(&evict("a"), &dry).await;
    s.get(&at(budgets, "one")).await["status"].take();
    s.post(&evict("a"), &eviction("a")).await;
    let after = s.get(&at(PODS, "a")).await;
    assert!(!after["metadata"]["deletionTimestamp"].is_null(), "{after}");
    s.post(&evict("a"), &eviction("a")).await;
    clear(s, PODS).await;
    clear(s, budgets).await;
}
