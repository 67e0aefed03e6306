//! The certificates that may sign an API server's. Their public keys tell a cluster from another of the same name.

use std::fmt;

use rustls_pki_types::CertificateDer;

use super::{
    AccessError, Fingerprint,
    builder::{certificates, public_key},
};

/// The CA certificates of a cluster: one, or several while it rotates them.
#[derive(Clone)]
pub struct CaBundle {
    certificates: Vec<CertificateDer<'static>>,
    keys: Vec<Fingerprint>,
    fingerprint: Fingerprint,
}

impl CaBundle {
    /// The certificates, as DER, in the order of the bundle. Empty: the access names no CA.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Fingerprints of the certificates' public keys; a renewed CA keeps its key.
    pub fn public_keys(&self) -> &[Fingerprint] {
        &self.keys
    }

    /// A fingerprint of the certificates.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(super) fn none() -> Self {
        Self {
            certificates: Vec::new(),
            keys: Vec::new(),
            fingerprint: Fingerprint::of::<&[u8]>([]),
        }
    }

    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, AccessError> {
        let certificates = certificates("the CA bundle", pem)?;
        let keys = certificates
            .iter()
            .map(|der| public_key("the CA bundle", der))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            fingerprint: Fingerprint::of(&certificates),
            certificates,
            keys,
        })
    }
}

impl PartialEq for CaBundle {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for CaBundle {}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} certificate(s) {}",
            self.certificates.len(),
            self.fingerprint
        )
    }
}
