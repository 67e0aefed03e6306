//! The columns of each kind, as the real server's printers have them.

use super::kind::Kind;

/// A column; those of priority 1 are shown by `-o wide` only.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) values: &'static str,
    pub(super) priority: u8,
}

const fn text(name: &'static str) -> Column {
    Column {
        name,
        values: "string",
        priority: 0,
    }
}

const fn number(name: &'static str) -> Column {
    Column {
        name,
        values: "integer",
        priority: 0,
    }
}

const fn wide(name: &'static str) -> Column {
    Column {
        name,
        values: "string",
        priority: 1,
    }
}

const NAME: Column = text("Name");
const AGE: Column = text("Age");

const CONFIG_MAPS: &[Column] = &[NAME, text("Data"), AGE];
const DAEMON_SETS: &[Column] = &[
    NAME,
    number("Desired"),
    number("Current"),
    number("Ready"),
    number("Up-to-date"),
    number("Available"),
    text("Node Selector"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const DEPLOYMENTS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Up-to-date"),
    text("Available"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const EVENTS: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    wide("Name"),
];
const LEASES: &[Column] = &[NAME, text("Holder"), AGE];
const NAMESPACES: &[Column] = &[NAME, text("Status"), AGE];
const SERVICE_ACCOUNTS: &[Column] = &[NAME, AGE];
const NODES: &[Column] = &[
    NAME,
    text("Status"),
    text("Roles"),
    AGE,
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];
const PERSISTENT_VOLUMES: &[Column] = &[
    NAME,
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    AGE,
    wide("VolumeMode"),
];
const PERSISTENT_VOLUME_CLAIMS: &[Column] = &[
    NAME,
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    AGE,
    wide("VolumeMode"),
];
const PODS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Status"),
    text("Restarts"),
    AGE,
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];
const POD_DISRUPTION_BUDGETS: &[Column] = &[
    NAME,
    text("Min Available"),
    text("Max Unavailable"),
    number("Allowed Disruptions"),
    AGE,
];
const REPLICA_SETS: &[Column] = &[
    NAME,
    number("Desired"),
    number("Current"),
    number("Ready"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const SECRETS: &[Column] = &[NAME, text("Type"), text("Data"), AGE];
const SERVICES: &[Column] = &[
    NAME,
    text("Type"),
    text("Cluster-IP"),
    text("External-IP"),
    text("Port(s)"),
    AGE,
    wide("Selector"),
];
const VOLUME_ATTACHMENTS: &[Column] = &[
    NAME,
    text("Attacher"),
    text("PV"),
    text("Node"),
    Column {
        name: "Attached",
        values: "boolean",
        priority: 0,
    },
    AGE,
];
const OTHERS: &[Column] = &[
    NAME,
    Column {
        name: "Age",
        values: "date",
        priority: 0,
    },
];

pub(super) fn of(kind: &Kind) -> &'static [Column] {
    if kind.custom {
        return OTHERS;
    }
    match kind.kind() {
        "ConfigMap" => CONFIG_MAPS,
        "DaemonSet" => DAEMON_SETS,
        "Deployment" => DEPLOYMENTS,
        "Event" => EVENTS,
        "Lease" => LEASES,
        "Namespace" => NAMESPACES,
        "Node" => NODES,
        "PersistentVolume" => PERSISTENT_VOLUMES,
        "PersistentVolumeClaim" => PERSISTENT_VOLUME_CLAIMS,
        "Pod" => PODS,
        "PodDisruptionBudget" => POD_DISRUPTION_BUDGETS,
        "ReplicaSet" => REPLICA_SETS,
        "Secret" => SECRETS,
        "Service" => SERVICES,
        "ServiceAccount" => SERVICE_ACCOUNTS,
        "VolumeAttachment" => VOLUME_ATTACHMENTS,
        _ => OTHERS,
    }
}
