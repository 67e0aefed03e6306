//! What a fake fleet costs: an idle cluster's heap, how long a thousand take to be up, and what an event takes on its way to each of 500 watches, over TLS,
//! against writing its bytes to 500 sockets, without. Those who read are another process.

use std::{
    alloc::System,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use clustercache_testkit::fleet::{FakeCluster, FakeCredential, Fleet};
use figure::{
    Figures,
    Unit::{Bytes, Nanoseconds},
    count, median, nanoseconds,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsConnector;

mod figure;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLUSTERS: usize = 1_000;
const WATCHES: usize = 500;
/// Fewer than a server remembers for watches that are behind.
const EVENTS: usize = 500;
const ROUNDS: usize = 5;
const PATH: &str = "/api/v1/configmaps?watch=1&resourceVersion=";

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("read") {
        return read();
    }
    measure()
}

#[tokio::main]
async fn measure() -> anyhow::Result<()> {
    let mut figures = Figures::default();
    figures.add("idle_cluster", idle_cluster().await?, Bytes);
    figures.add("fleet_up_1000", fleet_up().await?, Nanoseconds);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(watched().await?);
        theirs.push(written().await?);
    }
    let reference = ("bare_write", median(&mut theirs));
    figures.against("watch_fanout", median(&mut ours), Nanoseconds, reference);
    figures.print();
    Ok(())
}

fn live() -> usize {
    let stats = HEAP.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated)
}

async fn idle_cluster() -> anyhow::Result<f64> {
    // What is made once for all is there after this.
    Fleet::start(CLUSTERS).await?.shutdown().await;
    let before = live();
    let fleet = Fleet::start(CLUSTERS).await?;
    let each = count(live() - before) / count(CLUSTERS);
    fleet.shutdown().await;
    Ok(each)
}

async fn fleet_up() -> anyhow::Result<f64> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let fleet = Fleet::start(CLUSTERS).await?;
        rounds.push(nanoseconds(begun.elapsed()));
        fleet.shutdown().await;
    }
    Ok(median(&mut rounds))
}

fn config(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("config-{}", number % 50), "namespace": "default" },
        "data": { "number": number.to_string(), "text": "x".repeat(200) },
    })
}

/// Nanoseconds for each event of each watch, from the change until all have read it.
async fn watched() -> anyhow::Result<f64> {
    let cluster = FakeCluster::start("watched")?;
    let access = cluster.access();
    let FakeCredential::Token(token) = &access.credential else {
        anyhow::bail!("a token by default");
    };
    let path = format!("{PATH}{}", cluster.version());
    let mut readers = Readers::start(&["tls", &access.url, token, &path], &access.ca_pem)?;
    ensure!(cluster.counters().watches_open == WATCHES as u64);
    let begun = Instant::now();
    for number in 0..EVENTS {
        cluster.put(config(number))?;
        tokio::task::yield_now().await;
    }
    readers.done().await?;
    let took = nanoseconds(begun.elapsed()) / count(WATCHES * EVENTS);
    cluster.shutdown().await;
    Ok(took)
}

