//! Clusters without a network, for tests of the core in simulated time: servers whose answers the test sets, and providers that do what a script
//! says and write down what was done to them.
#![allow(dead_code, unreachable_pub, unused_imports)] // each test file uses its part of it

mod guarded;
mod started;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    future::{Future, pending},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource,
    ClusterState, FailureKind, HealthCheck, InitContext, InitError, MemorySource, Refresh,
    Requires, Resource, ResourceState, Route, TeardownContext, Upsert,
};
use futures_util::{StreamExt, future::BoxFuture};
use tokio::sync::Notify;

pub use guarded::{Builder, Cache};
pub use started::*;

/// All servers of a test, and what was done to providers.
#[derive(Clone, Default)]
pub struct World(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    with_permits: bool,
    handshake: Duration,
    servers: BTreeMap<String, Server>,
    journal: Vec<String>,
}

#[derive(Default)]
struct Server {
    answers: Answers,
    tokens: BTreeSet<String>,
    seen: Vec<String>,
    requests: usize,
    no_dials: bool,
}

/// How a server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    #[default]
    Well,
    /// Accepts, and answers nothing.
    Never,
    Refuses,
    Status(u16),
    /// The next request fails, those after it do not.
    FailsOnce,
    /// It answers, and says that it is not ready.
    NotReady,
    /// There is no permit for a probe.
    Busy,
    /// The provider panics.
    Panics,
    /// The provider says that the cluster has no such thing.
    NotApplicable,
    /// What goes over connections that were made before is lost; new ones work.
    OldConnectionsDie,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all servers, and what was noted.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.servers.clear();
        inner.journal = Vec::new();
    }

    /// Makes a server, or changes it; waiting requests notice.
    pub fn set(&self, host: &str, answers: Answers) {
        self.lock().servers.entry(host.into()).or_default().answers = answers;
        self.0.changed.notify_waiters();
    }

    /// From now on only these tokens are good; none: all are.
    pub fn accept_tokens<const N: usize>(&self, host: &str, tokens: [&str; N]) {
        self.lock().servers.entry(host.into()).or_default().tokens =
            tokens.map(String::from).into();
    }

    /// From now on the health provider dials with permits, and gives up when it is evicted.
    pub fn with_permits(&self) {
        self.lock().with_permits = true;
    }

    /// From now on a dial with a permit is a handshake for so long, once it was answered.
    pub fn handshakes_take(&self, time: Duration) {
        self.lock().handshake = time;
    }

    /// Whether new connections are refused, whatever the server answers on old ones.
    pub fn refuse_dials(&self, host: &str, refuse: bool) {
        self.lock().servers.entry(host.into()).or_default().no_dials = refuse;
    }

    /// The tokens that the server has been shown, each once, in order.
    pub fn seen(&self, host: &str) -> Vec<String> {
        self.lock()
            .servers
            .get(host)
            .map(|server| server.seen.clone())
            .unwrap_or_default()
    }

    /// Requests that reached the server.
    pub fn requests(&self, host: &str) -> usize {
        self.lock()
            .servers
            .get(host)
            .map_or(0, |server| server.requests)
    }

    pub fn note(&self, line: String) {
        self.lock().journal.push(line);
        self.0.changed.notify_waiters();
    }

    /// What was done to providers so far; it is left as it is.
    pub fn noted(&self) -> Vec<String> {
        self.lock().journal.clone()
    }

    /// How many lines of the journal, which is left as it is, begin so.
    pub fn count(&self, begin: &str) -> usize {
        let inner = self.lock();
        inner
            .journal
            .iter()
            .filter(|line| line.starts_with(begin))
            .count()
    }

    /// What was done to providers since this was last called.
    pub fn journal(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().journal)
    }

    /// Waits until the journal, which is left as it is, has a line that begins so.
    pub async fn until_noted(&self, begin: &str) {
        let noted = tokio::time::timeout(LONG, self.noted_so(begin)).await;
        assert!(noted.is_ok(), "no {begin:?} in {:?}", self.noted());
    }

    async fn noted_so(&self, begin: &str) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self
                .lock()
                .journal
                .iter()
                .any(|line| line.starts_with(begin))
            {
                return;
            }
            changed.await;
        }
    }

    async fn request(
        &self,
        access: &ClusterAccess,
        made_before: bool,
    ) -> Result<Answer, CheckError> {
        let host = access
            .endpoint()
            .url()
            .host()
            .unwrap_or_default()
            .to_owned();
        let token = access.credential().token().map(|token| {
            use secrecy::ExposeSecret as _;
            token.expose_secret().to_owned()
        });
        let token = token.unwrap_or_default();
        {
            let mut inner = self.lock();
            let server = inner.servers.entry(host.clone()).or_default();
            server.requests += 1;
            if !server.seen.contains(&token) {
                server.seen.push(token.clone());
            }
        }
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let answers = {
                let mut inner = self.lock();
                let server = inner.servers.entry(host.clone()).or_default();
                let answers = match server.answers {
                    _ if server.no_dials && !made_before => Answers::Refuses,
                    answers => answers,
                };
                if answers == Answers::FailsOnce {
                    server.answers = Answers::Well;
                }
                let good = server.tokens.is_empty() || server.tokens.contains(&token);
                if answers == Answers::Well && !good {
                    Answers::Status(401)
                } else {
                    answers
                }
            };
            let error = |kind, text: &str| Err(CheckError::new(kind, text));
            match answers {
                Answers::Well => return Ok(Answer::Ready),
                Answers::OldConnectionsDie if !made_before => return Ok(Answer::Ready),
                Answers::Never | Answers::OldConnectionsDie => changed.await,
                Answers::Refuses | Answers::FailsOnce => {
                    return error(FailureKind::Refused, "connection refused");
                }
                Answers::NotReady => return Ok(Answer::NotReady("etcd failed".into())),
                Answers::Busy => return error(FailureKind::Busy, "no permit"),
                Answers::Panics => panic!("the server says so"),
                Answers::NotApplicable => return error(FailureKind::Other, "not applicable"),
                Answers::Status(401) => return error(FailureKind::Unauthorized, "401"),
                Answers::Status(status) => {
                    return error(FailureKind::Status(status), "a bad status");
                }
            }
        }
    }
}

