//! What is in each cluster of a fleet, at hand: nodes and pods, read by index, through a token that is rotated and an outage. The counters at
//! its end show that each kind was listed once.
//!
//! `cargo run --example informers`: ten fake API servers over real TLS.

use std::time::Duration;

use anyhow::{Context, ensure};
use clustercache::{ClusterCache, ClusterKey, MemorySource, Phase, Upsert, options::Options};
use clustercache_client::KubeClient;
use clustercache_informers::{Informers, Keep, Kind, Store};
use clustercache_kubeconfig::{Kubeconfig, Policy};
use clustercache_testkit::fleet::{FakeCluster, Fleet};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use tokio::time::timeout;

const CLUSTERS: usize = 10;
const NODES: usize = 3;
const PODS: usize = 60;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Down within a second, so that the outage is short.
fn hasty(options: &mut Options) {
    options.health.probe_after = Duration::from_millis(300);
    options.health.probe_timeout = Duration::from_millis(300);
    options.health.suspect_interval = Duration::from_millis(200);
    options.health.down_after = Duration::from_millis(600);
    options.retry.most = Duration::from_secs(1);
}

fn key(cluster: &FakeCluster) -> ClusterKey {
    ClusterKey::named(cluster.name())
}

fn fill(cluster: &FakeCluster) -> anyhow::Result<()> {
    for node in 0..NODES {
        let name = format!("node-{node}");
        cluster.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }))?;
    }
    for pod in 0..PODS {
        put(cluster, &format!("pod-{pod}"), pod % NODES)?;
    }
    Ok(())
}

fn put(cluster: &FakeCluster, name: &str, node: usize) -> anyhow::Result<()> {
    cluster.put(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "default", "name": name },
        "spec": { "nodeName": format!("node-{node}"), "containers": [{ "name": "main", "image": "shop" }] },
    }))?;
    Ok(())
}

/// The source says what a cluster's access is now.
fn give(source: &MemorySource, cluster: &FakeCluster) -> anyhow::Result<()> {
    let kubeconfig = Kubeconfig::parse(cluster.kubeconfig().as_bytes(), &Policy::operator())?;
    source.upsert(Upsert::ready(key(cluster), kubeconfig.current()?.1));
    Ok(())
}

async fn until(cache: &ClusterCache, key: &ClusterKey, phase: Phase) -> anyhow::Result<()> {
    let mut events = cache.subscribe().key(key);
    let so = async {
        while cache.phase(key)? != phase {
            events.next().await.context("the cache ended")?;
        }
        anyhow::Ok(())
    };
    timeout(LIMIT, so).await.context("not in time")?
}

/// What a reconciler does: it never waits.
fn report(cache: &ClusterCache, key: &ClusterKey) -> anyhow::Result<()> {
    let informers = cache.get::<Informers>(key)?;
    let pods = informers.store::<Pod>()?;
    for node in informers.store::<Node>()?.list()? {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        println!("  {name}: {} pods", pods.count_by_index("node", name)?);
    }
    Ok(())
}

/// The pods of a cluster once they are as they should be: woken by changes.
async fn pods(
    cache: &ClusterCache,
    key: &ClusterKey,
    done: impl FnMut(&Store<Pod>) -> bool,
) -> anyhow::Result<Store<Pod>> {
    let pods = cache.get::<Informers>(key)?.store::<Pod>()?;
    Ok(pods.wait_for(done, LIMIT).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let fleet = Fleet::start(CLUSTERS).await?;
    let source = MemorySource::new("fleet");
    for cluster in fleet.clusters() {
        fill(cluster)?;
        give(&source, cluster)?;
    }
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .resource(
            Informers::new()
                .kind(Kind::<Node>::new().keep(Keep::Decoded))
                .kind(Kind::<Pod>::new().index_field("node", "spec.nodeName")),
        )
        .configure(hasty)
        .start()?;
    ensure!(cache.wait_for_start(LIMIT).await?, "not connected in time");
    let (first, key) = (&fleet[0], key(&fleet[0]));
    println!("{CLUSTERS} clusters are synced; {key} has");
    report(&cache, &key)?;

    let old = first.token();
    let new = first.add_token();
    give(&source, first)?;
    timeout(LIMIT, first.when(|_| first.seen_tokens().contains(&new))).await?;
    first.revoke_token(&old);
    put(first, "after-the-rotation", 0)?;
    pods(&cache, &key, |pods| {
        pods.contains("default", "after-the-rotation")
    })
    .await?;
    println!("its token was rotated, the old one revoked, and a pod came on the same watch");

    first.refuse();
    until(&cache, &key, Phase::Down).await?;
    println!(
        "it is down, which is an error and no empty list: {}",
        cache
            .get::<Informers>(&key)
            .map_or_else(|why| why.to_string(), |_| "?".into())
    );
    put(first, "during-the-outage", 1)?;
    first.delete("v1", "Pod", "default", "pod-0");
    first.heal();
    cache.wait_for(&key, LIMIT).await?;
    let pods = pods(&cache, &key, |pods| {
        pods.contains("default", "during-the-outage")
    })
    .await?;
    ensure!(
        !pods.contains("default", "pod-0"),
        "its deletion was missed"
    );
    println!("it is back with what changed meanwhile");
    report(&cache, &key)?;

    for informed in cache.get::<Informers>(&key)?.informed() {
        println!(
            "since then: {} lists and {} watches of {}, which are {} objects in {} bytes",
            informed.lists, informed.watches, informed.resource, informed.objects, informed.bytes
        );
        ensure!(informed.lists == 0, "it was listed again");
    }
    cache.shutdown().await?;
    fleet.shutdown().await;
    Ok(())
}
