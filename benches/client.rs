//! What the client itself takes, in CPU of this process: a small GET on a connection that is up, and all of a handshake with the first GET; each against
//! hyper, and rustls, alone. The servers are another process.

use std::time::Duration;

use anyhow::{Context, ensure};
use bare::Bare;
use clustercache::{ClusterAccess, ClusterCache, options::DialOptions};
use clustercache_client::{ClientExt, KubeClient};
use figure::{Figures, Unit::Nanoseconds, count, cpu_time_of_all, median, nanoseconds};
use http_body_util::BodyExt;
use hyper::Request;
use kube::client::Body;
use served::Served;

mod bare;
mod figure;
mod served;

const CLUSTERS: usize = 200;
const GETS: usize = 5_000;
const ROUNDS: usize = 7;

/// An answer of half a kilobyte.
const SMALL: &str = "/version";

fn main() -> anyhow::Result<()> {
    if served::served()? {
        return Ok(());
    }
    measure(&Served::start(CLUSTERS, 0)?)
}

#[tokio::main]
async fn measure(served: &Served) -> anyhow::Result<()> {
    let (mut gets, mut handshakes) = (Pairs::default(), Pairs::default());
    for _ in 0..ROUNDS {
        let (handshake, get) = ours(served).await?;
        handshakes.ours.push(handshake);
        gets.ours.push(get);
        let (handshake, get) = theirs(served).await?;
        handshakes.theirs.push(handshake);
        gets.theirs.push(get);
    }
    let mut figures = Figures::default();
    gets.figure(&mut figures, "warm_get", "hyper");
    handshakes.figure(&mut figures, "handshake", "hyper_and_rustls");
    figures.print();
    Ok(())
}

#[derive(Default)]
struct Pairs {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Pairs {
    fn figure(mut self, figures: &mut Figures, name: &str, reference: &str) {
        let reference = (reference, median(&mut self.theirs));
        figures.against(name, median(&mut self.ours), Nanoseconds, reference);
    }
}

/// The CPU of a handshake, and of a GET.
async fn ours(served: &Served) -> anyhow::Result<(f64, f64)> {
    let source = served.source();
    let begun = cpu_time_of_all();
    let cache = ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        // What a steady cluster costs is in another bench.
        .configure(|options| options.health.probe_after = Duration::from_secs(3600))
        .start()?;
    let started = cache.wait_for_start(Duration::from_secs(60)).await?;
    let handshake = nanoseconds(cpu_time_of_all().saturating_sub(begun)) / count(CLUSTERS);
    ensure!(started, "not connected in time");
    // What is asked of each cluster a few seconds after it has connected is not part of a GET.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let client = cache.client(&served.clusters()[0].0)?;
    let gets = async move {
        for _ in 0..GETS {
            let request = Request::get(SMALL).body(Body::empty())?;
            let answer = client.send(request).await?;
            ensure!(answer.status().is_success());
            answer.into_body().collect().await?;
        }
        Ok(())
    };
    let get = cpu_of_a_get(gets).await?;
    cache.shutdown().await?;
    Ok((handshake, get))
}

async fn theirs(served: &Served) -> anyhow::Result<(f64, f64)> {
    let accesses: Vec<ClusterAccess> = served.clusters().iter().map(|(_, a)| a.clone()).collect();
    let begun = cpu_time_of_all();
    let mut connected =
        Bare::connect_all(accesses.iter(), DialOptions::default().handshakes).await?;
    let handshake = nanoseconds(cpu_time_of_all().saturating_sub(begun)) / count(CLUSTERS);
    let bare = connected.pop().context("there are clusters")?;
    let gets = async move {
        for _ in 0..GETS {
            bare.get(SMALL).await?;
        }
        Ok(())
    };
    Ok((handshake, cpu_of_a_get(gets).await?))
}

/// On a task, as a reconciler is: to wake a thread that blocks on the runtime costs more than a GET.
async fn cpu_of_a_get<F>(gets: F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let begun = cpu_time_of_all();
    tokio::spawn(gets).await??;
    Ok(nanoseconds(cpu_time_of_all().saturating_sub(begun)) / count(GETS))
}