/// The health provider of the simulated clusters.
pub struct Net(pub World);

pub struct NetValue {
    pub cx: InitContext,
    pub access: Mutex<ClusterAccess>,
    /// How often the pooled connection was replaced.
    pub replaced: Mutex<usize>,
}

#[async_trait]
impl ClusterResource for Net {
    type Value = NetValue;

    fn name(&self) -> &'static str {
        "net"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().access()
    }

    async fn init(&self, cx: &InitContext) -> Result<NetValue, InitError> {
        let access = cx.access()?;
        let (with_permits, handshake) = {
            let inner = self.0.lock();
            (inner.with_permits, inner.handshake)
        };
        let answer = if with_permits {
            let mut permit = cx.dial().await;
            let answer = tokio::select! {
                answer = self.0.request(&access, false) => answer,
                () = permit.evicted() => return Err(InitError::retry("evicted")),
            };
            if !handshake.is_zero() {
                permit.received().await;
                tokio::time::sleep(handshake).await;
            }
            answer
        } else {
            self.0.request(&access, false).await
        };
        answer.map_err(|error| match error.to_string() {
            no if no == "not applicable" => InitError::not_applicable(no),
            _ => InitError::retry(error.clone()).of_kind(error.kind()),
        })?;
        self.0.note(format!("{} net up", cx.key().name()));
        Ok(NetValue {
            cx: cx.clone(),
            access: access.into(),
            replaced: Mutex::default(),
        })
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        assert!(!value.is_current(), "torn down while readers get it");
        self.0
            .note(format!("{} net down {:?}", cx.key().name(), cx.reason()));
    }

    fn refresh(&self, value: &NetValue, access: &ClusterAccess) -> Refresh {
        *value.access.lock().unwrap() = access.clone();
        Refresh::InPlace
    }
}

