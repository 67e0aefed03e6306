//! The scripts: what is asked of both servers. Each leaves nothing behind that another one meets.

use serde_json::{Value, json};

use crate::script::{Running, Script};

pub(crate) type Named = (&'static str, fn(&mut Script) -> Running<'_>);

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[Named] = &[$((stringify!($name), |script| Box::pin($name(script)))),*];
    };
}

scripts![
    objects,
    names,
    updates,
    statuses,
    patches,
    deletions,
    finalizers,
    collections,
    selectors,
    lists,
    pages,
    watches,
    forms,
    custom,
    evictions,
    tokens,
    reviews,
    namespaces,
    paths,
    dry_runs,
    defaults,
    nodes,
];

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const NONE: Value = Value::Null;

fn config(name: &str, app: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": app } }, "data": { "a": "1" } })
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i:1" }] },
    })
}

fn unscheduled(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn version(answer: &Value) -> String {
    answer["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn at(path: &str, name: &str) -> String {
    format!("{path}/{name}")
}

async fn clear(s: &mut Script, path: &str) {
    s.delete(path, &json!({ "gracePeriodSeconds": 0 })).await;
}

async fn objects(s: &mut Script) {
    s.post(CONFIGS, &config("a", "x")).await;
    s.post(CONFIGS, &config("a", "x")).await;
    s.get(&at(CONFIGS, "a")).await;
    s.get(&at(CONFIGS, "none")).await;
    s.delete(&at(CONFIGS, "none"), &NONE).await;
    s.delete(&at(CONFIGS, "a"), &NONE).await;
    let mut versioned = config("a", "x");
    versioned["metadata"]["resourceVersion"] = "5".into();
    s.post(CONFIGS, &versioned).await;
    s.post("/api/v1/namespaces/none/configmaps", &config("a", "x"))
        .await;
    s.post(
        CONFIGS,
        &json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a" } }),
    )
    .await;
    s.post(
        CONFIGS,
        &json!({ "kind": "ConfigMap", "apiVersion": "v2", "metadata": { "name": "a" } }),
    )
    .await;
    s.post(
        CONFIGS,
        &json!({ "metadata": { "name": "a", "namespace": "kube-system" } }),
    )
    .await;
    s.ask(
        "POST",
        CONFIGS,
        &[("content-type", "text/plain")],
        &config("a", "x"),
    )
    .await;
    s.post(&at(CONFIGS, "a"), &config("a", "x")).await;
    s.post("/api/v1/configmaps", &config("a", "x")).await;
}

async fn names(s: &mut Script) {
    s.post(CONFIGS, &json!({ "metadata": { "generateName": "made-" } }))
        .await;
    s.post(CONFIGS, &json!({ "metadata": {} })).await;
    s.post(CONFIGS, &config("A_b", "x")).await;
    s.post(CONFIGS, &config("a", "no good")).await;
    s.post(
        "/api/v1/namespaces",
        &json!({ "metadata": { "name": "a.b" } }),
    )
    .await;
    clear(s, CONFIGS).await;
}

async fn updates(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    let mut changed = a.clone();
    changed["data"]["a"] = "2".into();
    s.put(&at(CONFIGS, "a"), &changed).await;
    s.put(&at(CONFIGS, "a"), &changed).await;
    s.put(&at(CONFIGS, "b"), &changed).await;
    s.put(&at(CONFIGS, "b"), &config("b", "x")).await;
    s.put(&at(CONFIGS, "a"), &config("a", "y")).await;
    let mut other = config("a", "z");
    other["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    s.put(&at(CONFIGS, "a"), &other).await;
    s.put(&at(CONFIGS, "a"), &json!({ "metadata": { "labels": {} } }))
        .await;
    let now = s.get(&at(CONFIGS, "a")).await;
    let same = s.put(&at(CONFIGS, "a"), &now).await;
    assert_eq!(version(&same), version(&now), "nothing changed");
    clear(s, CONFIGS).await;
    // Leases are created by an update, and must be told from which version they are updated.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({ "metadata": { "name": "a" }, "spec": { "holderIdentity": "me" } });
    s.put(&at(leases, "a"), &lease).await;
    s.put(&at(leases, "a"), &lease).await;
    s.delete(&at(leases, "a"), &NONE).await;
}

async fn statuses(s: &mut Script) {
    let mut a = s.post(PODS, &pod("a", "n")).await;
    a["status"] =
        json!({ "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }] });
    a["metadata"]["labels"]["more"] = "1".into();
    a["spec"]["nodeName"] = "other".into();
    s.put(&format!("{PODS}/a/status"), &a).await;
    s.patch(
        &format!("{PODS}/a/status"),
        "strategic-merge-patch",
        &json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True" },
    ] } }),
    )
    .await;
    s.patch(
        &format!("{PODS}/a/status"),
        "strategic-merge-patch",
        &json!({ "status": { "conditions": [
        { "type": "Initialized", "status": "True" },
    ] } }),
    )
    .await;
    s.patch(
        &at(PODS, "a"),
        "merge-patch",
        &json!({ "status": { "phase": "Failed" } }),
    )
    .await;
    s.get(&format!("{PODS}/a/status")).await;
    s.get(&format!("{CONFIGS}/a/status")).await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 0 }))
        .await;
}

