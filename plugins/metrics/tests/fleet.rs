//! Each metric of the fleet moves when its event happens.
#![allow(clippy::float_cmp)] // what is compared are counts

mod support;

use std::time::{Duration, UNIX_EPOCH};

use clustercache::{ClusterAccess, ClusterKey, Upsert};
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::cache::{TestCache, TestCacheBuilder};
use futures_util::{FutureExt, StreamExt};
use support::{Act, Exporter, Odd, same};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(name: &str) -> ClusterKey {
    ClusterKey::new("fleet", name)
}

fn exporter(test: &TestCache) -> Exporter {
    Exporter::new(CacheMetrics::new(&test.cache()))
}

fn with(odd: &Odd) -> TestCacheBuilder {
    let odd = odd.clone();
    TestCache::builder().set_up(|builder| builder.resource(odd))
}

/// With a token of its own, that ends so long after the epoch.
fn cluster(name: &str, token: &str, ends: Option<u64>) -> Upsert {
    let access = ClusterAccess::builder("https://cluster.invalid:6443").token(token.to_owned());
    let access = match ends {
        Some(seconds) => access.expires(UNIX_EPOCH + secs(seconds)),
        None => access,
    };
    Upsert::ready(key(name), access.build().unwrap()).with_uid(name)
}

#[tokio::test(start_paused = true)]
async fn clusters_are_counted_by_what_they_are_and_by_what_fails() {
    let odd = Odd::default();
    let test = TestCache::builder()
        .set_up({
            let odd = odd.clone();
            |builder| {
                let builder = builder.resource(odd);
                builder.filter(|upsert| upsert.key.name() != "other")
            }
        })
        .build();
    let exporter = exporter(&test);
    assert_eq!(exporter.page().value("clustercache_engine_running"), 1.0);
    for name in ["a", "b", "c", "other"] {
        test.add(&key(name)).await;
    }
    test.connect(&key("a")).await;
    test.connect(&key("b")).await;
    test.disconnect(&key("b")).await;
    test.gate(&key("gated"), "no control plane yet").await;
    test.refuse(&key("refused"), "exec is not allowed").await;
    test.refuse(&key("a"), "exec is not allowed").await;
    let phase = |phase: &str| {
        exporter
            .page()
            .value(&format!("clustercache_clusters{{phase=\"{phase}\"}}"))
    };
    for (name, clusters) in [
        ("connected", 1.0),
        ("connecting", 1.0),
        ("down", 1.0),
        ("gated", 1.0),
        ("refused", 1.0),
        ("not_owned", 1.0),
        ("degraded", 0.0),
    ] {
        assert_eq!(phase(name), clusters, "{name}");
    }
    let page = exporter.page();
    assert_eq!(page.value("clustercache_refused_clusters"), 2.0);
    assert_eq!(
        page.value("clustercache_failing_clusters{reason=\"other\"}"),
        1.0
    );
    assert_eq!(page.value("clustercache_connects_total"), 2.0);
    assert_eq!(page.value("clustercache_suspect_clusters"), 0.0);
    // Probes time out, and it is suspect before it is down.
    test.silence(&key("a"));
    let page = exporter
        .until(|page| same(page.value("clustercache_suspect_clusters"), 1.0))
        .await;
    assert_eq!(
        page.value("clustercache_failing_clusters{reason=\"timed_out\"}"),
        1.0
    );
    assert!(page.value("clustercache_probes_total{result=\"timed_out\"}") >= 1.0);

    test.cache().shutdown().await.unwrap();
    let page = exporter.page();
    assert_eq!(page.value("clustercache_engine_running"), 0.0);
    assert_eq!(page.value("clustercache_clusters{phase=\"down\"}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn the_nearest_end_of_a_credential_is_there_while_one_has_an_end() {
    let test = TestCache::builder().build();
    let exporter = exporter(&test);
    let nearest = || {
        let name = "clustercache_nearest_credential_expiry_timestamp_seconds";
        exporter.page().find(name)
    };
    test.add_as(cluster("a", "t", None)).await;
    assert_eq!(nearest(), None);
    test.add_as(cluster("b", "t", Some(2_000_000_000))).await;
    test.add_as(cluster("c", "t", Some(3_000_000_000))).await;
    assert_eq!(nearest(), Some(2_000_000_000.0));
    test.remove(&key("b")).await;
    assert_eq!(nearest(), Some(3_000_000_000.0));
    test.remove(&key("c")).await;
    assert_eq!(nearest(), None);
}

#[tokio::test(start_paused = true)]
async fn hooks_are_timed_by_provider_and_result() {
    let odd = Odd::default();
    let test = with(&odd).build();
    let exporter = exporter(&test);
    let count = |hook: &str, result: &str| {
        let name = format!(
            "clustercache_{hook}_duration_seconds_count{{resource=\"odd\",result=\"{result}\"}}"
        );
        exporter.page().value(&name)
    };
    odd.acts(Act::Fails("no"));
    test.add(&key("a")).await;
    exporter.until(|_| count("init", "error") >= 2.0).await;
    assert_eq!(count("init", "success"), 0.0);
    odd.acts(Act::Works);
    test.connect(&key("a")).await;
    assert_eq!(count("init", "success"), 1.0);
    assert_eq!(count("teardown", "success"), 0.0);
    test.remove(&key("a")).await;
    exporter
        .until(|_| same(count("teardown", "success"), 1.0))
        .await;
    assert_eq!(count("teardown", "error"), 0.0);

    odd.acts(Act::EndsNever);
    test.connect(&key("b")).await;
    test.remove(&key("b")).await;
    exporter
        .until(|_| same(count("teardown", "error"), 1.0))
        .await;
    let page = exporter.page();
    assert_eq!(
        page.value("clustercache_abandoned_total{resource=\"odd\"}"),
        1.0
    );
    assert_eq!(
        page.value("clustercache_abandoned_total{resource=\"test-link\"}"),
        0.0
    );
    // It took as long as a teardown may.
    let bucket = |most: &str| {
        page.value(&format!(
            "clustercache_teardown_duration_seconds_bucket{{resource=\"odd\",result=\"error\",le=\"{most}\"}}"
        ))
    };
    assert_eq!(
        (bucket("2.5"), bucket("10"), bucket("+Inf")),
        (0.0, 1.0, 1.0)
    );
}

#[tokio::test(start_paused = true)]
async fn panics_and_rebuilds_are_counted_by_name_from_zero() {
    let odd = Odd::default();
    let test = with(&odd).build();
    let exporter = exporter(&test);
    let page = exporter.page();
    for series in [
        "clustercache_panics_total{origin=\"odd\"}",
        "clustercache_slow_polls_total{origin=\"odd\"}",
        "clustercache_rebuilds_total{resource=\"odd\"}",
    ] {
        assert_eq!(page.value(series), 0.0, "{series}");
    }
    test.expect_panic("odd");
    odd.acts(Act::Panics);
    test.add_as(cluster("a", "old", None)).await;
    let panics = "clustercache_panics_total{origin=\"odd\"}";
    exporter.until(|page| page.value(panics) >= 2.0).await;
    odd.acts(Act::Rebuilds);
    test.connect(&key("a")).await;
    test.add_as(cluster("a", "new", None)).await;
    let rebuilds = "clustercache_rebuilds_total{resource=\"odd\"}";
    exporter.until(|page| same(page.value(rebuilds), 1.0)).await;
}

/// In real time: what blocks a thread cannot be simulated.
#[tokio::test]
async fn a_hook_that_blocks_its_thread_is_counted_by_name() {
    let odd = Odd::default();
    let test = with(&odd).build();
    odd.acts(Act::Blocks);
    test.connect(&key("a")).await;
    let page = exporter(&test).page();
    assert!(page.value("clustercache_slow_polls_total{origin=\"odd\"}") >= 1.0);
    assert_eq!(page.value("clustercache_panics_total{origin=\"odd\"}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn dials_are_counted_by_stage_and_their_waits_are_timed() {
    let odd = Odd::default();
    let test = with(&odd)
        .set_up(|builder| builder.configure(|options| options.dial.silent = 1))
        .build();
    let exporter = exporter(&test);
    odd.acts(Act::Dials(secs(3)));
    test.add(&key("a")).await;
    test.add(&key("b")).await;
    let stage = |page: &support::Page, stage: &str| {
        page.value(&format!("clustercache_dials{{stage=\"{stage}\"}}"))
    };
    let page = exporter
        .until(|page| same(stage(page, "waiting"), 1.0) && same(stage(page, "silent"), 1.0))
        .await;
    assert_eq!(stage(&page, "handshake"), 0.0);
    assert_eq!(page.value("clustercache_dial_wait_seconds_count"), 1.0);
    test.connect(&key("a")).await;
    test.connect(&key("b")).await;
    let page = exporter.page();
    assert_eq!(page.value("clustercache_dial_wait_seconds_count"), 2.0);
    let waited = page.value("clustercache_dial_wait_seconds_sum");
    assert!((2.9..3.1).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn the_brake_and_what_it_holds_are_seen() {
    let test = TestCache::builder().build();
    let exporter = exporter(&test);
    let names: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
    for name in &names {
        test.connect(&key(name)).await;
    }
    tokio::time::sleep(secs(61)).await;
    assert_eq!(
        exporter
            .page()
            .value("clustercache_brake_engagements_total"),
        0.0
    );
    for name in &names[..8] {
        test.silence(&key(name));
    }
    let page = exporter
        .until(|page| same(page.value("clustercache_held_clusters"), 8.0))
        .await;
    assert_eq!(page.value("clustercache_brake_engagements_total"), 1.0);
    assert_eq!(
        page.value("clustercache_clusters{phase=\"connected\"}"),
        10.0
    );
    assert_eq!(page.value("clustercache_suspect_clusters"), 8.0);
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_process_did_not_run_is_counted() {
    let test = TestCache::builder().build();
    let exporter = exporter(&test);
    test.connect(&key("a")).await;
    tokio::time::advance(secs(30)).await;
    let stalls = "clustercache_stalls_total";
    exporter.until(|page| same(page.value(stalls), 1.0)).await;
}

#[tokio::test(start_paused = true)]
async fn subscribers_that_are_behind_are_seen() {
    let test = TestCache::builder()
        .set_up(|builder| builder.configure(|options| options.events.pending = 2))
        .build();
    let (exporter, cache) = (exporter(&test), test.cache());
    test.add(&key("a")).await;
    let mut slow = cache.subscribe();
    slow.next().await;
    test.add(&key("b")).await;
    let page = exporter.page();
    assert_eq!(page.value("clustercache_subscribers"), 1.0);
    assert_eq!(page.value("clustercache_subscriber_unread_clusters"), 1.0);
    assert_eq!(page.value("clustercache_behind_subscribers"), 0.0);
    test.add(&key("c")).await;
    test.add(&key("d")).await;
    let page = exporter.page();
    assert_eq!(page.value("clustercache_behind_subscribers"), 1.0);
    assert_eq!(page.value("clustercache_subscriber_resyncs_total"), 1.0);
    while slow.next().now_or_never().is_some() {}
    let page = exporter.page();
    assert_eq!(page.value("clustercache_behind_subscribers"), 0.0);
    assert_eq!(page.value("clustercache_subscriber_resyncs_total"), 1.0);
}
