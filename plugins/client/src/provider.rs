//! The provider of clients, which is the health check as well: both speak over the same connection, so one verdict holds for both.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterResource, HealthCheck, InitContext,
    InitError, Refresh, Requires, Resource, Route, TeardownContext, TeardownReason,
};
use http::HeaderValue;
use tokio::time::Instant;

use crate::{
    ClusterClient, Deadlines, Dialer, Limits, RateLimit, RequestCounts, TcpDialer, TransportError,
    about::About,
    check::{Ask, Reply, check, failed},
    discovery::Known,
    transport::{Fresh, Hooks, Limiter, Transport},
};

/// Makes a [`ClusterClient`] for each cluster, and checks its health by `/readyz`.
///
/// Its `init` dials and waits for the first good answer. A new token, or a new client certificate, is taken in place.
///
/// ```
/// use clustercache_client::KubeClient;
///
/// let provider = KubeClient::new().user_agent("fleet-controller/1.0");
/// # let _ = provider;
/// ```
#[derive(Clone)]
#[must_use]
pub struct KubeClient {
    user_agent: String,
    deadlines: Arc<Deadlines>,
    limits: Arc<Limits>,
    dialer: Arc<dyn Dialer>,
    counts: Arc<RequestCounts>,
    rate_limit: Option<RateLimit>,
}

/// What outlives a cluster's connections.
#[derive(Default)]
pub(crate) struct Lasting {
    limiter: OnceLock<Arc<Limiter>>,
    /// Of a cluster of which nobody asks that, nothing is kept.
    discovery: OnceLock<Arc<Known>>,
}

impl Lasting {
    pub(crate) fn discovery(&self) -> &Arc<Known> {
        self.discovery.get_or_init(Arc::default)
    }
}

impl KubeClient {
    /// With the default [`Deadlines`] and [`Limits`], this crate's name as user agent, and a [`TcpDialer`].
    pub fn new() -> Self {
        Self {
            user_agent: concat!("clustercache/", env!("CARGO_PKG_VERSION")).into(),
            deadlines: Arc::default(),
            dialer: Arc::new(TcpDialer::new()),
            limits: Arc::default(),
            counts: Arc::new(RequestCounts::new()),
            rate_limit: None,
        }
    }

    /// How requests name us, such as `fleet-controller/1.0`; requests that have a `User-Agent` keep theirs.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// Other deadlines.
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = Arc::new(deadlines);
        self
    }

    /// Other limits on answers.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Arc::new(limits);
        self
    }

    /// Another way to the API servers than names and TCP: a tunnel, a simulated network.
    pub fn dialer(mut self, dialer: impl Dialer) -> Self {
        self.dialer = Arc::new(dialer);
        self
    }

    /// What is counted of the requests of all its clients, for metrics; ask for it before the provider is given away.
    pub fn request_counts(&self) -> Arc<RequestCounts> {
        Arc::clone(&self.counts)
    }

    /// Limits the calls to each cluster. The default: no limit but the servers' own.
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate_limit = Some(limit);
        self
    }

    fn limiter(&self, lasting: &Lasting) -> Option<Arc<Limiter>> {
        let limit = self.rate_limit.as_ref()?;
        let limiter = lasting
            .limiter
            .get_or_init(|| Arc::new(Limiter::new(limit)));
        Some(Arc::clone(limiter))
    }
}

impl fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeClient")
            .field("user_agent", &self.user_agent)
            .field("deadlines", &self.deadlines)
            .field("limits", &self.limits)
            .field("rate_limit", &self.rate_limit)
            .finish_non_exhaustive()
    }
}

impl Default for KubeClient {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ClusterResource for KubeClient {
    type Value = ClusterClient;

    fn name(&self) -> &'static str {
        "kube-client"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().access()
    }

    fn mistakes(&self) -> Vec<String> {
        let agent = HeaderValue::from_str(&self.user_agent).is_err();
        let agent = agent.then(|| {
            "the user agent cannot stand in a header; give one of visible ASCII characters".into()
        });
        let others = self.deadlines.mistakes().into_iter();
        let others = others.chain(self.limits.mistakes());
        let others = others.chain(self.rate_limit.iter().flat_map(RateLimit::mistakes));
        agent.into_iter().chain(others).collect()
    }

