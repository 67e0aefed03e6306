//! Series of single clusters: on request, bounded, and gone with their cluster.
#![allow(clippy::float_cmp)] // what is compared are counts

mod support;

use std::time::Duration;

use clustercache::{ClusterKey, Upsert};
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::cache::TestCache;
use support::{Act, Exporter, Odd, Page, same};

fn key(name: &str) -> ClusterKey {
    ClusterKey::new("fleet", name)
}

/// A series of a cluster.
fn of(metric: &str, cluster: &str, more: &str) -> String {
    format!("{metric}{{cluster_namespace=\"fleet\",cluster_name=\"{cluster}\"{more}}}")
}

/// The value of a series of the cluster `a`.
fn of_a(page: &Page, metric: &str, more: &str) -> f64 {
    page.value(&of(metric, "a", more))
}

/// Everything that is there of single clusters.
fn of_clusters(page: &Page) -> Vec<&str> {
    let samples = page.0.values().flat_map(|family| family.samples.keys());
    let samples = samples.map(String::as_str);
    samples
        .filter(|series| series.contains("cluster_name="))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn single_clusters_have_no_series_unless_they_were_asked_for() {
    let test = TestCache::builder().build();
    test.connect(&key("a")).await;
    let page = Exporter::new(CacheMetrics::new(&test.cache()).at_most(10)).page();
    assert_eq!(of_clusters(&page), Vec::<&str>::new());
    assert!(!page.0.contains_key("clustercache_clusters_without_series"));
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_ends_and_is_not_renewed_shows_of_the_fleet_and_of_its_cluster() {
    let odd = Odd::default();
    odd.acts(Act::Ages(7));
    let set_up = |builder: clustercache::Builder| builder.resource(odd);
    let test = TestCache::builder().set_up(set_up).build();
    test.connect(&key("a")).await;
    let exporter = Exporter::new(CacheMetrics::new(&test.cache()).per_cluster());
    let page = exporter.page();
    assert_eq!(page.value("clustercache_troubled_clusters"), 1.0);
    let nearest = "clustercache_nearest_resource_expiry_timestamp_seconds";
    assert_eq!(page.value(nearest), 7.0);
    let resource = ",resource=\"odd\"";
    let expiry = "clustercache_cluster_resource_expiry_timestamp_seconds";
    assert_eq!(of_a(&page, expiry, resource), 7.0);
    let failures = "clustercache_cluster_resource_failures";
    assert_eq!(of_a(&page, failures, resource), 2.0);
    test.disconnect(&key("a")).await;
    let page = exporter.page();
    assert_eq!(page.value("clustercache_troubled_clusters"), 0.0);
    assert_eq!(page.find(nearest), None);
}

#[tokio::test(start_paused = true)]
async fn the_series_of_a_cluster_follow_it_and_go_with_it() {
    let test = TestCache::builder().build();
    let exporter = Exporter::new(
        CacheMetrics::new(&test.cache())
            .per_cluster()
            .cluster_api_names(),
    );
    let none = exporter.page();
    assert_eq!(none.value("clustercache_clusters_without_series"), 0.0);

    test.add(&key("a")).await;
    let page = exporter.page();
    assert_eq!(of_a(&page, "clustercache_cluster_connected", ""), 0.0);
    assert_eq!(
        of_a(&page, "clustercache_cluster_phase", ",phase=\"connecting\""),
        1.0
    );
    assert_eq!(of_a(&page, "capi_cluster_cache_connection_up", ""), 0.0);
    // No health check has been made yet.
    assert_eq!(
        page.find(&of("capi_cluster_cache_healthcheck", "a", "")),
        None
    );
    assert_eq!(
        page.find(&of(
            "clustercache_cluster_last_success_timestamp_seconds",
            "a",
            ""
        )),
        None
    );

    test.connect(&key("a")).await;
    let page = exporter.page();
    assert_eq!(of_a(&page, "clustercache_cluster_connected", ""), 1.0);
    assert_eq!(
        page.find(&of(
            "clustercache_cluster_phase",
            "a",
            ",phase=\"connecting\""
        )),
        None
    );
    assert_eq!(of_a(&page, "capi_cluster_cache_connection_up", ""), 1.0);
    assert_eq!(of_a(&page, "capi_cluster_cache_healthcheck", ""), 1.0);
    assert!(
        of_a(
            &page,
            "clustercache_cluster_last_success_timestamp_seconds",
            ""
        ) > 1e9
    );

    let checks = |page: &Page, status: &str| {
        let status = format!(",status=\"{status}\"");
        page.value(&of("capi_cluster_cache_healthchecks_total", "a", &status))
    };
    assert_eq!(
        (checks(&page, "success"), checks(&page, "error")),
        (0.0, 0.0)
    );
    tokio::time::sleep(Duration::from_secs(11)).await;
    let page = exporter.page();
    assert_eq!(
        (checks(&page, "success"), checks(&page, "error")),
        (2.0, 0.0)
    );
    test.silence(&key("a"));
    let page = exporter.until(|page| checks(page, "error") >= 1.0).await;
    assert_eq!(of_a(&page, "capi_cluster_cache_healthcheck", ""), 0.0);
    assert_eq!(of_a(&page, "capi_cluster_cache_connection_up", ""), 1.0);
    assert_eq!(
        of_a(&page, "clustercache_cluster_consecutive_failures", ""),
        1.0
    );
    let up = of("capi_cluster_cache_connection_up", "a", "");
    let page = exporter.until(|page| same(page.value(&up), 0.0)).await;
    assert_eq!(of_a(&page, "capi_cluster_cache_healthcheck", ""), 0.0);
    assert_eq!(
        of_a(&page, "clustercache_cluster_phase", ",phase=\"down\""),
        1.0
    );

    test.remove(&key("a")).await;
    let page = exporter.page();
    assert_eq!(of_clusters(&page), Vec::<&str>::new());
    assert_eq!(page.series(), none.series());
}

#[tokio::test(start_paused = true)]
async fn the_names_of_cluster_api_come_alone_if_they_are_asked_for_alone() {
    let test = TestCache::builder().build();
    test.add(&key("a")).await;
    let page = Exporter::new(CacheMetrics::new(&test.cache()).cluster_api_names()).page();
    let all = of_clusters(&page);
    assert!(
        all.iter().all(|series| series.starts_with("capi_")),
        "{all:?}"
    );
    assert_eq!(page.value("clustercache_clusters_without_series"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn no_more_clusters_than_asked_for_have_series_and_the_rest_is_counted() {
    let test = TestCache::builder()
        .set_up(|builder| builder.filter(|upsert| !upsert.key.name().starts_with("a-other")))
        .build();
    let metrics = CacheMetrics::new(&test.cache());
    let exporter = Exporter::new(metrics.per_cluster().cluster_api_names().at_most(2));
    // What is not ours takes no place, and is not left out.
    for name in ["d", "c", "b", "a", "a-other"] {
        test.add(&key(name)).await;
    }
    let page = exporter.page();
    assert_eq!(page.value("clustercache_clusters_without_series"), 2.0);
    let up = &page.0["clustercache_cluster_connected"];
    let shown = ["a", "b"].map(|name| of("clustercache_cluster_connected", name, ""));
    assert!(up.samples.keys().eq(&shown), "{:?}", up.samples);
    assert_eq!(page.0["capi_cluster_cache_connection_up"].samples.len(), 2);
    test.remove(&key("a")).await;
    let page = exporter.page();
    assert_eq!(page.value("clustercache_clusters_without_series"), 1.0);
    assert_eq!(
        page.value(&of("clustercache_cluster_connected", "c", "")),
        0.0
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_from_a_document_breaks_no_page() {
    let test = TestCache::builder().build();
    let exporter = Exporter::new(
        CacheMetrics::new(&test.cache())
            .per_cluster()
            .cluster_api_names(),
    );
    let odd = [
        "line\nbreak",
        "line\\nbreak",
        "quote\"} 1\nclustercache_clusters 7",
        "\u{1b}[2J",
        "\u{202e}reversed",
        "ends\\",
        "",
    ];
    for name in odd {
        test.add(&key(name)).await;
    }
    // With or without an empty namespace it is one cluster.
    test.add(&ClusterKey::new("", "plain")).await;
    test.add(&ClusterKey::named("plain")).await;
    let long = key(&"x".repeat(70_000));
    test.add_as(Upsert::refused(long, "too long").with_uid("1"))
        .await;
    let written = exporter.text();
    let page = Page::parse(&written);
    // Each has its own, and nothing of a name stands on a line of its own.
    let connected = &page.0["clustercache_cluster_connected"].samples;
    assert_eq!(connected.len(), odd.len() + 1, "{connected:?}");
    assert_eq!(page.value("clustercache_clusters_without_series"), 1.0);
    let control = |letter: char| letter.is_control() && letter != '\n';
    assert!(!written.contains(control) && written.len() < 100_000);
}
