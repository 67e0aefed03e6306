//! What is in the clusters, and what changes in them.

use std::time::Duration;

use clustercache_testkit::fleet::Fleet;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

/// As many as a kubelet takes by default.
const PODS_A_NODE: usize = 110;

/// Changes come in turns of so long.
const TURN: Duration = Duration::from_millis(10);

/// Puts pods into each cluster, and the nodes that it takes.
pub(crate) fn fill(fleet: &Fleet, pods: usize) -> anyhow::Result<()> {
    for cluster in fleet.clusters() {
        for number in 0..pods.div_ceil(PODS_A_NODE) {
            cluster.put(node(number))?;
        }
        for number in 0..pods {
            cluster.put(pod(number, 0))?;
        }
    }
    Ok(())
}

/// Changes pods, one cluster after the other, that often in a second; never ends. Who falls behind catches up.
pub(crate) async fn change(fleet: &Fleet, pods: usize, per_second: usize) -> anyhow::Result<()> {
    if per_second == 0 {
        return std::future::pending().await;
    }
    let turns_a_second = 100;
    let mut turns = interval(TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut change, mut owed) = (0, 0);
    loop {
        turns.tick().await;
        owed += per_second;
        while owed >= turns_a_second {
            owed -= turns_a_second;
            let clusters = fleet.clusters();
            let (cluster, round) = (change % clusters.len(), change / clusters.len());
            clusters[cluster].put(pod(round % pods, round))?;
            change += 1;
        }
    }
}

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": format!("node-{number}") },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// The round in which it was changed is an annotation.
fn pod(number: usize, round: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number}"), "namespace": "default",
            "labels": { "app": "fake" },
            "annotations": { "fake-fleet/round": round.to_string() },
        },
        "spec": {
            "nodeName": format!("node-{}", number / PODS_A_NODE),
            "containers": [{ "name": "main", "image": "registry.example/main:1" }],
        },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