    fn init_timeout(&self) -> Duration {
        let Deadlines {
            resolve,
            connect,
            tls,
            probe,
            ..
        } = *self.deadlines;
        // The second `connect` and the fourth `tls` are a proxy's.
        resolve + connect * 2 + tls * 4 + probe
    }

    fn teardown_timeout(&self) -> Duration {
        self.deadlines.close + Duration::from_secs(1)
    }

    async fn init(&self, cx: &InitContext) -> Result<ClusterClient, InitError> {
        let user_agent = HeaderValue::from_str(&self.user_agent).map_err(|_| {
            InitError::needs_access(
                "the user agent cannot stand in a header; give another one to KubeClient",
            )
        })?;
        let lasting = cx.identity_state::<Lasting>();
        let limiter = self.limiter(&lasting);
        let transport = Transport::new(
            cx.access()?,
            Hooks::of(cx, &self.dialer, &self.counts, limiter),
            Arc::clone(&self.deadlines),
            Arc::clone(&self.limits),
            user_agent,
        )
        .map_err(InitError::needs_access)?;
        // Waiting for a permit to dial is in here: the deadline of the first answer begins after it.
        transport
            .connected()
            .await
            .map_err(|error| of(failed(&error)))?;
        let until = Instant::now() + self.deadlines.probe;
        // Boxed: while a fleet connects, most wait above.
        let check = Box::pin(async {
            let transport = &transport;
            check(&mut Pooled::new(transport, until)).await
        });
        check.await.map_err(of)?;
        cx.alive().answered();
        let about = Arc::<About>::default();
        cx.spawn(Arc::clone(&about).keep(transport.clone()));
        Ok(ClusterClient::new(transport, about, lasting))
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        let grace = match cx.reason() {
            // It has a limit itself, below which everything is to be over.
            TeardownReason::Shutdown => self.deadlines.close / 2,
            _ => self.deadlines.close,
        };
        if let Some(transport) = value.transport() {
            transport.close(grace).await;
        }
    }

    fn refresh(&self, value: &ClusterClient, access: &ClusterAccess) -> Refresh {
        match value.transport() {
            Some(transport) => transport.refresh(access),
            None => Refresh::Unchanged,
        }
    }
}

#[async_trait]
impl HealthCheck for KubeClient {
    async fn check(&self, value: &ClusterClient, cx: &CheckContext) -> Result<Answer, CheckError> {
        let Some(transport) = value.transport() else {
            return Ok(Answer::Ready);
        };
        let until = Instant::now() + self.deadlines.probe;
        match cx.route() {
            Route::Pooled => check(&mut Pooled::new(transport, until)).await,
            Route::Fresh => {
                // Boxed: a dial is large, and most probes have none.
                let fresh = Box::pin(transport.fresh(cx, until)).await;
                let fresh = fresh.map_err(|error| failed(&error))?;
                check(&mut Alone { fresh, until }).await
            }
        }
    }

    fn replace_pooled(&self, value: &ClusterClient) {
        if let Some(transport) = value.transport() {
            transport.replace_pooled();
        }
    }
}

/// The kind of a failed check is the kind of a failed init: 401 makes the source read its access again.
fn of(error: CheckError) -> InitError {
    let kind = error.kind();
    InitError::retry(error).of_kind(kind)
}

/// Asks over the connections that calls use.
pub(crate) struct Pooled<'a> {
    transport: &'a Transport,
    until: Instant,
    /// Of all its questions together.
    withheld: Duration,
}

impl<'a> Pooled<'a> {
    pub(crate) fn new(transport: &'a Transport, until: Instant) -> Self {
        Self {
            transport,
            until,
            withheld: Duration::ZERO,
        }
    }
}

#[async_trait]
impl Ask for Pooled<'_> {
    async fn ask(&mut self, path: &'static str) -> Result<Reply, TransportError> {
        let Self {
            transport, until, ..
        } = *self;
        transport.ask(path, until, &mut self.withheld).await
    }
}

/// Asks over a connection of its own.
pub(crate) struct Alone {
    pub(crate) fresh: Fresh,
    pub(crate) until: Instant,
}

#[async_trait]
impl Ask for Alone {
    async fn ask(&mut self, path: &'static str) -> Result<Reply, TransportError> {
        self.fresh.ask(path, self.until).await
    }
}
