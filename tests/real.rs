//! The main job on real kube-apiservers: three of them over one real etcd. Without their binaries it is skipped, loudly.

use std::time::Duration;

use clustercache::{
    ClusterAccess, ClusterCache, ClusterKey, GetError, MemorySource, Phase, Upsert,
};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_kubeconfig::{Kubeconfig, Policy};
use clustercache_testkit::{guard::PanicGuard, real::RealApiServer, real_or_skip};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::ListParams};

/// Longer than anything here takes; reached by a fault only.
const LIMIT: Duration = Duration::from_secs(120);

fn access(kubeconfig: &str) -> anyhow::Result<ClusterAccess> {
    let kubeconfig = Kubeconfig::parse(kubeconfig.as_bytes(), &Policy::operator())?;
    Ok(kubeconfig.current()?.1)
}

fn cluster(index: usize, kubeconfig: &str) -> anyhow::Result<Upsert> {
    let key = ClusterKey::named(&format!("real-{index}"));
    Ok(Upsert::ready(key, access(kubeconfig)?))
}

async fn namespaces(cache: &ClusterCache, key: &ClusterKey) -> anyhow::Result<Vec<String>> {
    let namespaces = Api::<Namespace>::all(cache.client(key)?);
    let list = namespaces.list(&ListParams::default()).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

/// Waits until a cluster is what is wanted of it.
async fn until(
    cache: &ClusterCache,
    key: &ClusterKey,
    wanted: impl Fn(Option<Phase>) -> bool,
) -> anyhow::Result<()> {
    let mut events = cache.subscribe().key(key);
    let reached = async {
        while !wanted(cache.state(key).ok().map(|state| state.phase)) {
            if events.next().await.is_none() {
                break;
            }
        }
    };
    Ok(tokio::time::timeout(LIMIT, reached).await?)
}

async fn connected(cache: &ClusterCache, key: &ClusterKey) -> anyhow::Result<()> {
    cache.wait_for(key, LIMIT).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_servers_are_connected_lost_back_restarted_and_removed() -> anyhow::Result<()> {
    let mut servers = real_or_skip!(3, Ok(()));
    let source = MemorySource::new("real");
    for (index, server) in servers.iter().enumerate() {
        source.upsert(cluster(index, &server.kubeconfig())?);
    }
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .start()?;
    let _guard = PanicGuard::new(&cache);
    let keys: Vec<ClusterKey> = (0..3)
        .map(|n| ClusterKey::named(&format!("real-{n}")))
        .collect();

    // Connected, and listed.
    for key in &keys {
        connected(&cache, key).await?;
        assert!(
            namespaces(&cache, key)
                .await?
                .contains(&"default".to_owned())
        );
    }

    // A token is replaced: the same connection goes on, and the old token is not used any more.
    let server: &RealApiServer = &servers[0];
    server.grant_admin("default/robot").await?;
    let tokens = [
        server.token_for("default/robot").await?,
        server.token_for("default/robot").await?,
    ];
    let [first, second] = tokens.map(|token| server.kubeconfig_with_token(&token));
    source.upsert(cluster(0, &first)?);
    let wanted = access(&first)?.credential().fingerprint();
    until_credential(&cache, &keys[0], wanted).await?;
    connected(&cache, &keys[0]).await?;
    namespaces(&cache, &keys[0]).await?;
    let before = cache.get::<KubeClient>(&keys[0])?;
    source.upsert(cluster(0, &second)?);
    until_credential(
        &cache,
        &keys[0],
        access(&second)?.credential().fingerprint(),
    )
    .await?;
    namespaces(&cache, &keys[0]).await?;
    let after = cache.get::<KubeClient>(&keys[0])?;
    assert_eq!(
        (before.generation(), before.incarnation()),
        (after.generation(), after.incarnation())
    );
    assert!(before.is_current(), "nothing was initialised again");

    // Stopped, as a machine that hangs: lost. Continued: back. The others notice nothing.
    let neighbour = cache.get::<KubeClient>(&keys[0])?;
    servers[1].stop()?;
    until(&cache, &keys[1], |phase| phase == Some(Phase::Down)).await?;
    assert!(matches!(cache.client(&keys[1]), Err(GetError::Down(_))));
    servers[1].cont()?;
    connected(&cache, &keys[1]).await?;
    namespaces(&cache, &keys[1]).await?;

    // Killed, and started again on the same port: lost, and back.
    servers[2].kill().await?;
    until(&cache, &keys[2], |phase| phase == Some(Phase::Down)).await?;
    servers[2].restart().await?;
    cache.retry_now(&keys[2]);
    connected(&cache, &keys[2]).await?;
    namespaces(&cache, &keys[2]).await?;

    // Removed: unknown, after its lingering.
    source.remove(&keys[2]);
    until(&cache, &keys[2], |phase| phase.is_none()).await?;
    assert!(matches!(
        cache.client(&keys[2]),
        Err(GetError::Unknown { .. })
    ));
    assert!(neighbour.is_current(), "no other cluster was disturbed");

    let report = cache.shutdown().await?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Waits until a new credential is taken, in place.
async fn until_credential(
    cache: &ClusterCache,
    key: &ClusterKey,
    wanted: clustercache::Fingerprint,
) -> anyhow::Result<()> {
    let mut events = cache.subscribe().key(key);
    let taken = async {
        loop {
            let access = cache.state(key).ok().and_then(|state| state.access);
            if access.is_some_and(|access| access.credential == wanted) {
                return Ok(());
            }
            if events.next().await.is_none() {
                anyhow::bail!("the cache ended");
            }
        }
    };
    tokio::time::timeout(LIMIT, taken).await?
}
