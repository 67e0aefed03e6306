//! A cache with a healthy neighbour and as many hostile clusters as a test likes. One test at a time: the heap, the log and the panics are
//! those of the process.

use std::{
    fmt,
    future::Future,
    panic::{self, Location},
    sync::{Arc, Mutex, Once, PoisonError},
    time::Duration,
};

use clustercache::{
    AccessBuilder, Changes, Cluster, ClusterAccess, ClusterCache, ClusterKey, ClusterState, Event,
    Generation, HookKind, LastError, MemorySource, Phase, Upsert, options::Options,
};
use clustercache_client::{ClientExt, Deadlines, KubeClient};
use clustercache_metrics::CacheMetrics;
use clustercache_testkit::{
    fleet::{FakeCluster, FakeCredential},
    guard::PanicGuard,
    hostile::{Answer, Behaviour, HostileServer},
};
use futures_util::StreamExt;
use prometheus::{Registry, TextEncoder};
use tokio::{
    sync::{Mutex as AsyncMutex, MutexGuard},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    canaries::{CANARIES, TOKEN},
    cost::Heap,
    ears,
};

/// The limit under which a test waits for what must happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// What a case may put on the heap, with all that its servers have there: a few windows and limits of answers, and far below what is sent.
const LITTLE: usize = 24 << 20;

pub(crate) type Protocol = fn() -> Behaviour;
pub(crate) const H1: Protocol = Behaviour::http1;
pub(crate) const H2: Protocol = Behaviour::http2;
pub(crate) const BOTH: [Protocol; 2] = [H1, H2];

/// Answers the health check, and gives a version.
pub(crate) fn healthy(protocol: Protocol) -> Behaviour {
    well(protocol())
}

pub(crate) fn well(behaviour: Behaviour) -> Behaviour {
    let version = serde_json::json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    });
    behaviour
        .on("/readyz", Answer::new(200).body("ok"))
        .on("/version", Answer::json(200, &version))
}