/// The same for the bytes of those events alone.
async fn written() -> anyhow::Result<f64> {
    let cluster = FakeCluster::start("written")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?.to_string();
    let accepting = tokio::spawn(async move {
        let mut sockets = Vec::new();
        while sockets.len() < WATCHES {
            let (mut socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            // What says that it is there.
            socket.write_all(b"\r\n\r\n").await?;
            sockets.push(socket);
        }
        anyhow::Ok(sockets)
    });
    let mut readers = Readers::start(&["tcp", &addr, "", ""], "")?;
    let sockets = accepting.await??;
    let lines: Vec<Arc<[u8]>> = (0..EVENTS)
        .map(|number| {
            let object = config(number);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            cluster.put(object.clone())?;
            let stored = cluster.api().get("v1", "ConfigMap", "default", name);
            let event = json!({ "type": "MODIFIED", "object": stored });
            Ok(format!("{event}\n").into_bytes().into())
        })
        .collect::<anyhow::Result<_>>()?;
    let begun = Instant::now();
    // On as many threads as there are.
    let mut halves = sockets.into_iter();
    let workers = std::thread::available_parallelism()?.get();
    let mut writing = JoinSet::new();
    for _ in 0..workers {
        let mut sockets: Vec<_> = halves.by_ref().take(WATCHES.div_ceil(workers)).collect();
        let lines = lines.clone();
        writing.spawn(async move {
            for line in &lines {
                for socket in &mut sockets {
                    socket.write_all(line).await?;
                }
            }
            anyhow::Ok(sockets)
        });
    }
    readers.done().await?;
    let took = nanoseconds(begun.elapsed()) / count(WATCHES * EVENTS);
    while let Some(written) = writing.join_next().await {
        written??;
    }
    cluster.shutdown().await;
    Ok(took)
}

/// This program started again, to read from 500 connections until all of them have had all events.
struct Readers {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Readers {
    /// Ready when all are connected and have been answered.
    fn start(arguments: &[&str], ca: &str) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("read")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("it was piped")?;
        input.write_all(ca.as_bytes())?;
        drop(input);
        let mut output = BufReader::new(child.stdout.take().context("it was piped")?);
        let mut line = String::new();
        tokio::task::block_in_place(|| output.read_line(&mut line))?;
        ensure!(line.trim() == "ready", "{line}");
        Ok(Self {
            child,
            output: Some(output),
        })
    }

    async fn done(&mut self) -> anyhow::Result<()> {
        let mut output = self.output.take().context("it is done once")?;
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            output.read_line(&mut line).map(|_| line)
        });
        let line = line.await??;
        ensure!(line.trim() == "done", "{line}");
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // It has read all, or its sockets are closed.
        let _ = self.child.wait();
    }
}

#[tokio::main]
async fn read() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    let [how, to, token, path] = &arguments[..] else {
        anyhow::bail!("four arguments");
    };
    let mut ca = String::new();
    std::io::stdin().read_to_string(&mut ca)?;
    let addr: SocketAddr = to.trim_start_matches("https://").parse()?;
    let tls = (how == "tls").then(|| connector(&ca)).transpose()?;
    let mut streams: Vec<Box<dyn AsyncRead + Send + Unpin>> = Vec::new();
    for _ in 0..WATCHES {
        let socket = TcpStream::connect(addr).await?;
        match &tls {
            Some(tls) => {
                let name = ServerName::IpAddress(addr.ip().into());
                let mut stream = tls.connect(name, socket).await?;
                let request = format!(
                    "GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n"
                );
                stream.write_all(request.as_bytes()).await?;
                streams.push(Box::new(stream));
            }
            None => streams.push(Box::new(socket)),
        }
    }
    let mut reading = JoinSet::new();
    for mut stream in streams {
        head(&mut stream).await?;
        reading.spawn(events(stream));
    }
    say("ready")?;
    while let Some(read) = reading.join_next().await {
        read??;
    }
    say("done")
}

fn connector(ca: &str) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// Reads up to the empty line.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<()> {
    let mut last = [0; 4];
    while last != *b"\r\n\r\n" {
        last.rotate_left(1);
        last[3] = tokio::time::timeout(Duration::from_secs(60), stream.read_u8()).await??;
    }
    Ok(())
}

/// Reads until all events have come: each ends in `}` and a line feed.
async fn events(mut stream: impl AsyncRead + Unpin) -> anyhow::Result<()> {
    let mut room = vec![0; 64 << 10];
    let (mut seen, mut last) = (0, 0);
    while seen < EVENTS {
        let read = stream.read(&mut room).await?;
        ensure!(read > 0, "it ended after {seen} events");
        for byte in &room[..read] {
            seen += usize::from(last == b'}' && *byte == b'\n');
            last = *byte;
        }
    }
    Ok(())
}

fn say(word: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}")?;
    Ok(out.flush()?)
}
