//! What a cluster costs that nobody uses, and one whose objects others have, too. Alone in its process, because it counts the heap of the process.

use std::{
    alloc::System,
    sync::{Mutex, PoisonError},
};

use clustercache_testkit::{api::FakeApi, fleet::Fleet};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime::{Builder, Handle};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One counts at a time: what others would use waits for this.
static COUNTING: Mutex<()> = Mutex::new(());

fn alone(count: impl Future<Output = ()>) {
    let _alone = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(count);
}

const MANY: usize = 1000;

/// Bytes that are live on the heap.
fn live() -> usize {
    let stats = HEAP.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated)
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The harness keeps a few kilobytes at any time; what each of many left would be more.
fn assert_nothing_left(before: usize, whose: &str) {
    let left = live().saturating_sub(before);
    assert!(left < 32 * MANY, "{left} B are left of {whose}");
}

#[test]
fn an_idle_api_server_costs_less_than_eight_kilobytes_and_no_task() {
    alone(async {
        // What is made once for all is there after this.
        drop(FakeApi::new());
        let (heap_before, tasks_before) = (live(), tasks());
        let mut all = Vec::with_capacity(MANY);
        all.extend((0..MANY).map(|_| FakeApi::new()));
        let each = (live() - heap_before) / MANY;
        println!("{each} B each");
        assert!(each <= 8192, "{each} B");
        assert_eq!(tasks(), tasks_before);
        drop(all);
        assert_nothing_left(heap_before, "the API servers");
    });
}

#[test]
fn an_idle_cluster_of_a_fleet_costs_less_than_eight_kilobytes_no_task_and_no_descriptor() {
    alone(async {
        let start = || Fleet::builder().clusters(MANY).start();
        start().await.unwrap().shutdown().await;
        let (heap_before, tasks_before, descriptors_before) = (live(), tasks(), descriptors());
        let fleet = start().await.unwrap();
        let each = (live() - heap_before) / MANY;
        println!("{each} B each");
        assert!(each <= 8192, "{each} B");
        if cfg!(target_os = "linux") {
            assert_eq!(tasks(), tasks_before + 1, "that of the listener");
            assert_eq!(descriptors(), descriptors_before + 1);
        }
        fleet.shutdown().await;
    });
}

#[test]
fn a_thousand_clusters_made_and_dropped_ten_times_leave_nothing() {
    alone(async {
        let round = async || {
            let fleet = Fleet::start(MANY).await.unwrap();
            assert_eq!(fleet.clusters().len(), MANY);
            fleet.shutdown().await;
        };
        round().await;
        let (heap_before, tasks_before, descriptors_before) = (live(), tasks(), descriptors());
        for _ in 0..10 {
            round().await;
            assert_eq!((tasks(), descriptors()), (tasks_before, descriptors_before));
        }
        assert_nothing_left(heap_before, "the fleets");
    });
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

#[test]
fn equal_objects_of_many_clusters_are_kept_once() {
    alone(async { count_equal_pods() });
}

fn count_equal_pods() {
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
    assert_nothing_left(before, "their objects");
}
