//! What the framework itself keeps on the heap for each value, where the values are next to nothing; and that an idle cluster has no task.

use std::{alloc::System, time::Duration};

use figure::{Figures, Unit::Bytes, Unit::Of, count};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use trivial::{Clusters, PROVIDERS};

mod figure;
mod trivial;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLUSTERS: usize = 10_000;

#[tokio::main]
async fn main() {
    // What the source knows of its clusters is its own.
    let clusters = Clusters::new(CLUSTERS);
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = live();
    let cache = clusters.start();
    let started = cache.wait_for_start(Duration::from_secs(60)).await;
    assert!(started.expect("the engine runs"), "not connected in time");
    // The engine's and the source's; whatever beside them is a cluster's.
    while tasks.num_alive_tasks() > 2 {
        tokio::task::yield_now().await;
    }
    let heap = count(live() - before) / count(CLUSTERS * PROVIDERS);
    let idle = count(tasks.num_alive_tasks().saturating_sub(2)) / count(CLUSTERS);
    let mut figures = Figures::default();
    figures.add("heap_per_provider", heap, Bytes);
    figures.add("tasks_per_cluster", idle, Of("tasks"));
    figures.print();
}

/// Bytes that are allocated and not freed.
fn live() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}
