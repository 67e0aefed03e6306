//! A kube-rs `Controller` on a management cluster, where `ConfigMap`s stand for clusters: it is woken when its object changes, and by the
//! cache when a cluster connects, is lost, or has not answered for five minutes. It has no timer.
//!
//! `cargo run --example controller`: fake API servers in this process, one of which is lost and comes back.
//! `cargo run --example controller -- --kubeconfig PATH --management CONTEXT`: real ones, until Ctrl-C. The contexts of the file are the
//! clusters; `kubectl create configmap NAME --namespace fleet` on the management cluster stands for the context of that name.

use std::{collections::BTreeMap, future::ready, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clustercache::{Builder, Changes, ClusterCache, ClusterKey, GetError, WaitError};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_kubeconfig::KubeconfigFile;
use clustercache_testkit::fleet::Fleet;
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

const NAMESPACE: &str = "fleet";

const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(25);

struct Context {
    cache: ClusterCache,
    /// What came of each reconciliation: the name, and what is printed. A real controller writes it into the object's status.
    outcomes: mpsc::Sender<(String, String)>,
}

/// Why there is nothing to be written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The cache wakes us when that changes.
    #[error("{0}")]
    NotConnected(#[from] GetError),
    /// It is connected, and a call failed.
    #[error("{0}")]
    Call(#[from] kube::Error),
}

/// Counts the nodes of the cluster that the object stands for.
async fn reconcile(object: Arc<ConfigMap>, cx: Arc<Context>) -> Result<Action, Failure> {
    let name = object.name_any();
    let nodes = count_nodes(&cx.cache, &ClusterKey::named(&name)).await;
    let outcome = match &nodes {
        Ok(nodes) => format!("{nodes} nodes"),
        Err(why) => why.to_string(),
    };
    // Nobody listens any more when the program ends.
    let _ = cx.outcomes.send((name, outcome)).await;
    match nodes {
        Ok(_) | Err(Failure::NotConnected(_)) => Ok(Action::await_change()),
        Err(failure) => Err(failure),
    }
}

async fn count_nodes(cache: &ClusterCache, key: &ClusterKey) -> Result<usize, Failure> {
    let nodes = Api::<Node>::all(cache.client(key)?);
    Ok(nodes.list(&ListParams::default()).await?.items.len())
}

/// Only calls to a connected cluster come here.
fn error_policy(_: Arc<ConfigMap>, _: &Failure, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

/// The objects to reconcile because of what became of their clusters.
fn triggers(cache: &ClusterCache) -> impl Stream<Item = ObjectRef<ConfigMap>> + Send + use<> {
    cache
        .subscribe()
        .only(Changes::CONNECTED | Changes::DISCONNECTED | Changes::REMOVED)
        .unhealthy_for(FIVE_MINUTES)
        .filter_map(|event| {
            // A resync names no cluster; each of them follows.
            let object = |key: &ClusterKey| ObjectRef::new(key.name()).within(NAMESPACE);
            ready(event.key().map(object))
        })
}

/// Runs the controller whenever the management cluster is connected. A client belongs to a connection, and so does what runs over it.
async fn control(cx: Arc<Context>, management: ClusterKey) -> Result<(), WaitError> {
    loop {
        let cluster = cx.cache.wait_for(&management, FIVE_MINUTES).await?;
        let Ok(client) = cluster.get::<KubeClient>() else {
            continue; // lost again meanwhile
        };
        let objects = Api::<ConfigMap>::namespaced(client.client(), NAMESPACE);
        Controller::new(objects, watcher::Config::default())
            .reconcile_on(triggers(&cx.cache))
            .graceful_shutdown_on(async move {
                let _ = client.retired().await;
            })
            .run(reconcile, error_policy, Arc::clone(&cx))
            .for_each(|_| ready(()))
            .await;
    }
}

/// A cache, and a controller over it.
fn start(
    builder: Builder,
    management: &str,
) -> anyhow::Result<(ClusterCache, mpsc::Receiver<(String, String)>)> {
    let cache = builder
        .resource(KubeClient::new().user_agent("controller-example/1.0"))
        .health_from::<KubeClient>()
        .start()?;
    let (outcomes, outcome) = mpsc::channel(64);
    let cx = Context {
        cache: cache.clone(),
        outcomes,
    };
    tokio::spawn(control(Arc::new(cx), ClusterKey::named(management)));
    Ok((cache, outcome))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => on_fake_clusters().await,
        ["--kubeconfig", path, "--management", context] => on_real_ones(path.into(), context).await,
        _ => bail!("usage: controller [--kubeconfig PATH --management CONTEXT]"),
    }
}

async fn on_real_ones(path: PathBuf, management: &str) -> anyhow::Result<()> {
    let builder = ClusterCache::builder().source(KubeconfigFile::at(path));
    let (cache, mut outcomes) = start(builder, management)?;
    loop {
        tokio::select! {
            ended = tokio::signal::ctrl_c() => break ended?,
            Some((name, outcome)) = outcomes.recv() => println!("{name}: {outcome}"),
        }
    }
    cache.shutdown().await?;
    Ok(())
}

async fn on_fake_clusters() -> anyhow::Result<()> {
    // The first is the management cluster.
    let fleet = Fleet::builder()
        .clusters(3)
        .name_prefix("c")
        .start()
        .await?;
    let (management, eu, us) = (&fleet[0], &fleet[1], &fleet[2]);
    for cluster in [eu, us] {
        cluster
            .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker" } }))?;
        let name = cluster.name();
        management.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": NAMESPACE, "name": name },
        }))?;
    }
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, fleet.kubeconfig_of_all())?;
    let builder = ClusterCache::builder()
        .source(KubeconfigFile::at(&kubeconfig))
        // For an example that does not take long.
        .configure(|options| {
            options.health.probe_after = Duration::from_secs(1);
            options.health.down_after = Duration::from_secs(2);
        });
    let (cache, mut outcomes) = start(builder, management.name())?;

    let mut last = BTreeMap::new();
    let mut until = async |name: &str, wanted: &str| {
        let waited = async {
            while !last
                .get(name)
                .is_some_and(|outcome: &String| outcome.contains(wanted))
            {
                let (about, outcome) = outcomes.recv().await.context("the controller ended")?;
                println!("reconciled {about}: {outcome}");
                last.insert(about, outcome);
            }
            anyhow::Ok(())
        };
        let waited = timeout(LIMIT, waited).await;
        waited.with_context(|| format!("{name} was not reconciled to {wanted:?}"))?
    };
    until(eu.name(), "1 nodes").await?;
    until(us.name(), "1 nodes").await?;
    println!("{} is lost", eu.name());
    eu.refuse();
    until(eu.name(), "is down").await?;
    println!("{} is back", eu.name());
    eu.heal();
    until(eu.name(), "1 nodes").await?;
    println!("an object of a cluster that nobody knows");
    management.put(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": NAMESPACE, "name": "nowhere" },
    }))?;
    until("nowhere", "is not known to any source").await?;

    let report = cache.shutdown().await?;
    ensure!(report.is_clean(), "{report}");
    fleet.shutdown().await;
    Ok(())
}
