//! What is taken away: objects, collections, namespaces; and what holds them.

use serde_json::json;

use super::{CONFIGS, NONE, PODS, at, clear, config, pod, unscheduled};
use crate::script::Script;

pub(super) async fn deletions(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    let a_ = at(CONFIGS, "a");
    s.delete(
        &a_,
        &json!({ "preconditions": { "uid": "00000000-0000-4000-8000-000000000000" } }),
    )
    .await;
    s.delete(&a_, &json!({ "preconditions": { "resourceVersion": "1" } }))
        .await;
    s.delete(
        &a_,
        &json!({ "preconditions": { "uid": a["metadata"]["uid"] } }),
    )
    .await;
    s.post(PODS, &unscheduled("u")).await;
    s.delete(&at(PODS, "u"), &NONE).await;
    s.get(&at(PODS, "u")).await;
    s.post(PODS, &pod("a", "n")).await;
    s.delete(&at(PODS, "a"), &NONE).await;
    s.get(&at(PODS, "a")).await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 5 }))
        .await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 60 }))
        .await;
    s.delete(&format!("{PODS}/a?gracePeriodSeconds=0"), &NONE)
        .await;
    s.get(&at(PODS, "a")).await;
    for (path, object) in [
        (
            "/api/v1/namespaces/default/serviceaccounts",
            json!({ "metadata": { "name": "a" } }),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({ "metadata": { "name": "a" } }),
        ),
    ] {
        s.post(path, &object).await;
        s.delete(&at(path, "a"), &NONE).await;
    }
}

pub(super) async fn finalizers(s: &mut Script) {
    let mut held = config("a", "x");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post(CONFIGS, &held).await;
    let a = at(CONFIGS, "a");
    s.delete(&a, &NONE).await;
    s.delete(&a, &NONE).await;
    s.patch(
        &a,
        "merge-patch",
        &json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/new"] } }),
    )
    .await;
    s.patch(&a, "merge-patch", &json!({ "data": { "b": "2" } }))
        .await;
    s.patch(
        &a,
        "merge-patch",
        &json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    s.get(&a).await;
    s.post(CONFIGS, &config("f", "x")).await;
    s.delete(
        &at(CONFIGS, "f"),
        &json!({ "propagationPolicy": "Foreground" }),
    )
    .await;
    s.patch(
        &at(CONFIGS, "f"),
        "json-patch",
        &json!([{ "op": "remove", "path": "/metadata/finalizers/0" }]),
    )
    .await;
    s.get(&at(CONFIGS, "f")).await;
}

pub(super) async fn collections(s: &mut Script) {
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        s.post(CONFIGS, &config(name, app)).await;
    }
    s.delete(&format!("{CONFIGS}?labelSelector=app%3Dx"), &NONE)
        .await;
    s.get(CONFIGS).await;
    s.delete("/api/v1/configmaps", &NONE).await;
    clear(s, CONFIGS).await;
}

pub(super) async fn namespaces(s: &mut Script) {
    let all = "/api/v1/namespaces";
    s.post(all, &json!({ "metadata": { "name": "ending" } }))
        .await;
    s.post("/api/v1/namespaces/ending/pods", &pod("a", "n"))
        .await;
    s.delete(&at(all, "ending"), &NONE).await;
    s.get(&at(all, "ending")).await;
    s.post("/api/v1/namespaces/ending/configmaps", &config("a", "x"))
        .await;
    let eviction =
        json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" } });
    s.post("/api/v1/namespaces/ending/pods/a/eviction", &eviction)
        .await;
    s.patch(
        "/api/v1/namespaces/ending/pods/a",
        "merge-patch",
        &json!({ "metadata": { "labels": { "x": "y" } } }),
    )
    .await;
    s.delete(
        "/api/v1/namespaces/ending/pods/a?gracePeriodSeconds=0",
        &NONE,
    )
    .await;
    let mut ending = s.get(&at(all, "ending")).await;
    ending["spec"]["finalizers"] = json!([]);
    s.put(&format!("{all}/ending/finalize"), &ending).await;
    s.get(&at(all, "ending")).await;
    s.delete(&at(all, "kube-system"), &NONE).await;
    s.delete(all, &NONE).await;
}
