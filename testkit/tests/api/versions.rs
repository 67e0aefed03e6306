//! Versions: too old in all its forms, too new, gone back; pages; bookmarks; initial events.

use std::time::Duration;

use clustercache_testkit::api::{FakeApi, Fault, Verb};
use serde_json::Value;

use crate::rig::{config, get, names, soon, watch};

const CONFIGS: &str = "/api/v1/configmaps";

async fn is_expired(api: &FakeApi, version: u64) -> bool {
    let mut events = watch(api, &format!("resourceVersion={version}")).await;
    if events.is_silent().await {
        return false;
    }
    let event = events.try_next().await.unwrap().unwrap_or_default();
    let expired = event["type"] == "ERROR" && event["object"]["code"] == 410;
    assert!(
        !expired || events.try_next().await.unwrap().is_none(),
        "an error is the end"
    );
    expired
}

#[tokio::test]
async fn a_version_is_too_old_once_it_is_compacted_and_not_before() {
    let api = FakeApi::new();
    let before = api.version();
    let last = api.put(config("a", "x")).unwrap();
    assert!(!is_expired(&api, before).await);
    api.compact();
    assert!(is_expired(&api, before).await);
    api.put(config("b", "x")).unwrap();
    assert!(
        !is_expired(&api, last).await,
        "the newest version at the compaction is kept"
    );
    let exact = format!("{CONFIGS}?resourceVersionMatch=Exact&resourceVersion={before}");
    let (code, status) = get(&api, &exact).await;
    assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
}

