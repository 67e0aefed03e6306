//! What is peculiar to a kind: custom ones, defaults, nodes.

use serde_json::{Value, json};

use super::{NONE, WIDGETS, at};
use crate::script::Script;

pub(super) async fn custom(s: &mut Script) {
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "a" }, "spec": { "size": 1 },
        "status": { "ready": true },
    });
    let mut a = s.post(WIDGETS, &widget).await;
    a["spec"]["size"] = 2.into();
    a["status"] = json!({ "ready": true });
    let b = s.put(&at(WIDGETS, "a"), &a).await;
    let mut c = b.clone();
    c["status"] = json!({ "ready": true });
    c["spec"]["size"] = 3.into();
    c["metadata"]["labels"] = json!({ "x": "y" });
    s.put(&format!("{WIDGETS}/a/status"), &c).await;
    s.put(&at(WIDGETS, "a"), &widget).await;
    s.patch(
        &at(WIDGETS, "a"),
        "merge-patch",
        &json!({ "spec": { "size": 4 } }),
    )
    .await;
    s.patch(&at(WIDGETS, "a"), "strategic-merge-patch", &json!({}))
        .await;
    s.patch(
        &format!("{WIDGETS}/a/status"),
        "merge-patch",
        &json!({ "status": { "n": 1 }, "spec": { "size": 9 } }),
    )
    .await;
    s.get(WIDGETS).await;
    s.get(&format!("{WIDGETS}?watch=true&timeoutSeconds=1"))
        .await;
    s.get_as(
        &at(WIDGETS, "a"),
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    )
    .await;
    s.delete(&at(WIDGETS, "a"), &NONE).await;
    s.get(&at(WIDGETS, "a")).await;
    s.get("/apis/example.com/v1/gadgets").await;
    s.get("/apis/example.com/v2/widgets").await;
    s.get(&format!("{WIDGETS}/a/nothing")).await;
    s.get("/apis/example.com/v1/widgets/a").await;
}

/// A custom kind of no namespace, whose status is a field like any other.
pub(super) async fn plain(s: &mut Script) {
    let gadgets = "/apis/example.com/v1/gadgets";
    let gadget = json!({
        "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": "a" }, "spec": { "size": 1 },
        "status": { "ready": true },
    });
    s.post(gadgets, &gadget).await;
    s.post("/apis/example.com/v1/namespaces/default/gadgets", &gadget)
        .await;
    let one = at(gadgets, "a");
    s.patch(
        &one,
        "merge-patch",
        &json!({ "status": { "ready": false } }),
    )
    .await;
    s.patch(&one, "merge-patch", &json!({ "spec": { "size": 2 } }))
        .await;
    s.get(&format!("{one}/status")).await;
    s.patch(
        &format!("{one}/status"),
        "merge-patch",
        &json!({ "status": {} }),
    )
    .await;
    s.get(&format!("{gadgets}?fieldSelector=metadata.name%3Da"))
        .await;
    s.get_as(gadgets, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    s.delete(&one, &NONE).await;
    let widget =
        |spec: Value| json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": spec });
    s.post(gadgets, &widget(json!({ "generateName": "made-" })))
        .await;
    s.post(gadgets, &json!({ "metadata": { "name": "b" } }))
        .await;
    s.post(
        gadgets,
        &json!({ "metadata": { "name": "b" }, "spec": { "size": 123_456 } }),
    )
    .await;
    s.put(&at(gadgets, "b"), &json!({ "metadata": { "name": "b" } }))
        .await;
    s.post(gadgets, &widget(json!({ "name": "B_" }))).await;
    s.delete(gadgets, &NONE).await;
}

pub(super) async fn defaults(s: &mut Script) {
    let container = json!({ "name": "c", "image": "i", "ports": [{ "containerPort": 80 }] });
    let template =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let apps = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    for (path, object) in [
        (
            "/api/v1/namespaces/default/pods",
            json!({ "metadata": { "name": "a" }, "spec": { "containers": [container] } }),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({ "metadata": { "name": "a" }, "stringData": { "k": "v" } }),
        ),
        (
            "/api/v1/namespaces/default/services",
            apps(json!({ "selector": { "a": "b" }, "ports": [{ "port": 80 }] })),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            apps(json!({ "selector": selector, "template": template })),
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets",
            apps(json!({ "selector": selector, "template": template })),
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            apps(json!({ "selector": selector, "template": template })),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            apps(json!({ "maxUnavailable": 1, "selector": selector })),
        ),
        (
            "/api/v1/persistentvolumes",
            apps(json!({
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" },
            })),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            apps(json!({
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            })),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            apps(json!({
                "attacher": "x", "nodeName": "n", "source": { "persistentVolumeName": "a" },
            })),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({
                "metadata": { "name": "a" }, "involvedObject": { "kind": "Pod", "name": "a", "namespace": "default" },
                "reason": "Tested", "message": "m", "type": "Normal",
            }),
        ),
    ] {
        s.post(path, &object).await;
        s.get_as(
            &at(path, "a"),
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        )
        .await;
        s.patch(
            &at(path, "a"),
            "merge-patch",
            &json!({ "metadata": { "labels": { "x": "y" } } }),
        )
        .await;
        s.patch(
            &at(path, "a"),
            "merge-patch",
            &json!({ "metadata": { "finalizers": null } }),
        )
        .await;
        s.delete(
            &at(path, "a"),
            &json!({ "gracePeriodSeconds": 0, "propagationPolicy": "Background" }),
        )
        .await;
        s.get(&at(path, "a")).await;
    }
}

pub(super) async fn nodes(s: &mut Script) {
    let all = "/api/v1/nodes";
    s.post(
        all,
        &json!({ "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/worker": "" } } }),
    )
    .await;
    s.patch(
        &at(all, "n"),
        "strategic-merge-patch",
        &json!({ "spec": { "unschedulable": true } }),
    )
    .await;
    s.get(&format!("{all}?fieldSelector=spec.unschedulable%3Dtrue"))
        .await;
    s.get_as(all, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    s.patch(
        &at(all, "n"),
        "strategic-merge-patch",
        &json!({ "spec": { "unschedulable": null } }),
    )
    .await;
    s.patch(&format!("{all}/n/status"), "strategic-merge-patch", &json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True" }], "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
    } })).await;
    s.get_as(all, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    s.delete(&at(all, "n"), &NONE).await;
}
