//! What an idle connected cluster costs of which five kinds are watched, its client included: heap, tasks and descriptors; against five
//! reflectors of kube-rs on a bare connection. Each side is measured in a process of its own, the servers in another.

use std::{alloc::System, process::Command, time::Duration};

use anyhow::{Context, ensure};
use bare::Bare;
use clustercache::ClusterCache;
use clustercache_client::KubeClient;
use clustercache_informers::{Informers, Kind};
use figure::{Figures, Unit::Bytes, Unit::Of, count};
use futures_util::StreamExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Node, Pod, Secret},
};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, reflector, watcher},
};
use served::Served;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

mod bare;
mod figure;
mod served;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLUSTERS: usize = 300;

/// So long after the last is synced: each has been probed, and what connecting took is given back.
const IDLE: Duration = Duration::from_secs(12);

fn main() -> anyhow::Result<()> {
    if served::served()? {
        return Ok(());
    }
    match std::env::args().nth(1).as_deref() {
        Some("ours") => return print(&Served::start(CLUSTERS, 0)?, true),
        Some("kube") => return print(&Served::start(CLUSTERS, 0)?, false),
        _ => {}
    }
    let (ours, theirs) = (measured("ours")?, measured("kube")?);
    let mut figures = Figures::default();
    for (what, at, unit) in [
        ("watches_heap", 0, Bytes),
        ("watches_tasks", 1, Of("tasks")),
        ("watches_descriptors", 2, Of("descriptors")),
    ] {
        figures.against(what, ours[at], unit, ("kube_reflectors", theirs[at]));
    }
    figures.print();
    Ok(())
}

/// Has a process of its own measure one side.
fn measured(side: &str) -> anyhow::Result<Vec<f64>> {
    let output = Command::new(std::env::current_exe()?).arg(side).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let numbers = String::from_utf8(output.stdout)?;
    let numbers = numbers.split_whitespace().map(|number| Ok(number.parse()?));
    numbers.collect()
}

#[tokio::main]
async fn print(served: &Served, ours: bool) -> anyhow::Result<()> {
    let source = served.source();
    let before = Used::now()?;
    if ours {
        let cache = ClusterCache::builder()
            .source(source)
            .resource(KubeClient::new())
            .health_from::<KubeClient>()
            .resource(
                Informers::new()
                    .kind(Kind::<Node>::new())
                    .kind(Kind::<Pod>::new())
                    .kind(Kind::<Deployment>::new())
                    .kind(Kind::<ConfigMap>::new())
                    .kind(Kind::<Secret>::new()),
            )
            .start()?;
        let started = cache.wait_for_start(Duration::from_secs(60)).await?;
        ensure!(started, "not synced in time");
        tokio::time::sleep(IDLE).await;
        before.print_since()?;
        drop(cache);
    } else {
        let accesses = served.clusters().iter().map(|(_, access)| access);
        let connected = Bare::connect_all(accesses, 64).await?;
        let mut stores = Vec::new();
        for bare in &connected {
            let client = bare.client();
            stores.push(reflected::<Node>(&client).await?);
            stores.push(reflected::<Pod>(&client).await?);
            stores.push(reflected::<Deployment>(&client).await?);
            stores.push(reflected::<ConfigMap>(&client).await?);
            stores.push(reflected::<Secret>(&client).await?);
        }
        drop(connected);
        tokio::time::sleep(IDLE).await;
        before.print_since()?;
        drop(stores);
    }
    Ok(())
}

/// A reflector of kube-rs, in a task, synced.
async fn reflected<K>(client: &kube::Client) -> anyhow::Result<Box<dyn std::any::Any>>
where
    K: Resource<DynamicType = ()>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store::<K>();
    let events = watcher(Api::all(client.clone()), watcher::Config::default());
    let events = reflector(writer, events).default_backoff();
    tokio::spawn(events.for_each(|_| std::future::ready(())));
    store.wait_until_ready().await?;
    Ok(Box::new(store))
}

struct Used([usize; 3]);

impl Used {
    fn now() -> anyhow::Result<Self> {
        let heap = HEAP.stats();
        Ok(Self([
            heap.bytes_allocated - heap.bytes_deallocated,
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
            std::fs::read_dir("/proc/self/fd").context("Linux")?.count(),
        ]))
    }

    /// What came since then, for each cluster. The engine and the source have a task each, whatever there are of clusters.
    fn print_since(&self) -> anyhow::Result<()> {
        for (now, before) in Self::now()?.0.into_iter().zip(self.0) {
            println!("{}", count(now.saturating_sub(before)) / count(CLUSTERS));
        }
        Ok(())
    }
}
