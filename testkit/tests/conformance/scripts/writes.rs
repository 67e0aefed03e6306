//! What is written: objects, names, updates, statuses, patches, dry runs, generations.

use serde_json::json;

use super::{CONFIGS, NONE, PODS, at, clear, config, pod, version};
use crate::script::Script;

pub(super) async fn objects(s: &mut Script) {
    s.post(CONFIGS, &config("a", "x")).await;
    s.post(CONFIGS, &config("a", "x")).await;
    s.get(&at(CONFIGS, "a")).await;
    s.get(&at(CONFIGS, "none")).await;
    s.delete(&at(CONFIGS, "none"), &NONE).await;
    s.delete(&at(CONFIGS, "a"), &NONE).await;
    let mut versioned = config("a", "x");
    versioned["metadata"]["resourceVersion"] = "5".into();
    s.post(CONFIGS, &versioned).await;
    s.post("/api/v1/namespaces/none/configmaps", &config("a", "x"))
        .await;
    s.post(
        CONFIGS,
        &json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a" } }),
    )
    .await;
    s.post(
        CONFIGS,
        &json!({ "kind": "ConfigMap", "apiVersion": "v2", "metadata": { "name": "a" } }),
    )
    .await;
    s.post(
        CONFIGS,
        &json!({ "metadata": { "name": "a", "namespace": "kube-system" } }),
    )
    .await;
    s.ask(
        "POST",
        CONFIGS,
        &[("content-type", "text/plain")],
        &config("a", "x"),
    )
    .await;
    s.post(&at(CONFIGS, "a"), &config("a", "x")).await;
    s.post("/api/v1/configmaps", &config("a", "x")).await;
}

pub(super) async fn names(s: &mut Script) {
    s.post(CONFIGS, &json!({ "metadata": { "generateName": "made-" } }))
        .await;
    s.post(CONFIGS, &json!({ "metadata": {} })).await;
    s.post(CONFIGS, &config("A_b", "x")).await;
    s.post(CONFIGS, &config("a", "no good")).await;
    s.post(
        "/api/v1/namespaces",
        &json!({ "metadata": { "name": "a.b" } }),
    )
    .await;
    clear(s, CONFIGS).await;
}

pub(super) async fn updates(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    let mut changed = a.clone();
    changed["data"]["a"] = "2".into();
    s.put(&at(CONFIGS, "a"), &changed).await;
    s.put(&at(CONFIGS, "a"), &changed).await;
    s.put(&at(CONFIGS, "b"), &changed).await;
    s.put(&at(CONFIGS, "b"), &config("b", "x")).await;
    s.put(&at(CONFIGS, "a"), &config("a", "y")).await;
    let mut other = config("a", "z");
    other["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    s.put(&at(CONFIGS, "a"), &other).await;
    s.put(&at(CONFIGS, "a"), &json!({ "metadata": { "labels": {} } }))
        .await;
    let now = s.get(&at(CONFIGS, "a")).await;
    let same = s.put(&at(CONFIGS, "a"), &now).await;
    assert_eq!(version(&same), version(&now), "nothing changed");
    clear(s, CONFIGS).await;
    // Leases are created by an update, and must be told from which version they are updated.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({ "metadata": { "name": "a" }, "spec": { "holderIdentity": "me" } });
    s.put(&at(leases, "a"), &lease).await;
    s.put(&at(leases, "a"), &lease).await;
    s.delete(&at(leases, "a"), &NONE).await;
}

pub(super) async fn statuses(s: &mut Script) {
    let mut a = s.post(PODS, &pod("a", "n")).await;
    a["status"] =
        json!({ "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }] });
    a["metadata"]["labels"]["more"] = "1".into();
    a["spec"]["nodeName"] = "other".into();
    s.put(&format!("{PODS}/a/status"), &a).await;
    s.patch(
        &format!("{PODS}/a/status"),
        "strategic-merge-patch",
        &json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True" },
    ] } }),
    )
    .await;
    s.patch(
        &format!("{PODS}/a/status"),
        "strategic-merge-patch",
        &json!({ "status": { "conditions": [
        { "type": "Initialized", "status": "True" },
    ] } }),
    )
    .await;
    s.patch(
        &at(PODS, "a"),
        "merge-patch",
        &json!({ "status": { "phase": "Failed" } }),
    )
    .await;
    s.get(&format!("{PODS}/a/status")).await;
    s.get(&format!("{CONFIGS}/a/status")).await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 0 }))
        .await;
}

