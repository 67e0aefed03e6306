//! The kinds that every server has, with the rules of the real registry (v1.37).

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use super::kind::{Kind, Rules};

/// Sorted by group, then by plural.
pub(super) static BUILT_IN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| {
    let mut kinds: Vec<_> = all().into_iter().map(Arc::new).collect();
    kinds.sort();
    kinds
});

/// A built-in kind that this crate itself asks for.
pub(super) fn named(group: &str, plural: &str) -> &'static Arc<Kind> {
    BUILT_IN
        .iter()
        .find(|kind| kind.group == group && kind.plural == plural)
        .expect("the kind is one of the list below")
}

#[rustfmt::skip]
fn all() -> [Kind; 16] {
    let common = Rules::COMMON;
    let generation = Rules { generation: true, ..common };
    let returned = Rules { returns_deleted: true, ..common };
    let pods = Rules { generation: true, returns_deleted: true, fields: PODS, ..common };
    let leases = Rules { unconditional_update: false, create_on_update: true, ..common };
    let events = Rules { create_on_update: true, fields: EVENTS, ..common };
    let budgets = Rules { generation: true, unconditional_update: false, ..common };
    let attachments = Rules { unconditional_update: false, returns_deleted: true, ..common };
    let with = |fields| Rules { fields, ..common };
    [
        kind("", "ConfigMap", "configmaps", &["cm"], true, false, common),
        kind("", "Event", "events", &["ev"], true, false, events),
        kind("", "Namespace", "namespaces", &["ns"], false, true, with(&["status.phase"])),
        kind("", "Node", "nodes", &["no"], false, true, with(&["spec.unschedulable"])),
        kind("", "PersistentVolume", "persistentvolumes", &["pv"], false, true, returned),
        kind("", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], true, true, returned),
        kind("", "Pod", "pods", &["po"], true, true, pods),
        kind("", "Secret", "secrets", &[], true, false, with(&["type"])),
        kind("", "Service", "services", &["svc"], true, true, Rules { fields: &["spec.clusterIP", "spec.type"], ..returned }),
        kind("", "ServiceAccount", "serviceaccounts", &["sa"], true, false, returned),
        kind("apps", "DaemonSet", "daemonsets", &["ds"], true, true, generation),
        kind("apps", "Deployment", "deployments", &["deploy"], true, true, generation),
        kind("apps", "ReplicaSet", "replicasets", &["rs"], true, true, generation),
        kind("coordination.k8s.io", "Lease", "leases", &[], true, false, leases),
        kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], true, true, budgets),
        kind("storage.k8s.io", "VolumeAttachment", "volumeattachments", &[], false, true, attachments),
    ]
}

const PODS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const EVENTS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

fn kind(
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
    status: bool,
    rules: Rules,
) -> Kind {
    Kind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed("v1"),
        name: Cow::Borrowed(name),
        plural: Cow::Borrowed(plural),
        singular: Cow::Owned(name.to_lowercase()),
        short_names: Cow::Borrowed(short_names),
        namespaced,
        status,
        custom: false,
        rules,
    }
}