async fn patches(s: &mut Script) {
    s.post(CONFIGS, &config("a", "x")).await;
    let a = at(CONFIGS, "a");
    s.patch(
        &a,
        "merge-patch",
        &json!({ "data": { "a": null, "b": "2" } }),
    )
    .await;
    s.patch(
        &a,
        "json-patch",
        &json!([
            { "op": "test", "path": "/data/b", "value": "2" },
            { "op": "add", "path": "/data/c", "value": "3" },
        ]),
    )
    .await;
    s.patch(
        &a,
        "json-patch",
        &json!([{ "op": "test", "path": "/data/b", "value": "9" }]),
    )
    .await;
    s.patch(
        &a,
        "json-patch",
        &json!([{ "op": "remove", "path": "/data/none" }]),
    )
    .await;
    s.patch(
        &a,
        "strategic-merge-patch",
        &json!({ "metadata": { "labels": { "app": null, "b": "1" } } }),
    )
    .await;
    s.patch(
        &a,
        "merge-patch",
        &json!({ "metadata": { "resourceVersion": "1" } }),
    )
    .await;
    s.patch(&at(CONFIGS, "none"), "merge-patch", &json!({}))
        .await;
    s.patch(&a, "nonsense", &json!({})).await;
    s.patch(&a, "merge-patch", &json!({ "metadata": { "name": "b" } }))
        .await;
    clear(s, CONFIGS).await;
}

async fn deletions(s: &mut Script) {
    let a = s.post(CONFIGS, &config("a", "x")).await;
    let a_ = at(CONFIGS, "a");
    s.delete(
        &a_,
        &json!({ "preconditions": { "uid": "00000000-0000-4000-8000-000000000000" } }),
    )
    .await;
    s.delete(&a_, &json!({ "preconditions": { "resourceVersion": "1" } }))
        .await;
    s.delete(
        &a_,
        &json!({ "preconditions": { "uid": a["metadata"]["uid"] } }),
    )
    .await;
    s.post(PODS, &unscheduled("u")).await;
    s.delete(&at(PODS, "u"), &NONE).await;
    s.get(&at(PODS, "u")).await;
    s.post(PODS, &pod("a", "n")).await;
    s.delete(&at(PODS, "a"), &NONE).await;
    s.get(&at(PODS, "a")).await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 5 }))
        .await;
    s.delete(&at(PODS, "a"), &json!({ "gracePeriodSeconds": 60 }))
        .await;
    s.delete(&format!("{PODS}/a?gracePeriodSeconds=0"), &NONE)
        .await;
    s.get(&at(PODS, "a")).await;
    for (path, object) in [
        (
            "/api/v1/namespaces/default/serviceaccounts",
            json!({ "metadata": { "name": "a" } }),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({ "metadata": { "name": "a" } }),
        ),
    ] {
        s.post(path, &object).await;
        s.delete(&at(path, "a"), &NONE).await;
    }
}

