//! As much `OpenAPI` as kubectl asks for before it creates something: that the server can be asked to validate fields itself.

use serde_json::{Map, Value, json};

use super::store::State;

/// The document at `path` below `/openapi/v3`, if there is one.
pub(super) fn document(state: &State, path: &str) -> Option<Value> {
    let below = path.strip_prefix("/openapi/v3")?.trim_start_matches('/');
    if below.is_empty() {
        return Some(index(state));
    }
    let paths: Map<_, _> = state
        .kinds()
        .filter(|kind| root(kind.group(), kind.version()) == below)
        .map(|kind| {
            let gvk = json!({ "group": kind.group(), "version": kind.version(), "kind": kind.kind() });
            let operation = json!({
                "parameters": [{ "name": "fieldValidation", "in": "query" }], "x-kubernetes-group-version-kind": gvk,
            });
            let home = if kind.is_namespaced() { "namespaces/{namespace}/" } else { "" };
            (format!("/{below}/{home}{}/{{name}}", kind.plural()), json!({ "patch": operation }))
        })
        .collect();
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.37.2" }, "paths": paths,
    }))
}

fn index(state: &State) -> Value {
    let entry = |root: String| {
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{root}") });
        (root, url)
    };
    let paths: Map<_, _> = state
        .kinds()
        .map(|kind| entry(root(kind.group(), kind.version())))
        .collect();
    json!({ "paths": paths })
}

/// `api/v1`, or `apis/apps/v1`.
fn root(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}
