//! How long a fleet takes from the start of the cache to all of it connected, against the same handshakes and first requests made by hand, as many
//! at once. The servers share the machine's processors with both.

use std::time::Duration;

use anyhow::ensure;
use bare::Bare;
use clustercache::{ClusterCache, options::DialOptions};
use clustercache_client::KubeClient;
use figure::{Figures, Unit::Nanoseconds, median, nanoseconds};
use served::Served;
use tokio::time::Instant;

mod bare;
mod figure;
mod served;

const CLUSTERS: usize = 1_000;
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    if served::served()? {
        return Ok(());
    }
    measure(&Served::start(CLUSTERS, 0)?)
}

#[tokio::main]
async fn measure(served: &Served) -> anyhow::Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(cache(served).await?);
        theirs.push(by_hand(served).await?);
    }
    let mut figures = Figures::default();
    let reference = ("hyper_and_rustls", median(&mut theirs));
    let value = median(&mut ours);
    figures.against("connect_1000", value, Nanoseconds, reference);
    figures.print();
    Ok(())
}

async fn cache(served: &Served) -> anyhow::Result<f64> {
    let source = served.source();
    let begun = Instant::now();
    let cache = ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .start()?;
    let started = cache.wait_for_start(Duration::from_secs(60)).await?;
    let took = nanoseconds(begun.elapsed());
    let connected = cache.counters().connects();
    ensure!(started && connected == 1_000, "{connected} are connected");
    cache.shutdown().await?;
    Ok(took)
}

async fn by_hand(served: &Served) -> anyhow::Result<f64> {
    let accesses = served.clusters().iter().map(|(_, access)| access);
    let begun = Instant::now();
    let connected = Bare::connect_all(accesses, DialOptions::default().handshakes).await?;
    let took = nanoseconds(begun.elapsed());
    ensure!(connected.len() == CLUSTERS);
    Ok(took)
}
