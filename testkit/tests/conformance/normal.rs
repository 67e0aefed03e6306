//! What two servers may answer differently, taken out of their answers.

use serde_json::{Map, Value, json};

/// An answer without what a server makes up by itself.
pub(crate) fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => object(map),
        Value::Array(values) => values.iter().map(normal).collect(),
        Value::String(text) => words(text).into(),
        other => other.clone(),
    }
}

const LEFT_OUT: &[&str] = &[
    // Who changed which field is of no use to the clients that the fake is for.
    "managedFields",
    // How a user was authenticated: the two have different credentials.
    "extra",
    "username",
    // How objects are stored: for whoever migrates them.
    "storageVersionHash",
    // The real server shows it in the object, and not in its metadata alone.
    "deprecated.daemonset.template.generation",
];

fn object(map: &Map<String, Value>) -> Value {
    let mut normal: Map<String, Value> = map
        .iter()
        // Go writes what is not set as null where its type has no other way to say so.
        .filter(|(name, value)| !value.is_null() && !LEFT_OUT.contains(&&***name))
        .map(|(name, value)| (name.clone(), field(name, value)))
        .collect();
    if normal.get("annotations") == Some(&json!({})) {
        normal.remove("annotations");
    }
    // It keeps volumes from going while they are used; what takes it away is a controller.
    if let Some(Value::Array(finalizers)) = normal.get_mut("finalizers") {
        finalizers.retain(|one| !one.as_str().is_some_and(|one| one.ends_with("-protection")));
        if finalizers.is_empty() {
            normal.remove("finalizers");
        }
    }
    normal.into()
}

fn field(name: &str, value: &Value) -> Value {
    let made_up = matches!(
        name,
        "uid"
            | "resourceVersion"
            | "creationTimestamp"
            | "deletionTimestamp"
            | "continue"
            | "token"
            | "expirationTimestamp"
            | "clusterIP"
            | "lastPhaseTransitionTime"
            | "lastTransitionTime"
    );
    match (name, value) {
        (_, Value::String(text)) if made_up && !text.is_empty() => format!("<{name}>").into(),
        ("disruptedPods", Value::Object(pods)) => {
            pods.keys().map(|pod| (pod.clone(), "<time>")).collect()
        }
        ("clusterIPs", Value::Array(_)) => json!(["<clusterIPs>"]),
        // Descriptions of columns are the documentation of the fields.
        ("description", Value::String(_)) => "".into(),
        // A row was made a moment ago.
        ("cells", Value::Array(cells)) => cells.iter().map(cell).collect(),
        ("message", Value::String(text)) => message(text).into(),
        ("name", Value::String(text)) => words(text).into(),
        _ => normal(value),
    }
}

/// Texts that end with what a server accepts, or how it read what it does not.
fn message(text: &str) -> String {
    for beginning in [
        "the body of the request was in an unknown format",
        "406: Not Acceptable",
        // Which ones is each server's own.
        "too old resource version",
        "invalid continue token: continue key is not valid",
        "unable to parse requirement",
    ] {
        if text.starts_with(beginning) {
            return beginning.to_owned();
        }
    }
    if text.starts_with("found '") {
        return "unable to parse requirement".to_owned();
    }
    words(text)
}

fn cell(cell: &Value) -> Value {
    match cell.as_str() {
        Some(text)
            if text
                .strip_suffix('s')
                .is_some_and(|age| age.parse::<u32>().is_ok()) =>
        {
            "<age>".into()
        }
        Some(text) if text.starts_with("10.") => "<address>".into(),
        _ => normal(cell),
    }
}

/// Numbers of versions, UIDs and generated names within a text.
fn words(text: &str) -> String {
    let word = |word: &str| {
        if word.starts_with('/') && word.ends_with(',') {
            return "<key>".to_owned();
        }
        let bare = word.trim_matches(|letter: char| "().,:\"".contains(letter));
        let version = bare.len() > 1 && bare.bytes().all(|byte| byte.is_ascii_digit());
        let uid = bare.len() == 36 && bare.bytes().filter(|byte| *byte == b'-').count() == 4;
        let generated = bare
            .strip_prefix("made-")
            .filter(|suffix| suffix.len() == 5);
        if version || uid {
            word.replace(bare, "<it>")
        } else if generated.is_some() {
            word.replace(bare, "made-<suffix>")
        } else {
            word.to_owned()
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

const GROUPS: &[&str] = &[
    "apps",
    "authentication.k8s.io",
    "coordination.k8s.io",
    "example.com",
    "policy",
    "storage.k8s.io",
];

const RESOURCES: &[&str] = &[
    "configmaps",
    "daemonsets",
    "deployments",
    "events",
    "gadgets",
    "leases",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "pods",
    "replicasets",
    "secrets",
    "selfsubjectreviews",
    "serviceaccounts",
    "services",
    "volumeattachments",
    "widgets",
];

const PARTS: &[&str] = &["eviction", "finalize", "portforward", "status", "token"];

/// A document of discovery without the groups, the kinds and the parts of kinds that the fake does not serve. In the order of their names:
/// that of groups is of no meaning.
pub(crate) fn discovery(document: &Value) -> Value {
    let named = |value: &Value| {
        let names = ["resource", "subresource", "name"].map(|field| value[field].as_str());
        let name = names.into_iter().flatten().next();
        let name = name.or_else(|| value["metadata"]["name"].as_str());
        name.unwrap_or_default().to_owned()
    };
    let served = |list: &str, name: &str| match (list, name.split_once('/')) {
        ("resources", Some((resource, part))) => {
            RESOURCES.contains(&resource) && PARTS.contains(&part)
        }
        ("resources", None) => RESOURCES.contains(&name),
        ("subresources", _) => PARTS.contains(&name),
        // The core group has no name.
        _ => name.is_empty() || GROUPS.contains(&name),
    };
    match document {
        Value::Object(map) => map
            .iter()
            .map(|(field, value)| match value {
                Value::Array(all)
                    if ["resources", "subresources", "items", "groups"].contains(&&**field) =>
                {
                    let mut all: Vec<_> = all
                        .iter()
                        .filter(|one| served(field, &named(one)))
                        .collect();
                    all.sort_by_key(|one| named(one));
                    (field.clone(), all.into_iter().map(discovery).collect())
                }
                // Which of its versions, which address, is each server's own.
                _ if field == "serverAddressByClientCIDRs" => (field.clone(), Value::Null),
                other => (field.clone(), discovery(other)),
            })
            .collect(),
        Value::Array(all) => all.iter().map(discovery).collect(),
        other => other.clone(),
    }
}

/// Where two values differ.
pub(crate) fn differences(at: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one
                .keys()
                .chain(other.keys().filter(|name| !one.contains_key(*name)));
            for name in names {
                let of = |map: &Map<String, Value>| map.get(name).cloned();
                match (of(one), of(other)) {
                    (Some(ours), Some(theirs)) => {
                        differences(&format!("{at}.{name}"), &ours, &theirs, lines);
                    }
                    (Some(ours), None) => {
                        lines.push(format!("{at}.{name}: fake {ours}, real has none"));
                    }
                    (None, theirs) => lines.push(format!(
                        "{at}.{name}: fake has none, real {}",
                        theirs.unwrap_or_default()
                    )),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (ours, theirs)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}[{place}]"), ours, theirs, lines);
            }
        }
        _ if ours != theirs => lines.push(format!("{at}: fake {ours}, real {theirs}")),
        _ => {}
    }
}