#[async_trait]
impl HealthCheck for Net {
    async fn check(&self, value: &NetValue, cx: &CheckContext) -> Result<Answer, CheckError> {
        let replaced = *value.replaced.lock().unwrap() > 0;
        self.0
            .request(&cx.access(), cx.route() == Route::Pooled && !replaced)
            .await
    }

    fn replace_pooled(&self, value: &NetValue) {
        *value.replaced.lock().unwrap() += 1;
    }
}

/// A provider that does what its script says: `N` tells several apart; it requires `Net`, and `Layer<N-1>` if there is one.
pub struct Layer<const N: usize> {
    pub world: World,
    pub script: Script,
}

/// What a [`Layer`] does at each init, by cluster; when it is at its end, it works.
#[derive(Clone, Default)]
pub struct Script(Arc<Mutex<BTreeMap<String, Vec<Act>>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Works,
    Fails,
    Panics,
    Hangs,
    NeedsAccess,
    NotApplicable,
    /// Works, and its teardown takes so long.
    EndsSlowly(Duration),
    EndsWithPanic,
    EndsNever,
    /// Its init takes so long.
    Slow(Duration),
}

impl Script {
    pub fn set<const M: usize>(&self, cluster: &str, acts: [Act; M]) {
        self.0
            .lock()
            .unwrap()
            .insert(cluster.into(), acts.into_iter().rev().collect());
    }

    pub fn set_all(&self, cluster: &str, mut acts: Vec<Act>) {
        acts.reverse();
        self.0.lock().unwrap().insert(cluster.into(), acts);
    }

    fn next(&self, cluster: &str) -> Act {
        self.0
            .lock()
            .unwrap()
            .get_mut(cluster)
            .and_then(Vec::pop)
            .unwrap_or(Act::Works)
    }
}

pub struct LayerValue {
    act: Act,
    pub cx: InitContext,
}

#[derive(Debug, thiserror::Error)]
#[error("the script says so")]
pub struct Scripted;

#[async_trait]
impl<const N: usize> ClusterResource for Layer<N> {
    type Value = LayerValue;

    fn name(&self) -> &'static str {
        ["layer-0", "layer-1", "layer-2", "layer-3", "layer-4"][N]
    }

    fn requires(&self) -> Requires {
        let requires = Requires::nothing().resource::<Net>();
        match N {
            1 => requires.resource::<Layer<0>>(),
            2 => requires.resource::<Layer<1>>(),
            3 => requires.resource::<Layer<2>>(),
            _ => requires,
        }
    }

    async fn init(&self, cx: &InitContext) -> Result<LayerValue, InitError> {
        let name = cx.key().name();
        let act = self.script.next(name);
        self.world.note(format!("{name} {} tries", self.name()));
        match act {
            Act::Fails => return Err(Scripted.into()),
            Act::Panics => panic!("the script says so"),
            Act::Hangs => pending().await,
            Act::NeedsAccess => return Err(InitError::needs_access(Scripted)),
            Act::NotApplicable => return Err(InitError::not_applicable("the script says so")),
            Act::Slow(time) => tokio::time::sleep(time).await,
            Act::Works | Act::EndsSlowly(_) | Act::EndsWithPanic | Act::EndsNever => {}
        }
        cx.get::<Net>()?;
        self.world.note(format!("{name} {} up", self.name()));
        Ok(LayerValue {
            act,
            cx: cx.clone(),
        })
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        let name = cx.key().name();
        match value.act {
            Act::EndsSlowly(time) => tokio::time::sleep(time).await,
            Act::EndsNever => pending().await,
            _ => {}
        }
        self.world
            .note(format!("{name} {} down {:?}", self.name(), cx.reason()));
        assert!(value.act != Act::EndsWithPanic, "the script says so");
    }

    fn teardown_timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// The access to a server of the world.
pub fn access(host: &str, token: &str) -> ClusterAccess {
    ClusterAccess::builder(format!("https://{host}"))
        .token(token.to_owned())
        .build()
        .unwrap()
}

