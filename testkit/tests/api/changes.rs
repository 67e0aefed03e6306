//! Many changes, many watches.

use std::collections::BTreeMap;

use clustercache_testkit::api::FakeApi;
use serde_json::{Value, json};

use crate::rig::{Events, ask, config, get, send, watch};

type Content = BTreeMap<String, Value>;

fn content(list: &Value) -> Content {
    let entry = |item: &Value| {
        (
            item["metadata"]["name"].as_str().unwrap().to_owned(),
            item["metadata"].clone(),
        )
    };
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect()
}

/// A client that keeps what a selector selects, by nothing but a list and a watch.
struct Mirror {
    query: &'static str,
    content: Content,
    version: u64,
    events: Events,
}

impl Mirror {
    async fn new(api: &FakeApi, query: &'static str) -> Self {
        let (_, list) = get(api, &format!("/api/v1/configmaps?{query}")).await;
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        Self {
            query,
            content: content(&list),
            version,
            events: watch(
                api,
                &format!("{query}&allowWatchBookmarks=true&resourceVersion={version}"),
            )
            .await,
        }
    }

    /// Follows until the version; each event must be of a later one, and be what it says.
    async fn follow(&mut self, until: u64) {
        while self.version < until {
            let event = self
                .events
                .try_next()
                .await
                .unwrap()
                .expect("the watch ended");
            let metadata = &event["object"]["metadata"];
            let version = metadata["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            match event["type"].as_str().unwrap() {
                "BOOKMARK" => assert!(version >= self.version),
                kind => {
                    assert!(
                        version > self.version,
                        "{kind} of {name} at {version} after {}",
                        self.version
                    );
                    let before = match kind {
                        "DELETED" => self.content.remove(&name),
                        _ => self.content.insert(name.clone(), metadata.clone()),
                    };
                    assert_eq!(
                        before.is_some(),
                        kind != "ADDED",
                        "{}: {kind} of {name}",
                        self.query
                    );
                }
            }
            self.version = version;
        }
    }

    /// Comes back with the version that it has, as after a break.
    async fn resume(&mut self, api: &FakeApi) {
        let query = format!(
            "{}&allowWatchBookmarks=true&resourceVersion={}",
            self.query, self.version
        );
        self.events = watch(api, &query).await;
    }
}

#[tokio::test]
async fn whatever_happens_what_a_watch_tells_is_what_a_list_shows() {
    const QUERIES: [&str; 5] = [
        "",
        "labelSelector=app%3Dx",
        "labelSelector=app+notin+(x)",
        "fieldSelector=metadata.name%3Dc3",
        "labelSelector=gone",
    ];
    let api = FakeApi::builder().seed(1).build();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut mirrors = Vec::new();
    for query in QUERIES {
        mirrors.push(Mirror::new(&api, query).await);
    }
    for round in 0..200 {
        for _ in 0..rng.usize(1..8) {
            let name = format!("c{}", rng.u8(..10));
            let path = format!("/api/v1/namespaces/default/configmaps/{name}");
            let app = *rng.choice(&["x", "y", "z"]).unwrap();
            match rng.u8(..4) {
                0 => drop(send(&api, "DELETE", &path, &Value::Null).await),
                1 => {
                    let (_, mut now) = get(&api, &path).await;
                    if now["kind"] == "ConfigMap" {
                        now["metadata"]["labels"]["app"] = app.into();
                        assert_eq!(send(&api, "PUT", &path, &now).await.0, 200);
                    }
                }
                2 => drop(
                    api.put(
                        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }),
                    )
                    .unwrap(),
                ),
                _ => drop(api.put(config(&name, app)).unwrap()),
            }
        }
        for mirror in &mut mirrors {
            if rng.u8(..10) == 0 {
                mirror.resume(&api).await;
            }
        }
        // Who sees nothing is told the version all the same.
        api.send_bookmarks();
        let version = api.version();
        for mirror in &mut mirrors {
            mirror.follow(version).await;
            let (_, list) = get(&api, &format!("/api/v1/configmaps?{}", mirror.query)).await;
            assert_eq!(
                mirror.content,
                content(&list),
                "{} in round {round}",
                mirror.query
            );
            // So it does at that version for whoever asks later.
            let exact = format!(
                "{}&resourceVersion={version}&resourceVersionMatch=Exact",
                mirror.query
            );
            let (_, list) = get(&api, &format!("/api/v1/configmaps?{exact}")).await;
            assert_eq!(mirror.content, content(&list));
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_show_what_there_was_when_the_first_was_asked_for() {
    let api = FakeApi::builder().seed(2).build();
    let mut rng = fastrand::Rng::with_seed(2);
    for round in 0..50 {
        for _ in 0..rng.usize(..20) {
            api.put(config(&format!("c{}", rng.u8(..30)), "x")).unwrap();
        }
        let (_, whole) = get(&api, "/api/v1/configmaps").await;
        let limit = rng.usize(1..7);
        let mut path = format!("/api/v1/configmaps?limit={limit}");
        let mut all = Content::new();
        loop {
            let (code, page) = get(&api, &path).await;
            assert_eq!(
                (code, &page["metadata"]["resourceVersion"]),
                (200, &whole["metadata"]["resourceVersion"])
            );
            let found = content(&page);
            let left = page["metadata"]["remainingItemCount"]
                .as_u64()
                .unwrap_or_default();
            all.extend(found);
            assert_eq!(
                all.len() as u64 + left,
                content(&whole).len() as u64,
                "round {round}"
            );
            let Some(token) = page["metadata"]["continue"].as_str() else {
                break;
            };
            path = format!("/api/v1/configmaps?limit={limit}&continue={token}");
            let name = format!("c{}", rng.u8(..30));
            api.delete("v1", "ConfigMap", "default", &name);
        }
        assert_eq!(all, content(&whole));
    }
}

#[tokio::test]
async fn a_watch_that_does_not_keep_up_is_ended_and_told_so_when_it_comes_back() {
    let api = FakeApi::builder().history(4).build();
    let version = api.version();
    let mut slow = watch(&api, &format!("resourceVersion={version}")).await;
    for number in 0..10 {
        api.put(config(&format!("c{number}"), "x")).unwrap();
    }
    assert_eq!(slow.try_next().await.unwrap(), None);
    let mut back = watch(&api, &format!("resourceVersion={version}")).await;
    let event = back.try_next().await.unwrap().unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["reason"]),
        (&"ERROR".into(), &"Expired".into())
    );
    let response = ask(&api, "GET", "/api/v1/configmaps", &Value::Null).await;
    assert_eq!(response.status(), 200);
}
