//! What a scrape costs, counted in allocations. Alone in its process: nothing else allocates meanwhile.

mod support;

use std::alloc::System;

use clustercache::ClusterKey;
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::cache::TestCache;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::Exporter;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn allocations(exporter: &Exporter) -> usize {
    let region = Region::new(HEAP);
    drop(exporter.text());
    region.change().allocations
}

#[tokio::test(start_paused = true)]
async fn clusters_that_are_not_ours_cost_a_scrape_of_single_clusters_next_to_nothing() {
    const OTHERS: usize = 500;
    let test = TestCache::builder()
        .set_up(|builder| builder.filter(|upsert| upsert.key.name() == "ours"))
        .build();
    let exporter = Exporter::new(CacheMetrics::new(&test.cache()).per_cluster());
    test.add(&ClusterKey::named("ours")).await;
    allocations(&exporter);
    let alone = allocations(&exporter);
    for number in 0..OTHERS {
        test.add(&ClusterKey::named(&format!("other-{number}")))
            .await;
    }
    allocations(&exporter);
    let beside = allocations(&exporter);
    assert!(
        beside < alone + OTHERS / 10,
        "{alone}, and {beside} beside {OTHERS} others"
    );
}
