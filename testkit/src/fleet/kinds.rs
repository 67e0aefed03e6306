//! The kinds that a fake cluster knows, and the discovery documents that say so.

use serde_json::{Value, json};

/// One kind of object.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    /// Empty for the core group.
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) name: &'static str,
    pub(super) singular: &'static str,
    pub(super) short: &'static str,
    pub(super) namespaced: bool,
}

/// Sorted by group, then by plural. All are of version `v1`.
pub(super) static KINDS: [Kind; 5] = [
    core("configmaps", "ConfigMap", "configmap", "cm", true),
    core("namespaces", "Namespace", "namespace", "ns", false),
    core("nodes", "Node", "node", "no", false),
    core("pods", "Pod", "pod", "po", true),
    Kind {
        group: "apps",
        plural: "deployments",
        name: "Deployment",
        singular: "deployment",
        short: "deploy",
        namespaced: true,
    },
];

const fn core(
    plural: &'static str,
    name: &'static str,
    singular: &'static str,
    short: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        group: "",
        plural,
        name,
        singular,
        short,
        namespaced,
    }
}

impl Kind {
    pub(super) fn by_path(group: &str, plural: &str) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.group == group && kind.plural == plural)
    }

    pub(super) fn by_name(api_version: &str, name: &str) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.api_version() == api_version && kind.name == name)
    }

    pub(super) fn api_version(&self) -> &'static str {
        if self.group.is_empty() {
            "v1"
        } else {
            "apps/v1"
        }
    }

    /// `nodes`, or `deployments.apps`.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    fn described(&self) -> Value {
        json!({
            "name": self.plural, "singularName": self.singular, "namespaced": self.namespaced, "kind": self.name,
            "shortNames": [self.short], "verbs": ["create", "delete", "get", "list", "update", "watch"],
        })
    }
}

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
pub(super) fn discovery(path: &str, host: &str) -> Option<Value> {
    let document = match path {
        "/api" => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
        }),
        "/apis" => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [apps()] }),
        "/apis/apps" => {
            let mut group = apps();
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        "/api/v1" => resources("", "v1"),
        "/apis/apps/v1" => resources("apps", "apps/v1"),
        _ => return None,
    };
    Some(document)
}

fn apps() -> Value {
    let version = json!({ "groupVersion": "apps/v1", "version": "v1" });
    json!({ "name": "apps", "versions": [version], "preferredVersion": version })
}

fn resources(group: &str, group_version: &str) -> Value {
    let resources: Vec<_> = KINDS
        .iter()
        .filter(|kind| kind.group == group)
        .map(Kind::described)
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources })
}
