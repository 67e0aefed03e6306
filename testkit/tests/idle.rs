//! What a cluster costs that nobody uses. Alone in its process, because it counts the heap of the process.

use std::alloc::System;

use clustercache_testkit::api::FakeApi;
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

#[tokio::test]
async fn an_idle_api_server_costs_less_than_eight_kilobytes_and_no_task() {
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
}
