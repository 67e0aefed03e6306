//! The cells of an object's row in a table, as the real server's printers fill them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{kind::Kind, table::age};

/// The cells of an object's row.
pub(super) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let row = Row {
        name: object["metadata"]["name"].clone(),
        age: age(&object["metadata"]["creationTimestamp"], now),
        object,
        spec: &object["spec"],
        status: &object["status"],
        now,
    };
    let or_empty = |cell: Value| if cell.is_null() { "".into() } else { cell };
    row.cells(kind).into_iter().map(or_empty).collect()
}

struct Row<'a> {
    object: &'a Value,
    spec: &'a Value,
    status: &'a Value,
    name: Value,
    age: Value,
    now: Timestamp,
}

impl Row<'_> {
    fn cells(self, kind: &Kind) -> Vec<Value> {
        if kind.custom {
            return vec![self.name, self.age];
        }
        match kind.kind() {
            "ConfigMap" => {
                let entries = self.entries();
                vec![self.name, entries, self.age]
            }
            "Secret" => {
                let entries = self.entries();
                vec![self.name, self.object["type"].clone(), entries, self.age]
            }
            "Namespace" => vec![self.name, self.status["phase"].clone(), self.age],
            "Lease" => vec![
                self.name,
                text_or(&self.spec["holderIdentity"], ""),
                self.age,
            ],
            "Pod" => pod(self.object, self.name, self.age, self.now),
            "Node" => node(self.object, self.name, self.age),
            "Service" => service(self.spec, self.status, self.name, self.age),
            "Event" => event(self.object, self.now),
            "Deployment" => self.deployment(),
            "ReplicaSet" => self.replica_set(),
            "DaemonSet" => self.daemon_set(),
            "PersistentVolume" => self.persistent_volume(),
            "PersistentVolumeClaim" => self.persistent_volume_claim(),
            "PodDisruptionBudget" => self.budget(),
            "VolumeAttachment" => self.volume_attachment(),
            _ => vec![self.name, self.age],
        }
    }

    fn entries(&self) -> Value {
        let of = |field: &str| {
            self.object[field]
                .as_object()
                .map_or(0, serde_json::Map::len)
        };
        (of("data") + of("binaryData")).into()
    }

    /// Containers, images, selector.
    fn template(&self) -> [Value; 3] {
        let containers = &self.spec["template"]["spec"]["containers"];
        [
            joined(containers, "name"),
            joined(containers, "image"),
            labels(&self.spec["selector"]["matchLabels"]),
        ]
    }

    fn count(&self, field: &str) -> Value {
        self.status[field].as_u64().unwrap_or_default().into()
    }

    fn replicas(&self) -> u64 {
        self.spec["replicas"].as_u64().unwrap_or_default()
    }

    fn deployment(self) -> Vec<Value> {
        let ready = format!("{}/{}", self.count("readyReplicas"), self.replicas());
        let (updated, available) = (
            self.count("updatedReplicas"),
            self.count("availableReplicas"),
        );
        let template = self.template();
        [self.name, ready.into(), updated, available, self.age]
            .into_iter()
            .chain(template)
            .collect()
    }

    fn replica_set(self) -> Vec<Value> {
        let (current, ready) = (self.count("replicas"), self.count("readyReplicas"));
        let (wanted, template) = (self.replicas(), self.template());
        [self.name, wanted.into(), current, ready, self.age]
            .into_iter()
            .chain(template)
            .collect()
    }

    fn daemon_set(self) -> Vec<Value> {
        let counts = [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ]
        .map(|field| self.count(field));
        let nodes = labels(&self.spec["template"]["spec"]["nodeSelector"]);
        let template = self.template();
        [self.name]
            .into_iter()
            .chain(counts)
            .chain([nodes, self.age])
            .chain(template)
            .collect()
    }

    fn persistent_volume(self) -> Vec<Value> {
        let spec = self.spec;
        let claim = &spec["claimRef"];
        let part = |field: &str| claim[field].as_str().unwrap_or_default();
        let claim = if claim.is_null() {
            String::new()
        } else {
            format!("{}/{}", part("namespace"), part("name"))
        };
        vec![
            self.name,
            text_or(&spec["capacity"]["storage"], ""),
            modes(&spec["accessModes"]),
            text_or(&spec["persistentVolumeReclaimPolicy"], ""),
            phase(self.object),
            claim.into(),
            text_or(&spec["storageClassName"], ""),
            text_or(&spec["volumeAttributesClassName"], "<unset>"),
            text_or(&self.status["reason"], ""),
            self.age,
            text_or(&spec["volumeMode"], "<unset>"),
        ]
    }

    fn persistent_volume_claim(self) -> Vec<Value> {
        let (spec, status) = (self.spec, self.status);
        let bound = !spec["volumeName"].is_null();
        let of_bound = |cell: Value| if bound { cell } else { "".into() };
        vec![
            self.name,
            phase(self.object),
            text_or(&spec["volumeName"], ""),
            of_bound(text_or(&status["capacity"]["storage"], "")),
            of_bound(modes(&status["accessModes"])),
            text_or(&spec["storageClassName"], ""),
            text_or(&spec["volumeAttributesClassName"], "<unset>"),
            self.age,
            text_or(&spec["volumeMode"], "<unset>"),
        ]
    }

    fn budget(self) -> Vec<Value> {
        let bound = |field: &str| match &self.spec[field] {
            Value::Null => "N/A".into(),
            Value::Number(number) => number.to_string().into(),
            other => other.clone(),
        };
        let (least, most) = (bound("minAvailable"), bound("maxUnavailable"));
        let allowed = self.count("disruptionsAllowed");
        vec![self.name, least, most, allowed, self.age]
    }

    fn volume_attachment(self) -> Vec<Value> {
        let spec = self.spec;
        vec![
            self.name,
            text_or(&spec["attacher"], ""),
            text_or(&spec["source"]["persistentVolumeName"], ""),
            text_or(&spec["nodeName"], ""),
            self.status["attached"].as_bool().unwrap_or_default().into(),
            self.age,
        ]
    }
}

