//! What readers get, and what they get where there is nothing to read: never an empty list.

use std::time::Duration;

use clustercache::GetError;
use clustercache_informers::{
    Informers, Keep, Kind, LiveError, ReadError, StoreError, StoreWaitError,
};
use clustercache_testkit::{
    api::{Fault, Kind as Served, Verb},
    fleet::FakeCluster,
};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta, Selector};
use serde_json::json;

use crate::rig::{LIMIT, Rig, informers, name, node, quick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_read_by_name_namespace_index_and_labels() {
    let cluster = FakeCluster::start("reading").unwrap();
    cluster.put(node("n1")).unwrap();
    let rig = Rig::on(cluster, informers());
    for (namespace, name, node) in [("a", "x", "n1"), ("a", "y", "n2"), ("b", "x", "n1")] {
        rig.put_pod(namespace, name, node);
    }
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let pods = rig.pods();
    assert_eq!(pods.len(), 3);
    let x = pods.get("a", "x").unwrap().expect("it is there");
    assert_eq!(x.spec.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(x.metadata.managed_fields, None, "they are cut out");
    assert!(pods.get("c", "x").unwrap().is_none() && !pods.contains(None, "x"));
    let names = |pods: Vec<_>| {
        let mut names: Vec<_> = pods.iter().map(name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(pods.within("a").unwrap()), ["x", "y"]);
    for index in ["node", "app"] {
        assert_eq!(names(pods.by_index(index, "n1").unwrap()), ["x", "x"]);
        assert_eq!(pods.count_by_index(index, "n2").unwrap(), 1);
        assert!(pods.by_index(index, "n3").unwrap().is_empty());
    }
    let selector: Selector = [("app".to_owned(), "n2".to_owned())].into_iter().collect();
    assert_eq!(names(pods.matching(&selector).unwrap()), ["y"]);
    assert_eq!(
        names(pods.matching(&Selector::default()).unwrap()),
        ["x", "x", "y"]
    );
    let error = pods.by_index("zone", "n1").unwrap_err();
    assert!(matches!(error, ReadError::NoIndex { .. }), "{error}");
    let nodes = rig.informers().store::<Node>().unwrap();
    let (one, same) = (
        nodes.get(None, "n1").unwrap(),
        nodes.get(None, "n1").unwrap(),
    );
    assert!(
        std::sync::Arc::ptr_eq(&one.unwrap(), &same.unwrap()),
        "decoded once"
    );
    let freshness = pods.freshness();
    assert!(freshness.resource_version().is_some() && freshness.trouble().is_none());
    assert!(pods.synced_since(rig.informers().generation()));
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_one_moment_and_wait_for_gives_the_next() {
    let rig = Rig::start("moment").await;
    let before = rig.pods();
    rig.put_pod("a", "x", "n1");
    let after = before
        .wait_for(|pods| pods.len() == 1, LIMIT)
        .await
        .unwrap();
    assert_eq!((before.len(), after.len()), (0, 1));
    assert!(before.get("a", "x").unwrap().is_none());
    let error = after
        .wait_for(|pods| pods.len() == 2, Duration::from_millis(1))
        .await;
    assert!(matches!(
        error.unwrap_err(),
        StoreWaitError::Deadline { .. }
    ));
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_read_asks_the_server_whatever_is_cached() {
    let rig = Rig::start("live").await;
    let stalled = rig.cluster.api().inject(Fault::watch_stalled());
    rig.put_pod("a", "x", "n1");
    assert!(!rig.pods().contains("a", "x"));
    let informers = rig.informers();
    let pod = informers
        .read_live::<Pod>("a", "x")
        .await
        .unwrap()
        .expect("it is there");
    assert_eq!(pod.metadata.name.as_deref(), Some("x"));
    assert!(
        informers
            .read_live::<Pod>("a", "y")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        informers
            .read_live::<Service>("a", "y")
            .await
            .unwrap()
            .is_none(),
        "declared or not"
    );
    rig.cluster
        .api()
        .inject(Fault::forbidden().verb(Verb::Get).resource("pods"));
    let error = informers.read_live::<Pod>("a", "x").await.unwrap_err();
    assert!(
        matches!(error, LiveError::Refused { status: 403, .. }),
        "{error}"
    );
    rig.cluster.api().undo(stalled);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_says_why_and_is_never_an_empty_list() {
    let cluster = FakeCluster::start("errors").unwrap();
    let hung = cluster.api().inject(Fault::hang().resource("configmaps"));
    let rig = Rig::on(cluster, informers());
    let error = rig.cache.get::<Informers>(&rig.key).unwrap_err();
    assert!(matches!(error, GetError::Unknown { .. }), "{error}");
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let informers = rig.informers();
    let error = informers.store::<Service>().unwrap_err();
    assert!(matches!(error, StoreError::NotCached { .. }), "{error}");
    assert!(error.to_string().contains("Service"), "{error}");
    let gvk = GroupVersionKind::gvk("", "v1", "Pod");
    let error = informers.store_of::<DynamicObject>(&gvk).unwrap_err();
    assert!(matches!(error, StoreError::NotCached { .. }), "{error}");
    let error = informers.store::<ConfigMap>().unwrap_err();
    assert!(matches!(error, StoreError::NotSynced { .. }), "{error}");
    let error = informers
        .wait_synced::<ConfigMap>(Duration::from_millis(1))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            StoreWaitError::NotReadable {
                why: StoreError::NotSynced { .. },
                ..
            }
        ),
        "{error}"
    );
    rig.cluster.api().undo(hung);
    informers.wait_synced::<ConfigMap>(LIMIT).await.unwrap();
    let pods = informers.store::<Pod>().unwrap();

    rig.source.remove(&rig.key);
    let mut events = rig.cache.subscribe().key(&rig.key);
    while rig.cache.state(&rig.key).is_ok() {
        events.next().await.expect("the cache runs");
    }
    assert!(rig.cache.get::<Informers>(&rig.key).is_err());
    // Who held on to it has what was there, and waits for nothing that never comes.
    assert_eq!(pods.len(), 0);
    let error = pods.wait_for(|_| false, LIMIT).await.unwrap_err();
    assert!(matches!(error, StoreWaitError::Retired), "{error}");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_that_does_not_fit_its_type_hides_no_other() {
    let cluster = FakeCluster::start("broken").unwrap();
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    for name in ["good", "panics"] {
        cluster.put(map(name)).unwrap();
    }
    for name in ["good", "bad"] {
        let mut node = node(name);
        if name == "bad" {
            node["spec"] = json!("no spec at all");
        }
        cluster.put(node).unwrap();
    }
    let maps = Kind::<ConfigMap>::new().transform(|map| {
        assert_ne!(map.metadata.name.as_deref(), Some("panics"));
    });
    let kinds = Informers::new()
        .loop_options(quick())
        .kind(Kind::<Node>::new())
        .kind(maps);
    let rig = Rig::on(cluster, kinds);
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let nodes = rig.informers().store::<Node>().unwrap();
    let maps = rig.informers().store::<ConfigMap>().unwrap();
    assert!(nodes.get(None, "good").unwrap().is_some() && nodes.contains(None, "bad"));
    assert!(maps.get("default", "good").unwrap().is_some());
    for error in [
        nodes.get(None, "bad").unwrap_err(),
        nodes.list().unwrap_err(),
        maps.get("default", "panics").unwrap_err(),
    ] {
        assert!(matches!(error, ReadError::Undecodable { .. }), "{error}");
        assert!(
            !format!("{error} {error:?}").contains("no spec at all"),
            "nothing is quoted"
        );
    }
    assert_eq!(nodes.iter().flatten().count(), 1);
    assert_eq!(rig.informed("configmaps").undecodable, 1);
    rig.end().await;
}

struct Small {
    node: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_are_read_as_projections_metadata_and_dynamic_objects() {
    let cluster = FakeCluster::start("forms").unwrap();
    cluster
        .api()
        .add_kind(Served::custom("example.com", "v1", "Widget"))
        .unwrap();
    cluster.put(json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "namespace": "a" }, "spec": { "size": 3 } })).unwrap();
    cluster.put(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "a" }, "data": { "k": "c2VjcmV0" } })).unwrap();
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widgets = ApiResource::from_gvk(&gvk);
    let kinds = Informers::new()
        .loop_options(quick())
        .kind(
            Kind::<Pod>::new()
                .index_field("node", "spec.nodeName")
                .project(|pod: Pod| Small {
                    node: pod.spec.and_then(|spec| spec.node_name),
                }),
        )
        .kind(Kind::<PartialObjectMeta<Secret>>::new())
        .kind(Kind::dynamic(&widgets).index_field("size", "spec.size"))
        .kind(
            Kind::<ConfigMap>::new()
                .within("a")
                .labels("app=web")
                .keep(Keep::Decoded)
                .transform(|map| map.data = None),
        );
    let rig = Rig::on(cluster, kinds);
    rig.put_pod("a", "x", "n1");
    for (namespace, name, app) in [("a", "yes", "web"), ("a", "no", "db"), ("b", "no", "web")] {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } }, "data": { "k": "v" } });
        rig.cluster.put(map).unwrap();
    }
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let informers = rig.informers();
    let small = informers
        .store::<Small>()
        .unwrap()
        .by_index("node", "n1")
        .unwrap();
    assert_eq!(small[0].node.as_deref(), Some("n1"));
    let secrets = informers.store::<PartialObjectMeta<Secret>>().unwrap();
    assert_eq!(
        secrets.list().unwrap()[0].metadata.name.as_deref(),
        Some("s")
    );
    let widgets = informers.store_of::<DynamicObject>(&gvk).unwrap();
    assert_eq!(
        widgets.by_index("size", "3").unwrap()[0].data["spec"]["size"],
        3
    );
    let maps = informers.store::<ConfigMap>().unwrap().list().unwrap();
    assert_eq!(maps.len(), 1);
    assert_eq!(
        (maps[0].metadata.name.as_deref(), &maps[0].data),
        (Some("yes"), &None)
    );
    // Nothing of a secret but its metadata has left the server.
    let bytes = rig.informed("secrets").bytes;
    assert!(bytes < 2_000, "{bytes}");
    rig.end().await;
}

#[test]
fn mistakes_are_told_all_at_once() {
    let mut options = quick();
    options.page = 0;
    options.retry_most = Duration::ZERO;
    let informers = Informers::new()
        .loop_options(options)
        .kind(
            Kind::<Pod>::new()
                .index_field("a", "b")
                .index_field("a", "c"),
        )
        .kind(Kind::<Pod>::new().within("a"));
    let told = clustercache::ClusterResource::mistakes(&informers);
    assert_eq!(told.len(), 4, "{told:#?}");
}
