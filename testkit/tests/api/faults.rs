//! Faults of watches: each on and off, again and again, and nothing is left of it.

use std::time::Duration;

use clustercache_testkit::api::{FakeApi, Fault, Verb};

use crate::rig::{Events, config, get, watch};

/// How often each fault is injected and undone.
const TIMES: usize = 100;

async fn fresh(api: &FakeApi) -> Events {
    watch(api, &format!("resourceVersion={}", api.version())).await
}

/// A watch that was opened before anything was wrong, or after, sees what changes.
async fn is_well(api: &FakeApi, events: &mut Events, name: &str) {
    api.put(config(name, "x")).unwrap();
    let (_, seen) = events.next().await;
    assert_eq!(seen, name);
}

#[tokio::test]
async fn a_watch_is_ended_expired_or_cut_while_the_fault_holds_and_lives_after_it() {
    let api = FakeApi::new();
    for round in 0..TIMES {
        let name = format!("c{round}");
        for fault in [
            Fault::watch_ended(),
            Fault::watch_expired(),
            Fault::watch_cut_after_events(0),
        ] {
            let mut before = fresh(&api).await;
            is_well(&api, &mut before, &name).await;
            let mut other = watch_of_pods(&api).await;
            let injected = api.inject(fault.clone().resource("configmaps"));
            let mut during = fresh(&api).await;
            for events in [&mut before, &mut during] {
                match (events.try_next().await, format!("{fault:?}")) {
                    (Ok(None), kind) if kind.contains("ended: true") => {}
                    (Ok(Some(event)), kind) if kind.contains("expired: true") => {
                        assert_eq!(
                            (&event["type"], &event["object"]["code"]),
                            (&"ERROR".into(), &410.into())
                        );
                        assert_eq!(events.try_next().await.unwrap(), None);
                    }
                    (Err(_), kind) if kind.contains("cut_after_events: Some") => {}
                    (other, kind) => panic!("{other:?} of {kind}"),
                }
            }
            api.put(pod("p")).unwrap();
            other.next().await;
            api.undo(injected);
            let mut after = fresh(&api).await;
            is_well(&api, &mut after, &name).await;
        }
    }
}

fn pod(name: &str) -> serde_json::Value {
    serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name } })
}

async fn watch_of_pods(api: &FakeApi) -> Events {
    let response = crate::rig::ask(
        api,
        "GET",
        &format!("/api/v1/pods?watch=true&resourceVersion={}", api.version()),
        &serde_json::Value::Null,
    )
    .await;
    Events::of(response)
}

#[tokio::test]
async fn a_watch_is_cut_after_so_many_events() {
    let api = FakeApi::new();
    let fault = api.inject(Fault::watch_cut_after_events(2));
    let mut events = fresh(&api).await;
    for name in ["a", "b", "c"] {
        api.put(config(name, "x")).unwrap();
    }
    events.expect("ADDED", "a").await;
    events.expect("ADDED", "b").await;
    assert!(events.try_next().await.is_err());
    api.undo(fault);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_cut_when_it_is_so_old_also_if_the_fault_came_later() {
    let api = FakeApi::new();
    let begun = tokio::time::Instant::now();
    let mut before = fresh(&api).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    api.inject(Fault::watch_cut_after(Duration::from_secs(5)));
    let mut after = fresh(&api).await;
    assert!(before.try_next().await.is_err());
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(after.try_next().await.is_err());
    assert_eq!(begun.elapsed().as_secs(), 7);
}

#[tokio::test]
async fn a_stalled_watch_is_silent_and_goes_on_where_it_was() {
    let api = FakeApi::new();
    let mut before = fresh(&api).await;
    for round in 0..TIMES {
        let stalled = api.inject(Fault::watch_stalled());
        let mut during = fresh(&api).await;
        let name = format!("c{round}");
        api.put(config(&name, "x")).unwrap();
        api.send_bookmarks();
        api.end_watches();
        assert!(before.is_silent().await && during.is_silent().await);
        api.undo(stalled);
        // What was told meanwhile is told now: the change, then the end.
        for mut events in [before, during] {
            assert_eq!(events.next().await.1, name);
            assert_eq!(events.try_next().await.unwrap(), None);
        }
        before = fresh(&api).await;
    }
}

#[tokio::test]
async fn a_watch_without_bookmarks_gets_none_though_it_asked() {
    let api = FakeApi::new();
    let query = format!("allowWatchBookmarks=true&resourceVersion={}", api.version());
    let mut events = watch(&api, &query).await;
    for round in 0..TIMES {
        let without = api.inject(Fault::watch_without_bookmarks());
        api.send_bookmarks();
        assert!(events.is_silent().await);
        let name = format!("c{round}");
        is_well(&api, &mut events, &name).await;
        api.undo(without);
        api.send_bookmarks();
        assert_eq!(events.next().await.0, "BOOKMARK");
    }
}

#[tokio::test]
async fn undoing_all_leaves_no_fault_and_undoing_one_leaves_the_others() {
    let api = FakeApi::new();
    let path = "/api/v1/configmaps";
    let first = api.inject(Fault::status(500).verb(Verb::List));
    let second = api.inject(Fault::status(503).verb(Verb::List));
    assert_eq!(get(&api, path).await.0, 503, "the last one counts");
    api.undo(second);
    api.undo(second);
    assert_eq!(get(&api, path).await.0, 500);
    api.inject(Fault::forbidden().user("nobody"));
    assert_eq!(get(&api, path).await.0, 500, "it is for somebody else");
    api.undo_all();
    assert_eq!(get(&api, path).await.0, 200);
    api.undo(first);
}

#[tokio::test]
async fn a_refusal_of_a_fault_is_a_status_with_its_retry_after() {
    let api = FakeApi::new();
    api.inject(
        Fault::status(429)
            .retry_after(7)
            .namespace("default")
            .resource("pods"),
    );
    let response = crate::rig::ask(
        &api,
        "GET",
        "/api/v1/namespaces/default/pods/a",
        &serde_json::Value::Null,
    )
    .await;
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["retry-after"]
        ),
        (429, &"7".parse().unwrap())
    );
    assert_eq!(get(&api, "/api/v1/pods").await.0, 200);
    api.undo_all();
    api.inject(Fault::forbidden());
    let (_, status) = get(&api, "/api/v1/namespaces/default/pods/a").await;
    assert_eq!(
        status["message"],
        "pods \"a\" is forbidden: User \"admin\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let (_, status) = get(&api, "/readyz").await;
    assert_eq!(
        status["message"],
        "forbidden: User \"admin\" cannot get path \"/readyz\""
    );
}
