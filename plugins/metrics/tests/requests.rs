//! Requests of clients are on the page once they are asked for: every series from the beginning.
#![cfg(feature = "client")]

mod support;

use clustercache_client::KubeClient;
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::cache::TestCache;
use support::Exporter;

#[tokio::test(start_paused = true)]
async fn requests_are_on_the_page_when_they_are_asked_for() {
    let test = TestCache::builder().build();
    let without = Exporter::new(CacheMetrics::new(&test.cache())).page();
    let name = "clustercache_client_requests_total";
    assert!(!without.0.contains_key(name));
    let counts = KubeClient::new().request_counts();
    let with = Exporter::new(CacheMetrics::new(&test.cache()).requests(counts.clone())).page();
    assert_eq!(with.0[name].samples.len(), counts.iter().count());
    for ([class, result], _) in counts.iter() {
        let series = format!("{name}{{class=\"{class}\",result=\"{result}\"}}");
        assert!(with.find(&series).is_some(), "{series}");
    }
    let retries = with.find("clustercache_client_retries_total");
    assert_eq!(retries, Some(0.0));
}
