//! The handle that controllers hold. All reading goes through it, and none of it waits, locks or allocates (rule 1).

use std::{
    any::TypeId,
    fmt,
    marker::PhantomData,
    ops::Deref,
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, timeout_at};

use crate::{
    Builder, Census, ClusterAccess, ClusterKey, ClusterResource, ClusterState, Counters, Dials,
    EngineStatus, Generation, GetError, Phase, Resource, ShutdownReport, Subscribers, Subscription,
    WaitError, WouldDeadlock,
    hook::{guarded, may_wait},
    inbox::Command,
    registry::{Entry, Snapshot},
    shared::Shared,
    sync::Loaded,
};

#[cfg(all(test, clustercache_shuttle))]
pub(crate) mod model;

/// As good as never, and can be added to any time.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A cache of what controllers need for every cluster. Clones are cheap, and share it.
///
/// ```no_run
/// # use clustercache::*;
/// # fn reconcile<KubeClient: ClusterResource>(cache: &ClusterCache, key: &ClusterKey) -> Result<(), GetError> {
/// let client = cache.get::<KubeClient>(key)?;
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClusterCache {
    pub(crate) shared: Arc<Shared>,
}

impl ClusterCache {
    /// Begins the set-up of a cache.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The cluster's `R`, if it is there now. Never waits, locks or allocates, also when it fails. The error says why there is none;
    /// return without a timer, and let a [subscription](Self::subscribe) wake you.
    pub fn get<R: ClusterResource>(&self, key: &ClusterKey) -> Result<Resource<R>, GetError> {
        self.shared.registry.get(key)
    }

    /// A handle to the cluster that has this key now, for many reads without looking the key up again. It is there for every known
    /// key, connected or not.
    pub fn cluster(&self, key: &ClusterKey) -> Result<Cluster, GetError> {
        let entry = self.shared.registry.entry(key)?;
        let identity = entry.load().identity;
        Ok(Cluster {
            shared: Arc::clone(&self.shared),
            entry,
            identity,
        })
    }

    /// The newest access, for those who dial by other means; it prints no secret.
    pub fn access(&self, key: &ClusterKey) -> Result<ClusterAccess, GetError> {
        self.cluster(key)?.access()
    }

    /// Everything that is known of a cluster.
    pub fn state(&self, key: &ClusterKey) -> Result<ClusterState, GetError> {
        self.shared
            .registry
            .read(key, |entry| entry.state(&self.shared.registry.clock))
    }

    /// What a cluster is, without the rest of its [`state`](Self::state), of which nothing is cloned.
    pub fn phase(&self, key: &ClusterKey) -> Result<Phase, GetError> {
        let registry = &self.shared.registry;
        registry.read(key, |entry| entry.load().state.phase)
    }

    /// All keys that are known by now, in no order: all of the sources' once [`wait_for_start`](Self::wait_for_start) has returned.
    pub fn keys(&self) -> Result<Vec<ClusterKey>, GetError> {
        self.shared.registry.check_running()?;
        Ok(self.shared.registry.keys())
    }

    /// Everything that is known of all clusters, by key.
    pub fn states(&self) -> Result<Vec<ClusterState>, GetError> {
        let mut states: Vec<_> = self
            .keys()?
            .iter()
            .filter_map(|key| self.shared.registry.state(key))
            .collect();
        states.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(states)
    }

    /// What changes, as a stream. It begins with every known cluster.
    pub fn subscribe(&self) -> Subscription {
        let shared = Arc::clone(&self.shared);
        self.shared
            .events
            .subscribe(move || shared.inbox.command(Command::Durations))
    }

    /// Waits until the cluster is connected, whatever its identity, for as long as `limit`. Unknown, gated, refused and down clusters are
    /// waited for too; what the cluster was at the deadline is in the error. Dropping the future cancels nothing.
    pub async fn wait_for(&self, key: &ClusterKey, limit: Duration) -> Result<Cluster, WaitError> {
        may_wait("wait_for")?;
        // A limit that is never (`Duration::MAX`) overflows nothing.
        let deadline = Instant::now() + limit.min(NEVER);
        let mut passed = false;
        loop {
            // Registered before the look: a change between the two wakes us.
            let next = self.shared.events.next(key);
            let why = match self.cluster(key) {
                Ok(cluster) => match GetError::not_connected(&cluster.entry.load().state) {
                    None => return Ok(cluster),
                    Some(why) => why,
                },
                Err(why @ GetError::NotRunning { .. })
                    if self.status() != EngineStatus::NotStarted =>
                {
                    return Err(WaitError::NotRunning(why));
                }
                Err(why) => why,
            };
            if passed {
                return Err(match why {
                    GetError::NotRunning { .. } => WaitError::NotRunning(why),
                    why => WaitError::Deadline(why),
                });
            }
            // What it is at the deadline is looked at then: not everything that changes is told.
            passed = timeout_at(deadline, next).await.is_err();
        }
    }