/// A cluster with a UID, at a server, with a token.
pub fn cluster(name: &str, uid: &str, host: &str, token: &str) -> Upsert {
    Upsert::ready(ClusterKey::named(name), access(host, token)).with_uid(uid)
}

/// A cluster whose server has its name.
pub fn plain(name: &str) -> Upsert {
    cluster(name, name, name, "t")
}

pub fn key(name: &str) -> ClusterKey {
    ClusterKey::named(name)
}

/// A cache over `Net` only.
pub fn builder(world: &World, source: &MemorySource) -> Builder {
    Builder::default()
        .source(source.clone())
        .resource(Net(world.clone()))
        .health_from::<Net>()
        .configure(|options| options.seed = Some(7))
}

/// Longer than anything that a test waits for; simulated, so it costs nothing.
pub const LONG: Duration = Duration::from_secs(3_600);

/// A provider whose hooks a test gives; `N` tells several apart. It requires `Net`.
pub struct Custom<const N: usize> {
    requires: Requires,
    init: Init,
    teardown: Teardown,
    refresh: TakesAccess,
    init_timeout: Duration,
    teardown_timeout: Duration,
}

type Init = Box<
    dyn Fn(InitContext) -> BoxFuture<'static, Result<Arc<dyn Any + Send + Sync>, InitError>>
        + Send
        + Sync,
>;
type Teardown = Box<dyn Fn(&CustomValue, &TeardownContext) -> BoxFuture<'static, ()> + Send + Sync>;
type TakesAccess = Box<dyn Fn(&CustomValue, &ClusterAccess) -> Refresh + Send + Sync>;

pub struct CustomValue {
    pub cx: InitContext,
    pub any: Arc<dyn Any + Send + Sync>,
}

impl<const N: usize> Custom<N> {
    /// Makes nothing in particular.
    pub fn new() -> Self {
        Self {
            requires: Requires::nothing().resource::<Net>(),
            init: Box::new(|_| Box::pin(async { Ok(Arc::new(()) as _) })),
            teardown: Box::new(|_, _| Box::pin(async {})),
            refresh: Box::new(|_, _| Refresh::Unchanged),
            init_timeout: Duration::from_secs(10),
            teardown_timeout: Duration::from_secs(5),
        }
    }

    pub fn requires(mut self, change: impl FnOnce(Requires) -> Requires) -> Self {
        self.requires = change(self.requires);
        self
    }

    pub fn init<T, F>(mut self, init: impl Fn(InitContext) -> F + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, InitError>> + Send + 'static,
    {
        self.init = Box::new(move |cx| {
            let made = init(cx);
            Box::pin(async move { Ok(Arc::new(made.await?) as _) })
        });
        self
    }

    pub fn teardown<F>(
        mut self,
        teardown: impl Fn(&CustomValue, &TeardownContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.teardown = Box::new(move |value, cx| Box::pin(teardown(value, cx)));
        self
    }

    pub fn refresh(
        mut self,
        refresh: impl Fn(&CustomValue, &ClusterAccess) -> Refresh + Send + Sync + 'static,
    ) -> Self {
        self.refresh = Box::new(refresh);
        self
    }

    pub fn init_timeout(mut self, limit: Duration) -> Self {
        self.init_timeout = limit;
        self
    }

    pub fn teardown_timeout(mut self, limit: Duration) -> Self {
        self.teardown_timeout = limit;
        self
    }
}

impl CustomValue {
    /// What the test's init made.
    pub fn made<T: 'static>(&self) -> &T {
        self.any.downcast_ref().expect("the test made this type")
    }
}

#[async_trait]
impl<const N: usize> ClusterResource for Custom<N> {
    type Value = CustomValue;

    fn name(&self) -> &'static str {
        ["custom-0", "custom-1", "custom-2", "custom-3", "custom-4"][N]
    }

    fn requires(&self) -> Requires {
        self.requires.clone()
    }

    fn init_timeout(&self) -> Duration {
        self.init_timeout
    }

    fn teardown_timeout(&self) -> Duration {
        self.teardown_timeout
    }

