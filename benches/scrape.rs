//! What a scrape of a large fleet takes and allocates, with the fleet in sums alone: from the registry of metrics to the text of the page.

use std::{alloc::System, hint::black_box, time::Duration};

use clustercache::ClusterCache;
use clustercache_metrics::CacheMetrics;
use figure::{Figures, Unit::Bytes, Unit::Nanoseconds, count, median, per_call};
use prometheus::{Registry, TextEncoder};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use trivial::Clusters;

mod figure;
mod trivial;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLUSTERS: usize = 10_000;

const SCRAPES: usize = 200;

#[tokio::main]
async fn main() {
    let cache = Clusters::new(CLUSTERS).start();
    let started = cache.wait_for_start(Duration::from_secs(60)).await;
    assert!(started.expect("the engine runs"), "not connected in time");
    let registry = Registry::new();
    let metrics = Box::new(CacheMetrics::new(&cache));
    registry.register(metrics).expect("good metrics");

    let mut figures = Figures::default();
    // The first also makes what the process has once, such as a thread's own.
    scrape(&registry, &cache);
    let first = bytes(&registry, &cache);
    let mut times: Vec<_> = (0..SCRAPES)
        .map(|_| per_call(1, || scrape(&registry, &cache)))
        .collect();
    figures.add("scrape_10000", median(&mut times), Nanoseconds);
    figures.add("scrape_10000_bytes", first.allocated, Bytes);
    let later = bytes(&registry, &cache);
    figures.add("scrape_10000_bytes_later", later.allocated, Bytes);
    figures.add("scrape_10000_bytes_left", later.left, Bytes);
    figures.print();
}

fn scrape(registry: &Registry, cache: &ClusterCache) {
    let page = TextEncoder::new().encode_to_string(&registry.gather());
    let page = black_box(page).expect("a good page");
    let all = format!("clustercache_clusters{{phase=\"connected\"}} {CLUSTERS}\n");
    assert!(page.contains(&all), "{:?}", cache.census());
}

/// What one scrape allocates, and what is left of that after it.
struct Heap {
    allocated: f64,
    left: f64,
}

fn bytes(registry: &Registry, cache: &ClusterCache) -> Heap {
    let region = Region::new(HEAP);
    scrape(registry, cache);
    let change = region.change();
    Heap {
        allocated: count(change.bytes_allocated),
        left: count(change.bytes_allocated) - count(change.bytes_deallocated),
    }
}