async fn finalizers(s: &mut Script) {
    let mut held = config("a", "x");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post(CONFIGS, &held).await;
    let a = at(CONFIGS, "a");
    s.delete(&a, &NONE).await;
    s.delete(&a, &NONE).await;
    s.patch(
        &a,
        "merge-patch",
        &json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/new"] } }),
    )
    .await;
    s.patch(&a, "merge-patch", &json!({ "data": { "b": "2" } }))
        .await;
    s.patch(
        &a,
        "merge-patch",
        &json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    s.get(&a).await;
    s.post(CONFIGS, &config("f", "x")).await;
    s.delete(
        &at(CONFIGS, "f"),
        &json!({ "propagationPolicy": "Foreground" }),
    )
    .await;
    s.patch(
        &at(CONFIGS, "f"),
        "json-patch",
        &json!([{ "op": "remove", "path": "/metadata/finalizers/0" }]),
    )
    .await;
    s.get(&at(CONFIGS, "f")).await;
}

async fn collections(s: &mut Script) {
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        s.post(CONFIGS, &config(name, app)).await;
    }
    s.delete(&format!("{CONFIGS}?labelSelector=app%3Dx"), &NONE)
        .await;
    s.get(CONFIGS).await;
    s.delete("/api/v1/configmaps", &NONE).await;
    clear(s, CONFIGS).await;
}

async fn selectors(s: &mut Script) {
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "z")] {
        s.post(CONFIGS, &config(name, app)).await;
    }
    for query in [
        "labelSelector=app%3Dx",
        "labelSelector=app!%3Dx",
        "labelSelector=app+in+(x,y)",
        "labelSelector=!app",
        "labelSelector=app+notin+(x)",
        "fieldSelector=metadata.name%3Db",
        "fieldSelector=metadata.name!%3Db",
        "fieldSelector=metadata.namespace%3Ddefault",
        "labelSelector=app+in",
        "labelSelector=%3D",
        "fieldSelector=a",
        "fieldSelector=spec.colour%3Dred",
    ] {
        s.get(&format!("{CONFIGS}?{query}")).await;
    }
    clear(s, CONFIGS).await;
    s.post(PODS, &pod("a", "n1")).await;
    s.post(PODS, &unscheduled("b")).await;
    for query in [
        "spec.nodeName%3Dn1",
        "spec.nodeName!%3Dn1",
        "spec.nodeName%3D",
        "status.phase%3DPending",
        "spec.restartPolicy%3DAlways",
        "spec.hostNetwork%3Dfalse",
        "spec.schedulerName%3Ddefault-scheduler",
        "status.podIP%3D",
        "spec.colour%3Dred",
    ] {
        s.get(&format!("{PODS}?fieldSelector={query}")).await;
    }
    clear(s, PODS).await;
    for (kind, query) in [
        ("nodes", "spec.unschedulable%3Dtrue"),
        ("nodes", "spec.colour%3Dred"),
        ("namespaces", "status.phase%3DTerminating"),
        ("secrets", "type%3Dnone"),
        ("services", "spec.type%3DNodePort"),
        ("events", "involvedObject.kind%3DPod,reason%3Dx"),
        ("persistentvolumes", "metadata.name%3Dx"),
        ("serviceaccounts", "metadata.name%3Dx"),
        ("persistentvolumeclaims", "metadata.name%3Dx"),
    ] {
        s.get(&format!("/api/v1/{kind}?fieldSelector={query}"))
            .await;
    }
    s.get("/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D1")
        .await;
    s.get("/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx")
        .await;
    s.get("/apis/apps/v1/deployments?fieldSelector=spec.x%3Dx")
        .await;
    s.get("/apis/example.com/v1/widgets?fieldSelector=spec.x%3Dx")
        .await;
}

