//! Where the CAs that sign come from.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use clustercache::{ClusterKey, Identity};
use futures_util::stream::BoxStream;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::IssuerError;

/// Knows the etcd CA of each cluster. [`SecretIssuers`](crate::SecretIssuers) reads Cluster API's Secrets; implement it for a CA that is kept
/// elsewhere.
///
/// The provider asks when something is to be signed, and drops what it is given right after: nothing of a CA's key is kept.
#[async_trait]
pub trait EtcdIssuerSource: Send + Sync + 'static {
    /// Reads the issuer of a cluster now. Dropped after [`EtcdClientKey::READ_WITHIN`](crate::EtcdClientKey::READ_WITHIN).
    ///
    /// What belongs to another cluster of that name than `identity` says must not be given: it is an [`IssuerError::Foreign`].
    async fn read(
        &self,
        cluster: &ClusterKey,
        identity: &Identity,
    ) -> Result<EtcdIssuer, IssuerError>;

    /// What changes, for as long as it is polled: of all clusters, also those that nobody asked about. A stream that ends or fails is asked for
    /// again, with backoff; what changed meanwhile must be in the new one.
    fn changes(&self) -> BoxStream<'static, Result<IssuerChange, IssuerError>>;
}

/// Something about a cluster's issuer changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerChange {
    /// Whose.
    pub cluster: ClusterKey,
    /// What it is now, if that can be said: one that was read already is not read again.
    pub version: Option<Arc<str>>,
}

/// What signs a cluster's etcd client certificates, or what is used in its place. Its keys are wiped when it is dropped, and never print.
#[derive(Clone)]
#[must_use]
pub struct EtcdIssuer {
    pub(crate) what: String,
    pub(crate) bundle: Vec<u8>,
    pub(crate) key: Credential,
    pub(crate) versions: Vec<Arc<str>>,
    /// Why its changes are not told, if they are not.
    pub(crate) unwatched: Option<String>,
}

#[derive(Clone)]
pub(crate) enum Credential {
    /// The CA's key.
    Ca(Zeroizing<Vec<u8>>),
    /// A client certificate and its key: the etcd is somebody else's.
    Given {
        certificate: Vec<u8>,
        key: Zeroizing<Vec<u8>>,
    },
}

impl EtcdIssuer {
    /// A CA: one or more certificates as PEM, of which one belongs to `key`, as PEM too. `what` names it in errors, such as
    /// `Secret default/eu-1-etcd`.
    pub fn ca(
        what: impl Into<String>,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let key = Credential::Ca(Zeroizing::new(key.into()));
        Self::new(&what.into(), certificates.into(), key)
    }

    /// An etcd whose CA's key is somebody else's: a client certificate with its key, used as they are.
    pub fn external(
        what: impl Into<String>,
        ca_certificates: impl Into<Vec<u8>>,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let key = Credential::Given {
            certificate: certificate.into(),
            key: Zeroizing::new(key.into()),
        };
        Self::new(&what.into(), ca_certificates.into(), key)
    }

    fn new(what: &str, bundle: Vec<u8>, key: Credential) -> Self {
        Self {
            what: what.escape_debug().to_string(),
            bundle,
            key,
            versions: Vec::new(),
            unwatched: None,
        }
    }

    /// The version that a change to just this would have.
    pub fn version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.versions.push(version.into());
        self
    }

    /// Its changes do not come through [`EtcdIssuerSource::changes`], and what to do about that: it is warned of once, and read again once a
    /// minute.
    pub fn unwatched(mut self, why: impl Into<String>) -> Self {
        self.unwatched = Some(why.into());
        self
    }

    /// Whether two are the same, without keeping either.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(&self.bundle);
        match &self.key {
            Credential::Ca(key) => add(key),
            Credential::Given { certificate, key } => {
                add(certificate);
                add(key);
            }
        }
        digest.finalize().into()
    }
}

impl fmt::Debug for EtcdIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdIssuer")
            .field("what", &self.what)
            .field("unwatched", &self.unwatched)
            .finish_non_exhaustive()
    }
}