static ALONE: AsyncMutex<()> = AsyncMutex::const_new(());
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(crate) struct Rig {
    pub(crate) cache: ClusterCache,
    pub(crate) source: MemorySource,
    _neighbour: FakeCluster,
    neighbours_life: Generation,
    /// What the cache said of the neighbour that it should not have.
    slights: JoinHandle<()>,
    slighted: Arc<Mutex<Vec<String>>>,
    servers: Vec<Arc<HostileServer>>,
    heap: Heap,
    _guard: PanicGuard,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(|_, _| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Deadlines, &mut Options)) -> Self {
        Self::of(KubeClient::new(), change).await
    }

    /// With short deadlines, so that tests are, and long patience with a neighbour on a busy machine.
    pub(crate) async fn of(
        client: KubeClient,
        change: impl FnOnce(&mut Deadlines, &mut Options),
    ) -> Self {
        let alone = ALONE.lock().await;
        ears::listen();
        listen_to_panics();
        let (mut deadlines, mut options) = (Deadlines::default(), Options::default());
        deadlines.call = Duration::from_secs(2);
        deadlines.close = Duration::from_millis(100);
        options.health.probe_after = Duration::from_millis(500);
        options.health.suspect_interval = Duration::from_millis(200);
        options.health.down_after = Duration::from_secs(10);
        options.retry.first = Duration::from_millis(50);
        options.retry.most = Duration::from_millis(200);
        options.source.linger = Duration::from_millis(50);
        change(&mut deadlines, &mut options);

        let neighbour = FakeCluster::start("neighbour").unwrap();
        let source = MemorySource::new("hostile");
        let cache = ClusterCache::builder()
            .source(source.clone())
            .resource(client.deadlines(deadlines))
            .health_from::<KubeClient>()
            .configure(|given| *given = options)
            .start()
            .unwrap();
        source.upsert(Upsert::ready(beside(), neighbours_access(&neighbour)));
        let connected = cache.wait_for(&beside(), LIMIT).await.unwrap();
        let slighted = Arc::<Mutex<Vec<String>>>::default();
        let slights = tokio::spawn(note_slights(cache.clone(), Arc::clone(&slighted)));
        Self {
            neighbours_life: connected.generation().unwrap().unwrap(),
            _guard: PanicGuard::new(&cache),
            cache,
            source,
            _neighbour: neighbour,
            slights,
            slighted,
            servers: Vec::new(),
            heap: Heap::watch(),
            _alone: alone,
        }
    }

    /// A hostile server, and a cluster at it.
    pub(crate) fn add(
        &mut self,
        name: &str,
        behaviour: Behaviour,
    ) -> (ClusterKey, Arc<HostileServer>) {
        let server = self.server(HostileServer::start(name, behaviour).unwrap());
        (self.add_at(name, &server), server)
    }

    /// A hostile server without a cluster.
    pub(crate) fn server(&mut self, server: HostileServer) -> Arc<HostileServer> {
        let server = Arc::new(server);
        self.servers.push(Arc::clone(&server));
        server
    }

    /// One more cluster at a server.
    pub(crate) fn add_at(&self, name: &str, server: &HostileServer) -> ClusterKey {
        let key = ClusterKey::named(name);
        self.source
            .upsert(Upsert::ready(key.clone(), access(server)));
        key
    }

    /// How many hostile servers there are.
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// The case is over.
    #[track_caller]
    pub(crate) fn remove(&self, key: &ClusterKey) {
        self.look();
        self.source.remove(key);
    }

    pub(crate) async fn connected(&self, key: &ClusterKey) -> Cluster {
        let connected = self.cache.wait_for(key, LIMIT).await;
        let connected = connected.unwrap_or_else(|error| panic!("{error}"));
        self.look();
        connected
    }

    pub(crate) async fn client(&self, key: &ClusterKey) -> kube::Client {
        self.connected(key).await;
        self.cache.client(key).unwrap()
    }

    /// Waits until a cluster's state is such.
    pub(crate) async fn until(
        &self,
        key: &ClusterKey,
        holds: impl Fn(&ClusterState) -> bool,
    ) -> ClusterState {
        let mut events = self.cache.subscribe().key(key);
        let changed = async {
            loop {
                match self.cache.state(key) {
                    Ok(state) if holds(&state) => return state,
                    _ => assert!(events.next().await.is_some(), "the cache ended"),
                }
            }
        };
        let state = timeout(LIMIT, changed).await;
        let state = state.unwrap_or_else(|_| panic!("{:?}", self.cache.state(key)));
        self.shown(&state);
        state
    }

    /// What the cache says of a cluster is fit to be seen: its state as text and as JSON, and why there is no client, if there is none.
    #[track_caller]
    fn shown(&self, state: &ClusterState) {
        ears::shows(&format!("{state:?} {state:#?}"));
        ears::shows(&serde_json::to_string(state).unwrap());
        if let Err(error) = self.cache.client(&state.key) {
            ears::tells(&error);
        }
    }

    /// The same of all clusters as they are now, and of the page of metrics. What is logged is judged as it comes.
    #[track_caller]
    pub(crate) fn look(&self) {
        ears::shows(&page(&self.cache));
        for state in self.cache.states().unwrap() {
            self.shown(&state);
        }
    }

    /// The first failure of a cluster.
    pub(crate) async fn failed(&self, key: &ClusterKey) -> LastError {
        let state = self.until(key, |state| state.last_error.is_some()).await;
        self.look();
        state.last_error.unwrap()
    }

    /// The neighbour has noticed nothing, nothing panicked, nothing that must not show has shown, the heap was small, and the end is clean.
    pub(crate) async fn end(self) {
        self.look();
        let state = self.cache.state(&beside()).unwrap();
        assert_eq!(
            (state.phase, state.generation),
            (Phase::Connected, Some(self.neighbours_life)),
            "{state:?}"
        );
        let client = self.cache.client(&beside()).unwrap();
        let answered = client.apiserver_version().await;
        answered.unwrap_or_else(|error| panic!("the neighbour does not answer: {error:?}"));

        let report = timeout(LIMIT, self.cache.shutdown()).await.unwrap();
        // An attempt may be under way; what was up has an end of its own.
        let report = report.unwrap();
        let mut abandoned = report.abandoned.iter();
        assert!(
            abandoned.all(|hook| hook.hook == HookKind::Init),
            "{report}"
        );
        self.heap.below(LITTLE);
        self.slights.await.unwrap();
        let slights = std::mem::take(&mut *lock(&self.slighted));
        assert!(slights.is_empty(), "{slights:#?}");
        for server in &self.servers {
            timeout(LIMIT, server.when(|counts| counts.open == 0))
                .await
                .expect("nothing is left of a connection when the cache has ended");
        }
        let panics = std::mem::take(&mut *lock(&PANICS));
        assert!(panics.is_empty(), "{panics:#?}");
        let faults = ears::faults();
        assert!(
            faults.is_empty(),
            "{} in all: {:#?}",
            faults.len(),
            &faults[..faults.len().min(5)]
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that there can be for Prometheus.
fn page(cache: &ClusterCache) -> String {
    let metrics = CacheMetrics::new(cache).per_cluster().cluster_api_names();
    let registry = Registry::new();
    registry.register(Box::new(metrics)).unwrap();
    let families = registry.gather();
    TextEncoder::new().encode_to_string(&families).unwrap()
}

fn beside() -> ClusterKey {
    ClusterKey::named("neighbour")
}

/// With every secret that there is.
pub(crate) fn access(server: &HostileServer) -> ClusterAccess {
    access_with(server, |access| access)
}

/// The same, and something else.
pub(crate) fn access_with(
    server: &HostileServer,
    change: impl FnOnce(AccessBuilder) -> AccessBuilder,
) -> ClusterAccess {
    let access = ClusterAccess::builder(server.url())
        .ca_pem(server.ca().pem())
        .client_certificate_pem(CANARIES.certificate_pem.clone(), CANARIES.key_pem.clone())
        .token(TOKEN);
    change(access).build().unwrap()
}

fn neighbours_access(neighbour: &FakeCluster) -> ClusterAccess {
    let builder = ClusterAccess::builder(neighbour.url()).ca_pem(neighbour.ca_pem());
    let FakeCredential::Token(token) = neighbour.access().credential else {
        unreachable!("a fake cluster has a token")
    };
    builder.token(token).build().unwrap()
}

/// Until the cache ends.
async fn note_slights(cache: ClusterCache, slights: Arc<Mutex<Vec<String>>>) {
    let mut events = cache.subscribe().key(&beside());
    drop(cache);
    while let Some(event) = events.next().await {
        let Event::Cluster { changes, state, .. } = event else {
            continue;
        };
        let ending = state
            .as_ref()
            .is_none_or(|state| state.phase == Phase::Removed);
        let connected = state
            .as_ref()
            .is_some_and(|state| state.phase.is_connected());
        if !ending && (changes.contains(Changes::DISCONNECTED) || !connected) {
            lock(&slights).push(format!("{changes:?} {state:?}"));
        }
    }
}

/// Those of the code under test: a test's own have its name.
fn listen_to_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(Location::file).unwrap_or_default();
            if !place.contains("tests/hostile") {
                lock(&PANICS).push(info.to_string());
            }
            before(info);
        }));
    });
    lock(&PANICS).clear();
}

/// It happens in time.
pub(crate) async fn soon<T>(what: impl fmt::Display, event: impl Future<Output = T>) -> T {
    let happened = timeout(LIMIT, event).await;
    happened.unwrap_or_else(|_| panic!("{what} takes longer than {LIMIT:?}"))
}
