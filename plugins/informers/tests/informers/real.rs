//! Informers on a real kube-apiserver: changes while readers check, a server that is stopped and goes on, one that is killed and comes back.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use clustercache::{ClusterAccess, ClusterCache, ClusterKey, MemorySource, Upsert};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_informers::{Informers, Kind};
use clustercache_testkit::{real::RealApiServer, real_or_skip};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, VersionMatch},
};
use serde_json::json;

use crate::rig::{informed, pods, quick};

const LIMIT: Duration = Duration::from_secs(120);

fn start(server: &RealApiServer) -> anyhow::Result<(ClusterCache, ClusterKey)> {
    let admin = server.admin();
    let access = ClusterAccess::builder(server.url())
        .ca_pem(server.ca_pem())
        .client_certificate_pem(admin.cert_pem.clone(), admin.key_pem.clone());
    let source = MemorySource::new("real");
    let key = ClusterKey::named("real");
    source.upsert(Upsert::ready(key.clone(), access.build()?));
    let cache = ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .resource(
            Informers::new()
                .loop_options(quick())
                .kind(pods())
                .kind(Kind::<ConfigMap>::new()),
        )
        .configure(|options| options.retry.most = Duration::from_secs(1))
        .start()?;
    Ok((cache, key))
}

fn pod(name: &str, node: usize) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": format!("app-{node}") } },
        "spec": { "nodeName": format!("node-{node}"), "containers": [{ "name": "main", "image": "none" }] },
    }))?)
}

async fn create(api: &Api<Pod>, names: std::ops::Range<usize>) -> anyhow::Result<()> {
    let made = names.map(|number| async move {
        api.create(
            &PostParams::default(),
            &pod(&format!("pod-{number}"), number % 5)?,
        )
        .await?;
        anyhow::Ok(())
    });
    stream::iter(made).buffer_unordered(16).try_collect().await
}

type All = BTreeMap<String, String>;

fn versions<'a>(pods: impl Iterator<Item = &'a Pod>) -> All {
    pods.map(|pod| (pod.name_any(), pod.resource_version().unwrap_or_default()))
        .collect()
}

/// The store equals the server's list at its version; says how many there are.
async fn check(cache: &ClusterCache, key: &ClusterKey) -> anyhow::Result<usize> {
    let store = cache.get::<Informers>(key)?.store::<Pod>()?;
    let version = store
        .freshness()
        .resource_version()
        .context("it is synced")?;
    let ours = store.list()?;
    let api: Api<Pod> = Api::all(cache.client(key)?);
    let at = ListParams::default()
        .at(&version)
        .matching(VersionMatch::Exact);
    let theirs = api.list(&at).await?;
    anyhow::ensure!(
        versions(ours.iter().map(|pod| &**pod)) == versions(theirs.items.iter()),
        "at {version}"
    );
    Ok(ours.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_is_followed_through_changes_a_stop_and_a_kill() -> anyhow::Result<()> {
    let mut servers = real_or_skip!(1, Ok(()));
    let (cache, key) = start(&servers[0])?;
    cache.wait_for(&key, LIMIT).await?;
    let api: Api<Pod> = Api::default_namespaced(cache.client(&key)?);
    create(&api, 0..100).await?;
    let informers = cache.get::<Informers>(&key)?;
    let store = informers.wait_synced::<Pod>(LIMIT).await?;
    store.wait_for(|pods| pods.len() == 100, LIMIT).await?;
    assert_eq!(check(&cache, &key).await?, 100);
    // As a stream: the server knows them.
    assert_eq!(informed(&informers, "pods").lists, 1);

    // Changes while readers check.
    for number in 0..30 {
        api.delete(
            &format!("pod-{number}"),
            &DeleteParams::default().grace_period(0),
        )
        .await?;
        if number % 10 == 0 {
            check(&cache, &key).await?;
        }
    }
    store.wait_for(|pods| pods.len() == 70, LIMIT).await?;
    assert_eq!(
        store
            .wait_for(|_| true, LIMIT)
            .await?
            .count_by_index("node", "node-0")?,
        14
    );

    // Killed and started again: what changed is known by the watch that goes on, or by one list.
    let before = informed(&informers, "pods");
    servers[0].kill().await?;
    servers[0].restart().await?;
    cache.wait_for(&key, LIMIT).await?;
    let api: Api<Pod> = Api::default_namespaced(cache.client(&key)?);
    create(&api, 100..110).await?;
    let informers = cache.get::<Informers>(&key)?;
    let store = informers.wait_synced::<Pod>(LIMIT).await?;
    store.wait_for(|pods| pods.len() == 80, LIMIT).await?;
    assert_eq!(check(&cache, &key).await?, 80);
    let after = informed(&informers, "pods");
    // On a connection that lived on, or on a new one, which counts anew.
    let (lists, added) = if after.added >= before.added {
        (after.lists - before.lists, after.added - before.added)
    } else {
        (after.lists, after.added)
    };
    assert!(lists <= 1, "{lists} lists");
    assert_eq!(added, 10, "each once");
    cache.shutdown().await?;
    Ok(())
}
