//! kube-rs' `watcher`, in both of its ways to begin, through whatever can happen to it.

use std::{collections::BTreeMap, time::Duration};

use clustercache_testkit::api::{FakeApi, Fault, Verb};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};

use crate::{client, config, soon};

type Content = BTreeMap<String, String>;

/// What a store would hold, and how often it was filled anew.
#[derive(Default)]
struct Store {
    now: Content,
    coming: Content,
    filled: usize,
}

impl Store {
    fn apply(&mut self, event: Event<ConfigMap>) {
        let entry = |config: ConfigMap| {
            let value = config.data.unwrap_or_default().remove("value");
            (
                config.metadata.name.unwrap_or_default(),
                value.unwrap_or_default(),
            )
        };
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(config) => {
                let (name, value) = entry(config);
                self.coming.insert(name, value);
            }
            Event::InitDone => {
                self.now = std::mem::take(&mut self.coming);
                self.filled += 1;
            }
            Event::Apply(config) => {
                let (name, value) = entry(config);
                self.now.insert(name, value);
            }
            Event::Delete(config) => {
                self.now.remove(&entry(config).0);
            }
        }
    }

    /// Follows the watcher until the store is as wanted.
    async fn until(
        &mut self,
        events: &mut (impl Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin),
        wanted: impl Fn(&Self) -> bool,
    ) {
        soon(async {
            while !wanted(self) {
                // An error is what a fault does; the watcher goes on.
                if let Ok(event) = events.next().await.expect("a watcher never ends") {
                    self.apply(event);
                }
            }
        })
        .await;
    }
}

fn content(pairs: &[(&str, &str)]) -> Content {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn ways() -> [watcher::Config; 2] {
    [
        watcher::Config::default().page_size(2),
        watcher::Config::default().streaming_lists(),
    ]
}

#[tokio::test]
async fn a_store_is_filled_once_and_follows_every_change() {
    for config_ in ways() {
        let api = FakeApi::new();
        for name in ["a", "b", "c", "d", "e"] {
            api.put(config(name, "1")).unwrap();
        }
        let mut events = Box::pin(watcher(Api::<ConfigMap>::all(client(&api)), config_));
        let mut store = Store::default();
        store.until(&mut events, |store| store.filled == 1).await;
        assert_eq!(store.now.len(), 5);
        api.put(config("a", "2")).unwrap();
        api.delete("v1", "ConfigMap", "default", "b");
        api.put(config("f", "1")).unwrap();
        let wanted = content(&[("a", "2"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1")]);
        store.until(&mut events, |store| store.now == wanted).await;
        assert_eq!(store.filled, 1);
    }
}

#[tokio::test]
async fn a_watch_that_ends_or_breaks_is_resumed_and_one_that_is_too_late_is_filled_anew() {
    for config_ in ways() {
        let api = FakeApi::new();
        api.put(config("a", "1")).unwrap();
        let events = watcher(Api::<ConfigMap>::all(client(&api)), config_);
        let mut events = Box::pin(events.backoff(NoWait));
        let mut store = Store::default();
        store.until(&mut events, |store| store.filled == 1).await;

        api.put(config("a", "2")).unwrap();
        store
            .until(&mut events, |store| store.now == content(&[("a", "2")]))
            .await;
        api.end_watches();
        api.put(config("a", "3")).unwrap();
        store
            .until(&mut events, |store| store.now == content(&[("a", "3")]))
            .await;
        let cut = api.inject(Fault::watch_cut_after_events(0));
        api.put(config("a", "4")).unwrap();
        let watches = api.history().verb(Verb::Watch).count();
        soon(async {
            while api.history().verb(Verb::Watch).count() < watches + 3 {
                let _ = events.next().await;
            }
        })
        .await;
        api.undo(cut);
        store
            .until(&mut events, |store| store.now == content(&[("a", "4")]))
            .await;
        assert_eq!(store.filled, 1, "it was resumed each time");

        let expired = api.inject(Fault::watch_expired());
        // The watch that is open ends with it; a list by watch would, too.
        while soon(events.next())
            .await
            .expect("a watcher never ends")
            .is_ok()
        {}
        api.undo(expired);
        store.until(&mut events, |store| store.filled > 1).await;
        api.put(config("a", "5")).unwrap();
        store
            .until(&mut events, |store| store.now == content(&[("a", "5")]))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_a_pod_vanish_at_its_time() {
    use k8s_openapi::api::core::v1::Pod;
    let api = FakeApi::new();
    api.put(crate::pod("a", "n")).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client(&api));
    let mut events = Box::pin(watcher(pods.clone(), watcher::Config::default()));
    loop {
        if matches!(events.next().await.unwrap().unwrap(), Event::InitDone) {
            break;
        }
    }
    pods.delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let begun = tokio::time::Instant::now();
    // Marked, then, when its containers are gone, told to go at once.
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        Event::Apply(_)
    ));
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        Event::Apply(_)
    ));
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        Event::Delete(_)
    ));
    // Simulated time, in which nothing else passes. Timestamps are whole seconds.
    assert!(
        (29..=30).contains(&begun.elapsed().as_secs()),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_stalled_watch_says_nothing_and_loses_nothing() {
    let api = FakeApi::new();
    let mut events = Box::pin(watcher(
        Api::<ConfigMap>::all(client(&api)),
        watcher::Config::default(),
    ));
    let mut store = Store::default();
    store.until(&mut events, |store| store.filled == 1).await;
    // The watch itself is open.
    api.put(config("a", "0")).unwrap();
    store
        .until(&mut events, |store| store.now == content(&[("a", "0")]))
        .await;
    let stalled = api.inject(Fault::watch_stalled().resource("configmaps"));
    api.put(config("a", "1")).unwrap();
    api.put(config("b", "1")).unwrap();
    for _ in 0..100 {
        assert!(futures_util::poll!(events.next()).is_pending());
        tokio::task::yield_now().await;
    }
    api.undo(stalled);
    store
        .until(&mut events, |store| {
            store.now == content(&[("a", "1"), ("b", "1")])
        })
        .await;
    assert_eq!(store.filled, 1);
}

#[derive(Clone)]
struct NoWait;

impl Iterator for NoWait {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl kube::runtime::utils::Backoff for NoWait {
    fn reset(&mut self) {}
}
