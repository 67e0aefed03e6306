//! One cluster's certificate: the newest that is valid, and what it takes to renew it. It lives as long as the cluster's identity is known, over all
//! connections; another cluster of the name has another.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use clustercache::{ClusterKey, Generation, IdentityHandle, Reporter, Standing};
use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::{
    EtcdIssuer, IssueError, IssuedCertificate, IssuerError, KeyAlgorithm, backoff, certificate,
    flight::{Flight, Seat},
    keeper::Keeper,
    key::ClientKey,
    policy::{self, KeyCell, Policy, Wanted},
    provider::READ_WITHIN,
    source::Credential,
    wall,
    work::{self, Kind},
};

/// How often something is looked at that nobody tells changes of: the wall clock, the algorithm, an issuer that is not watched.
const LOOK: Duration = Duration::from_secs(60);

/// Two certificates of a cluster are no closer together, however short they live.
const APART: Duration = Duration::from_millis(500);

/// Connections whose state is told; there are no more that live.
const REPORTERS: usize = 4;

/// What a cluster's identity keeps of us.
#[derive(Default)]
pub(crate) struct Tenancy(OnceLock<Arc<Tenant>>);

impl Tenancy {
    pub(crate) fn tenant(&self, make: impl FnOnce() -> Arc<Tenant>) -> &Arc<Tenant> {
        self.0.get_or_init(make)
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        if let Some(tenant) = self.0.take() {
            tenant.end();
        }
    }
}

pub(crate) struct Tenant {
    pub(crate) number: u64,
    pub(crate) key: ClusterKey,
    identity: IdentityHandle,
    keeper: Arc<Keeper>,
    current: ArcSwapOption<IssuedCertificate>,
    own_key: Arc<KeyCell>,
    flight: Arc<Flight>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The newest last.
    reporters: Vec<Reporter>,
    /// Of the issuer of the current certificate.
    digest: Option<[u8; 32]>,
    /// Of the issuer that was read last.
    versions: Vec<Arc<str>>,
    read_at: Option<Instant>,
    is_unwatched: bool,
    is_warned: bool,
    renew_at: Option<SystemTime>,
    issued_at: Option<Instant>,
    /// The rotations of keys that the current certificate knows of.
    rotation: u64,
    failures: u32,
    trouble: Option<IssueError>,
    retry_at: Option<Instant>,
    /// The issuer changed since it was last read.
    has_changed: bool,
}

impl Tenant {
    pub(crate) fn new(key: ClusterKey, identity: IdentityHandle, keeper: Arc<Keeper>) -> Arc<Self> {
        let tenant = Arc::new(Self {
            number: keeper.number(),
            key,
            identity,
            keeper,
            current: ArcSwapOption::empty(),
            own_key: Arc::default(),
            flight: Arc::default(),
            known: Mutex::default(),
        });
        tenant.keeper.register(&tenant);
        tenant
    }

    /// The newest that is valid. Never waits, locks or allocates.
    #[inline]
    pub(crate) fn newest(&self) -> Option<Arc<IssuedCertificate>> {
        self.current.load_full()
    }

    pub(crate) fn identity(&self) -> &IdentityHandle {
        &self.identity
    }

    pub(crate) fn has_one(&self) -> bool {
        let current = self.current.load();
        current
            .as_ref()
            .is_some_and(|it| wall::now() < it.expires())
    }

    /// From now on the connection hears how the certificate stands.
    pub(crate) fn tell(&self, reporter: Reporter) {
        let mut known = self.lock();
        known
            .reporters
            .retain(|other| other.generation() != reporter.generation());
        if known.reporters.len() >= REPORTERS {
            known.reporters.remove(0);
        }
        known.reporters.push(reporter);
        drop(known);
        self.report();
    }

    pub(crate) fn tell_no_more(&self, generation: Generation) {
        self.lock()
            .reporters
            .retain(|reporter| reporter.generation() != generation);
    }

