//! What a provider's hooks are handed.

use std::{
    future::Future,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::{
    ClusterAccess, ClusterKey, ClusterResource, DialPermit, Generation, IdentityHandle, InitError,
    Reporter, Resource,
    connection::Connection,
    hook,
    inbox::Signal,
    latch::Moment,
    resource::{Life, Value},
};

/// What `init` works with. Clones may be kept by what the provider spawns.
#[derive(Clone)]
pub struct InitContext(pub(crate) Arc<Attempt>);

/// One run of an `init`.
pub(crate) struct Attempt {
    pub(crate) connection: Arc<Connection>,
    pub(crate) slot: usize,
    /// How often it was tried in a row, from 1.
    pub(crate) nth: u32,
    pub(crate) life: Arc<Life>,
    /// What the provider spawned, if anything.
    pub(crate) tasks: OnceLock<TaskTracker>,
    /// The values of what was declared: those it is built on.
    pub(crate) built_on: Box<[Value]>,
    /// Made when it first waits for a permit.
    pub(crate) paused: OnceLock<Box<Paused>>,
    /// Whether its value is asked to take an access.
    pub(crate) asked: AtomicBool,
}

/// A declared need was read as something else than what was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The access was not declared.
    #[error("{provider} reads the access without declaring it; add .access() to its requires()")]
    Access {
        /// The provider.
        provider: &'static str,
    },
    /// The resource was not declared.
    #[error("{provider} reads {resource} without declaring it; add .resource() to its requires()")]
    Resource {
        /// The provider.
        provider: &'static str,
        /// The resource's type.
        resource: &'static str,
    },
}

impl InitContext {
    /// The cluster.
    pub fn key(&self) -> &ClusterKey {
        &self.0.connection.key
    }

    /// The connection.
    pub fn generation(&self) -> Generation {
        self.0.connection.generation
    }

    /// The n-th init of this resource within the connection, from 1; failed ones count.
    pub fn incarnation(&self) -> u32 {
        self.0.life.incarnation
    }

    /// How often this was tried in a row, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.nth
    }

    /// The newest access: a new credential shows here while `init` runs. Must be declared by [`Requires::access`](crate::Requires::access).
    pub fn access(&self) -> Result<ClusterAccess, ContextError> {
        if self.plan().slot(self.0.slot).access {
            Ok(self.newest_access())
        } else {
            Err(ContextError::Access {
                provider: self.provider(),
            })
        }
    }

    pub(crate) fn newest_access(&self) -> ClusterAccess {
        self.0.connection.access()
    }

    /// A resource that was declared by [`Requires::resource`](crate::Requires::resource).
    pub fn get<R: ClusterResource>(&self) -> Result<Resource<R>, ContextError> {
        let resource = std::any::type_name::<R>();
        self.try_get().ok_or(ContextError::Resource {
            provider: self.provider(),
            resource,
        })
    }

    /// A resource that was declared by [`Requires::wants`](crate::Requires::wants), if it was there when this init began.
    pub fn try_get<R: ClusterResource>(&self) -> Option<Resource<R>> {
        self.0.built_on.iter().find_map(Resource::from_erased)
    }

    /// In a make-before-break replacement, the same resource of the connection that is to be replaced, while that is up.
    pub fn predecessor<R: ClusterResource>(&self) -> Option<Resource<R>> {
        let connection = self.0.connection.predecessor();
        connection?
            .all_up()
            .iter()
            .find_map(|up| Resource::from_erased(&up.value))
            .filter(Resource::is_current)
    }

    /// Runs a task that ends with this resource. It is told by [`ending`](Self::ending) when the resource's teardown begins, and
    /// dropped when that is over. A panic is counted, and makes the resource [fail](Self::failed).
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cx = self.clone();
        let tracker = self.0.tasks.get_or_init(TaskTracker::new);
        tracker.spawn(async move {
            let counters = &cx.0.connection.shared.counters;
            let killed = cx.0.life.moments.wait(Moment::Killed);
            if let hook::Ended::Panicked(panic) =
                hook::run_task(counters, cx.provider(), Box::pin(task), killed).await
            {
                cx.failed(Panicked(panic));
            }
        });
    }

    /// Returns when the teardown of this resource begins.
    pub async fn ending(&self) {
        hook::guarded(self.0.life.moments.wait(Moment::Ending)).await;
    }

    /// The value of this init has gone bad: it is torn down, with what requires it, and made again; while `init` runs, when that has made
    /// it. Without effect when it is no more.
    pub fn failed(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        let error = InitError::retry(error);
        let signal = Signal::Failed {
            slot: self.0.slot,
            incarnation: self.incarnation(),
            error: error.text,
        };
        self.0.connection.signal(signal);
    }

    /// By which what this init makes can speak of itself later, and ask to be made again, from wherever it is kept.
    pub fn reporter(&self) -> Reporter {
        Reporter::of(self)
    }

    /// What one reports signs of life to.
    pub fn alive(&self) -> Alive {
        Alive(Arc::clone(&self.0.connection))
    }

    /// Waits for a permit to dial. It covers one connection's way up; hold none while waiting for another. Time spent here does not
    /// run the `init_timeout`.
    pub async fn dial(&self) -> DialPermit {
        let Self(attempt) = self;
        let Connection { shared, key, .. } = &*attempt.connection;
        let _paused = attempt.paused.get_or_init(Box::default).pause();
        let begun = Instant::now();
        let permit = shared
            .dials
            .permit(key, attempt.connection.failures())
            .await;
        shared.counters.waited_to_dial(begun.elapsed());
        permit.of(Arc::clone(attempt))
    }

    /// Which cluster of the name this is.
    pub fn identity(&self) -> IdentityHandle {
        self.0.connection.identity.handle().clone()
    }

    /// State that lives as long as the cluster's identity is known, over all its connections, and is never evicted: a key, the
    /// time at which something first began. One a type.
    pub fn identity_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.0.connection.identity.get()
    }

    /// Takes the warm state that a teardown of the same identity [kept](TeardownContext::keep). It may be lost at any time.
    pub fn kept<T: Send + Sync + 'static>(&self) -> Option<T> {
        let age = self.0.connection.shared.options.end.warm_age;
        self.0.connection.identity.kept(age, Instant::now())
    }

    pub(crate) fn provider(&self) -> &'static str {
        self.plan().name(self.0.slot)
    }

    fn plan(&self) -> &crate::plan::Plan {
        &self.0.connection.shared.plan
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a task of it {0}")]
struct Panicked(String);

/// Reports signs of life of a connection to the health check; costs a few nanoseconds, and never waits.
#[derive(Clone)]
pub struct Alive(Arc<Connection>);

impl Alive {
    /// Bytes came from the cluster, on a watch for instance: it can be reached.
    pub fn bytes(&self) {
        self.0.vitals.bytes(Instant::now());
    }

    /// An authenticated request was answered, by 2xx, or by 4xx with a `Status` body except 401 and 429.
    pub fn answered(&self) {
        self.0.vitals.answered(Instant::now());
    }

    /// Something that should have come did not, such as the answer to an HTTP/2 ping: a probe is sent at once.
    pub fn doubt(&self) {
        if !self
            .0
            .vitals
            .doubted
            .swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            self.0.signal(Signal::Doubt);
        }
    }
}

