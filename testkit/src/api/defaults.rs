//! What the real server fills in of a new object: as much as clients and kubectl look at.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{clock::written, kind::Kind};

/// Fills in what a new object of a built-in kind leaves out.
pub(super) fn complete(kind: &Kind, value: &mut Value, now: Timestamp) {
    if kind.custom {
        return;
    }
    match kind.kind() {
        "Namespace" => namespace(value),
        "Node" => node(value),
        "Pod" => pod(value),
        "Secret" => secret(value),
        "Service" => service(value),
        "PersistentVolume" => persistent_volume(value, now),
        "PersistentVolumeClaim" => {
            fill(&mut value["spec"], &json!({ "volumeMode": "Filesystem" }));
            value["status"] = json!({ "phase": "Pending" });
        }
        "Deployment" => deployment(value),
        "DaemonSet" => daemon_set(value),
        "ReplicaSet" => {
            fill(&mut value["spec"], &json!({ "replicas": 1 }));
            template(value);
            value["status"] = json!({ "replicas": 0 });
        }
        "PodDisruptionBudget" => {
            value["status"] = json!({
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            });
        }
        "Event" => fill(
            value,
            &json!({ "reportingComponent": "", "reportingInstance": "", "source": {} }),
        ),
        "VolumeAttachment" => value["status"] = json!({ "attached": false }),
        _ => {}
    }
}

/// Sets the members of `defaults` that an object has not.
fn fill(value: &mut Value, defaults: &Value) {
    for (name, default) in defaults.as_object().into_iter().flatten() {
        match &mut value[name.as_str()] {
            missing @ Value::Null => *missing = default.clone(),
            Value::Object(_) if default.is_object() => fill(&mut value[name.as_str()], default),
            _ => {}
        }
    }
}

fn namespace(value: &mut Value) {
    let name = value["metadata"]["name"].clone();
    value["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    fill(
        value,
        &json!({ "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } }),
    );
}

fn node(value: &mut Value) {
    fill(
        value,
        &json!({ "spec": {}, "status": {
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 0 } },
        "nodeInfo": {
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
            "systemUUID": "",
        },
    } }),
    );
    // Until its kubelet is heard of.
    let unready = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
    match value["spec"]["taints"].as_array_mut() {
        Some(taints) if taints.contains(&unready) => {}
        Some(taints) => taints.push(unready),
        None => value["spec"]["taints"] = json!([unready]),
    }
    if value["status"].get("capacity").is_some() && value["status"].get("allocatable").is_none() {
        value["status"]["allocatable"] = value["status"]["capacity"].clone();
    }
}

fn pod(value: &mut Value) {
    pod_spec(&mut value["spec"]);
    let spec = &mut value["spec"];
    fill(
        spec,
        &json!({ "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0 }),
    );
    tolerate(spec);
    value["status"] = json!({ "phase": "Pending", "qosClass": quality(&value["spec"]) });
}

fn pod_spec(spec: &mut Value) {
    fill(
        spec,
        &json!({
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        }),
    );
    // The real server keeps the old name of the field, too.
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec["serviceAccount"] = account;
    }
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            self::container(container);
        }
    }
    if spec["initContainers"].is_null() {
        super::write::remove(spec, &["initContainers"]);
    }
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .split_once(':')
        .map(|(_, tag)| tag);
    let pull = if matches!(tag, None | Some("latest")) {
        "Always"
    } else {
        "IfNotPresent"
    };
    fill(
        container,
        &json!({
            "imagePullPolicy": pull, "resources": {}, "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }),
    );
    for port in container["ports"].as_array_mut().into_iter().flatten() {
        fill(port, &json!({ "protocol": "TCP" }));
    }
    if container["ports"].is_null() {
        super::write::remove(container, &["ports"]);
    }
}

/// Every pod bears a node that is lost for five minutes.
fn tolerate(spec: &mut Value) {
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let bears = |one: &Value| {
            (one["key"] == key || one["key"].is_null())
                && (one["effect"] == "NoExecute" || one["effect"].is_null())
        };
        if !tolerations.iter().any(bears) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    spec["tolerations"] = tolerations.into();
}

/// By requests and limits of CPU and memory.
fn quality(spec: &Value) -> &'static str {
    let all = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let (mut any, mut guaranteed) = (false, true);
    for container in all {
        for resource in ["cpu", "memory"] {
            let (limit, request) = (
                &container["resources"]["limits"][resource],
                &container["resources"]["requests"][resource],
            );
            any |= !limit.is_null() || !request.is_null();
            guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
    }
}

fn secret(value: &mut Value) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    for (name, text) in value["stringData"]
        .as_object()
        .cloned()
        .into_iter()
        .flatten()
    {
        let text = text.as_str().unwrap_or_default();
        value["data"][name] = STANDARD.encode(text).into();
    }
    super::write::remove(value, &["stringData"]);
    fill(value, &json!({ "type": "Opaque" }));
}

fn service(value: &mut Value) {
    let name = value["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let spec = &mut value["spec"];
    fill(
        spec,
        &json!({ "type": "ClusterIP", "sessionAffinity": "None" }),
    );
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        let number = port["port"].clone();
        fill(port, &json!({ "protocol": "TCP", "targetPort": number }));
    }
    if spec["type"] != "ExternalName" {
        fill(
            spec,
            &json!({
                "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "clusterIP": address(&name),
            }),
        );
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    value["status"] = json!({ "loadBalancer": {} });
}

/// An address out of 10.0.0.0/16 that goes with a name; two services may share one.
fn address(name: &str) -> String {
    let hash = name.bytes().fold(0x1021_u16, |hash, byte| {
        hash.rotate_left(5) ^ u16::from(byte)
    });
    let [high, low] = hash.to_be_bytes();
    format!("10.0.{high}.{}", low.max(1))
}

fn persistent_volume(value: &mut Value, now: Timestamp) {
    fill(
        &mut value["spec"],
        &json!({ "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem" }),
    );
    if let Some(Value::Object(source)) = value["spec"].get_mut("hostPath") {
        source.entry("type").or_insert_with(|| "".into());
    }
    value["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": written(now) });
}

fn deployment(value: &mut Value) {
    fill(
        &mut value["spec"],
        &json!({
            "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": { "type": "RollingUpdate" },
        }),
    );
    if value["spec"]["strategy"]["type"] == "RollingUpdate" {
        let rolling = json!({ "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } });
        fill(&mut value["spec"]["strategy"], &rolling);
    }
    template(value);
    value["status"] = json!({});
}

fn daemon_set(value: &mut Value) {
    fill(
        &mut value["spec"],
        &json!({
            "revisionHistoryLimit": 10, "updateStrategy": { "type": "RollingUpdate" },
        }),
    );
    if value["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        let rolling = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
        fill(&mut value["spec"]["updateStrategy"], &rolling);
    }
    template(value);
    value["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "1".into();
    value["status"] = json!({
        "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
    });
}

/// The pod template of an object that makes pods.
fn template(value: &mut Value) {
    fill(
        &mut value["spec"]["template"],
        &json!({ "metadata": {}, "spec": {} }),
    );
    pod_spec(&mut value["spec"]["template"]["spec"]);
}
