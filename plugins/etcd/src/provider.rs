//! The provider: what is chosen, and the hooks.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use async_trait::async_trait;
use clustercache::{
    ClusterKey, ClusterResource, InitContext, InitError, Requires, Resource, TeardownContext,
};

use crate::{
    EtcdCertificate, EtcdIssuerSource, EtcdKeyCounts, IssueError, KeyAlgorithm,
    certificate::Wording,
    keeper::Keeper,
    policy::Policy,
    tenant::{Tenancy, Tenant},
};

/// A day.
const LIFETIME: Duration = Duration::from_secs(86_400);

/// As Cluster API's certificates live.
const TEN_YEARS: Duration = Duration::from_secs(3_650 * 86_400);

/// Certificates know whole seconds: a shorter life could be none.
const SHORTEST: Duration = Duration::from_secs(2);

/// What X.509 allows of a common name.
const LONGEST_NAME: usize = 64;

/// How long reading an issuer may take.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(25);

/// Makes an etcd client certificate for each cluster, signed by the cluster's etcd CA, and renews it.
///
/// It needs no connection to the cluster: a certificate outlives reconnects, and nothing is made or signed again for one. Who has the key is
/// chosen by how it is made: [`per_cluster`](Self::per_cluster), [`per_certificate`](Self::per_certificate) or [`shared`](Self::shared).
///
/// ```
/// use clustercache::{ClusterCache, ClusterKey};
/// use clustercache_etcd::{EtcdClientKey, EtcdIssuerSource};
///
/// fn provider(issuers: impl EtcdIssuerSource) -> EtcdClientKey {
///     EtcdClientKey::per_cluster(issuers)
/// }
///
/// // In a reconciler: never waits.
/// fn connect(cache: &ClusterCache, key: &ClusterKey) -> Result<(), Box<dyn std::error::Error>> {
///     let certificate = cache.get::<EtcdClientKey>(key)?.current()?;
///     let _tls = certificate.client_config(); // for any client of etcd
///     Ok(())
/// }
/// # let _ = connect;
/// ```
#[must_use]
pub struct EtcdClientKey {
    settings: Settings,
    source: Arc<dyn EtcdIssuerSource>,
    keys: EtcdKeys,
    /// By the first who needs it.
    keeper: OnceLock<Arc<Keeper>>,
}

/// What is chosen.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) wording: Wording,
    pub(crate) max_key_age: Option<Duration>,
    algorithm: Algorithm,
    applies_to: Arc<dyn Fn(&ClusterKey) -> bool + Send + Sync>,
}

#[derive(Clone)]
enum Algorithm {
    Of(KeyAlgorithm),
    By(Arc<dyn Fn(&ClusterKey) -> KeyAlgorithm + Send + Sync>),
}

impl EtcdClientKey {
    /// How long reading an issuer may take, in all.
    pub const READ_WITHIN: Duration = READ_WITHIN;

    /// Each cluster has a key of its own for as long as it is known, and certificates are renewed on it.
    pub fn per_cluster(issuers: impl EtcdIssuerSource) -> Self {
        Self::new(Policy::PerCluster, Arc::new(issuers))
    }

    /// Each certificate has a key of its own.
    pub fn per_certificate(issuers: impl EtcdIssuerSource) -> Self {
        Self::new(Policy::PerCertificate, Arc::new(issuers))
    }

    /// All clusters of the process have one key (one of each algorithm that is chosen), and each a certificate of its own. Whoever reads it from
    /// this process can use it towards all of them; it saves a key for each, which for RSA is most of the work.
    pub fn shared(issuers: impl EtcdIssuerSource) -> Self {
        Self::new(Policy::Shared, Arc::new(issuers))
    }

    fn new(policy: Policy, source: Arc<dyn EtcdIssuerSource>) -> Self {
        Self {
            settings: Settings {
                policy,
                wording: Wording {
                    common_name: "cluster-api.x-k8s.io".to_owned(),
                    lifetime: LIFETIME,
                },
                max_key_age: None,
                algorithm: Algorithm::Of(KeyAlgorithm::default()),
                applies_to: Arc::new(|_| true),
            },
            source,
            keys: EtcdKeys::default(),
            keeper: OnceLock::new(),
        }
    }

    /// What kind of key. The default is ECDSA P-256, where Cluster API's is RSA-2048.
    pub fn algorithm(mut self, algorithm: KeyAlgorithm) -> Self {
        self.settings.algorithm = Algorithm::Of(algorithm);
        self
    }

    /// What kind of key each cluster has, such as its `encryptionAlgorithm` says. It is asked at each certificate and once a minute, and must not
    /// block; another answer than before is a new key.
    pub fn algorithm_by(
        mut self,
        algorithm: impl Fn(&ClusterKey) -> KeyAlgorithm + Send + Sync + 'static,
    ) -> Self {
        self.settings.algorithm = Algorithm::By(Arc::new(algorithm));
        self
    }

    /// To which clusters it applies: for others, whose etcd is none of ours to reach, it is *not applicable*. Asked at each new connection, and by
    /// `reconsider`.
    pub fn applies_to(
        mut self,
        applies_to: impl Fn(&ClusterKey) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.settings.applies_to = Arc::new(applies_to);
        self
    }

    /// The common name in the certificates, which is who one is to etcd. Default `cluster-api.x-k8s.io`, as Cluster API has it.
    pub fn common_name(mut self, name: impl Into<String>) -> Self {
        self.settings.wording.common_name = name.into();
        self
    }

