//! The CPU that one probe of a steady cluster takes, all included: the engine, its timers, the health check, the transport; against the bare request over
//! as many connections, as often, and as spread: all at once would find each other's caches warm, each alone would pay for the waking. The
//! servers are another process.

use std::time::Duration;

use anyhow::ensure;
use bare::Bare;
use clustercache::{ClusterCache, options::HealthOptions};
use clustercache_client::KubeClient;
use figure::{Figures, Unit::Nanoseconds, count, cpu_time_of_all, median, nanoseconds};
use served::Served;
use tokio::time::{Instant, sleep, sleep_until};

mod bare;
mod figure;
mod served;

const CLUSTERS: usize = 1_000;

/// Three probes of each cluster.
const WINDOW: Duration = Duration::from_secs(15);
const ROUNDS: usize = 2;

/// Probes share wakings.
const TICK: Duration = Duration::from_millis(100);
const TICKS: u32 = 50;

fn main() -> anyhow::Result<()> {
    if served::served()? {
        return Ok(());
    }
    measure(&mut Served::start(CLUSTERS, 0)?)
}

#[tokio::main]
async fn measure(served: &mut Served) -> anyhow::Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(probed(served).await?);
        theirs.push(asked(served).await?);
    }
    let mut figures = Figures::default();
    let reference = ("bare_request", median(&mut theirs));
    figures.against("probe_cpu", median(&mut ours), Nanoseconds, reference);
    figures.print();
    Ok(())
}

async fn probed(served: &mut Served) -> anyhow::Result<f64> {
    let cache = ClusterCache::builder()
        .source(served.source())
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .start()?;
    let started = cache.wait_for_start(Duration::from_secs(60)).await?;
    ensure!(started, "not connected in time");
    let cpu = cpu_of_a_request(served).await?;
    cache.shutdown().await?;
    Ok(cpu)
}

async fn asked(served: &mut Served) -> anyhow::Result<f64> {
    let accesses = served.clusters().iter().map(|(_, access)| access);
    let connected = Bare::connect_all(accesses, 64).await?;
    let every = HealthOptions::default().probe_after;
    let begun = Instant::now();
    let asking = connected.into_iter().map(|bare| {
        let mut at = begun + TICK * fastrand::u32(..TICKS);
        tokio::spawn(async move {
            loop {
                at += every;
                sleep_until(at).await;
                bare.get("/readyz").await.expect("it answers");
            }
        })
    });
    let asking: Vec<_> = asking.collect();
    sleep(every).await;
    let cpu = cpu_of_a_request(served).await;
    for task in asking {
        task.abort();
    }
    cpu
}

/// What this process uses for each request that the fleet answers.
async fn cpu_of_a_request(served: &mut Served) -> anyhow::Result<f64> {
    // What is asked of each cluster a few seconds after it has connected is no probe.
    sleep(Duration::from_secs(7)).await;
    let (requests, cpu) = (served.requests()?, cpu_time_of_all());
    sleep(WINDOW).await;
    let cpu = cpu_time_of_all().saturating_sub(cpu);
    let requests = served.requests()? - requests;
    Ok(nanoseconds(cpu) / count(usize::try_from(requests)?))
}