    /// The start-up barrier: waits until all sources are synced and every cluster known then is connected, has failed once, or may not
    /// be connected; or until `limit` has passed. Says which of the two it was. Without an engine, also one that is not started by then, it is
    /// an error.
    pub async fn wait_for_start(&self, limit: Duration) -> Result<bool, WaitError> {
        may_wait("wait_for_start")?;
        let started = tokio::time::timeout(limit, guarded(self.shared.started.wait()))
            .await
            .is_ok();
        let running = self.shared.registry.check_running();
        running.map_err(WaitError::NotRunning)?;
        Ok(started)
    }

    /// Tries at once whatever of this cluster waits to be tried again.
    pub fn retry_now(&self, key: &ClusterKey) {
        self.command(key, Command::RetryNow);
    }

    /// Makes a new connection to the cluster: beside the living one, if there is one, and then in its place.
    pub fn reconnect(&self, key: &ClusterKey) {
        self.command(key, Command::Reconnect);
    }

    /// Asks a provider again that said that it is not applicable to the cluster. Without effect if `R` is not registered.
    pub fn reconsider<R: ClusterResource>(&self, key: &ClusterKey) {
        if let Some(slot) = self.shared.plan.index_of(TypeId::of::<R>()) {
            self.command(key, |key| Command::Reconsider(key, slot));
        }
    }

    /// Lets go of the fleet brake; it does not engage again before the share of failing clusters was low.
    pub fn release_brake(&self) {
        self.shared.inbox.command(Command::ReleaseBrake);
    }

    /// Tears everything down, and ends the engine: at most [`shutdown`](crate::options::EndOptions::shutdown) long. The report names what
    /// had to be abandoned. Inside `init` and `teardown` it is an error at once.
    pub async fn shutdown(&self) -> Result<ShutdownReport, WouldDeadlock> {
        may_wait("shutdown")?;
        if self.status() == EngineStatus::NotStarted {
            return Ok(ShutdownReport::default());
        }
        self.shared.inbox.command(Command::Shutdown);
        guarded(self.shared.ended.wait()).await;
        Ok(self
            .shared
            .shutdown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }

    /// Whether there is an engine behind this handle.
    pub fn status(&self) -> EngineStatus {
        self.shared.registry.status()
    }

    /// What was counted since the cache was built.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// How many clusters are what just now; none where no engine [runs](Self::status). It looks at each, and reads no state: some tens of
    /// nanoseconds a cluster.
    pub fn census(&self) -> Census {
        self.shared.registry.census()
    }

    /// How those fare who [subscribed](Self::subscribe).
    pub fn subscribers(&self) -> Subscribers {
        self.shared.events.subscribers()
    }

    /// What is being dialled just now.
    pub fn dials(&self) -> Dials {
        self.shared.dials.counts()
    }

    /// The wall clock as the cache counts it: what its states' times are to be compared with.
    pub fn now(&self) -> SystemTime {
        self.shared.registry.clock.wall(Instant::now())
    }

    fn command(&self, key: &ClusterKey, command: impl FnOnce(ClusterKey) -> Command) {
        // Only of known keys: what nobody takes out of the inbox must not grow.
        if self.shared.registry.contains(key) {
            self.shared.inbox.command(command(key.clone()));
        }
    }
}

impl fmt::Debug for ClusterCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterCache")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// A handle to one cluster: to one identity of its key. When another cluster has taken the name, every read says `Replaced`.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
    identity: u64,
}

impl Cluster {
    /// The cluster's name.
    pub fn key(&self) -> &ClusterKey {
        &self.entry.key
    }

    /// As [`ClusterCache::get`].
    pub fn get<R: ClusterResource>(&self) -> Result<Resource<R>, GetError> {
        let found = self
            .find::<R>()
            .and_then(|(snapshot, slot)| snapshot.values.get(slot));
        match found {
            Some(resource) => Ok(resource),
            None => self.get_or_why(),
        }
    }

