//! The life of a fake API server's connections: accept, TLS, HTTP. All tasks of a cluster start here.
//!
//! Every task runs on the cluster's tracker and ends by its connection's token, so that nothing is left when the cluster
//! is dropped, HTTP/2 streams included.

use std::{convert::Infallible, future::poll_fn, sync::Arc, time::Duration};

use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{net::TcpStream, pin, sync::Notify};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    FleetError, Inner,
    endpoint::{Accepted, Endpoint},
    handle, shared,
    spoken::Spoken,
    wire::{FaultIo, Wire},
};
use crate::api::PortForward;

/// What the requests of one connection have in common.
pub(super) struct Connection {
    pub(super) cluster: Arc<Inner>,
    pub(super) wire: Arc<Wire>,
    pub(super) endpoint: std::net::SocketAddr,
    pub(super) number: u64,
    /// The certificates that the client showed, its own first.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// What becomes of it after HTTP/1.1, if a request was for another protocol.
    pub(super) upgraded: Mutex<Option<(OnUpgrade, PortForward)>>,
    /// Tells its client to go away, if it speaks HTTP/2.
    pub(super) go_away: Notify,
}

/// Accepts on an endpoint until the cluster ends: by a task, or by that of the listener that it shares.
pub(super) fn begin(cluster: &Arc<Inner>, endpoint: Arc<Endpoint>) {
    if let Some(shared) = endpoint.shared() {
        return shared.serve(cluster, &endpoint);
    }
    let (cluster, ended) = (cluster.clone(), cluster.ended.clone());
    let (tasks, runtime) = (cluster.tasks.clone(), cluster.runtime.clone());
    let accepting = async move {
        loop {
            match poll_fn(|cx| endpoint.poll_accept(cx)).await {
                Ok(socket) => admit(&cluster, &endpoint, socket),
                // Out of descriptors, most likely; the kernel tells nobody when there are some again.
                Err(error) => {
                    tracing::warn!(%error, cluster = %cluster.name, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    };
    tasks.spawn_on(
        async move { ended.run_until_cancelled_owned(accepting).await },
        &runtime,
    );
}

/// A connection that is counted as open.
struct Counted {
    cluster: Arc<Inner>,
    _accepted: Accepted,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.cluster
            .counting
            .change(|counters| counters.connections_open -= 1);
    }
}

/// Serves a connection, if its endpoint lets it in.
pub(super) fn admit(cluster: &Arc<Inner>, endpoint: &Arc<Endpoint>, socket: TcpStream) {
    let Some(accepted) = endpoint.admit(&cluster.ended) else {
        return shared::refuse(&socket);
    };
    // It fails only on a socket that is gone already.
    let _ = socket.set_nodelay(true);
    cluster.counting.change(|counters| {
        counters.connections_accepted += 1;
        counters.connections_open += 1;
    });
    let cluster = cluster.clone();
    let (tasks, runtime) = (cluster.tasks.clone(), cluster.runtime.clone());
    let task = async move {
        let wire = accepted.wire.clone();
        let (endpoint, number) = (accepted.endpoint.addr, accepted.number);
        let counted = Counted {
            cluster: cluster.clone(),
            _accepted: accepted,
        };
        let hostile = wire.terms().hostile.clone();
        let guest = hostile.and_then(|holding| holding.guest(&cluster));
        let ended = wire.ended.clone();
        if let Some(guest) = guest {
            // Large, and seldom: other connections are not to pay for it.
            let serving = Box::pin(guest.serve(socket));
            ended.run_until_cancelled(serving).await;
        } else {
            let io = FaultIo::new(socket, wire, cluster.clone(), number);
            let speaking = speak(cluster, endpoint, number, io, &ended);
            ended.run_until_cancelled(speaking).await;
        }
        // Only now, so that whoever waits for the count finds the socket closed.
        drop(counted);
    };
    tasks.spawn_on(task, &runtime);
}

async fn speak(
    cluster: Arc<Inner>,
    endpoint: std::net::SocketAddr,
    number: u64,
    io: FaultIo,
    ended: &CancellationToken,
) {
    let wire = io.wire.clone();
    let config = match config(&cluster, &wire) {
        Ok(config) => config,
        Err(error) => {
            return tracing::warn!(%error, cluster = %cluster.name, "there is no certificate");
        }
    };
    let stream = match TlsAcceptor::from(config).accept(io).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, cluster = %cluster.name, "TLS handshake failed");
            return cluster
                .counting
                .change(|counters| counters.tls_failures += 1);
        }
    };
    cluster
        .counting
        .change(|counters| counters.tls_handshakes += 1);
    let (_, tls) = stream.get_ref();
    let certificates = tls
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|c| c.clone().into_owned())
        .collect();
    let http2 = tls.alpn_protocol() == Some(b"h2");
    let connection = Arc::new(Connection {
        cluster,
        wire,
        endpoint,
        number,
        certificates,
        upgraded: Mutex::default(),
        go_away: Notify::new(),
    });
    let stream = Spoken::new(stream, http2);
    if let Err(error) = http(connection.clone(), stream, http2, ended).await {
        tracing::debug!(%error, cluster = %connection.cluster.name, "connection failed");
    }
}

/// What the handshake needs: the cluster's certificate, or one with something wrong with it.
fn config(cluster: &Inner, wire: &Wire) -> Result<Arc<ServerConfig>, FleetError> {
    if let Some((bad, holding)) = &wire.terms().certificate {
        return holding.config(cluster, *bad);
    }
    let identity = cluster.identity.lock().clone();
    identity.config()
}

async fn http(
    connection: Arc<Connection>,
    stream: Spoken,
    http2: bool,
    ended: &CancellationToken,
) -> hyper::Result<()> {
    let (cluster, this) = (connection.cluster.clone(), connection.clone());
    let service = service_fn(move |request: http::Request<Incoming>| {
        let connection = connection.clone();
        async move { Ok::<_, Infallible>(handle::answer(&connection, request).await) }
    });
    let stream = TokioIo::new(stream);
    if http2 {
        let tasks = Tasks {
            cluster,
            ended: ended.clone(),
        };
        // As a real server has it.
        let serving = http2::Builder::new(tasks)
            .max_concurrent_streams(100)
            .serve_connection(stream, service);
        pin!(serving);
        tokio::select! {
            served = &mut serving => return served,
            () = this.go_away.notified() => serving.as_mut().graceful_shutdown(),
        }
        serving.await
    } else {
        http1::Builder::new()
            .serve_connection(stream, service)
            .with_upgrades()
            .await?;
        let upgraded = this.upgraded.lock().take();
        if let Some((upgrade, forward)) = upgraded {
            // Few connections become this, and its future is large.
            Box::pin(forward.run(TokioIo::new(upgrade.await?))).await;
        }
        Ok(())
    }
}

/// Spawns HTTP/2 streams on the cluster's tracker, to end with their connection.
#[derive(Clone)]
struct Tasks {
    cluster: Arc<Inner>,
    ended: CancellationToken,
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let ended = self.ended.clone();
        let task = async move {
            ended.run_until_cancelled_owned(stream).await;
        };
        self.cluster.tasks.spawn_on(task, &self.cluster.runtime);
    }
}