fn text_or(value: &Value, other: &str) -> Value {
    match value.as_str() {
        Some(text) if !text.is_empty() => text.into(),
        _ => other.into(),
    }
}

/// `Terminating` once it is to be deleted.
fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_null() {
        object["status"]["phase"].clone()
    } else {
        "Terminating".into()
    }
}

fn joined(list: &Value, field: &str) -> Value {
    let all: Vec<_> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one[field].as_str())
        .collect();
    all.join(",").into()
}

fn labels(map: &Value) -> Value {
    let all: Vec<_> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    if all.is_empty() {
        "<none>".into()
    } else {
        all.join(",").into()
    }
}

fn modes(list: &Value) -> Value {
    let short = |mode: &Value| match mode.as_str()? {
        "ReadWriteOnce" => Some("RWO"),
        "ReadOnlyMany" => Some("ROX"),
        "ReadWriteMany" => Some("RWX"),
        "ReadWriteOncePod" => Some("RWOP"),
        _ => None,
    };
    let all: Vec<_> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(short)
        .collect();
    all.join(",").into()
}

fn pod(pod: &Value, name: Value, age: Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let containers = spec["containers"].as_array().map_or(0, Vec::len);
    let statuses = status["containerStatuses"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let ready = statuses.iter().filter(|one| one["ready"] == true).count();
    let restarts: u64 = statuses
        .iter()
        .filter_map(|one| one["restartCount"].as_u64())
        .sum();
    let ended = statuses
        .iter()
        .filter_map(|one| one["lastState"]["terminated"]["finishedAt"].as_str())
        .max();
    let restarts = match ended.filter(|_| restarts > 0) {
        Some(ended) => {
            let ago = super::table::age(&ended.into(), now);
            format!("{restarts} ({} ago)", ago.as_str().unwrap_or_default())
        }
        None => restarts.to_string(),
    };
    let ip = text_or(
        &status["podIPs"][0]["ip"],
        status["podIP"]
            .as_str()
            .filter(|ip| !ip.is_empty())
            .unwrap_or("<none>"),
    );
    vec![
        name,
        format!("{ready}/{containers}").into(),
        pod_status(pod, statuses),
        restarts.into(),
        age,
        ip,
        text_or(&spec["nodeName"], "<none>"),
        text_or(&status["nominatedNodeName"], "<none>"),
        "<none>".into(),
    ]
}

fn pod_status(pod: &Value, statuses: &[Value]) -> Value {
    let status = &pod["status"];
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        let lost = status["reason"] == "NodeLost";
        return if lost { "Unknown" } else { "Terminating" }.into();
    }
    let of = |one: &Value| {
        let state = &one["state"];
        let reason = |state: &Value| {
            state["reason"]
                .as_str()
                .filter(|reason| !reason.is_empty())
                .map(str::to_owned)
        };
        reason(&state["waiting"]).or_else(|| reason(&state["terminated"]))
    };
    let waits = statuses.iter().rev().filter_map(of).next_back();
    match waits {
        Some(reason) => reason.into(),
        None => text_or(
            &status["reason"],
            status["phase"].as_str().unwrap_or_default(),
        ),
    }
}

