//! What servers do wrong in lists and watches, and what of it readers notice.

use std::{collections::BTreeSet, time::Duration};

use clustercache_informers::{Informers, Kind, StoreError};
use clustercache_testkit::{
    api::{Fault, Verb},
    fleet::FakeCluster,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};

use crate::rig::{LIMIT, Rig, informers, name, pods, quick};

fn names(rig: &Rig) -> BTreeSet<String> {
    rig.pods().list().unwrap().iter().map(name).collect()
}

async fn with_three_pods(cluster: &str) -> Rig {
    let rig = Rig::start(cluster).await;
    for name in ["x", "y", "z"] {
        rig.put_pod("a", name, "n1");
    }
    rig.pods_when(|pods| pods.len() == 3).await;
    rig
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_too_old_is_one_new_list_however_it_is_told() {
    for (form, fault) in [
        ("event", Fault::watch_expired()),
        ("status", Fault::gone().verb(Verb::Watch)),
    ] {
        let rig = with_three_pods(form).await;
        let before = rig.informed("pods");
        let gone = rig.cluster.api().inject(fault.resource("pods"));
        rig.cluster.end_watches();
        // What happens meanwhile is known by the list alone.
        let expired = rig.watches("pods");
        rig.cluster.when(|_| rig.watches("pods") > expired).await;
        rig.delete_pod("a", "y");
        rig.put_pod("a", "w", "n1");
        rig.cluster.compact();
        rig.cluster.api().undo(gone);
        let pods = rig.pods_when(|pods| pods.contains("a", "w")).await;
        assert_eq!(pods.len(), 3);
        assert_eq!(names(&rig), ["w", "x", "z"].map(String::from).into());
        let after = rig.informed("pods");
        assert_eq!(
            (
                after.added - before.added,
                after.deleted - before.deleted,
                after.modified - before.modified
            ),
            (1, 1, 0),
            "{form}"
        );
        rig.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_that_went_back_are_found_and_the_backup_is_what_there_is() {
    let mut options = quick();
    options.bookmarks = Duration::from_millis(200);
    let rig = Rig::with(
        "backup",
        Informers::new().loop_options(options).kind(pods()),
    )
    .await;
    for name in ["x", "y", "z"] {
        rig.put_pod("a", name, "n1");
    }
    rig.pods_when(|pods| pods.len() == 3).await;
    let backup = rig.cluster.api().snapshot();
    let given = rig.put_pod("a", "y", "n7");
    rig.put_pod("a", "later", "n1");
    rig.delete_pod("a", "x");
    rig.pods_when(|pods| pods.contains("a", "later") && !pods.contains("a", "x"))
        .await;
    let before = rig.informed("pods");
    rig.cluster.api().restore(&backup);
    // The same version of the same object, and another content.
    assert_eq!(rig.put_pod("a", "y", "n2"), given);
    let pods = rig
        .pods_when(|pods| pods.contains("a", "x") && !pods.contains("a", "later"))
        .await;
    assert_eq!(names(&rig), ["x", "y", "z"].map(String::from).into());
    assert_eq!(pods.count_by_index("node", "n2").unwrap(), 1);
    assert_eq!(pods.count_by_index("node", "n7").unwrap(), 0);
    let after = rig.informed("pods");
    assert_eq!(after.lists - before.lists, 1);
    assert_eq!(
        (after.added - before.added, after.deleted - before.deleted),
        (1, 1)
    );
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_no_more_begins_the_list_anew() {
    let cluster = FakeCluster::start("pages").unwrap();
    cluster
        .api()
        .inject(Fault::status(422).verb(Verb::Watch).resource("pods"));
    let gone = cluster
        .api()
        .inject(Fault::gone().verb(Verb::List).resource("pods").share(0.4));
    let mut options = quick();
    options.page = 2;
    let rig = Rig::on(
        cluster,
        Informers::new()
            .loop_options(options)
            .kind(pods().best_effort()),
    );
    for number in 0..7 {
        rig.put_pod("a", &number.to_string(), "n1");
    }
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let pods = rig
        .informers()
        .wait_synced::<k8s_openapi::api::core::v1::Pod>(LIMIT)
        .await
        .unwrap();
    assert_eq!(pods.len(), 7);
    rig.cluster.api().undo(gone);
    assert!(rig.lists("pods") >= 4);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_forbidden_says_so_and_the_others_are_served() {
    let cluster = FakeCluster::start("forbidden").unwrap();
    let forbidden = cluster.api().inject(Fault::forbidden().resource("secrets"));
    let kinds = informers().kind(Kind::<Secret>::new().best_effort());
    let rig = Rig::on(cluster, kinds);
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    let informers = rig.informers();
    informers.wait_synced::<ConfigMap>(LIMIT).await.unwrap();
    let refused = || match informers.store::<Secret>() {
        Err(StoreError::Refused { trouble, .. }) => Some(trouble),
        _ => None,
    };
    rig.cluster.when(|_| refused().is_some()).await;
    let trouble = refused().unwrap();
    assert_eq!(
        (trouble.verb(), trouble.resource(), trouble.status()),
        ("watch", "secrets", Some(403))
    );
    assert!(trouble.message().contains("forbidden"), "{trouble}");
    assert!(informers.store::<Node>().is_ok());
    rig.cluster.api().undo(forbidden);
    informers.wait_synced::<Secret>(LIMIT).await.unwrap();

    // An essential one, once it was up.
    let forbidden = rig
        .cluster
        .api()
        .inject(Fault::forbidden().resource("pods"));
    rig.cluster.end_watches();
    let refused = || {
        matches!(
            informers.store::<k8s_openapi::api::core::v1::Pod>(),
            Err(StoreError::Refused { .. })
        )
    };
    rig.cluster.when(|_| refused()).await;
    assert!(informers.store::<Node>().is_ok());
    rig.cluster.api().undo(forbidden);
    rig.put_pod("a", "x", "n1");
    rig.pods_when(|pods| pods.len() == 1).await;
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_comes_later_is_noticed() {
    use clustercache_testkit::api::Kind as Served;
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widgets = Kind::dynamic(&ApiResource::from_gvk(&gvk)).best_effort();
    let rig = Rig::with("later", informers().kind(widgets)).await;
    let informers = rig.informers();
    let missing = || {
        matches!(
            informers.store_of::<DynamicObject>(&gvk),
            Err(StoreError::Refused { .. })
        )
    };
    rig.cluster.when(|_| missing()).await;
    let widget = || Served::custom("example.com", "v1", "Widget");
    rig.cluster.api().add_kind(widget()).unwrap();
    let store = informers
        .wait_synced_of::<DynamicObject>(&gvk, LIMIT)
        .await
        .unwrap();
    assert!(store.is_empty());
    // Gone again, with all that was of it.
    let object = serde_json::json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "namespace": "a" } });
    rig.cluster.put(object).unwrap();
    store
        .wait_for(|widgets| widgets.len() == 1, LIMIT)
        .await
        .unwrap();
    rig.cluster.api().remove_kind("example.com", "widgets");
    rig.cluster.when(|_| missing()).await;
    rig.cluster.api().add_kind(widget()).unwrap();
    let store = informers
        .wait_synced_of::<DynamicObject>(&gvk, LIMIT)
        .await
        .unwrap();
    assert!(store.is_empty());
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_end_at_once_for_ever_are_said_and_list_nothing() {
    let rig = with_three_pods("ends").await;
    let (lists, streams) = (rig.lists("pods"), rig.informed("pods").lists);
    let ends = rig
        .cluster
        .api()
        .inject(Fault::watch_ended().resource("pods"));
    rig.cluster.end_watches();
    let before = rig.watches("pods");
    rig.cluster.when(|_| rig.watches("pods") > before + 5).await;
    let trouble = rig.informed("pods").trouble.expect("it is said");
    assert!(
        trouble.failures() > 1 && trouble.to_string().contains("ends it"),
        "{trouble}"
    );
    assert_eq!(names(&rig).len(), 3, "what was there can be read");
    rig.cluster.api().undo(ends);
    rig.put_pod("a", "w", "n1");
    rig.pods_when(|pods| pods.len() == 4).await;
    assert!(rig.informed("pods").trouble.is_none());
    assert_eq!(
        (rig.lists("pods"), rig.informed("pods").lists),
        (lists, streams)
    );
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_silent_but_open_is_found_and_goes_on() {
    let mut options = quick();
    options.bookmarks = Duration::from_millis(200);
    let rig = Rig::with(
        "silent",
        Informers::new().loop_options(options).kind(pods()),
    )
    .await;
    let before = rig.informed("pods");
    rig.cluster.send_bookmarks();
    let stalled = rig
        .cluster
        .api()
        .inject(Fault::watch_stalled().resource("pods"));
    rig.put_pod("a", "x", "n1");
    let watches = rig.cluster.counters().requests.watch;
    rig.cluster
        .when(|counters| counters.requests.watch > watches)
        .await;
    rig.cluster.api().undo(stalled);
    rig.pods_when(|pods| pods.len() == 1).await;
    assert_eq!(rig.informed("pods").lists, before.lists);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_cost_no_list() {
    let rig = with_three_pods("cut").await;
    let before = rig.informed("pods");
    for nth in 0..3 {
        rig.cluster.reset_connections();
        let name = format!("new-{nth}");
        rig.put_pod("a", &name, "n1");
        rig.pods_when(|pods| pods.contains("a", &name)).await;
    }
    let after = rig.informed("pods");
    assert_eq!(
        (after.lists, after.added - before.added, after.deleted),
        (before.lists, 3, before.deleted)
    );
    rig.end().await;
}