pub(super) async fn patches(s: &mut Script) {
    s.post(CONFIGS, &config("a", "x")).await;
    let a = at(CONFIGS, "a");
    s.patch(
        &a,
        "merge-patch",
        &json!({ "data": { "a": null, "b": "2" } }),
    )
    .await;
    s.patch(
        &a,
        "json-patch",
        &json!([
            { "op": "test", "path": "/data/b", "value": "2" },
            { "op": "add", "path": "/data/c", "value": "3" },
        ]),
    )
    .await;
    s.patch(
        &a,
        "json-patch",
        &json!([{ "op": "test", "path": "/data/b", "value": "9" }]),
    )
    .await;
    s.patch(
        &a,
        "json-patch",
        &json!([{ "op": "remove", "path": "/data/none" }]),
    )
    .await;
    s.patch(
        &a,
        "strategic-merge-patch",
        &json!({ "metadata": { "labels": { "app": null, "b": "1" } } }),
    )
    .await;
    s.patch(
        &a,
        "merge-patch",
        &json!({ "metadata": { "resourceVersion": "1" } }),
    )
    .await;
    s.patch(&at(CONFIGS, "none"), "merge-patch", &json!({}))
        .await;
    s.patch(&a, "nonsense", &json!({})).await;
    s.patch(&a, "merge-patch", &json!({ "metadata": { "name": "b" } }))
        .await;
    clear(s, CONFIGS).await;
}

pub(super) async fn dry_runs(s: &mut Script) {
    s.post(&format!("{CONFIGS}?dryRun=All"), &config("a", "x"))
        .await;
    s.post(CONFIGS, &config("a", "x")).await;
    s.post(&format!("{CONFIGS}?dryRun=All"), &config("a", "x"))
        .await;
    s.put(&format!("{CONFIGS}/a?dryRun=All"), &config("a", "y"))
        .await;
    s.patch(
        &format!("{CONFIGS}/a?dryRun=All"),
        "merge-patch",
        &json!({ "data": { "b": "2" } }),
    )
    .await;
    s.delete(&format!("{CONFIGS}/a?dryRun=All"), &NONE).await;
    s.delete(&at(CONFIGS, "a"), &json!({ "dryRun": ["All"] }))
        .await;
    s.get(&at(CONFIGS, "a")).await;
    s.post(&format!("{CONFIGS}?dryRun=Some"), &config("b", "x"))
        .await;
    s.post(PODS, &pod("a", "n")).await;
    s.delete(&format!("{PODS}/a?dryRun=All"), &NONE).await;
    s.get(&at(PODS, "a")).await;
    s.post(
        &format!("{CONFIGS}?dryRun=All"),
        &json!({ "metadata": { "generateName": "made-" } }),
    )
    .await;
    s.post(&format!("{CONFIGS}?dryRun=All"), &config("A_b", "x"))
        .await;
    s.put(&format!("{CONFIGS}/none?dryRun=All"), &config("none", "y"))
        .await;
    s.put(
        &format!("{PODS}/a/status?dryRun=All"),
        &json!({ "metadata": { "name": "a" }, "status": { "phase": "Failed" } }),
    )
    .await;
    s.delete(&format!("{CONFIGS}?dryRun=All"), &NONE).await;
    s.get(CONFIGS).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    s.post(accounts, &json!({ "metadata": { "name": "dry" } }))
        .await;
    let token = json!({ "spec": { "audiences": ["x"], "expirationSeconds": 1200 } });
    s.post(&format!("{accounts}/dry/token?dryRun=All"), &token)
        .await;
    clear(s, accounts).await;
    clear(s, CONFIGS).await;
    clear(s, PODS).await;
}

/// What counts as another generation.
pub(super) async fn generations(s: &mut Script) {
    let template = json!({
        "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let apps = "/apis/apps/v1/namespaces/default";
    for kind in ["deployments", "daemonsets", "replicasets"] {
        let path = format!("{apps}/{kind}");
        let object = json!({
            "metadata": { "name": "g", "generation": 7 }, "spec": { "selector": selector, "template": template },
        });
        s.post(&path, &object).await;
        let one = at(&path, "g");
        for change in [
            json!({ "metadata": { "labels": { "x": "y" } } }),
            json!({ "metadata": { "generation": 9 } }),
            json!({ "status": { "observedGeneration": 1 } }),
            json!({ "spec": { "minReadySeconds": 1 } }),
            json!({ "spec": { "minReadySeconds": 1 } }),
        ] {
            s.patch(&one, "merge-patch", &change).await;
        }
        s.patch(
            &format!("{one}/status"),
            "merge-patch",
            &json!({ "status": { "observedGeneration": 2 }, "spec": { "minReadySeconds": 5 } }),
        )
        .await;
        s.delete(&one, &json!({ "propagationPolicy": "Background" }))
            .await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({ "metadata": { "name": "g" }, "spec": { "maxUnavailable": 1, "selector": selector } });
    s.post(budgets, &budget).await;
    s.patch(
        &at(budgets, "g"),
        "merge-patch",
        &json!({ "spec": { "maxUnavailable": 2 } }),
    )
    .await;
    s.delete(&at(budgets, "g"), &NONE).await;
    // A deletion with grace, or one that waits for a finalizer, is another generation.
    let mut held = pod("g", "n");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post(PODS, &held).await;
    s.delete(&at(PODS, "g"), &NONE).await;
    s.patch(
        &at(PODS, "g"),
        "merge-patch",
        &json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    clear(s, PODS).await;
}
