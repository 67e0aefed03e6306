//! What is watched.

use serde_json::json;

use super::{CONFIGS, NONE, PODS, at, clear, config, pod, unscheduled, version};
use crate::script::Script;

/// Bookmarks before the end, and versions that have not come yet.
pub(super) async fn bookmarks(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    let from = version(&a);
    let marked = format!("{CONFIGS}?watch=true&allowWatchBookmarks=true");
    s.get(&format!("{marked}&timeoutSeconds=3&resourceVersion={from}"))
        .await;
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    s.get(&format!("{marked}&timeoutSeconds=3&{initial}")).await;
    s.get(&format!(
        "{marked}&timeoutSeconds=1&resourceVersion=999999999"
    ))
    .await;
    for seconds in ["nonsense", "1.5"] {
        s.get(&format!("{marked}&timeoutSeconds={seconds}")).await;
    }
    for flag in ["0", "false", "nonsense"] {
        s.get(&format!("{CONFIGS}?watch={flag}&timeoutSeconds=1"))
            .await;
    }
    clear(s, CONFIGS).await;
}

pub(super) async fn watches(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    let from = version(&a);
    s.put(&at(CONFIGS, "a"), &config("a", "y")).await;
    s.post(CONFIGS, &config("b", "x")).await;
    s.put(&at(CONFIGS, "b"), &config("b", "y")).await;
    s.delete(&at(CONFIGS, "a"), &NONE).await;
    let watch = format!("{CONFIGS}?watch=true&timeoutSeconds=1");
    s.get(&format!("{watch}&resourceVersion={from}")).await;
    s.get(&format!(
        "{watch}&resourceVersion={from}&labelSelector=app%3Dx"
    ))
    .await;
    s.get(&format!(
        "{watch}&resourceVersion={from}&labelSelector=app%3Dy"
    ))
    .await;
    s.get(&format!(
        "{watch}&resourceVersion={from}&fieldSelector=metadata.name%3Db"
    ))
    .await;
    s.get(&watch).await;
    s.get(&format!("{watch}&resourceVersion=0")).await;
    s.get(&format!("{watch}&resourceVersion=1")).await;
    s.get(&format!(
        "{watch}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    ))
    .await;
    s.get(&format!(
        "{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={from}"
    ))
    .await;
    s.get(&format!("{watch}&sendInitialEvents=true")).await;
    s.get(&format!(
        "{watch}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    ))
    .await;
    s.get(&format!("{watch}&resourceVersionMatch=NotOlderThan"))
        .await;
    s.get(&format!("{watch}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999999")).await;
    s.get(&format!("{watch}&resourceVersion=nonsense")).await;
    s.get(&format!("{CONFIGS}/b?watch=true&timeoutSeconds=1"))
        .await;
    clear(s, CONFIGS).await;
    let from = version(&s.post(PODS, &unscheduled("u")).await);
    s.delete(&at(PODS, "u"), &NONE).await;
    let mut held = pod("a", "n");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post(PODS, &held).await;
    s.delete(&at(PODS, "a"), &NONE).await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 0 }))
        .await;
    s.patch(
        &at(PODS, "a"),
        "merge-patch",
        &json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    s.get(&format!(
        "{PODS}?watch=true&timeoutSeconds=1&resourceVersion={from}"
    ))
    .await;
}
