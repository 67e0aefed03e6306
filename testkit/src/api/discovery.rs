//! What a server says that it serves: a document a group and version, or all in one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{kind::Kind, openapi, store::State};

/// The content type of the one document.
pub(super) const ALL_GROUPS: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The document at `/version`, as v1.37.2 sends it.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "36", "gitVersion": "v1.37.2",
        "gitCommit": "0000000000000000000000000000000000000000", "gitTreeState": "clean",
        "buildDate": "2026-10-13T00:00:00Z", "goVersion": "go1.26.0", "compiler": "gc", "platform": "linux/amd64",
    })
}

/// The discovery document at `path`, if there is one.
pub(super) fn document(state: &State, path: &str, host: &str) -> Option<Value> {
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match &*parts {
        ["api"] => Some(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
        })),
        ["api", version] => resources(state, "", version),
        ["apis"] => {
            let groups = groups(state);
            let groups: Vec<_> = groups
                .iter()
                .map(|(group, versions)| self::group(group, versions))
                .collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["apis", name] => {
            let groups = groups(state);
            let mut group = group(name, groups.get(*name)?);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            Some(group)
        }
        ["apis", group, version] => resources(state, group, version),
        ["openapi", ..] => openapi::document(state, path),
        _ => None,
    }
}

/// All groups below `/api` or `/apis` in one document.
pub(super) fn all_groups(state: &State, path: &str) -> Option<Value> {
    let groups = match path {
        "/api" => [(String::new(), vec!["v1".to_owned()])].into(),
        "/apis" => groups(state),
        _ => return None,
    };
    let items: Vec<_> = groups
        .iter()
        .map(|(group, versions)| {
            let metadata = if group.is_empty() {
                json!({ "creationTimestamp": null })
            } else {
                json!({ "name": group, "creationTimestamp": null })
            };
            let versions: Vec<_> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<_> = served(state, group, version)
                        .map(|resource| aggregated(&resource))
                        .collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    Some(json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    }))
}

/// All groups but the core one, with their versions.
fn groups(state: &State) -> BTreeMap<String, Vec<String>> {
    let mut groups = BTreeMap::from([("authentication.k8s.io".to_owned(), vec!["v1".to_owned()])]);
    for kind in state.kinds().filter(|kind| !kind.group.is_empty()) {
        let versions = groups
            .entry(kind.group.to_string())
            .or_insert_with(Vec::new);
        if !versions.iter().any(|version| *version == kind.version) {
            versions.push(kind.version.to_string());
        }
    }
    groups
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<_> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions[0] })
}

fn resources(state: &State, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<_> = served(state, group, version)
        .flat_map(|resource| listed(&resource))
        .collect();
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    });
    // As old as clients that knew of no version there.
    if let Some(list) = list.as_object_mut().filter(|_| group.is_empty()) {
        list.remove("apiVersion");
    }
    Some(list)
}

/// One kind with its parts, or a review, which has nothing to list.
struct Resource<'a> {
    plural: &'a str,
    singular: &'a str,
    kind: &'a str,
    group: &'a str,
    version: &'a str,
    namespaced: bool,
    short_names: &'a [&'static str],
    categories: &'static [&'static str],
    verbs: &'static [&'static str],
    custom: bool,
    parts: Vec<Part<'a>>,
}

struct Part<'a> {
    name: &'static str,
    kind: &'a str,
    /// Where the part is of another group than its object.
    group_version: Option<(&'static str, &'static str)>,
    verbs: &'static [&'static str],
}

/// Also the order is that of the real server.
const CUSTOM_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

const NAMESPACE_VERBS: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];

fn served<'a>(
    state: &'a State,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = Resource<'a>> {
    let kinds = state
        .kinds()
        .filter(move |kind| kind.group == group && kind.version == version);
    let review = (group == "authentication.k8s.io" && version == "v1").then(|| Resource {
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        group,
        version,
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: &["create"],
        custom: false,
        parts: Vec::new(),
    });
    kinds.map(|kind| resource(kind)).chain(review)
}

fn resource(kind: &Kind) -> Resource<'_> {
    let part = |name, kind, group_version, verbs| Part {
        name,
        kind,
        group_version,
        verbs,
    };
    let mut parts = Vec::new();
    match kind.kind() {
        "Pod" if !kind.custom => {
            parts.push(part(
                "eviction",
                "Eviction",
                Some(("policy", "v1")),
                &["create"][..],
            ));
            let both = &["create", "get"];
            parts.push(part("portforward", "PodPortForwardOptions", None, both));
        }
        "Namespace" if !kind.custom => parts.push(part("finalize", "Namespace", None, &["update"])),
        "ServiceAccount" if !kind.custom => {
            parts.push(part(
                "token",
                "TokenRequest",
                Some(("authentication.k8s.io", "v1")),
                &["create"],
            ));
        }
        _ => {}
    }
    if kind.status {
        parts.push(part(
            "status",
            kind.kind(),
            None,
            &["get", "patch", "update"],
        ));
    }
    let all = matches!(
        kind.kind(),
        "Pod" | "Service" | "DaemonSet" | "Deployment" | "ReplicaSet"
    );
    Resource {
        plural: &kind.plural,
        singular: &kind.singular,
        kind: &kind.name,
        group: &kind.group,
        version: &kind.version,
        namespaced: kind.namespaced,
        short_names: &kind.short_names,
        categories: if all && !kind.custom { &["all"] } else { &[] },
        verbs: match kind.kind() {
            _ if kind.custom => CUSTOM_VERBS,
            "Namespace" => NAMESPACE_VERBS,
            _ => VERBS,
        },
        custom: kind.custom,
        parts,
    }
}

/// As an `APIResourceList` has it: the parts beside their object.
fn listed(resource: &Resource<'_>) -> Vec<Value> {
    let mut own = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    names(&mut own, resource);
    let part = |part: &Part<'_>| {
        let mut value = json!({
            "name": format!("{}/{}", resource.plural, part.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": part.kind, "verbs": part.verbs,
        });
        if let Some((group, version)) = part.group_version {
            value["group"] = group.into();
            value["version"] = version.into();
        }
        value
    };
    std::iter::once(own)
        .chain(resource.parts.iter().map(part))
        .collect()
}

/// As an `APIGroupDiscoveryList` has it: the parts within their object.
fn aggregated(resource: &Resource<'_>) -> Value {
    let response = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    // Built-in kinds say so only where it is not that of the document they stand in.
    let own = if resource.custom {
        (resource.group, resource.version)
    } else {
        ("", "")
    };
    let mut value = json!({
        "resource": resource.plural, "singularResource": resource.singular, "verbs": resource.verbs,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": response(own.0, own.1, resource.kind),
    });
    names(&mut value, resource);
    let part = |part: &Part<'_>| {
        let (group, version) = part.group_version.unwrap_or(own);
        json!({
            "subresource": part.name, "verbs": part.verbs, "responseKind": response(group, version, part.kind),
        })
    };
    if !resource.parts.is_empty() {
        value["subresources"] = resource.parts.iter().map(part).collect();
    }
    value
}

fn names(value: &mut Value, resource: &Resource<'_>) {
    for (field, names) in [
        ("shortNames", resource.short_names),
        ("categories", resource.categories),
    ] {
        if !names.is_empty() {
            value[field] = json!(names);
        }
    }
}
