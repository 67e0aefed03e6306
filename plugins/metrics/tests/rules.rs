//! What must hold for the whole page, whatever happens.
#![allow(clippy::float_cmp)] // what is compared are counts

mod support;

use std::collections::BTreeSet;

use clustercache::{ClusterAccess, ClusterKey, Upsert};
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::cache::TestCache;
use support::{Act, Exporter, Odd, Page};

/// Everything that can be on a page.
fn everything(test: &TestCache) -> Exporter {
    let metrics = CacheMetrics::new(&test.cache());
    Exporter::new(metrics.per_cluster().cluster_api_names())
}

fn key(number: usize) -> ClusterKey {
    ClusterKey::new("fleet", &format!("c{number}"))
}

fn cluster(number: usize, token: &str) -> Upsert {
    let access = ClusterAccess::builder("https://cluster.invalid:6443")
        .token(token.to_owned())
        .expires(std::time::UNIX_EPOCH);
    Upsert::ready(key(number), access.build().unwrap()).with_uid(number.to_string())
}

/// The labels of a series, by name.
fn labels(series: &str) -> BTreeSet<&str> {
    let inside = series.split_once('{').map_or("", |(_, labels)| labels);
    let pairs = inside.trim_end_matches('}').split(',');
    let names = pairs.filter_map(|pair| Some(pair.split_once('=')?.0));
    names.filter(|name| *name != "le").collect()
}

/// What `promtool check metrics` asks for.
#[tokio::test(start_paused = true)]
async fn names_are_as_prometheus_wants_them() {
    let odd = Odd::default();
    odd.acts(Act::Ages(7));
    let set_up = |builder: clustercache::Builder| builder.resource(odd);
    let test = TestCache::builder().set_up(set_up).build();
    test.add_as(cluster(1, "t")).await;
    test.connect(&key(1)).await;
    let page = everything(&test).page();
    assert_eq!(page.0.len(), 37, "each family, none left empty");
    for (name, family) in &page.0 {
        let ours = ["clustercache_", "capi_cluster_cache_"];
        assert!(ours.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        let plain = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        assert!(name.chars().all(plain) && !name.contains("__"), "{name}");
        assert!(
            family.help.len() > 10 && family.help.ends_with('.'),
            "{name}"
        );
        let counts = family.kind == "counter";
        assert_eq!(counts, name.ends_with("_total"), "{name}");
        for part in ["_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(part), "{name}");
        }
        let units = [
            "milliseconds",
            "_ms",
            "minutes",
            "percent",
            "gauge",
            "counter",
            "histogram",
        ];
        assert!(units.iter().all(|unit| !name.contains(unit)), "{name}");
        let times = family.kind == "histogram" || name.contains("timestamp");
        assert_eq!(times, name.ends_with("_seconds"), "{name}");
        let sets: BTreeSet<_> = family.samples.keys().map(|series| labels(series)).collect();
        assert_eq!(sets.len(), 1, "{name} is there with other labels: {sets:?}");
    }
}

/// Rule 8.
#[tokio::test(start_paused = true)]
async fn after_10_000_adds_and_removes_there_are_as_many_series_as_before() {
    let test = TestCache::builder().build();
    let exporter = everything(&test);
    let before = exporter.page();
    for number in 0..10_000 {
        test.add(&key(number)).await;
        if number % 100 == 0 {
            test.connect(&key(number)).await;
            assert!(exporter.page().series() > before.series());
        }
        test.remove(&key(number)).await;
    }
    let after = exporter.page();
    assert_eq!(after.series(), before.series());
    let names = |page: &Page| -> BTreeSet<String> {
        let families = page.0.values();
        families
            .flat_map(|family| family.samples.keys().cloned())
            .collect()
    };
    assert_eq!(names(&after), names(&before));
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_on_the_page_whatever_has_it_in_it() {
    const CANARY: &str = "canary-5up3r-53cr3t";
    let odd = Odd::default();
    let test = TestCache::builder()
        .set_up({
            let odd = odd.clone();
            |builder| builder.resource(odd)
        })
        .build();
    let exporter = everything(&test);
    odd.acts(Act::Fails(CANARY));
    let labels = [("team".to_owned(), CANARY.to_owned())];
    test.add_as(cluster(1, CANARY).with_labels(labels).with_uid(CANARY))
        .await;
    let failing = "clustercache_failing_clusters{reason=\"other\"}";
    exporter.until(|page| page.value(failing) > 0.0).await;
    test.gate(&key(2), CANARY).await;
    test.refuse(&key(3), CANARY).await;
    let error = test.cache().state(&key(1)).unwrap().last_error.unwrap();
    assert!(
        error.message.contains(CANARY),
        "the error has it, so it could be on the page"
    );
    // Also in base64, however it is shifted.
    let shifted = ["Y2FuYXJ5LTV1cDNy", "NhbmFyeS01dXAzci", "jYW5hcnktNXVwM3I"];
    for hidden in [CANARY, "5up3r"].into_iter().chain(shifted) {
        assert!(!exporter.text().contains(hidden), "{hidden}");
    }
}