    /// The issuer may have changed.
    pub(crate) fn issuer_changed(self: &Arc<Self>, version: Option<&Arc<str>>) {
        let mut known = self.lock();
        if version.is_some_and(|version| known.versions.contains(version)) {
            return;
        }
        known.has_changed = true;
        // Those that have no certificate are not up: the cache asks again, and is told that this is worth it.
        let waiting = if self.current.load().is_none() {
            known.reporters.clone()
        } else {
            Vec::new()
        };
        drop(known);
        for reporter in waiting {
            reporter.reconsider();
        }
        self.keeper.schedule(self, Instant::now());
    }

    /// Has a certificate issued, if one is due. All who want one at once get the same.
    pub(crate) fn issue(self: &Arc<Self>) -> Seat {
        let tenant = Arc::clone(self);
        self.flight.join(|| tenant.fly())
    }

    /// It is time to look whether something is due.
    pub(crate) fn look(self: &Arc<Self>) {
        if !self.identity.is_current() {
            return;
        }
        let Some(current) = self.current.load_full() else {
            return;
        };
        if wall::now() >= current.expires() {
            return self.expire(&current);
        }
        if !self.is_due(&current) {
            return self.reschedule();
        }
        // One that runs may have read the issuer before it changed.
        if !self.issue().began {
            self.keeper.schedule(self, Instant::now() + APART);
        }
    }

    fn is_due(&self, current: &IssuedCertificate) -> bool {
        // What cannot be chosen is a failure to be told of.
        let Ok(algorithm) = self.keeper.settings.algorithm(&self.key) else {
            return self.lock().retry_at.is_none_or(|at| at <= Instant::now());
        };
        let (wall, now) = (wall::now(), Instant::now());
        let known = self.lock();
        if let Some(at) = known.retry_at {
            return at <= now || known.has_changed;
        }
        let unseen = known
            .read_at
            .is_none_or(|at| now.saturating_duration_since(at) >= LOOK / 2);
        known.has_changed
            || known.is_unwatched && unseen
            || !self.is_as_wanted(&known, current, algorithm, wall)
    }

    /// Whether the certificate need not be replaced, unless for another issuer.
    fn is_as_wanted(
        &self,
        known: &Known,
        current: &IssuedCertificate,
        algorithm: KeyAlgorithm,
        wall: SystemTime,
    ) -> bool {
        if wall >= current.expires() {
            return false;
        }
        let Some(key) = current.made_with() else {
            return true;
        };
        let settings = &self.keeper.settings;
        let too_old = settings
            .max_key_age
            .is_some_and(|most| key.born.elapsed() >= most);
        known.renew_at.is_none_or(|at| wall < at)
            && known.rotation >= self.keeper.rotation()
            && key.algorithm == algorithm
            && !too_old
    }

    async fn fly(self: Arc<Self>) -> Result<(), IssueError> {
        loop {
            self.lock().has_changed = false;
            let attempt = AssertUnwindSafe(self.attempt()).catch_unwind().await;
            let tried = attempt.unwrap_or(Err(IssueError::Panicked));
            self.landed(&tried);
            // It changed while we were at it.
            if !self.lock().has_changed || !self.identity.is_current() {
                return tried;
            }
        }
    }

    async fn attempt(&self) -> Result<(), IssueError> {
        let settings = &self.keeper.settings;
        let wanted = Wanted {
            algorithm: settings.algorithm(&self.key)?,
            rotation: self.keeper.rotation(),
            max_age: settings.max_key_age,
        };
        let mut issuer = self.read().await?;
        if self.is_current(&issuer, wanted.algorithm) {
            return Ok(());
        }
        let is_ours = matches!(issuer.key, Credential::Ca(_));
        let mut client_key = None;
        if is_ours && wanted.algorithm.is_slow() && !self.has_key(wanted) {
            // No CA's key waits for that.
            drop(issuer);
            client_key = Some(self.client_key(wanted).await?);
            issuer = self.read().await?;
        }
        let digest = issuer.digest();
        let certificate = self.made(issuer, wanted, client_key).await?;
        self.take(certificate, digest, wanted.rotation)
    }

