//! An API server in simulated time, over a simulated network, without TLS.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use clustercache_testkit::api::{FakeApi, Fault, Verb};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::ServiceExt;
use turmoil::net::{TcpListener, TcpStream};

const PORT: u16 = 6443;

/// Whatever goes over a connection, in both directions.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<u8>>>);

struct Recorded(TcpStream, Record);

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        self.1.0.lock().extend_from_slice(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.0).poll_write(cx, buf))?;
        self.1.0.lock().extend_from_slice(&buf[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn serve(seed: u64) -> turmoil::Result {
    let epoch = "2026-01-01T00:00:00Z".parse()?;
    let api = FakeApi::builder().seed(seed).epoch(epoch).build();
    let busy = Fault::status(429).verb(Verb::Get).resource("configmaps");
    api.inject(busy.share(0.5));
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT)).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        let api = api.clone();
        let service = service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.oneshot(request).await.unwrap()) }
        });
        tokio::spawn(
            // The date would be that of the machine.
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .auto_date_header(false)
                .serve_connection(TokioIo::new(socket), service),
        );
    }
}

async fn operate(record: Record) -> turmoil::Result {
    let socket = Recorded(TcpStream::connect(("api", PORT)).await?, record);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    let path = "http://api/api/v1/namespaces/default/configmaps";
    let watch = format!("{path}?watch=1&allowWatchBookmarks=1&timeoutSeconds=20");
    let watch = Request::get(watch).body(Full::default())?;
    let events = sender.send_request(watch).await?.into_body();
    let object = json!({ "metadata": { "generateName": "made-" }, "data": { "key": "value" } });
    for _ in 0..10 {
        let body = Full::new(Bytes::from(object.to_string()));
        let request = Request::builder().method(Method::POST).uri(path);
        let request = request
            .header("content-type", "application/json")
            .body(body)?;
        let made = sender.send_request(request).await?;
        let made: serde_json::Value = serde_json::from_slice(&made.collect().await?.to_bytes())?;
        let name = made["metadata"]["name"].as_str().ok_or("it has a name")?;
        let one = Request::get(format!("{path}/{name}")).body(Full::default())?;
        sender.send_request(one).await?.collect().await?;
    }
    // It ends by its timeout, in simulated time.
    events.collect().await?;
    Ok(())
}

fn simulated(seed: u64) -> Vec<u8> {
    let mut simulation = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(60))
        .tick_duration(Duration::from_millis(10))
        .build();
    simulation.host("api", move || serve(seed));
    let record = Record::default();
    simulation.client("client", operate(record.clone()));
    simulation.run().unwrap();
    let bytes = record.0.lock();
    bytes.clone()
}

#[test]
fn the_same_seed_and_the_same_operations_give_the_same_bytes() {
    let first = simulated(7);
    assert!(first.len() > 10_000, "{} bytes", first.len());
    assert!(first == simulated(7));
    assert!(first != simulated(8), "another seed gives others");
}
