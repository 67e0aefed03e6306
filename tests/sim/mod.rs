//! Clusters without a network, for tests of the core in simulated time: servers whose answers the test sets, and providers that do what a script
//! says and write down what was done to them.
#![allow(dead_code, unreachable_pub)] // each test file uses its part of it

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    Answer, Builder, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey,
    ClusterResource, FailureKind, HealthCheck, InitContext, InitError, MemorySource, Refresh,
    Requires, Resource, Route, TeardownContext, Upsert,
};
use tokio::sync::Notify;

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
    servers: BTreeMap<String, Server>,
    journal: Vec<String>,
}

#[derive(Default)]
struct Server {
    answers: Answers,
    tokens: BTreeSet<String>,
    seen: Vec<String>,
    requests: usize,
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
    /// What goes over connections that were made before is lost; new ones work.
    OldConnectionsDie,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What was done to providers since this was last called.
    pub fn journal(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().journal)
    }

    /// Waits until the journal, which is left as it is, has a line that begins so.
    pub async fn until_noted(&self, begin: &str) {
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

    async fn request(&self, access: &ClusterAccess, made_before: bool) -> Result<(), CheckError> {
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
                let answers = server.answers;
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
                Answers::Well => return Ok(()),
                Answers::OldConnectionsDie if !made_before => return Ok(()),
                Answers::Never | Answers::OldConnectionsDie => changed.await,
                Answers::Refuses | Answers::FailsOnce => {
                    return error(FailureKind::Refused, "connection refused");
                }
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
        let answer = self.0.request(&access, false).await;
        answer.map_err(|error| InitError::retry(error.clone()).of_kind(error.kind()))?;
        self.0.note(format!("{} net up", cx.key().name()));
        Ok(NetValue {
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
            .await?;
        Ok(Answer::Ready)
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
}

impl Script {
    pub fn set<const M: usize>(&self, cluster: &str, acts: [Act; M]) {
        self.0
            .lock()
            .unwrap()
            .insert(cluster.into(), acts.into_iter().rev().collect());
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
            Act::Works | Act::EndsSlowly(_) | Act::EndsWithPanic | Act::EndsNever => {}
        }
        assert!(cx.get::<Net>()?.is_current() || !cx.get::<Net>()?.is_current());
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
    ClusterCache::builder()
        .source(source.clone())
        .resource(Net(world.clone()))
        .health_from::<Net>()
        .configure(|options| options.seed = Some(7))
}

/// Longer than anything that a test waits for; simulated, so it costs nothing.
pub const LONG: Duration = Duration::from_secs(3_600);