    async fn read(&self) -> Result<EtcdIssuer, IssueError> {
        let reading = self.keeper.source.read(&self.key, self.identity.identity());
        let issuer = timeout(READ_WITHIN, reading).await;
        let issuer = issuer.map_err(|_| IssuerError::TimedOut {
            what: format!("the issuer of {}", self.key.as_str().escape_debug()),
            after: READ_WITHIN,
        })??;
        let mut known = self.lock();
        known.read_at = Some(Instant::now());
        known.versions.clone_from(&issuer.versions);
        known.is_unwatched = issuer.unwatched.is_some();
        if let Some(why) = &issuer.unwatched
            && !std::mem::replace(&mut known.is_warned, true)
        {
            drop(known);
            let cluster = self.key.as_str().escape_debug();
            let why = why.escape_debug();
            tracing::warn!(%cluster, %why, "changes of the etcd CA are seen once a minute only");
        }
        Ok(issuer)
    }

    /// Whether nothing is to be done.
    fn is_current(&self, issuer: &EtcdIssuer, algorithm: KeyAlgorithm) -> bool {
        let Some(current) = self.current.load_full() else {
            return false;
        };
        let known = self.lock();
        known.digest == Some(issuer.digest())
            && self.is_as_wanted(&known, &current, algorithm, wall::now())
    }

    async fn made(
        &self,
        issuer: EtcdIssuer,
        wanted: Wanted,
        client_key: Option<Arc<ClientKey>>,
    ) -> Result<IssuedCertificate, IssueError> {
        let EtcdIssuer {
            what, bundle, key, ..
        } = issuer;
        let made: Box<dyn FnOnce() -> _ + Send> = match key {
            Credential::Ca(ca_key) => {
                let key = match client_key {
                    Some(key) => key,
                    None => self.client_key(wanted).await?,
                };
                let wording = self.keeper.settings.wording.clone();
                Box::new(move || certificate::issue(&bundle, &ca_key, key, &wording, wall::now()))
            }
            Credential::Given { certificate, key } => {
                Box::new(move || certificate::given(&bundle, &certificate, &key, wall::now()))
            }
        };
        let signed = move || made().map_err(|why| IssueError::Authority { what, why });
        work::run(Kind::Signature, signed).await
    }

    async fn client_key(&self, wanted: Wanted) -> Result<Arc<ClientKey>, IssueError> {
        let counts = &self.keeper.counts;
        match self.key_cell(wanted.algorithm) {
            Some(cell) => cell.get(wanted, counts).await,
            None => policy::generate(wanted.algorithm, counts)
                .await
                .map(Arc::new),
        }
    }

    fn has_key(&self, wanted: Wanted) -> bool {
        // Without a cell each certificate has a key of its own.
        self.key_cell(wanted.algorithm)
            .is_some_and(|cell| cell.has(wanted).is_some())
    }

    fn key_cell(&self, algorithm: KeyAlgorithm) -> Option<Arc<KeyCell>> {
        match self.keeper.settings.policy {
            Policy::PerCluster => Some(Arc::clone(&self.own_key)),
            Policy::PerCertificate => None,
            Policy::Shared => Some(self.keeper.shared_key(algorithm)),
        }
    }

    /// One swap: whoever reads has the old one or the new one, whole.
    fn take(
        &self,
        issued: IssuedCertificate,
        digest: [u8; 32],
        rotation: u64,
    ) -> Result<(), IssueError> {
        let renew_at = renewal(&issued, fastrand::f64());
        self.keeper.counts.certificate();
        let mut known = self.lock();
        known.digest = Some(digest);
        known.rotation = rotation;
        known.renew_at = issued.made_with().map(|_| renew_at);
        known.issued_at = Some(Instant::now());
        drop(known);
        let expires = issued.expires();
        self.current.store(Some(Arc::new(issued)));
        if !self.identity.is_current() {
            self.current.store(None);
            return Err(IssueError::Retired);
        }
        let cluster = self.key.as_str().escape_debug();
        tracing::debug!(%cluster, expires = crate::error::shown(expires), "etcd client certificate");
        Ok(())
    }

