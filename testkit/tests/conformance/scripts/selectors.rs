//! What is selected: by labels and by fields.

use serde_json::json;

use super::{CONFIGS, NONE, PODS, clear, config, pod, unscheduled};
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

/// What the fields are of objects that have them.
pub(super) async fn values(s: &mut Script) {
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
}

/// Which fields each kind takes, whatever there is.
pub(super) async fn fields(s: &mut Script) {
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
