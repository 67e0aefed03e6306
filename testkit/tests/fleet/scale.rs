//! Many clusters, many objects, many watches.

use std::{sync::Arc, time::Duration};

use clustercache_testkit::{api::FakeApi, fleet::Fleet};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::client::{Events, connect, soon};

struct Extent {
    clusters: usize,
    pods: usize,
    watches: usize,
    changes_per_second: usize,
    changes: usize,
}

/// For every day.
const SMALL: Extent = Extent {
    clusters: 4,
    pods: 50,
    watches: 20,
    changes_per_second: 1_000,
    changes: 1_000,
};

const WHOLE: Extent = Extent {
    clusters: 100,
    pods: 2_000,
    watches: 500,
    changes_per_second: 1_000,
    changes: 20_000,
};

/// The number of the change that made it is in its labels.
fn pod(name: usize, change: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{name}"), "namespace": "default",
            "labels": { "app": "web", "change": change.to_string() },
        },
        "spec": { "nodeName": "worker", "containers": [{ "name": "main", "image": "registry.example/main:1" }] },
    })
}

/// Every change once, in order, and no other.
async fn follow(mut events: Events, changes: usize) {
    let mut version = 0;
    for change in 0..changes {
        let event = soon(events.try_next()).await.unwrap().expect("it goes on");
        assert_eq!(event["type"], "MODIFIED");
        let metadata = &event["object"]["metadata"];
        assert_eq!(metadata["labels"]["change"], change.to_string());
        let next: u64 = metadata["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(next > version);
        version = next;
    }
}

async fn change(apis: Vec<FakeApi>, extent: &Extent) {
    let every = Duration::from_millis(10);
    let mut turns = interval(every);
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let each_turn = extent.changes_per_second / 100;
    let mut change = 0;
    while change < extent.changes {
        turns.tick().await;
        for _ in 0..each_turn {
            let api = &apis[change % apis.len()];
            let number = change / apis.len();
            api.put(pod(number * 7 % extent.pods, number)).unwrap();
            change += 1;
        }
    }
}

/// 100 clusters, 2,000 pods each, 500 watches and 20,000 changes with `CLUSTERCACHE_FLEET=whole`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_watches_sees_every_change_once_and_in_order() {
    let extent = if crate::whole() { &WHOLE } else { &SMALL };
    let fleet = Arc::new(Fleet::start(extent.clusters).await.unwrap());
    for cluster in fleet.clusters() {
        for number in 0..extent.pods {
            cluster.put(pod(number, 0)).unwrap();
        }
    }
    let changes_each = extent.changes / extent.clusters;
    let mut watching = JoinSet::new();
    let mut connections = Vec::new();
    for cluster in fleet.clusters() {
        let mut client = connect(cluster).await;
        let version = cluster.version();
        for _ in 0..extent.watches / extent.clusters {
            let path = format!("/api/v1/pods?watch=1&resourceVersion={version}");
            watching.spawn(follow(client.watch(&path).await, changes_each));
        }
        connections.push(client);
    }
    assert_eq!(fleet.counters().watches_open, extent.watches as u64);
    let apis = fleet.clusters().iter().map(|cluster| cluster.api().clone());
    change(apis.collect(), extent).await;
    while let Some(followed) = watching.join_next().await {
        followed.unwrap();
    }
    drop(connections);
    for cluster in fleet.clusters() {
        soon(cluster.connections_closed()).await;
    }
}
