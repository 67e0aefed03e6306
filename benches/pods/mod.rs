//! Pods as real ones are: 5 KB of JSON each, of which a third is managed fields, and each a little different.
#![allow(dead_code, unreachable_pub)] // each bench uses its part of it

use serde_json::{Value, json};

/// Where the `number`th pod is and what it is called.
pub fn name(number: usize) -> (String, String) {
    let namespace = format!("team-{}", number % 20);
    let name = format!(
        "checkout-service-{:x}-{number:05}",
        0x7d4f_9b6c + number / 10
    );
    (namespace, name)
}

/// On which node it runs: a hundred to a node.
pub fn node(number: usize) -> String {
    format!(
        "ip-10-0-{}-{}.eu-central-1.compute.internal",
        number / 25_600,
        number / 100 % 256
    )
}

/// The `number`th pod, as it is at a version.
pub fn pod(number: usize, version: usize) -> Value {
    let (namespace, name) = name(number);
    let uid = format!(
        "{:08x}-5f1c-4a0d-9c0b-{:012x}",
        number * 7919,
        number * 104_729
    );
    let hash = format!("{:x}", 0x7d4f_9b6c + number / 10);
    let time = |minute: usize| {
        format!(
            "2026-11-{:02}T{:02}:{minute:02}:17Z",
            1 + number % 28,
            number % 24
        )
    };
    let condition = |kind: &str, minute: usize| {
        json!({
            "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": time(minute),
        })
    };
    let managed = |manager: &str, fields: Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time(3),
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let container = json!({ ".": {}, "f:env": { ".": {}, "k:{\"name\":\"REGION\"}": { ".": {}, "f:name": {}, "f:value": {} },
        "k:{\"name\":\"POD_IP\"}": { ".": {}, "f:name": {}, "f:valueFrom": { ".": {}, "f:fieldRef": {} } } },
        "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:ports": { ".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {} } },
        "f:readinessProbe": { ".": {}, "f:failureThreshold": {}, "f:httpGet": { ".": {}, "f:path": {}, "f:port": {}, "f:scheme": {} }, "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {} },
        "f:resources": { ".": {}, "f:limits": { ".": {}, "f:memory": {} }, "f:requests": { ".": {}, "f:cpu": {}, "f:memory": {} } },
        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {} });
    let of_controller = json!({ "f:metadata": { "f:generateName": {}, "f:labels": { ".": {}, "f:app": {}, "f:pod-template-hash": {} },
        "f:ownerReferences": { ".": {}, "k:{\"uid\":\"0b5c1ffe-4a0d-4c0b-9f3a-2d1e5a7c9b10\"}": {} } },
        "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": container }, "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {} } });
    let of_kubelet = json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Ready\"}": { ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {} } },
        "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {} } });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "generateName": format!("checkout-service-{hash}-"), "namespace": namespace, "uid": uid,
            "resourceVersion": version.to_string(), "creationTimestamp": time(1),
            "labels": { "app": format!("checkout-{}", number % 50), "app.kubernetes.io/part-of": "shop", "pod-template-hash": hash, "topology.kubernetes.io/zone": format!("eu-central-1{}", ["a", "b", "c"][number % 3]) },
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": format!("{:064x}", number * 31) },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("checkout-service-{hash}"), "uid": "0b5c1ffe-4a0d-4c0b-9f3a-2d1e5a7c9b10", "controller": true, "blockOwnerDeletion": true }],
            "managedFields": [managed("kube-controller-manager", of_controller), managed("kubelet", of_kubelet)],
        },
        "spec": {
            "volumes": [{ "name": "kube-api-access", "projected": { "defaultMode": 420, "sources": [{ "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } }, { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } }] } }],
            "containers": [{
                "name": "main", "image": format!("registry.example.com/shop/checkout:1.{}.{}", number % 40, number % 7),
                "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
                "env": [{ "name": "REGION", "value": "eu-central-1" }, { "name": "POD_IP", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "status.podIP" } } }],
                "resources": { "limits": { "memory": "512Mi" }, "requests": { "cpu": "100m", "memory": "256Mi" } },
                "volumeMounts": [{ "name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }],
                "readinessProbe": { "httpGet": { "path": "/ready", "port": "http", "scheme": "HTTP" }, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 },
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "checkout", "serviceAccount": "checkout",
            "nodeName": node(number), "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }, { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }],
        },
        "status": {
            "phase": "Running", "hostIP": format!("10.0.{}.{}", number / 25_600, number / 100 % 256), "podIP": format!("10.{}.{}.{}", 1 + number / 65_536, number / 256 % 256, number % 256),
            "startTime": time(1), "qosClass": "Burstable",
            "conditions": [condition("Initialized", 1), condition("Ready", 2), condition("ContainersReady", 2), condition("PodScheduled", 1)],
            "containerStatuses": [{ "name": "main", "state": { "running": { "startedAt": time(2) } }, "lastState": {}, "ready": true, "restartCount": number % 3,
                "image": format!("registry.example.com/shop/checkout:1.{}.{}", number % 40, number % 7), "imageID": format!("registry.example.com/shop/checkout@sha256:{:064x}", number % 40 * 17), "containerID": format!("containerd://{:064x}", number * 65_537), "started": true }],
        },
    })
}

/// As a line of a watch.
pub fn line(number: usize, version: usize) -> Vec<u8> {
    // As an API server writes it: the type first.
    format!(r#"{{"type":"ADDED","object":{}}}"#, pod(number, version)).into_bytes()
}

/// Of a line, the object's JSON.
pub fn json(line: &[u8]) -> &[u8] {
    &line[br#"{"type":"ADDED","object":"#.len()..line.len() - 1]
}
