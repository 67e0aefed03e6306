//! A transport on a fake cluster, with ears that count what they hear.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{ClusterAccess, ClusterKey};
use clustercache_testkit::fleet::{FakeAccess, FakeCluster, FakeCredential};
use http::{HeaderValue, Request, Response};
use kube::client::Body;
use tokio::time::Instant;

use crate::{
    Deadlines, Dialer, Limits, RequestCounts, TcpDialer,
    check::{Ask, Reply},
    provider::Pooled,
    transport::{
        Class, Limiter, Transport, TransportError,
        body::ResponseBody,
        hooks::{Gate, Hooks, Permit, Signs},
    },
};

/// Counts what a health check would hear.
#[derive(Default)]
pub(super) struct Heard {
    answered: AtomicUsize,
    bytes: AtomicUsize,
    doubts: AtomicUsize,
}

impl Heard {
    /// Answers, bytes, doubts.
    pub(super) fn all(&self) -> (usize, usize, usize) {
        (
            self.answered.load(Relaxed),
            self.bytes.load(Relaxed),
            self.doubts.load(Relaxed),
        )
    }
}

impl Signs for Heard {
    fn answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    fn bytes(&self) {
        self.bytes.fetch_add(1, Relaxed);
    }

    fn doubt(&self) {
        self.doubts.fetch_add(1, Relaxed);
    }
}

/// Lets everybody dial.
pub(super) struct Open;

#[async_trait]
impl Gate for Open {
    async fn permit(&self) -> Box<dyn Permit> {
        Box::new(Open)
    }
}

#[async_trait]
impl Permit for Open {
    async fn received(&mut self) {}

    async fn evicted(&self) {
        std::future::pending::<()>().await;
    }
}

pub(super) struct Rig {
    pub(super) cluster: FakeCluster,
    pub(super) transport: Transport,
    pub(super) heard: Arc<Heard>,
}

impl Rig {
    pub(super) fn new(name: &str) -> Self {
        Self::with(FakeCluster::start(name).unwrap(), |_| ())
    }

    pub(super) fn with(cluster: FakeCluster, change: impl FnOnce(&mut Deadlines)) -> Self {
        let access = access(&cluster.access());
        Self::on(cluster, access, change)
    }

    pub(super) fn on(
        cluster: FakeCluster,
        access: ClusterAccess,
        change: impl FnOnce(&mut Deadlines),
    ) -> Self {
        let heard = Arc::<Heard>::default();
        let transport = transport(access, Box::new(Open), heard.clone(), change);
        Self {
            cluster,
            transport,
            heard,
        }
    }

    /// Under a rate limit.
    pub(super) fn paced(
        cluster: FakeCluster,
        limiter: Arc<Limiter>,
        change: impl FnOnce(&mut Deadlines),
    ) -> Self {
        let heard = Arc::<Heard>::default();
        let hooks = Hooks {
            limiter: Some(limiter),
            ..hooks(TcpDialer::new(), Box::new(Open), heard.clone())
        };
        let mut deadlines = Deadlines::default();
        change(&mut deadlines);
        let access = access(&cluster.access());
        let transport = hooked(hooks, access, deadlines, Limits::default());
        Self {
            cluster,
            transport,
            heard,
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Response<ResponseBody>, TransportError> {
        get(&self.transport, path).await
    }

    /// The whole answer as text.
    pub(super) async fn text(&self, path: &str) -> Result<String, TransportError> {
        whole(self.get(path).await?).await
    }

    pub(super) async fn watch(&self) -> ResponseBody {
        let response = self.get("/api/v1/nodes?watch=true&resourceVersion=0").await;
        response.unwrap().into_body()
    }

    /// Closes the transport with the grace of its deadlines.
    pub(super) async fn close(&self) {
        let grace = self.transport.0.shared.deadlines.close;
        self.transport.close(grace).await;
    }

    /// Returns when the transport has seen that its connections are over.
    pub(super) async fn connections_over(&self) {
        let tasks = &self.transport.0.shared.tasks;
        tasks.close();
        soon(tasks.wait()).await;
        tasks.reopen();
    }
}

pub(super) fn transport(
    access: ClusterAccess,
    gate: Box<dyn Gate>,
    signs: Arc<Heard>,
    change: impl FnOnce(&mut Deadlines),
) -> Transport {
    limited(access, gate, signs, change, Limits::default())
}

pub(super) fn limited(
    access: ClusterAccess,
    gate: Box<dyn Gate>,
    signs: Arc<Heard>,
    change: impl FnOnce(&mut Deadlines),
    limits: Limits,
) -> Transport {
    let mut deadlines = Deadlines::default();
    change(&mut deadlines);
    let hooks = hooks(TcpDialer::new(), gate, signs);
    hooked(hooks, access, deadlines, limits)
}

pub(super) fn dialled_by(
    dialer: impl Dialer,
    access: ClusterAccess,
    gate: Box<dyn Gate>,
    signs: Arc<Heard>,
    deadlines: Deadlines,
) -> Transport {
    let limits = Limits::default();
    hooked(hooks(dialer, gate, signs), access, deadlines, limits)
}

fn hooks(dialer: impl Dialer, gate: Box<dyn Gate>, signs: Arc<Heard>) -> Hooks {
    Hooks {
        cluster: ClusterKey::named("rig"),
        dialer: Arc::new(dialer),
        gate,
        signs,
        counts: Arc::new(RequestCounts::new()),
        limiter: None,
    }
}

fn hooked(hooks: Hooks, access: ClusterAccess, deadlines: Deadlines, limits: Limits) -> Transport {
    Transport::new(
        access,
        hooks,
        Arc::new(deadlines),
        Arc::new(limits),
        HeaderValue::from_static("test"),
    )
    .unwrap()
}

pub(super) fn access(fake: &FakeAccess) -> ClusterAccess {
    let builder = ClusterAccess::builder(&fake.url).ca_pem(fake.ca_pem.clone());
    let builder = match &fake.credential {
        FakeCredential::Token(token) => builder.token(token.clone()),
        FakeCredential::Certificate {
            certificate_pem,
            key_pem,
        } => builder.client_certificate_pem(certificate_pem.clone(), key_pem.clone()),
    };
    builder.build().unwrap()
}

pub(super) async fn get(
    transport: &Transport,
    path: &str,
) -> Result<Response<ResponseBody>, TransportError> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let class = Class::of(&request);
    soon(transport.send(request, class)).await
}

/// As the health check asks, until then.
pub(super) async fn readyz(transport: &Transport, until: Instant) -> Result<Reply, TransportError> {
    Pooled::new(transport, until).ask("/readyz").await
}

pub(super) async fn whole(response: Response<ResponseBody>) -> Result<String, TransportError> {
    let body = http_body_util::BodyExt::collect(response.into_body());
    let bytes = soon(body).await?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The limit under which a test waits for what must happen.
pub(super) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), event)
        .await
        .expect("it happens in time")
}
