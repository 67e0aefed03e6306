//! Requests of clients are on the page once they are asked for: every series from the beginning.
#![cfg(feature = "client")]

mod support;

use std::time::Duration;

use clustercache::{ClusterAccess, ClusterCache, ClusterKey, MemorySource, Upsert};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::{cache::TestCache, fleet::FakeCluster, guard::PanicGuard};
use http::Request;
use support::{Exporter, same};

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

#[tokio::test]
async fn what_became_of_requests_is_on_the_page_by_class_and_result() {
    let cluster = FakeCluster::start("asked").unwrap();
    let (source, provider) = (MemorySource::new("fleet"), KubeClient::new());
    let counts = provider.request_counts();
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(provider)
        .health_from::<KubeClient>()
        .start()
        .unwrap();
    let _guard = PanicGuard::new(&cache);
    let exporter = Exporter::new(CacheMetrics::new(&cache).requests(counts));
    let access = ClusterAccess::builder(cluster.url())
        .ca_pem(cluster.ca_pem())
        .token(cluster.token());
    let key = ClusterKey::named("asked");
    source.upsert(Upsert::ready(key.clone(), access.build().unwrap()));
    cache.wait_for(&key, Duration::from_secs(30)).await.unwrap();
    let client = cache.client(&key).unwrap();

    client.apiserver_version().await.unwrap();
    cluster.forbid("/api/v1/nodes");
    let list = Request::get("/api/v1/nodes").body(vec![]).unwrap();
    client.request_text(list).await.unwrap_err();
    let page = exporter.page();
    let moved = page.0["clustercache_client_requests_total"].samples.iter();
    let moved: Vec<_> = moved.filter(|(_, value)| !same(**value, 0.0)).collect();
    let series = |class, result| {
        format!("clustercache_client_requests_total{{class=\"{class}\",result=\"{result}\"}}")
    };
    assert_eq!(
        moved,
        [
            (&series("call", "success"), &1.0),
            (&series("list", "http_4xx"), &1.0)
        ]
    );
    cache.shutdown().await.unwrap();
}