async fn lists(s: &mut Script) {
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

async fn pages(s: &mut Script) {
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

async fn watches(s: &mut Script) {
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

async fn forms(s: &mut Script) {
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

async fn custom(s: &mut Script) {
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "a" }, "spec": { "size": 1 },
        "status": { "ready": true },
    });
    let mut a = s.post(WIDGETS, &widget).await;
    a["spec"]["size"] = 2.into();
    a["status"] = json!({ "ready": true });
    let b = s.put(&at(WIDGETS, "a"), &a).await;
    let mut c = b.clone();
    c["status"] = json!({ "ready": true });
    c["spec"]["size"] = 3.into();
    c["metadata"]["labels"] = json!({ "x": "y" });
    s.put(&format!("{WIDGETS}/a/status"), &c).await;
    s.put(&at(WIDGETS, "a"), &widget).await;
    s.patch(
        &at(WIDGETS, "a"),
        "merge-patch",
        &json!({ "spec": { "size": 4 } }),
    )
    .await;
    s.patch(&at(WIDGETS, "a"), "strategic-merge-patch", &json!({}))
        .await;
    s.patch(
        &format!("{WIDGETS}/a/status"),
        "merge-patch",
        &json!({ "status": { "n": 1 }, "spec": { "size": 9 } }),
    )
    .await;
    s.get(WIDGETS).await;
    s.get(&format!("{WIDGETS}?watch=true&timeoutSeconds=1"))
        .await;
    s.get_as(
        &at(WIDGETS, "a"),
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    )
    .await;
    s.delete(&at(WIDGETS, "a"), &NONE).await;
    s.get(&at(WIDGETS, "a")).await;
    s.get("/apis/example.com/v1/gadgets").await;
    s.get("/apis/example.com/v2/widgets").await;
    s.get("/apis/example.com/v1").await;
}

async fn evictions(s: &mut Script) {
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let eviction = |name: &str| json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    let evict = |name: &str| format!("{PODS}/{name}/eviction");
    s.post(&evict("none"), &eviction("none")).await;
    s.post(PODS, &pod("a", "n")).await;
    s.post(&evict("a"), &eviction("other")).await;
    let budget = json!({
        "metadata": { "name": "one" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "a" } } },
    });
    let mut one = s.post(budgets, &budget).await;
    s.patch(
        &format!("{PODS}/a/status"),
        "merge-patch",
        &json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
    } }),
    )
    .await;
    s.post(&evict("a"), &eviction("a")).await;
    one["status"] = json!({
        "observedGeneration": 1, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0,
    });
    let mut one = s.put(&format!("{budgets}/one/status"), &one).await;
    s.post(&evict("a"), &eviction("a")).await;
    let mut two = budget.clone();
    two["metadata"]["name"] = "two".into();
    s.post(budgets, &two).await;
    s.post(&evict("a"), &eviction("a")).await;
    s.delete(&at(budgets, "two"), &NONE).await;
    one["status"]["disruptionsAllowed"] = 1.into();
    s.put(&format!("{budgets}/one/status"), &one).await;
    let mut dry = eviction("a");
    dry["deleteOptions"] = json!({ "dryRun": ["All"] });
    s.post(&evict("a"), &dry).await;
    s.get(&at(budgets, "one")).await["status"].take();
    s.post(&evict("a"), &eviction("a")).await;
    let after = s.get(&at(PODS, "a")).await;
    assert!(!after["metadata"]["deletionTimestamp"].is_null(), "{after}");
    s.post(&evict("a"), &eviction("a")).await;
    clear(s, PODS).await;
    clear(s, budgets).await;
}

async fn tokens(s: &mut Script) {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    s.post(accounts, &json!({ "metadata": { "name": "robot" } }))
        .await;
    let path = format!("{accounts}/robot/token");
    s.post(&path, &json!({ "spec": { "expirationSeconds": 60 } }))
        .await;
    let request = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": { "audiences": ["x"], "expirationSeconds": 1200 } });
    s.post(&path, &request).await;
    s.post(&format!("{accounts}/none/token"), &request).await;
    s.get(&path).await;
    clear(s, accounts).await;
}

async fn reviews(s: &mut Script) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({ "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1" });
    let answer = s.post(path, &review).await;
    assert!(
        answer["status"]["userInfo"]["groups"]
            .as_array()
            .is_some_and(|groups| groups.len() == 2),
        "{answer}"
    );
    s.get(path).await;
}

async fn namespaces(s: &mut Script) {
    let all = "/api/v1/namespaces";
    s.post(all, &json!({ "metadata": { "name": "ending" } }))
        .await;
    s.post("/api/v1/namespaces/ending/pods", &pod("a", "n"))
        .await;
    s.delete(&at(all, "ending"), &NONE).await;
    s.get(&at(all, "ending")).await;
    s.post("/api/v1/namespaces/ending/configmaps", &config("a", "x"))
        .await;
    let eviction =
        json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" } });
    s.post("/api/v1/namespaces/ending/pods/a/eviction", &eviction)
        .await;
    s.patch(
        "/api/v1/namespaces/ending/pods/a",
        "merge-patch",
        &json!({ "metadata": { "labels": { "x": "y" } } }),
    )
    .await;
    s.delete(
        "/api/v1/namespaces/ending/pods/a?gracePeriodSeconds=0",
        &NONE,
    )
    .await;
    let mut ending = s.get(&at(all, "ending")).await;
    ending["spec"]["finalizers"] = json!([]);
    s.put(&format!("{all}/ending/finalize"), &ending).await;
    s.get(&at(all, "ending")).await;
    s.delete(&at(all, "kube-system"), &NONE).await;
}