fn node(node: &Value, name: Value, age: Value) -> Vec<Value> {
    let (metadata, status) = (&node["metadata"], &node["status"]);
    let conditions = status["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().find(|one| one["type"] == "Ready");
    let mut state = match ready.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let role = |label: &String| {
        label
            .strip_prefix("node-role.kubernetes.io/")
            .map(str::to_owned)
    };
    let roles: Vec<_> = metadata["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| role(label))
        .collect();
    let roles = if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    };
    let address = |wanted: &str| {
        let all = status["addresses"].as_array().into_iter().flatten();
        let found = all
            .filter(|one| one["type"] == wanted)
            .find_map(|one| one["address"].as_str());
        Value::from(found.unwrap_or("<none>"))
    };
    let info = |field: &str| text_or(&status["nodeInfo"][field], "<unknown>");
    vec![
        name,
        state.into(),
        roles.into(),
        age,
        text_or(&status["nodeInfo"]["kubeletVersion"], ""),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn service(spec: &Value, status: &Value, name: Value, age: Value) -> Vec<Value> {
    let external = match spec["type"].as_str() {
        Some("ExternalName") => text_or(&spec["externalName"], "<none>"),
        Some("LoadBalancer") => {
            let ingress = status["loadBalancer"]["ingress"]
                .as_array()
                .into_iter()
                .flatten();
            let all: Vec<_> = ingress
                .filter_map(|one| one["ip"].as_str().or(one["hostname"].as_str()))
                .collect();
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",").into()
            }
        }
        _ => "<none>".into(),
    };
    let port = |port: &Value| {
        let node = port["nodePort"].as_u64().filter(|node| *node > 0);
        let node = node.map_or(String::new(), |node| format!(":{node}"));
        format!(
            "{}{node}/{}",
            port["port"],
            port["protocol"].as_str().unwrap_or("TCP")
        )
    };
    let ports: Vec<_> = spec["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(port)
        .collect();
    let ports = if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    };
    let cluster = text_or(&spec["clusterIP"], "<none>");
    vec![
        name,
        spec["type"].clone(),
        cluster,
        external,
        ports.into(),
        age,
        labels(&spec["selector"]),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let involved = &event["involvedObject"];
    let kind = involved["kind"].as_str().unwrap_or_default().to_lowercase();
    let object = match involved["name"].as_str() {
        Some(name) => format!("{kind}/{name}"),
        None => kind,
    };
    let first = |fields: &[&str]| {
        let found = fields
            .iter()
            .map(|field| &event[*field])
            .find(|time| !time.is_null());
        age(found.unwrap_or(&Value::Null), now)
    };
    let source = match (
        event["source"]["component"].as_str(),
        event["source"]["host"].as_str(),
    ) {
        (Some(component), Some(host)) => format!("{component}, {host}"),
        (Some(component), None) => component.to_owned(),
        _ => event["reportingComponent"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    };
    vec![
        first(&["lastTimestamp", "eventTime"]),
        event["type"].clone(),
        event["reason"].clone(),
        object.into(),
        text_or(&involved["fieldPath"], ""),
        source.into(),
        event["message"].as_str().unwrap_or_default().trim().into(),
        first(&["firstTimestamp", "eventTime"]),
        json!(event["count"].as_u64().unwrap_or(1)),
        event["metadata"]["name"].clone(),
    ]
}
