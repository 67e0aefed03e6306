//! A provider of one's own: a counter a cluster, kept by a task that ends with the connection.
//!
//! `cargo run --example custom_resource`

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource,
    HealthCheck, InitContext, InitError, MemorySource, Requires, Resource, TeardownContext, Upsert,
};

/// Counts the seconds of a connection.
struct Uptime;

#[async_trait]
impl ClusterResource for Uptime {
    type Value = Arc<AtomicU64>;

    fn name(&self) -> &'static str {
        "uptime"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().resource::<Link>() // up before us, and usable until we are torn down
    }

    async fn init(&self, cx: &InitContext) -> Result<Arc<AtomicU64>, InitError> {
        let seconds = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&seconds);
        cx.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }); // dropped when the connection ends
        Ok(seconds)
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        let seconds = value.load(Ordering::Relaxed);
        println!(
            "{}: was up for {seconds} s ({:?})",
            cx.key().shown(),
            cx.reason()
        );
    }
}

/// What tells whether the cluster is there. `clustercache-client` has the real one, `KubeClient`.
struct Link;

#[async_trait]
impl ClusterResource for Link {
    type Value = ClusterAccess;

    fn name(&self) -> &'static str {
        "link"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().access()
    }

    async fn init(&self, cx: &InitContext) -> Result<ClusterAccess, InitError> {
        Ok(cx.access()?)
    }
}

#[async_trait]
impl HealthCheck for Link {
    async fn check(&self, _: &ClusterAccess, _: &CheckContext) -> Result<Answer, CheckError> {
        Ok(Answer::Ready)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let source = MemorySource::new("example");
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(Link)
        .resource(Uptime)
        .health_from::<Link>()
        .start()?;

    let key = ClusterKey::named("eu-1");
    println!("before: {}", cache.get::<Uptime>(&key).unwrap_err());
    let access = ClusterAccess::builder("https://10.0.0.1:6443")
        .token("s3cret")
        .build()?;
    source.upsert(Upsert::ready(key.clone(), access));

    let cluster = cache.wait_for(&key, Duration::from_secs(5)).await?;
    let uptime = cluster.get::<Uptime>()?;
    println!("{uptime:?}");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    println!("up for {} s", uptime.load(Ordering::Relaxed));

    let report = cache.shutdown().await?;
    println!("after: {} ({report})", cluster.get::<Uptime>().unwrap_err());
    Ok(())
}