    fn landed(self: &Arc<Self>, tried: &Result<(), IssueError>) {
        let mut known = self.lock();
        match tried {
            Ok(()) => {
                (known.failures, known.trouble, known.retry_at) = (0, None, None);
            }
            Err(error) => {
                known.failures += 1;
                known.trouble = Some(error.clone());
                known.retry_at = Some(Instant::now() + backoff::wait(known.failures));
                self.keeper.counts.failure();
            }
        }
        let (failures, has_one) = (known.failures, self.current.load().is_some());
        drop(known);
        if let Err(error) = tried
            && has_one
        {
            let (cluster, error) = (self.key.as_str().escape_debug(), error.to_string());
            let error = error.escape_debug();
            if failures == 1 {
                tracing::warn!(%cluster, %error, "the etcd client certificate is not renewed; the old one is used while it is valid");
            } else {
                tracing::debug!(%cluster, %error, failures, "the etcd client certificate is not renewed");
            }
        }
        self.report();
        self.reschedule();
    }

    /// Tells the state of each connection.
    fn report(&self) {
        let Some(current) = self.current.load_full() else {
            return;
        };
        let known = self.lock();
        let mut standing = Standing::well().expires(current.expires());
        if let Some(trouble) = &known.trouble {
            standing = standing.trouble(known.failures, trouble);
        }
        let reporters = known.reporters.clone();
        drop(known);
        for reporter in reporters {
            reporter.stands(standing.clone());
        }
    }

    /// It has ended, and nothing took its place: the resource is down, and the cache tries to have it anew.
    fn expire(&self, current: &IssuedCertificate) {
        let at = current.expires();
        self.current.store(None);
        let mut known = self.lock();
        let why = known.trouble.take().unwrap_or(IssueError::Expired { at });
        (known.digest, known.failures, known.retry_at) = (None, 0, None);
        let reporters = known.reporters.clone();
        drop(known);
        for reporter in reporters {
            reporter.failed(Ended {
                at,
                why: why.clone(),
            });
        }
    }

    fn reschedule(self: &Arc<Self>) {
        let Some(current) = self.current.load_full() else {
            return;
        };
        let now = Instant::now();
        let known = self.lock();
        // Not all at once.
        let look = now + LOOK.mul_f64(0.75 + fastrand::f64() / 4.0);
        let mut next = look.min(wall::instant(current.expires()));
        let renewal = known.renew_at.map(wall::instant);
        let key_ends = current.made_with().and_then(|key| {
            let most = self.keeper.settings.max_key_age?;
            let ends = key.born.checked_add(most)?;
            Some(ends + self.keeper.stagger())
        });
        let due = match known.retry_at {
            Some(at) => Some(at),
            None => renewal.into_iter().chain(key_ends).min(),
        };
        if let Some(at) = due {
            let apart = known.issued_at.map_or(now, |at| at + APART);
            next = next.min(at.max(apart));
        }
        drop(known);
        self.keeper.schedule(self, next);
    }

    /// The identity is no more: what is ours of it is wiped, but for what a reader still holds.
    fn end(&self) {
        self.keeper.forget(self);
        self.current.store(None);
        self.own_key.clear();
        let reporters = std::mem::take(&mut self.lock().reporters);
        drop(reporters);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the etcd client certificate ended at {}; {why}", crate::error::shown(*.at))]
struct Ended {
    at: SystemTime,
    why: IssueError,
}

/// At two thirds of the time from issue to end, and up to a tenth of that sooner.
fn renewal(issued: &IssuedCertificate, jitter: f64) -> SystemTime {
    let lives = issued
        .expires()
        .duration_since(issued.issued())
        .unwrap_or_default();
    issued.issued() + lives.mul_f64(2.0 / 3.0 * (1.0 - jitter / 10.0))
}
