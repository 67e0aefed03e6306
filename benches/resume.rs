//! What a reconnect costs of a cluster with 10,000 pods, ten of which changed meanwhile: lists, and bytes from the wire; against the first
//! connection's.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{ClusterAccess, ClusterCache, ClusterKey, MemorySource, Phase, Upsert};
use clustercache_client::{ByteStream, Destination, Dialer, KubeClient, TcpDialer, TransportError};
use clustercache_informers::{Informers, Kind};
use clustercache_testkit::fleet::FakeCluster;
use figure::{Figures, Unit::Bytes, Unit::Of};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

mod figure;
mod pods;

const PODS: usize = 10_000;
const CHANGED: usize = 10;
const LIMIT: Duration = Duration::from_secs(60);

/// Counts what comes.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

#[async_trait]
impl Dialer for Counting {
    async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
        let inner = TcpDialer::new().dial(to).await?;
        let came = Arc::clone(&self.0);
        Ok(Box::new(Counted { inner, came }))
    }
}

struct Counted {
    inner: Box<dyn ByteStream>,
    came: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let read = Pin::new(&mut *self.inner).poll_read(cx, to);
        self.came
            .fetch_add((to.filled().len() - before) as u64, Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(cx)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = FakeCluster::start("resume")?;
    for number in 0..PODS {
        cluster.put(pods::pod(number, 1))?;
    }
    let (source, counting) = (MemorySource::new("one"), Counting::default());
    let key = ClusterKey::named("resume");
    let access = ClusterAccess::builder(cluster.url())
        .ca_pem(cluster.ca_pem())
        .token(cluster.token());
    source.upsert(Upsert::ready(key.clone(), access.build()?));
    let cache = ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new().dialer(counting.clone()))
        .health_from::<KubeClient>()
        .resource(Informers::new().kind(Kind::<Pod>::new()))
        .configure(|options| {
            options.end.warm_bytes = 256 << 20;
            options.health.probe_after = Duration::from_millis(200);
            options.health.probe_timeout = Duration::from_millis(300);
            options.health.suspect_interval = Duration::from_millis(100);
            options.health.down_after = Duration::from_millis(500);
            options.retry.most = Duration::from_millis(500);
        })
        .start()?;
    cache.wait_for(&key, LIMIT).await?;
    let informed = |cache: &ClusterCache| -> anyhow::Result<_> {
        let informers = cache.get::<Informers>(&key)?;
        Ok(informers.informed().swap_remove(0))
    };
    let first = (informed(&cache)?.lists, counting.0.load(Relaxed));

    cluster.refuse();
    let mut events = cache.subscribe().key(&key);
    while cache.phase(&key)? != Phase::Down {
        events.next().await;
    }
    let before = counting.0.load(Relaxed);
    for number in 0..CHANGED {
        let mut pod = pods::pod(number, 1);
        pod["metadata"]["labels"]["changed"] = "yes".into();
        cluster.put(pod)?;
    }
    cluster.heal();
    cache.wait_for(&key, LIMIT).await?;
    let pods = cache.get::<Informers>(&key)?.store::<Pod>()?;
    let last = cluster.version().to_string();
    pods.wait_for(
        |pods| pods.freshness().resource_version().as_deref() == Some(&last),
        LIMIT,
    )
    .await?;

    let mut figures = Figures::default();
    let lossy = |number: u64| f64::from(u32::try_from(number).expect("no bench counts that far"));
    figures.against(
        "resume_lists",
        lossy(informed(&cache)?.lists),
        Of("lists"),
        ("first", lossy(first.0)),
    );
    figures.against(
        "resume_bytes",
        lossy(counting.0.load(Relaxed) - before),
        Bytes,
        ("first", lossy(first.1)),
    );
    figures.print();
    cache.shutdown().await?;
    Ok(())
}