async fn paths(s: &mut Script) {
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
        "/api",
    ] {
        if path == "/api" {
            continue;
        }
        s.get(path).await;
    }
    s.ask("PUT", PODS, &[], &NONE).await;
    s.ask("DELETE", "/readyz", &[], &NONE).await;
}

async fn dry_runs(s: &mut Script) {
    s.post(&format!("{CONFIGS}?dryRun=All"), &config("a", "x"))
        .await;
    s.post(CONFIGS, &config("a", "x")).await;
    s.post(&format!("{CONFIGS}?dryRun=All"), &config("a", "x"))
        .await;
    s.put(&format!("{CONFIGS}/a?dryRun=All"), &config("a", "y"))
        .await;
    s.patch(
        &format!("{CONFIGS}/a?dryRun=All"),
        "merge-patch",
        &json!({ "data": { "b": "2" } }),
    )
    .await;
    s.delete(&format!("{CONFIGS}/a?dryRun=All"), &NONE).await;
    s.delete(&at(CONFIGS, "a"), &json!({ "dryRun": ["All"] }))
        .await;
    s.get(&at(CONFIGS, "a")).await;
    s.post(&format!("{CONFIGS}?dryRun=Some"), &config("b", "x"))
        .await;
    s.post(PODS, &pod("a", "n")).await;
    s.delete(&format!("{PODS}/a?dryRun=All"), &NONE).await;
    s.get(&at(PODS, "a")).await;
    clear(s, CONFIGS).await;
    clear(s, PODS).await;
}

async fn defaults(s: &mut Script) {
    let container = json!({ "name": "c", "image": "i", "ports": [{ "containerPort": 80 }] });
    let template =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let apps = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    for (path, object) in [
        (
            "/api/v1/namespaces/default/pods",
            json!({ "metadata": { "name": "a" }, "spec": { "containers": [container] } }),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({ "metadata": { "name": "a" }, "stringData": { "k": "v" } }),
        ),
        (
            "/api/v1/namespaces/default/services",
            apps(json!({ "selector": { "a": "b" }, "ports": [{ "port": 80 }] })),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            apps(json!({ "selector": selector, "template": template })),
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets",
            apps(json!({ "selector": selector, "template": template })),
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            apps(json!({ "selector": selector, "template": template })),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            apps(json!({ "maxUnavailable": 1, "selector": selector })),
        ),
        (
            "/api/v1/persistentvolumes",
            apps(json!({
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" },
            })),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            apps(json!({
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            })),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            apps(json!({
                "attacher": "x", "nodeName": "n", "source": { "persistentVolumeName": "a" },
            })),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({
                "metadata": { "name": "a" }, "involvedObject": { "kind": "Pod", "name": "a", "namespace": "default" },
                "reason": "Tested", "message": "m", "type": "Normal",
            }),
        ),
    ] {
        s.post(path, &object).await;
        s.get_as(
            &at(path, "a"),
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        )
        .await;
        s.patch(
            &at(path, "a"),
            "merge-patch",
            &json!({ "metadata": { "labels": { "x": "y" } } }),
        )
        .await;
        s.patch(
            &at(path, "a"),
            "merge-patch",
            &json!({ "metadata": { "finalizers": null } }),
        )
        .await;
        s.delete(
            &at(path, "a"),
            &json!({ "gracePeriodSeconds": 0, "propagationPolicy": "Background" }),
        )
        .await;
        s.get(&at(path, "a")).await;
    }
}

async fn nodes(s: &mut Script) {
    let all = "/api/v1/nodes";
    s.post(
        all,
        &json!({ "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/worker": "" } } }),
    )
    .await;
    s.patch(
        &at(all, "n"),
        "strategic-merge-patch",
        &json!({ "spec": { "unschedulable": true } }),
    )
    .await;
    s.get(&format!("{all}?fieldSelector=spec.unschedulable%3Dtrue"))
        .await;
    s.get_as(all, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    s.patch(
        &at(all, "n"),
        "strategic-merge-patch",
        &json!({ "spec": { "unschedulable": null } }),
    )
    .await;
    s.patch(&format!("{all}/n/status"), "strategic-merge-patch", &json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True" }], "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
    } })).await;
    s.get_as(all, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    s.delete(&at(all, "n"), &NONE).await;
}
