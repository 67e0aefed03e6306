//! What is wrong with the files of a kubeconfig source is on the page once it is asked for, and as long as it is so.
#![cfg(feature = "kubeconfig")]

mod support;

use std::{future::ready, time::Duration};

use clustercache::ClusterSource;
use clustercache_kubeconfig::{FileProblemReason, KubeconfigFile};
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::{cache::TestCache, fleet::FakeCluster};
use futures_util::StreamExt;
use support::{Exporter, same};

const NAME: &str = "clustercache_kubeconfig_problems";

fn series(reason: &str) -> String {
    format!("{NAME}{{source=\"fleet\",reason=\"{reason}\"}}")
}

#[tokio::test]
async fn a_kubeconfig_that_is_refused_as_a_whole_is_on_the_page_until_it_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let sound = FakeCluster::start("a").unwrap().kubeconfig();
    std::fs::write(&path, &sound).unwrap();
    let source = KubeconfigFile::at(&path)
        .named("fleet")
        .quiet_for(Duration::from_millis(20))
        .poll_every(Duration::from_millis(100));
    let mut events = source.events();
    // Only one that was sound once is followed for ever.
    events.next().await.unwrap().unwrap();
    let followed = tokio::spawn(events.for_each(|_| ready(())));
    let test = TestCache::builder().build();
    let metrics = CacheMetrics::new(&test.cache()).kubeconfig(source);
    let exporter = Exporter::new(metrics);
    let page = exporter.page();
    let reasons = FileProblemReason::labels();
    assert_eq!(page.0[NAME].samples.len(), reasons.len());
    assert!(
        reasons
            .iter()
            .all(|reason| same(page.value(&series(reason)), 0.0))
    );

    let too_large = " ".repeat(16 * 1024 * 1024 + 1);
    for (content, expected) in [
        (Some("clusters: &a []\nusers: *a\n"), "refused"),
        (Some(&*too_large), "too_large"),
        (Some("contexts: []\nclusters: []\n"), "cut_off"),
        (Some(""), "refused"),
        (None, "missing"),
        (Some(&*sound), "none"),
    ] {
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let is = |page: &support::Page| {
            reasons.iter().all(|reason| {
                let value = if *reason == expected { 1.0 } else { 0.0 };
                same(page.value(&series(reason)), value)
            })
        };
        exporter.until(is).await;
    }
    followed.abort();
}

#[tokio::test(start_paused = true)]
async fn each_source_has_series_of_its_own() {
    let test = TestCache::builder().build();
    let metrics = ["one", "two", "two"]
        .into_iter()
        .fold(CacheMetrics::new(&test.cache()), |metrics, name| {
            metrics.kubeconfig(KubeconfigFile::at("/nowhere").named(name))
        });
    let page = Exporter::new(metrics).page();
    let each = FileProblemReason::labels().len();
    assert_eq!(page.0[NAME].samples.len(), 2 * each);
}