#[tokio::test]
async fn a_page_that_is_too_late_offers_the_rest_as_it_is_now() {
    let api = FakeApi::new();
    for name in ["a", "b", "c", "d"] {
        api.put(config(name, "x")).unwrap();
    }
    let (_, first) = get(&api, &format!("{CONFIGS}?limit=2")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    api.delete("v1", "ConfigMap", "default", "c");
    api.put(config("e", "x")).unwrap();
    let next = format!("{CONFIGS}?limit=10&continue={token}");
    assert_eq!(names(&get(&api, &next).await.1), ["c", "d"]);
    api.compact();
    let (code, expired) = get(&api, &next).await;
    assert_eq!((code, &expired["reason"]), (410, &"Expired".into()));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = get(&api, &format!("{CONFIGS}?limit=10&continue={token}")).await;
    assert_eq!((code, names(&rest)), (200, vec!["d", "e"]));
    assert_eq!(
        rest["metadata"]["resourceVersion"],
        api.version().to_string()
    );
}

#[tokio::test]
async fn too_old_can_also_be_an_http_status() {
    let api = FakeApi::new();
    let gone = api.inject(Fault::gone().verb(Verb::Watch));
    let (code, status) = get(&api, &format!("{CONFIGS}?watch=true&resourceVersion=1")).await;
    assert_eq!((code, &status["code"]), (410, &410.into()));
    api.undo(gone);
    assert!(!is_expired(&api, api.version() - 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_a_version_that_comes_and_gives_up_on_one_that_does_not() {
    let api = FakeApi::new();
    let next = format!("{CONFIGS}?resourceVersion={}", api.version() + 1);
    let mut waiting = Box::pin(get(&api, &next));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    api.put(config("a", "x")).unwrap();
    assert_eq!(names(&soon(waiting).await.1), ["a"]);
    let far = format!("{CONFIGS}?resourceVersion={}", api.version() + 10);
    let (code, status) = get(&api, &far).await;
    assert_eq!((code, &status["reason"]), (504, &"Timeout".into()));
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test]
async fn versions_go_back_with_a_restored_backup_and_forth_with_a_later_one() {
    let api = FakeApi::new();
    api.put(config("a", "x")).unwrap();
    let backup = api.snapshot();
    api.put(config("b", "x")).unwrap();
    let later = api.snapshot();
    let newest = api.version();
    let mut open = watch(&api, &format!("resourceVersion={newest}")).await;

    api.restore(&backup);
    assert_eq!(
        open.try_next().await.unwrap(),
        None,
        "the server was restarted"
    );
    assert_eq!(api.version(), backup.version());
    assert_eq!(names(&get(&api, CONFIGS).await.1), ["a"]);
    // From the future: what happens under the versions that are given out again is not seen.
    let mut blind = watch(&api, &format!("resourceVersion={newest}")).await;
    while api.version() < newest {
        api.put(config("c", "x")).unwrap();
    }
    assert!(blind.is_silent().await);
    api.put(config("d", "x")).unwrap();
    blind.expect("ADDED", "d").await;

    api.restore(&later);
    assert_eq!(names(&get(&api, CONFIGS).await.1), ["a", "b"]);
    assert_eq!(api.version(), newest);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_and_what_changes_meanwhile_follows() {
    let api = FakeApi::new();
    for name in ["a", "b"] {
        api.put(config(name, "x")).unwrap();
    }
    let query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&labelSelector=app%3Dx";
    let mut events = watch(&api, query).await;
    let version = api.version();
    api.put(config("a", "y")).unwrap();
    events.expect("ADDED", "a").await;
    events.expect("ADDED", "b").await;
    let bookmark = events.try_next().await.unwrap().unwrap();
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(metadata["resourceVersion"], version.to_string());
    let gone = events.try_next().await.unwrap().unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["metadata"]["labels"]["app"]),
        (&"DELETED".into(), &"x".into())
    );
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"],
        api.version().to_string()
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_told_the_newest_version_once_a_minute_and_before_its_end() {
    let api = FakeApi::new();
    let mut events = watch(
        &api,
        "resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=90",
    )
    .await;
    let begun = tokio::time::Instant::now();
    let mut told = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(
            event["object"]["metadata"]["resourceVersion"],
            api.version().to_string()
        );
        told.push(begun.elapsed().as_secs());
        // Another kind: nothing that this watch sees, but a newer version.
        api.put(
            serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }),
        )
        .unwrap();
    }
    // Simulated time, in which nothing else passes.
    assert_eq!(
        (told, begun.elapsed()),
        (vec![60, 88], Duration::from_secs(90))
    );
}

#[tokio::test]
async fn a_kind_that_is_removed_ends_its_watches_and_is_not_found_until_it_is_back() {
    use clustercache_testkit::api::Kind;
    let api = FakeApi::new();
    let widgets = Kind::custom("example.com", "v1", "Widget").cluster_scoped();
    let path = "/apis/example.com/v1/widgets";
    for _ in 0..3 {
        api.add_kind(widgets.clone()).unwrap();
        let response =
            crate::rig::ask(&api, "GET", &format!("{path}?watch=true"), &Value::Null).await;
        let ended = http_body_util::BodyExt::collect(response.into_body());
        api.remove_kind("example.com", "widgets");
        assert!(soon(ended).await.unwrap().to_bytes().is_empty());
        assert_eq!(get(&api, path).await.0, 404);
    }
    let other = Kind::custom("example.com", "v1", "Widget");
    api.add_kind(widgets).unwrap();
    assert!(
        api.add_kind(other).is_err(),
        "another scope at the same path"
    );
}

#[tokio::test]
async fn the_same_seed_and_the_same_operations_give_the_same_bytes() {
    let run = async || {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let api = FakeApi::builder().seed(7).epoch(epoch).build();
        for path in [
            "/api/v1/namespaces/default/configmaps",
            "/api/v1/namespaces/default/serviceaccounts",
        ] {
            let made = serde_json::json!({ "metadata": { "generateName": "made-" } });
            crate::rig::send(&api, "POST", path, &made).await;
        }
        let (_, configs) = get(&api, CONFIGS).await;
        let (_, accounts) = get(&api, "/api/v1/serviceaccounts").await;
        (configs, accounts)
    };
    tokio::time::pause();
    assert_eq!(run().await, run().await);
}
