//! What is read: by selectors, from versions, in pages, in forms; and paths that lead nowhere.

use serde_json::json;

use super::{CONFIGS, NONE, PODS, at, clear, config, pod, unscheduled, version};
use crate::script::Script;

pub(super) async fn selectors(s: &mut Script) {
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "z")] {
        s.post(CONFIGS, &config(name, app)).await;
    }
    for query in [
        "labelSelector=app%3Dx",
        "labelSelector=app!%3Dx",
        "labelSelector=app+in+(x,y)",
        "labelSelector=!app",
        "labelSelector=app+notin+(x)",
        "fieldSelector=metadata.name%3Db",
        "fieldSelector=metadata.name!%3Db",
        "fieldSelector=metadata.namespace%3Ddefault",
        "labelSelector=app+in",
        "labelSelector=%3D",
        "fieldSelector=a",
        "fieldSelector=spec.colour%3Dred",
    ] {
        s.get(&format!("{CONFIGS}?{query}")).await;
    }
    clear(s, CONFIGS).await;
    s.post(PODS, &pod("a", "n1")).await;
    s.post(PODS, &unscheduled("b")).await;
    for query in [
        "spec.nodeName%3Dn1",
        "spec.nodeName!%3Dn1",
        "spec.nodeName%3D",
        "status.phase%3DPending",
        "spec.restartPolicy%3DAlways",
        "spec.hostNetwork%3Dfalse",
        "spec.schedulerName%3Ddefault-scheduler",
        "spec.serviceAccountName%3D",
        "spec.serviceAccountName%3Ddefault",
        "status.podIP%3D",
        "status.nominatedNodeName%3D",
        "metadata.name%3Da,spec.nodeName%3Dn1",
        "metadata.name%3Da,spec.nodeName!%3Dn1",
        "metadata.uid%3Dx",
        "spec.colour%3Dred",
    ] {
        s.get(&format!("{PODS}?fieldSelector={query}")).await;
    }
    clear(s, PODS).await;
}