    #[cold]
    fn get_or_why<R: ClusterResource>(&self) -> Result<Resource<R>, GetError> {
        self.load()?.get(&self.shared.plan)
    }

    #[inline]
    fn find<R: ClusterResource>(&self) -> Option<(Loaded<Snapshot>, usize)> {
        let Shared { registry, plan, .. } = &*self.shared;
        if registry.status() != EngineStatus::Running {
            return None;
        }
        let slot = plan.index_of(TypeId::of::<R>())?;
        let snapshot = self.entry.load();
        (snapshot.identity == self.identity).then_some((snapshot, slot))
    }

    /// As [`get`](Self::get), without taking a reference that outlives the borrow: for the shortest of reads. Do not keep it, nor hold it
    /// across an await: it delays the end of the whole snapshot.
    pub fn borrow<R: ClusterResource>(&self) -> Result<Borrowed<R>, GetError> {
        if let Some((snapshot, slot)) = self.find::<R>()
            && snapshot.values.value::<R>(slot).is_some()
        {
            return Ok(Borrowed::of(snapshot, slot));
        }
        self.borrow_or_why()
    }

    #[cold]
    fn borrow_or_why<R: ClusterResource>(&self) -> Result<Borrowed<R>, GetError> {
        let (snapshot, plan) = (self.load()?, &self.shared.plan);
        snapshot.borrow::<R>(plan)?;
        let slot = plan.index_of(TypeId::of::<R>());
        Ok(Borrowed::of(
            snapshot,
            slot.expect("what has a value is registered"),
        ))
    }

    /// One moment of the cluster: everything read from it is of one generation.
    pub fn snapshot(&self) -> Result<ClusterSnapshot, GetError> {
        self.load()?;
        let snapshot = self.entry.load_full();
        self.check(&snapshot)?;
        Ok(ClusterSnapshot {
            shared: Arc::clone(&self.shared),
            snapshot,
        })
    }

    /// The newest access.
    pub fn access(&self) -> Result<ClusterAccess, GetError> {
        let snapshot = self.load()?;
        let why = || {
            GetError::not_connected(&snapshot.state)
                .unwrap_or_else(|| GetError::Connecting(Arc::clone(&snapshot.state)))
        };
        snapshot.access.clone().ok_or_else(why)
    }

    /// Everything that is known of it.
    pub fn state(&self) -> Result<ClusterState, GetError> {
        Ok(self.load()?.state(&self.shared.registry.clock))
    }

    /// The published connection, if there is one.
    pub fn generation(&self) -> Result<Option<Generation>, GetError> {
        Ok(self.load()?.generation)
    }

    fn load(&self) -> Result<Loaded<Snapshot>, GetError> {
        self.shared.registry.check_running()?;
        let snapshot = self.entry.load();
        self.check(&snapshot)?;
        Ok(snapshot)
    }

    fn check(&self, snapshot: &Snapshot) -> Result<(), GetError> {
        if snapshot.identity == self.identity {
            Ok(())
        } else {
            Err(GetError::Replaced {
                key: self.key().clone(),
            })
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("key", self.key())
            .finish_non_exhaustive()
    }
}

/// A value, borrowed from a cluster's current snapshot.
pub struct Borrowed<R: ClusterResource> {
    snapshot: Loaded<Snapshot>,
    slot: usize,
    resource: PhantomData<R>,
}

impl<R: ClusterResource> Borrowed<R> {
    /// That it is there has been seen.
    #[inline]
    fn of(snapshot: Loaded<Snapshot>, slot: usize) -> Self {
        Self {
            snapshot,
            slot,
            resource: PhantomData,
        }
    }
}

impl<R: ClusterResource> Deref for Borrowed<R> {
    type Target = R::Value;

    #[inline]
    fn deref(&self) -> &R::Value {
        let value = self.snapshot.values.value::<R>(self.slot);
        value.expect("a snapshot never changes")
    }
}

/// One moment of a cluster. It keeps its values' memory, and says itself whether they are still current.
#[derive(Clone)]
pub struct ClusterSnapshot {
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
}

impl ClusterSnapshot {
    /// The `R` of that moment.
    pub fn get<R: ClusterResource>(&self) -> Result<&Resource<R>, GetError> {
        self.snapshot.borrow(&self.shared.plan)
    }

    /// The connection of that moment.
    pub fn generation(&self) -> Option<Generation> {
        self.snapshot.generation
    }

    /// The state at that moment.
    pub fn state(&self) -> &ClusterState {
        &self.snapshot.state
    }
}