impl Connection {
    pub(crate) fn signal(&self, signal: Signal) {
        self.shared.inbox.signal(&self.key, self.generation, signal);
    }
}

/// Why a value is torn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TeardownReason {
    /// The cluster does not answer.
    Down,
    /// Another connection, or another incarnation, takes its place; or it or what it was built on failed.
    Replaced,
    /// The cluster is gone, filtered out, or its gate was lost.
    Removed,
    /// The cache shuts down.
    Shutdown,
}

/// What `teardown` works with.
pub struct TeardownContext {
    pub(crate) connection: Arc<Connection>,
    pub(crate) reason: TeardownReason,
}

impl TeardownContext {
    /// The cluster.
    pub fn key(&self) -> &ClusterKey {
        &self.connection.key
    }

    /// The connection.
    pub fn generation(&self) -> Generation {
        self.connection.generation
    }

    /// Why.
    pub fn reason(&self) -> TeardownReason {
        self.reason
    }

    /// Keeps warm state of about `bytes` for the next `init` of the same identity, one a type. Says whether there was room.
    pub fn keep<T: Send + Sync + 'static>(&self, state: T, bytes: usize) -> bool {
        let end = &self.connection.shared.options.end;
        self.connection
            .identity
            .keep(state, bytes, end.warm_bytes, end.warm_age, Instant::now())
    }

    /// As [`InitContext::identity_state`].
    pub fn identity_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.connection.identity.get()
    }
}

/// Time that does not run an init's timeout.
#[derive(Default)]
pub(crate) struct Paused(std::sync::Mutex<PausedTime>);

#[derive(Default)]
struct PausedTime {
    running: u32,
    since: Option<Instant>,
    total: Duration,
}

impl Paused {
    fn lock(&self) -> std::sync::MutexGuard<'_, PausedTime> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn pause(&self) -> impl Drop + '_ {
        struct Resume<'a>(&'a Paused);
        impl Drop for Resume<'_> {
            fn drop(&mut self) {
                let mut time = self.0.lock();
                time.running -= 1;
                if time.running == 0 {
                    let paused = time
                        .since
                        .take()
                        .map_or(Duration::ZERO, |since| since.elapsed());
                    time.total += paused;
                }
            }
        }
        let mut time = self.lock();
        time.running += 1;
        time.since.get_or_insert_with(Instant::now);
        Resume(self)
    }

    /// How long it paused so far, and whether it does now.
    pub(crate) fn so_far(&self) -> (Duration, bool) {
        let time = self.lock();
        let now = time.since.map_or(Duration::ZERO, |since| since.elapsed());
        (time.total + now, time.running > 0)
    }
}

impl Attempt {
    /// Returns when `timeout` has passed beside all pauses. Looks again after each pause, and while one lasts.
    pub(crate) async fn timeout(&self, timeout: Duration) {
        let begun = Instant::now();
        loop {
            let (paused, running) = self
                .paused
                .get()
                .map_or((Duration::ZERO, false), |paused| paused.so_far());
            let left = timeout
                .saturating_add(paused)
                .saturating_sub(begun.elapsed());
            match (left.is_zero(), running) {
                (true, false) => return,
                (true, true) => tokio::time::sleep(timeout).await,
                (false, _) => tokio::time::sleep(left).await,
            }
        }
    }
}