/// Those of the other kinds.
pub(super) async fn field_selectors(s: &mut Script) {
    let home = "/api/v1/namespaces/default";
    let event = json!({
        "metadata": { "name": "e" }, "reason": "Tested", "message": "m", "type": "Warning",
        "source": { "component": "kubelet" }, "reportingComponent": "kubelet", "reportingInstance": "n",
        "involvedObject": {
            "kind": "Pod", "namespace": "default", "name": "a", "uid": "u", "apiVersion": "v1", "resourceVersion": "5",
            "fieldPath": "spec.containers{c}",
        },
    });
    let secret = json!({ "metadata": { "name": "s" }, "type": "example.com/none" });
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    let headless = json!({ "metadata": { "name": "h" }, "spec": { "clusterIP": "None", "selector": { "a": "b" } } });
    let made = [
        ("events", event),
        ("secrets", secret),
        ("services", service),
        ("services", headless),
    ];
    for (kind, object) in &made {
        s.post(&format!("{home}/{kind}"), object).await;
    }
    s.post(
        "/api/v1/nodes",
        &json!({ "metadata": { "name": "n" }, "spec": { "unschedulable": true } }),
    )
    .await;
    for (kind, query) in [
        ("events", "involvedObject.kind%3DPod,reason%3DTested"),
        ("events", "involvedObject.kind%3DNode"),
        (
            "events",
            "involvedObject.namespace%3Ddefault,involvedObject.name%3Da",
        ),
        (
            "events",
            "involvedObject.uid%3Du,involvedObject.apiVersion%3Dv1",
        ),
        ("events", "involvedObject.resourceVersion%3D5"),
        ("events", "involvedObject.fieldPath%3Dspec.containers{c}"),
        ("events", "source%3Dkubelet,type%3DWarning"),
        ("events", "reportingComponent%3Dkubelet"),
        ("events", "type!%3DWarning"),
        ("secrets", "type%3Dexample.com/none"),
        ("secrets", "type%3DOpaque"),
        ("services", "metadata.name%3Ds,spec.type%3DClusterIP"),
        ("services", "metadata.name%3Ds,spec.type%3DNodePort"),
        ("services", "spec.clusterIP%3DNone"),
    ] {
        s.get(&format!("{home}/{kind}?fieldSelector={query}")).await;
    }
    s.get("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse,metadata.name%3Dn")
        .await;
    s.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3Ddefault")
        .await;
    for kind in ["events", "secrets"] {
        clear(s, &format!("{home}/{kind}")).await;
    }
    for (path, name) in [("services", "s"), ("services", "h")] {
        s.delete(&format!("{home}/{path}/{name}"), &NONE).await;
    }
    s.delete("/api/v1/nodes/n", &NONE).await;
    for (kind, query) in [
        ("nodes", "spec.unschedulable%3Dtrue"),
        ("nodes", "spec.colour%3Dred"),
        ("namespaces", "status.phase%3DTerminating"),
        ("secrets", "type%3Dnone"),
        ("services", "spec.type%3DNodePort"),
        ("services", "spec.clusterIP%3DNone"),
        ("services", "spec.colour%3Dred"),
        ("events", "involvedObject.kind%3DPod,reason%3Dx"),
        (
            "events",
            "involvedObject.namespace%3Dx,involvedObject.name%3Dx",
        ),
        (
            "events",
            "involvedObject.uid%3Dx,involvedObject.apiVersion%3Dv1",
        ),
        (
            "events",
            "involvedObject.resourceVersion%3D1,involvedObject.fieldPath%3Dx",
        ),
        ("events", "reportingComponent%3Dx,source%3Dx,type%3DWarning"),
        ("events", "message%3Dx"),
        ("namespaces", "name%3Ddefault"),
        ("namespaces", "metadata.namespace%3Dx"),
        ("nodes", "metadata.namespace%3Dx"),
        ("persistentvolumes", "name%3Dx"),
        ("persistentvolumes", "spec.x%3Dx"),
        ("persistentvolumeclaims", "name%3Dx"),
        ("configmaps", "name%3Dx"),
        ("serviceaccounts", "spec.x%3Dx"),
        ("persistentvolumes", "metadata.name%3Dx"),
        ("serviceaccounts", "metadata.name%3Dx"),
        ("persistentvolumeclaims", "metadata.name%3Dx"),
    ] {
        s.get(&format!("/api/v1/{kind}?fieldSelector={query}"))
            .await;
    }
    s.get("/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D1")
        .await;
    s.get("/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx")
        .await;
    s.get("/apis/apps/v1/deployments?fieldSelector=spec.x%3Dx")
        .await;
    s.get("/apis/example.com/v1/widgets?fieldSelector=spec.x%3Dx")
        .await;
    for kind in [
        "apps/v1/daemonsets",
        "apps/v1/replicasets",
        "coordination.k8s.io/v1/leases",
        "policy/v1/poddisruptionbudgets",
        "storage.k8s.io/v1/volumeattachments",
        "example.com/v1/widgets",
    ] {
        for field in ["metadata.name", "metadata.namespace", "status.x"] {
            s.get(&format!("/apis/{kind}?fieldSelector={field}%3Dx"))
                .await;
        }
    }
}

pub(super) async fn lists(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    s.post(CONFIGS, &config("b", "x")).await;
    let first = version(&a);
    s.get(&format!("{CONFIGS}?resourceVersion=0")).await;
    s.get(&format!("{CONFIGS}?resourceVersion={first}")).await;
    s.get(&format!(
        "{CONFIGS}?resourceVersion={first}&resourceVersionMatch=Exact"
    ))
    .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersion={first}&resourceVersionMatch=NotOlderThan"
    ))
    .await;
    s.get(&format!("{CONFIGS}?resourceVersion={first}&limit=5"))
        .await;
    s.get(&format!("{CONFIGS}?resourceVersionMatch=Exact"))
        .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersionMatch=Exact&resourceVersion=0"
    ))
    .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersionMatch=Sometimes&resourceVersion=5"
    ))
    .await;
    s.get(&format!("{CONFIGS}?sendInitialEvents=true")).await;
    s.get(&format!("{CONFIGS}?resourceVersion=999999999")).await;
    s.get(&format!("{CONFIGS}?resourceVersion=nonsense")).await;
    s.get(&format!("{CONFIGS}?limit=nonsense")).await;
    clear(s, CONFIGS).await;
}

/// One object, from a version.
pub(super) async fn gets(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    for version in ["0", &version(&a), "nonsense"] {
        for name in ["a", "none"] {
            s.get(&format!("{CONFIGS}/{name}?resourceVersion={version}"))
                .await;
        }
    }
    // It may still come: that is waited for.
    s.get(&format!("{CONFIGS}/none?resourceVersion=999999999"))
        .await;
    s.get(&format!("{CONFIGS}/a?resourceVersionMatch=Exact"))
        .await;
    clear(s, CONFIGS).await;
}

