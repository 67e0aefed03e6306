//! The store is what the server has: at each version, while it changes, and by each index.

use std::collections::{BTreeMap, BTreeSet};

use clustercache_client::ClientExt;
use clustercache_informers::{Informers, Keep, Store};
use clustercache_testkit::{
    api::{FakeApi, Fault, Verb},
    fleet::FakeCluster,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, VersionMatch},
};

use crate::rig::{Rig, pods, quick, soon};

const PODS: usize = 2_000;
const NAMESPACES: [&str; 3] = ["a", "b", "c"];

fn name(number: usize) -> String {
    format!("pod-{number}")
}

/// By namespace and name: UID, version and node.
type All = BTreeMap<(String, String), (String, String, String)>;

fn all(pods: impl Iterator<Item = Pod>) -> All {
    let of = |pod: Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let id = (pod.namespace().unwrap(), pod.name_any());
        (
            id,
            (
                pod.uid().unwrap(),
                pod.resource_version().unwrap(),
                node.unwrap(),
            ),
        )
    };
    pods.map(of).collect()
}

fn read(store: &Store<Pod>) -> All {
    all(store.iter().map(|pod| Pod::clone(&pod.unwrap())))
}

async fn listed(api: &Api<Pod>, version: &str) -> All {
    let at = ListParams::default()
        .at(version)
        .matching(VersionMatch::Exact);
    all(api.list(&at).await.unwrap().items.into_iter())
}

/// Whether the indexes say what a scan says.
fn check_indexes(store: &Store<Pod>, all: &All) {
    let mut by_node = BTreeMap::<_, BTreeSet<_>>::new();
    let mut by_namespace = BTreeMap::<_, usize>::new();
    for (id, (_, _, node)) in all {
        by_node.entry(node.clone()).or_default().insert(id.clone());
        *by_namespace.entry(id.0.clone()).or_default() += 1;
    }
    for (node, expected) in by_node {
        for index in ["node", "app"] {
            let found = store.by_index(index, &node).unwrap();
            let found: BTreeSet<_> = found
                .iter()
                .map(|pod| (pod.namespace().unwrap(), pod.name_any()))
                .collect();
            assert_eq!(found, expected, "{index} {node}");
        }
    }
    for (namespace, expected) in by_namespace {
        assert_eq!(store.within(&namespace).unwrap().len(), expected);
    }
}

/// Changes as many pods, at random, and gives others their turn between.
async fn change(rig: &Rig, rng: &mut fastrand::Rng, changes: usize) {
    for nth in 0..changes {
        let number = rng.usize(..PODS);
        let (namespace, name) = (NAMESPACES[number % 3], name(number));
        let there = rig
            .cluster
            .api()
            .get("v1", "Pod", namespace, &name)
            .is_some();
        if there && rng.u8(..3) == 0 {
            rig.delete_pod(namespace, &name);
        } else {
            rig.put_pod(namespace, &name, &format!("node-{}", rng.u8(..20)));
        }
        if nth % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

async fn a_store_under_changes(keep: Keep, paged: bool, changes: usize) {
    let api = FakeApi::builder().history(50_000).build();
    let cluster = FakeCluster::builder("truth").api(api).start().unwrap();
    let refused = paged.then(|| cluster.api().inject(Fault::status(422).verb(Verb::Watch)));
    let informers = Informers::new()
        .loop_options(quick())
        .kind(pods().keep(keep));
    let rig = Rig::on(cluster, informers);
    for number in 0..PODS {
        rig.put_pod(
            NAMESPACES[number % 3],
            &name(number),
            &format!("node-{}", number % 20),
        );
    }
    rig.give(rig.cluster.access().credential);
    rig.connected().await;
    assert_eq!(rig.lists("pods") > 0, paged);
    if let Some(refused) = refused {
        rig.cluster.api().undo(refused);
    }
    let client: Api<Pod> = Api::all(rig.cache.client(&rig.key).unwrap());
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..10 {
        change(&rig, &mut rng, changes / 10).await;
        // Somewhere in between.
        let store = rig.pods();
        let known = read(&store);
        let version = store.freshness().resource_version().unwrap();
        assert_eq!(known, listed(&client, &version).await, "at {version}");
        check_indexes(&store, &known);
    }
    // And at the end of it.
    let last = rig.cluster.version().to_string();
    rig.cluster.send_bookmarks();
    let store = rig
        .pods_when(|pods| pods.freshness().resource_version().as_deref() == Some(&last))
        .await;
    let known = read(&store);
    assert_eq!(known, soon(listed(&client, &last)).await);
    check_indexes(&store, &known);
    let informed = rig.informed("pods");
    let left = informed.added - informed.deleted;
    assert_eq!(
        usize::try_from(left).unwrap(),
        known.len(),
        "each was told once"
    );
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encoded_store_equals_the_servers_list_at_the_same_version() {
    a_store_under_changes(Keep::Encoded, false, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decoded_store_that_was_listed_in_pages_equals_it_too() {
    a_store_under_changes(Keep::Decoded, true, 2_000).await;
}
