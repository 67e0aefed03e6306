//! What an idle connected cluster costs: heap, resident memory, tasks and descriptors; with nothing but its client, against the parts that it is made of.
//! Each side is measured in a process of its own, the servers in another.

use std::{alloc::System, process::Command, time::Duration};

use anyhow::{Context, ensure};
use bare::Bare;
use clustercache::ClusterCache;
use clustercache_client::{ClientExt, KubeClient};
use figure::{Figures, Unit::Bytes, Unit::Of, count};
use http::Request;
use served::Served;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

mod bare;
mod figure;
mod served;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLUSTERS: usize = 1_000;

/// So long after the last has connected: each has been probed, and what connecting took is given back.
const IDLE: Duration = Duration::from_secs(12);

/// What ours asks of each cluster in that time: a request touches memory that lay untouched before.
const ALSO_ASKED: [&str; 5] = ["/readyz", "/version", "/version", "/readyz", "/readyz"];

fn main() -> anyhow::Result<()> {
    if served::served()? {
        return Ok(());
    }
    match std::env::args().nth(1).as_deref() {
        Some("ours") => return print(&Served::start(CLUSTERS, 0)?, true),
        Some("bare") => return print(&Served::start(CLUSTERS, 0)?, false),
        _ => {}
    }
    let (ours, bare) = (measured("ours")?, measured("bare")?);
    let mut figures = Figures::default();
    for (what, at, unit) in [
        ("heap_per_cluster", 0, Bytes),
        ("rss_per_cluster", 1, Bytes),
        ("tasks_per_cluster", 2, Of("tasks")),
        ("descriptors_per_cluster", 3, Of("descriptors")),
    ] {
        figures.against(what, ours[at], unit, ("bare_parts", bare[at]));
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
            .start()?;
        let started = cache.wait_for_start(Duration::from_secs(60)).await?;
        ensure!(started, "not connected in time");
        // As the bare side does: a client that nobody asked for is not made.
        for key in cache.keys()? {
            cache.client(&key)?.apiserver_version().await?;
        }
        tokio::time::sleep(IDLE).await;
        before.print_since()?;
        drop(cache);
    } else {
        let accesses = served.clusters().iter().map(|(_, access)| access);
        let connected = Bare::connect_all(accesses, 64).await?;
        let clients: Vec<_> = connected.iter().map(Bare::client).collect();
        drop(connected);
        for client in &clients {
            client.apiserver_version().await?;
            for path in ALSO_ASKED {
                client
                    .request_text(Request::get(path).body(Vec::new())?)
                    .await?;
            }
        }
        tokio::time::sleep(IDLE).await;
        before.print_since()?;
        drop(clients);
    }
    Ok(())
}

struct Used([usize; 4]);

impl Used {
    fn now() -> anyhow::Result<Self> {
        let heap = HEAP.stats();
        let statm = std::fs::read_to_string("/proc/self/statm")?;
        let pages: usize = statm
            .split_whitespace()
            .nth(1)
            .context("its second number")?
            .parse()?;
        Ok(Self([
            heap.bytes_allocated - heap.bytes_deallocated,
            pages * rustix::param::page_size(),
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
            std::fs::read_dir("/proc/self/fd")?.count(),
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
