//! What is read: from versions, in pages, in forms; and paths that lead nowhere.

use super::{CONFIGS, NONE, PODS, at, clear, config, version};
use crate::script::Script;

pub(super) async fn lists(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    s.post(CONFIGS, &config("b", "x")).await;
    let first = version(&a);
    s.get(&format!("{CONFIGS}?resourceVersion=0")).await;
    s.get(&format!("{CONFIGS}?resourceVersion={first}")).await;
    s.get(&format!(
        "{CONFIGS}?resourceVersion={first}&resourceVersionMatch=Exact"
    ))
    .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersion={first}&resourceVersionMatch=NotOlderThan"
    ))
    .await;
    s.get(&format!("{CONFIGS}?resourceVersion={first}&limit=5"))
        .await;
    s.get(&format!("{CONFIGS}?resourceVersionMatch=Exact"))
        .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersionMatch=Exact&resourceVersion=0"
    ))
    .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersionMatch=Sometimes&resourceVersion=5"
    ))
    .await;
    s.get(&format!("{CONFIGS}?sendInitialEvents=true")).await;
    s.get(&format!("{CONFIGS}?resourceVersion=999999999")).await;
    s.get(&format!("{CONFIGS}?resourceVersion=nonsense")).await;
    s.get(&format!("{CONFIGS}?limit=nonsense")).await;
    clear(s, CONFIGS).await;
}

/// One object, from a version.
pub(super) async fn gets(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    for version in ["0", &version(&a), "nonsense"] {
        for name in ["a", "none"] {
            s.get(&format!("{CONFIGS}/{name}?resourceVersion={version}"))
                .await;
        }
    }
    // It may still come: that is waited for.
    s.get(&format!("{CONFIGS}/none?resourceVersion=999999999"))
        .await;
    s.get(&format!("{CONFIGS}/a?resourceVersionMatch=Exact"))
        .await;
    clear(s, CONFIGS).await;
}

pub(super) async fn pages(s: &mut Script) {
    for name in ["a", "b", "c", "d", "e"] {
        s.post(CONFIGS, &config(name, "x")).await;
    }
    let first = s.get(&format!("{CONFIGS}?limit=2")).await;
    s.delete(&at(CONFIGS, "c"), &NONE).await;
    let token = first["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let second = s.get(&format!("{CONFIGS}?limit=2&continue={token}")).await;
    assert_eq!(version(&first), version(&second));
    let token = second["metadata"]["continue"].as_str().unwrap_or_default();
    s.get(&format!("{CONFIGS}?limit=2&continue={token}")).await;
    s.get(&format!(
        "{CONFIGS}?limit=2&continue={token}&resourceVersion=5"
    ))
    .await;
    s.get(&format!("{CONFIGS}?limit=2&continue=nonsense")).await;
    s.get(&format!("{CONFIGS}?limit=2&resourceVersion=0")).await;
    s.get(&format!("{CONFIGS}?limit=2&labelSelector=app%3Dx"))
        .await;
    clear(s, CONFIGS).await;
}

pub(super) async fn forms(s: &mut Script) {
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    s.post(CONFIGS, &config("a", "x")).await;
    s.get_as(&at(CONFIGS, "a"), metadata).await;
    s.get_as(CONFIGS, list).await;
    s.get_as(&at(CONFIGS, "a"), table).await;
    s.get_as(CONFIGS, table).await;
    s.get_as(&format!("{CONFIGS}?includeObject=Object"), table)
        .await;
    s.get_as(&format!("{CONFIGS}?includeObject=None"), table)
        .await;
    s.get_as(&format!("{CONFIGS}?includeObject=Some"), table)
        .await;
    s.get_as(&format!("{CONFIGS}?limit=1"), table).await;
    let watch = format!("{CONFIGS}?watch=true&timeoutSeconds=1");
    let initial = format!(
        "{watch}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    for form in [metadata, table] {
        s.get_as(&watch, form).await;
        s.get_as(&initial, form).await;
    }
    s.get_as(CONFIGS, "text/html").await;
    s.get_as(&at(CONFIGS, "none"), table).await;
    clear(s, CONFIGS).await;
    s.get_as("/apis/example.com/v1/namespaces/default/widgets", table)
        .await;
    for kind in [
        "pods",
        "nodes",
        "secrets",
        "services",
        "serviceaccounts",
        "events",
        "persistentvolumes",
        "persistentvolumeclaims",
    ] {
        s.get_as(&format!("/api/v1/{kind}?labelSelector=none"), table)
            .await;
    }
    for kind in [
        "apps/v1/deployments",
        "apps/v1/daemonsets",
        "apps/v1/replicasets",
        "coordination.k8s.io/v1/leases",
        "policy/v1/poddisruptionbudgets",
        "storage.k8s.io/v1/volumeattachments",
    ] {
        s.get_as(&format!("/apis/{kind}?labelSelector=none"), table)
            .await;
    }
}

/// What a server says that it serves.
pub(super) async fn documents(s: &mut Script) {
    let json = "application/json";
    let all =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, accept) in [
        ("/api", json),
        ("/apis", json),
        ("/api/v1", json),
        ("/apis/apps", json),
        ("/apis/apps/v1", json),
        ("/apis/authentication.k8s.io/v1", json),
        ("/apis/coordination.k8s.io/v1", json),
        ("/apis/example.com", json),
        ("/apis/example.com/v1", json),
        ("/apis/policy/v1", json),
        ("/apis/storage.k8s.io/v1", json),
        ("/api", all),
        ("/apis", all),
        ("/api/v1", all),
    ] {
        s.discover(path, accept).await;
    }
}

pub(super) async fn paths(s: &mut Script) {
    for path in [
        "/nothing",
        "/api/v1/nothing",
        "/api/v2/pods",
        "/apis/none.example.com/v1/things",
        "/api/v1/pods/a",
        "/apis/none.example.com",
        "/apis/none.example.com/v1",
        "/readyz",
        "/livez",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/pods/a/b/c",
        "/apis/apps",
    ] {
        s.get(path).await;
    }
    s.ask("PUT", PODS, &[], &NONE).await;
    s.ask("DELETE", "/readyz", &[], &NONE).await;
}