    async fn init(&self, cx: &InitContext) -> Result<CustomValue, InitError> {
        let any = (self.init)(cx.clone()).await?;
        Ok(CustomValue {
            cx: cx.clone(),
            any,
        })
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        assert!(!value.is_current(), "torn down while readers get it");
        (self.teardown)(&value, cx).await;
    }

    fn refresh(&self, value: &CustomValue, access: &ClusterAccess) -> Refresh {
        (self.refresh)(value, access)
    }
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Waits until the state of a cluster is as `is` says; looks again at every event.
pub async fn until(
    cache: &ClusterCache,
    name: &str,
    is: impl Fn(&ClusterState) -> bool,
) -> ClusterState {
    let mut events = cache.subscribe().key(&key(name));
    let so = async {
        loop {
            match cache.state(&key(name)) {
                Ok(state) if is(&state) => return state,
                _ => assert!(events.next().await.is_some(), "the cache ended"),
            }
        }
    };
    tokio::time::timeout(LONG, so)
        .await
        .unwrap_or_else(|_| panic!("never so: {:?}", cache.state(&key(name))))
}

/// Waits until readers no longer get a value.
pub async fn gone<R: ClusterResource>(value: &Resource<R>) {
    let gone = tokio::time::timeout(LONG, value.retired()).await;
    gone.expect("it goes")
        .expect("nothing of this waits inside a hook");
}

/// Waits until a key is not known any more.
pub async fn until_unknown(cache: &ClusterCache, name: &str) {
    let mut events = cache.subscribe().key(&key(name));
    let so = async {
        while cache.state(&key(name)).is_ok() {
            assert!(events.next().await.is_some(), "the cache ended");
        }
    };
    let unknown = tokio::time::timeout(LONG, so).await;
    assert!(
        unknown.is_ok(),
        "never removed: {:?}",
        cache.state(&key(name))
    );
}

/// The phase of a resource, and what it says.
pub fn resource(state: &ClusterState, name: &str) -> ResourceState {
    let mut resources = state.resources.iter();
    let found = resources.find(|resource| resource.name == name);
    found.expect("a registered name").clone()
}

/// Lets everything happen that can happen without time passing.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// The number of a test's seeds: more on demand.
pub fn seeds(few: u64) -> std::ops::Range<u64> {
    let more = std::env::var("CLUSTERCACHE_SEEDS");
    0..more.ok().and_then(|more| more.parse().ok()).unwrap_or(few)
}

/// What is logged at INFO and above while it is the default of a test's thread.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<LogInner>>);

#[derive(Default)]
struct LogInner {
    lines: Vec<String>,
    panics_at: Option<String>,
}

thread_local! {
    static LOG: std::cell::RefCell<Option<Log>> = const { std::cell::RefCell::new(None) };
}

/// The subscriber of the whole process: whether a line is of interest is remembered for all threads, so that it cannot be a thread's own.
struct OfThread;

/// While it lives, its thread's lines are kept.
pub struct LogGuard(());

impl Drop for LogGuard {
    fn drop(&mut self) {
        LOG.set(None);
    }
}

impl Log {
    pub fn set(&self) -> LogGuard {
        let _ = tracing::subscriber::set_global_default(OfThread);
        LOG.set(Some(self.clone()));
        LogGuard(())
    }

    pub fn lines(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines
            .clone()
    }

    /// The next line with this in it panics, in whoever logs it.
    pub fn panic_at(&self, text: &str) {
        self.0.lock().unwrap().panics_at = Some(text.into());
    }
}

impl tracing::Subscriber for OfThread {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                write!(self.0, " {field}={value:?}").unwrap();
            }
        }
        let mut line = Fields(event.metadata().level().to_string());
        event.record(&mut line);
        let Some(log) = LOG.with_borrow(Clone::clone) else {
            return;
        };
        let mut inner = log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let panics = inner
            .panics_at
            .take_if(|text| line.0.contains(&**text))
            .is_some();
        inner.lines.push(line.0);
        drop(inner);
        assert!(!panics, "the test says so");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