pub(super) async fn pages(s: &mut Script) {
    for name in ["a", "b", "c", "d", "e"] {
        s.post(CONFIGS, &config(name, "x")).await;
    }
    let first = s.get(&format!("{CONFIGS}?limit=2")).await;
    s.delete(&at(CONFIGS, "c"), &NONE).await;
    let token = first["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let second = s.get(&format!("{CONFIGS}?limit=2&continue={token}")).await;
    assert_eq!(version(&first), version(&second));
    let token = second["metadata"]["continue"].as_str().unwrap_or_default();
    s.get(&format!("{CONFIGS}?limit=2&continue={token}")).await;
    s.get(&format!(
        "{CONFIGS}?limit=2&continue={token}&resourceVersion=5"
    ))
    .await;
    s.get(&format!("{CONFIGS}?limit=2&continue=nonsense")).await;
    s.get(&format!("{CONFIGS}?limit=2&resourceVersion=0")).await;
    s.get(&format!("{CONFIGS}?limit=2&labelSelector=app%3Dx"))
        .await;
    clear(s, CONFIGS).await;
}

pub(super) async fn forms(s: &mut Script) {
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    s.post(CONFIGS, &config("a", "x")).await;
    s.get_as(&at(CONFIGS, "a"), metadata).await;
    s.get_as(CONFIGS, list).await;
    s.get_as(&at(CONFIGS, "a"), table).await;
    s.get_as(CONFIGS, table).await;
    s.get_as(&format!("{CONFIGS}?includeObject=Object"), table)
        .await;
    s.get_as(&format!("{CONFIGS}?includeObject=None"), table)
        .await;
    s.get_as(&format!("{CONFIGS}?includeObject=Some"), table)
        .await;
    s.get_as(&format!("{CONFIGS}?limit=1"), table).await;
    let watch = format!("{CONFIGS}?watch=true&timeoutSeconds=1");
    let initial = format!(
        "{watch}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    for form in [metadata, table] {
        s.get_as(&watch, form).await;
        s.get_as(&initial, form).await;
    }
    s.get_as(CONFIGS, "text/html").await;
    s.get_as(&at(CONFIGS, "none"), table).await;
    clear(s, CONFIGS).await;
    s.get_as("/apis/example.com/v1/namespaces/default/widgets", table)
        .await;
    for kind in [
        "pods",
        "nodes",
        "secrets",
        "services",
        "serviceaccounts",
        "events",
        "persistentvolumes",
        "persistentvolumeclaims",
    ] {
        s.get_as(&format!("/api/v1/{kind}?labelSelector=none"), table)
            .await;
    }
    for kind in [
        "apps/v1/deployments",
        "apps/v1/daemonsets",
        "apps/v1/replicasets",
        "coordination.k8s.io/v1/leases",
        "policy/v1/poddisruptionbudgets",
        "storage.k8s.io/v1/volumeattachments",
    ] {
        s.get_as(&format!("/apis/{kind}?labelSelector=none"), table)
            .await;
    }
}

/// What a server says that it serves.
pub(super) async fn documents(s: &mut Script) {
    let json = "application/json";
    let all =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, accept) in [
        ("/api", json),
        ("/apis", json),
        ("/api/v1", json),
        ("/apis/apps", json),
        ("/apis/apps/v1", json),
        ("/apis/authentication.k8s.io/v1", json),
        ("/apis/coordination.k8s.io/v1", json),
        ("/apis/example.com", json),
        ("/apis/example.com/v1", json),
        ("/apis/policy/v1", json),
        ("/apis/storage.k8s.io/v1", json),
        ("/api", all),
        ("/apis", all),
        ("/api/v1", all),
    ] {
        s.discover(path, accept).await;
    }
}

pub(super) async fn paths(s: &mut Script) {
    for path in [
        "/nothing",
        "/api/v1/nothing",
        "/api/v2/pods",
        "/apis/none.example.com/v1/things",
        "/api/v1/pods/a",
        "/apis/none.example.com",
        "/apis/none.example.com/v1",
        "/readyz",
        "/livez",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/pods/a/b/c",
        "/apis/apps",
    ] {
        s.get(path).await;
    }
    s.ask("PUT", PODS, &[], &NONE).await;
    s.ask("DELETE", "/readyz", &[], &NONE).await;
}
