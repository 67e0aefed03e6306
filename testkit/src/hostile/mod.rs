//! A server that misbehaves on command: TLS by rustls, and above and below it byte for byte what a test says.
//!
//! A [`Behaviour`] says what the server does: which protocol it speaks, how its bytes leave ([stopped](Behaviour::stop_after) at any
//! offset, [slowly](Behaviour::byte_every)), what it says unasked, and which [`Step`]s a request gets. HTTP/2 is written by hand
//! (see [`http2`]), so that what no proper server sends can be sent. What it saw is in its [`Counts`].
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! use clustercache_testkit::hostile::{Answer, Behaviour, HostileServer, Step};
//!
//! // Healthy, and its lists have no end.
//! let endless = [
//!     Step::Answer(Answer::new(200).unfinished()),
//!     Step::Body("[".into(), u64::MAX),
//! ];
//! let behaviour = Behaviour::http2().on("/readyz", Answer::new(200)).on("/api/", endless);
//! let server = HostileServer::start("endless", behaviour)?;
//!
//! let access = server.access(); // URL, CA and a token, for whatever client is to be tested
//! # let _ = access;
//! let _client = tokio::net::TcpStream::connect(server.addr()).await?;
//! let counts = server.when(|counts| counts.connections == 1).await;
//! assert_eq!((counts.handshakes, counts.requests), (0, 0));
//!
//! server.behave(Behaviour::http2().stop_after(100, Default::default())); // the next connection does not get through TLS
//! server.shutdown().await;
//! # anyhow::Ok(())
//! # })?;
//! # anyhow::Ok(())
//! ```

mod behaviour;
mod connection;
mod counts;
mod http1;
pub mod http2;
mod player;
mod step;
mod wire;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    behaviour::{Behaviour, Seen},
    counts::Counts,
    step::{Answer, Step},
    wire::Then,
};
use self::{connection::serve, counts::Counting};
use crate::{
    fleet::{FakeAccess, FakeCredential, FleetError, tls::Identity},
    pki::ClusterCa,
};

/// Certificates in place of those of the identity.
type Shown = Option<Arc<SingleCertAndKey>>;

/// What the tasks of a server share.
struct Inner {
    behaviour: Mutex<Arc<Behaviour>>,
    http1: Identity,
    http2: Identity,
    shown: Shown,
    counting: Counting,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Inner {
    fn new(
        behaviour: Behaviour,
        identity: &Identity,
        shown: Shown,
        tasks: TaskTracker,
        ended: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            behaviour: Mutex::new(Arc::new(behaviour)),
            http1: identity.speaking(false),
            http2: identity.speaking(true),
            shown,
            counting: Counting::default(),
            tasks,
            ended,
        })
    }
}

/// A behaviour at an address that is somebody else's, under that one's certificate.
#[derive(Clone)]
pub(crate) struct Guest(Arc<Inner>);

impl Guest {
    /// Its tasks run on `tasks`, and end by `ended`.
    pub(crate) fn new(
        behaviour: Behaviour,
        identity: &Identity,
        tasks: TaskTracker,
        ended: CancellationToken,
    ) -> Self {
        Self(Inner::new(behaviour, identity, None, tasks, ended))
    }

    /// One connection, until it is over.
    pub(crate) async fn serve(&self, tcp: TcpStream) {
        let number = self.0.counting.accepted();
        serve(Arc::clone(&self.0), tcp, number).await;
    }
}

/// A server that misbehaves on command. Dropping it closes its port and its connections; [`shutdown`](Self::shutdown) also waits for that.
pub struct HostileServer {
    name: String,
    addr: SocketAddr,
    inner: Arc<Inner>,
}

impl HostileServer {
    /// The token in [`access`](Self::access). The server takes any.
    pub const TOKEN: &str = "hostile-token";

    /// Starts it on the runtime of the caller. It listens when this returns.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(name: impl Into<String>, behaviour: Behaviour) -> Result<Self, FleetError> {
        let name = name.into();
        let ca = ClusterCa::new(&format!("{name}-ca"))?;
        Self::with(name, behaviour, ca, None)
    }

    /// As [`start`](Self::start), under a CA of the caller's, but with these certificates in place of a proper one; nothing checks them.
    pub fn showing(
        name: impl Into<String>,
        behaviour: Behaviour,
        ca: &ClusterCa,
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'static>,
    ) -> Result<Self, FleetError> {
        let shown = CertifiedKey::new(chain, any_supported_type(key)?);
        let shown = Arc::new(SingleCertAndKey::from(shown));
        Self::with(name.into(), behaviour, ca.clone(), Some(shown))
    }

    fn with(
        name: String,
        behaviour: Behaviour,
        ca: ClusterCa,
        shown: Shown,
    ) -> Result<Self, FleetError> {
        let listener = listen().map_err(FleetError::Listen)?;
        let addr = listener.local_addr().map_err(FleetError::Listen)?;
        let identity = Identity::new(ca, addr.ip(), true);
        // So that what is wrong is said here.
        identity.config()?;
        let tasks = TaskTracker::new();
        let ended = CancellationToken::new();
        let inner = Inner::new(behaviour, &identity, shown, tasks, ended);
        let accepting = accept(Arc::clone(&inner), listener);
        let ended = inner.ended.clone();
        inner
            .tasks
            .spawn(async move { ended.run_until_cancelled_owned(accepting).await });
        Ok(Self { name, addr, inner })
    }

    /// From now on it does this: new connections, and the next requests on those that are open.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.inner.behaviour.lock() = Arc::new(behaviour);
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// Who signed its certificate. It asks for a client certificate, and takes any or none.
    pub fn ca(&self) -> &ClusterCa {
        &self.inner.http1.ca
    }

    /// URL, CA and a token.
    pub fn access(&self) -> FakeAccess {
        FakeAccess {
            name: self.name.clone(),
            url: self.url(),
            ca_pem: self.ca().pem(),
            credential: FakeCredential::Token(Self::TOKEN.to_owned()),
        }
    }

    /// What it saw and did so far.
    pub fn counts(&self) -> Counts {
        self.inner.counting.now()
    }

    /// Waits until its counts, now or later, are as wanted, and returns them. A state that lasts shorter than it takes to look may be
    /// missed; counts that only grow cannot be.
    pub async fn when(&self, wanted: impl FnMut(&Counts) -> bool) -> Counts {
        self.inner.counting.when(wanted).await
    }

    /// Ends it, and waits until no task and no socket of it is left.
    pub async fn shutdown(&self) {
        self.end();
        self.inner.tasks.wait().await;
    }

    fn end(&self) {
        self.inner.ended.cancel();
        self.inner.tasks.close();
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen() -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn accept(inner: Arc<Inner>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => {
                let number = inner.counting.accepted();
                let serving = serve(Arc::clone(&inner), tcp, number);
                inner.tasks.spawn(serving);
            }
            // Out of descriptors, most likely; the kernel tells nobody when there are some again.
            Err(error) => {
                tracing::warn!(%error, "a hostile server cannot accept");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}
