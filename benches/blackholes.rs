//! How long one healthy cluster takes to be connected, alone and while many others are tried that accept and say nothing.

use std::time::Duration;

use anyhow::ensure;
use clustercache::{ClusterCache, MemorySource, Upsert};
use clustercache_client::KubeClient;
use figure::{Figures, Unit::Nanoseconds, median, nanoseconds};
use served::Served;
use tokio::time::Instant;

mod figure;
mod served;

const HEALTHY: usize = 50;
const BLACK_HOLES: usize = 1_000;

/// Each number of black holes has its turn as often.
const ROUNDS: usize = 2;

fn main() -> anyhow::Result<()> {
    if served::served()? {
        return Ok(());
    }
    measure(&Served::start(HEALTHY + BLACK_HOLES, BLACK_HOLES)?)
}

#[tokio::main]
async fn measure(served: &Served) -> anyhow::Result<()> {
    let mut times = [0, 300, BLACK_HOLES].map(|black_holes| (black_holes, Vec::new()));
    for round in 0..ROUNDS {
        for (black_holes, times) in &mut times {
            times.extend(behind(served, *black_holes, round).await?);
        }
    }
    let [alone, behind @ ..] = times.map(|(black_holes, mut times)| {
        let name = format!("healthy_behind_{black_holes}");
        (name, median(&mut times))
    });
    let mut figures = Figures::default();
    figures.add(&alone.0, alone.1, Nanoseconds);
    for (name, time) in behind {
        figures.against(&name, time, Nanoseconds, (&alone.0, alone.1));
    }
    figures.print();
    Ok(())
}

/// The times of this round's share of the healthy clusters, one after the other.
async fn behind(served: &Served, black_holes: usize, round: usize) -> anyhow::Result<Vec<f64>> {
    let (healthy, dead) = served.clusters().split_at(HEALTHY);
    let source = MemorySource::new("served");
    for (key, access) in &dead[..black_holes] {
        source.upsert(Upsert::ready(key.clone(), access.clone()));
    }
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .start()?;
    let begun = Instant::now();
    while cache.dials().silent < black_holes {
        ensure!(
            begun.elapsed() < Duration::from_secs(10),
            "not all are dialled"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut times = Vec::new();
    let share = HEALTHY / ROUNDS;
    for (key, access) in &healthy[round * share..][..share] {
        let begun = Instant::now();
        source.upsert(Upsert::ready(key.clone(), access.clone()));
        cache.wait_for(key, Duration::from_secs(60)).await?;
        times.push(nanoseconds(begun.elapsed()));
    }
    cache.shutdown().await?;
    Ok(times)
}
