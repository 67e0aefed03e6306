//! The metrics of a fleet, served for Prometheus: what the page says while a cluster is a black hole, and after.
//!
//! `cargo run --example metrics`: 20 fake API servers over real TLS, and a dozen seconds of their lives.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use clustercache::{ClusterCache, ClusterKey, ClusterState, Phase};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_kubeconfig::KubeconfigFile;
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::fleet::Fleet;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

const CLUSTERS: usize = 20;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Of the page's lines, those that tell this story.
const INTERESTING: [&str; 10] = [
    "clustercache_clusters{",
    "clustercache_failing_clusters{reason=\"timed_out\"}",
    "clustercache_connects_total",
    "clustercache_client_requests_total{class=\"call\",result=\"success\"}",
    "clustercache_probes_total{result=\"ready\"}",
    "clustercache_probes_total{result=\"timed_out\"}",
    "clustercache_init_duration_seconds_count",
    "clustercache_teardown_duration_seconds_count",
    "clustercache_clusters_without_series",
    "capi_cluster_cache_",
];

/// Answers `GET /metrics`, and nothing else.
async fn serve(listener: TcpListener, registry: Registry) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let registry = registry.clone();
        let service = service_fn(move |request| {
            let response = answer(&registry, &request);
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service),
        );
    }
}

fn answer(registry: &Registry, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, body) = if request.uri().path() == "/metrics" {
        match TextEncoder::new().encode_to_string(&registry.gather()) {
            Ok(page) => (StatusCode::OK, page),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    } else {
        (StatusCode::NOT_FOUND, "see /metrics\n".to_owned())
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let text = hyper::header::HeaderValue::from_static(TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// As Prometheus does.
async fn scrape(address: SocketAddr) -> anyhow::Result<String> {
    let stream = TokioIo::new(TcpStream::connect(address).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request = Request::get("/metrics").header("host", address.to_string());
    let response = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.into())?)
}

fn show(when: &str, page: &str) {
    println!("--- {when}");
    for line in page.lines() {
        if INTERESTING.iter().any(|begin| line.starts_with(begin)) {
            println!("{line}");
        }
    }
}

async fn until(
    cache: &ClusterCache,
    key: &ClusterKey,
    is: impl Fn(&ClusterState) -> bool,
) -> anyhow::Result<()> {
    let mut events = cache.subscribe().key(key);
    let so = async {
        while !cache.state(key).is_ok_and(|state| is(&state)) {
            events.next().await.context("the cache ended")?;
        }
        anyhow::Ok(())
    };
    timeout(LIMIT, so).await.context("not in time")?
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let fleet = Fleet::start(CLUSTERS).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, fleet.kubeconfig_of_all())?;
    let clients = KubeClient::new().user_agent("metrics-example/1.0");
    let requests = clients.request_counts();
    let cache = ClusterCache::builder()
        .source(KubeconfigFile::at(kubeconfig))
        .resource(clients)
        .health_from::<KubeClient>()
        .configure(|options| {
            // In less time than a pager would have it, so that the story is short.
            options.health.probe_after = Duration::from_secs(1);
            options.health.probe_timeout = Duration::from_secs(1);
            options.health.down_after = Duration::from_secs(2);
            options.retry.most = Duration::from_secs(1);
        })
        .start()?;
    ensure!(cache.wait_for_start(LIMIT).await?, "not all connected");

    // This is all that a program needs; the series of single clusters are on request, and bounded.
    let registry = Registry::new();
    let metrics = CacheMetrics::new(&cache).requests(requests);
    registry.register(Box::new(metrics.cluster_api_names().at_most(1)))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("http://{address}/metrics");
    let server = tokio::spawn(serve(listener, registry));

    let lost = fleet.clusters().first().context("there are clusters")?;
    let key = ClusterKey::named(lost.name());
    lost.black_hole();
    until(&cache, &key, |state| state.phase == Phase::Down).await?;
    let during = scrape(address).await?;
    show("one cluster is a black hole", &during);

    lost.heal();
    until(&cache, &key, |state| state.phase == Phase::Connected).await?;
    cache.client(&key)?.apiserver_version().await?;
    let after = scrape(address).await?;
    show("it is back", &after);

    let down = "clustercache_clusters{phase=\"down\"} 1\n";
    ensure!(during.contains(down), "{during}");
    let up = format!("clustercache_clusters{{phase=\"connected\"}} {CLUSTERS}\n");
    let request = "clustercache_client_requests_total{class=\"call\",result=\"success\"} 1\n";
    ensure!(after.contains(&up) && after.contains(request), "{after}");
    server.abort();
    cache.shutdown().await?;
    fleet.shutdown().await;
    Ok(())
}