    /// How long a certificate is valid, in whole seconds; never beyond the end of its CA. Default 24 h. It is renewed at two thirds of that.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.settings.wording.lifetime = lifetime;
        self
    }

    /// Certificates of ten years, as Cluster API's are. Nobody can take one back before that but by a new CA.
    pub fn ten_years(self) -> Self {
        self.lifetime(TEN_YEARS)
    }

    /// After this a key is used for no further certificate, and those that have it are issued again, one after the other. The default: no limit.
    pub fn max_key_age(mut self, age: Duration) -> Self {
        self.settings.max_key_age = Some(age);
        self
    }

    /// By which keys are rotated and counted; ask for it before the provider is given away.
    pub fn keys(&self) -> EtcdKeys {
        self.keys.clone()
    }

    fn keeper(&self) -> &Arc<Keeper> {
        self.keeper.get_or_init(|| {
            let counts = Arc::clone(&self.keys.counts);
            let source = Arc::clone(&self.source);
            let keeper = Arc::new(Keeper::new(self.settings.clone(), source, counts));
            // It is made once.
            let _ = self.keys.keeper.set(Arc::downgrade(&keeper));
            keeper
        })
    }
}

impl Settings {
    pub(crate) fn algorithm(&self, cluster: &ClusterKey) -> Result<KeyAlgorithm, IssueError> {
        let algorithm = match &self.algorithm {
            Algorithm::Of(algorithm) => *algorithm,
            Algorithm::By(choose) => catch_unwind(AssertUnwindSafe(|| choose(cluster)))
                .map_err(|_| IssueError::Panicked)?,
        };
        if algorithm.is_available() {
            Ok(algorithm)
        } else {
            Err(IssueError::Unavailable { algorithm })
        }
    }
}

/// The keys of an [`EtcdClientKey`], from outside.
#[derive(Clone, Default)]
pub struct EtcdKeys {
    counts: Arc<EtcdKeyCounts>,
    keeper: Arc<OnceLock<Weak<Keeper>>>,
}

impl EtcdKeys {
    /// No key that there is is used for another certificate. New ones are made in the background, certificates are issued again, staggered, and
    /// each key is gone with its last certificate. Returns at once.
    pub fn rotate_key(&self) {
        if let Some(keeper) = self.keeper.get().and_then(Weak::upgrade) {
            keeper.rotate();
        }
    }

    /// What was made so far.
    pub fn counts(&self) -> &EtcdKeyCounts {
        &self.counts
    }
}

#[async_trait]
impl ClusterResource for EtcdClientKey {
    type Value = EtcdCertificate;

    fn name(&self) -> &'static str {
        "etcd-client-key"
    }

    /// No access, and no client.
    fn requires(&self) -> Requires {
        Requires::nothing()
    }

    fn mistakes(&self) -> Vec<String> {
        let Settings {
            wording,
            algorithm,
            max_key_age,
            ..
        } = &self.settings;
        let mut mistakes = Vec::new();
        if wording.lifetime < SHORTEST {
            mistakes
                .push("certificates live too short: give a lifetime of 2 s at least".to_owned());
        }
        if wording.lifetime > TEN_YEARS {
            mistakes.push(
                "certificates live too long: give a lifetime of ten years at most".to_owned(),
            );
        }
        if wording.common_name.is_empty() || wording.common_name.chars().count() > LONGEST_NAME {
            mistakes.push("the common name must have 1 to 64 characters".to_owned());
        }
        if max_key_age.is_some_and(|age| age < SHORTEST) {
            mistakes.push("keys live too short: give a max_key_age of 2 s at least".to_owned());
        }
        if let Algorithm::Of(algorithm) = *algorithm
            && !algorithm.is_available()
        {
            mistakes.push(IssueError::Unavailable { algorithm }.to_string());
        }
        mistakes
    }

    /// Waiting for a turn to make a key is in here: two thousand of RSA take minutes. What waits for somebody else has a deadline of its own.
    fn init_timeout(&self) -> Duration {
        Duration::from_secs(300)
    }

    async fn init(&self, cx: &InitContext) -> Result<EtcdCertificate, InitError> {
        if !(self.settings.applies_to)(cx.key()) {
            return Err(InitError::not_applicable(
                "its etcd is none that we have certificates for (EtcdClientKey::applies_to)",
            ));
        }
        let keeper = self.keeper();
        let tenancy = cx.identity_state::<Tenancy>();
        let new = || Tenant::new(cx.key().clone(), cx.identity(), Arc::clone(keeper));
        let tenant = tenancy.tenant(new);
        tenant.tell(cx.reporter());
        // A reconnect makes nothing anew.
        if !tenant.has_one() {
            let issued = tenant.issue().landed().await;
            issued.map_err(|error| {
                let kind = error.kind();
                InitError::retry(error).of_kind(kind)
            })?;
        }
        Ok(EtcdCertificate::of(Arc::clone(tenant)))
    }

    async fn teardown(&self, value: Resource<Self>, cx: &TeardownContext) {
        value.tenant().tell_no_more(cx.generation());
    }
}

impl fmt::Debug for EtcdClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClientKey")
            .field("policy", &self.settings.policy)
            .field("wording", &self.settings.wording)
            .field("max_key_age", &self.settings.max_key_age)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdKeys")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
