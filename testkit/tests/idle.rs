//! What a cluster costs that nobody uses, and one whose objects others have, too. Alone in its process, because it counts the heap of the process.

use std::alloc::System;

use clustercache_testkit::api::FakeApi;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime::Handle;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are live on the heap.
fn live() -> usize {
    let stats = HEAP.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated)
}

/// One pod of many, as a deployment has them.
fn pod(number: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/web:1.2.3", "imagePullPolicy": "IfNotPresent",
            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
            "env": [{ "name": "LOG_LEVEL", "value": "info" }, { "name": "CLUSTER", "value": "all" }],
            "readinessProbe": { "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 10 },
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("web-{number}"), "labels": { "app": "web", "pod-template-hash": "5d9c7b8f6d" } },
        "spec": { "nodeName": "worker", "containers": [container("web"), container("proxy")], "restartPolicy": "Always" },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// In one test with the other: they count the same heap.
fn equal_pods() {
    const CLUSTERS: usize = 100;
    const PODS: usize = 50;
    let size = pod(0).to_string().len();
    let before = live();
    let clusters: Vec<_> = (0..CLUSTERS)
        .map(|_| {
            let api = FakeApi::new();
            for number in 0..PODS {
                api.put(pod(number)).unwrap();
            }
            api
        })
        .collect();
    let each = (live() - before) / CLUSTERS / PODS;
    println!("{each} B for each of {PODS} equal pods of {size} B in {CLUSTERS} clusters");
    // A name, a UID and a place in the history: what one pod differs from the next in.
    assert!(each < size * 2 / 3, "{each} B of {size}");
    drop(clusters);
    let left = live().saturating_sub(before);
    assert!(left < 8 * CLUSTERS, "{left} B are left");
}

#[tokio::test]
async fn an_idle_api_server_costs_less_than_eight_kilobytes_and_no_task_and_equal_objects_are_kept_once()
 {
    const MANY: usize = 1000;
    // What is made once for all is there after this.
    drop(FakeApi::new());
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (heap_before, tasks_before) = (live(), tasks());
    let mut all = Vec::with_capacity(MANY);
    all.extend((0..MANY).map(|_| FakeApi::new()));
    let each = (live() - heap_before) / MANY;
    println!("{each} B each");
    assert!(each <= 8192, "{each} B");
    assert_eq!(tasks(), tasks_before);
    drop(all);
    // The harness keeps a little at any time; what each of them left would be more.
    let left = live().saturating_sub(heap_before);
    assert!(left < 8 * MANY, "{left} B are left");
    equal_pods();
}
