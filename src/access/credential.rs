//! Who we are to a cluster. What is secret in it has no way to print.

use std::{fmt, sync::Arc, time::SystemTime};

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::SecretString;

use super::{Fingerprint, Impersonation};

/// Who we are to a cluster: a client certificate, a token, both, or nobody.
#[derive(Clone)]
pub struct Credential {
    pub(super) certificate: Option<Arc<ClientCertificate>>,
    pub(super) token: Option<SecretString>,
    pub(super) impersonation: Option<Arc<Impersonation>>,
    pub(super) expires: Option<SystemTime>,
    pub(super) fingerprint: Fingerprint,
}

impl Credential {
    /// The client certificate and its key.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_deref()
    }

    /// The bearer token.
    pub fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    /// As whom we act with it, if not as ourselves.
    pub fn impersonation(&self) -> Option<&Impersonation> {
        self.impersonation.as_deref()
    }

    /// When it ends: the earlier of what its source says and the client certificate's own end. By the wall clock; it is
    /// shown, and never decides on its own that a credential is refused.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// A fingerprint of certificate, key, token and impersonation.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (&self.certificate, &self.token) {
            (Some(_), Some(_)) => "client certificate and token",
            (Some(_), None) => "client certificate",
            (None, Some(_)) => "token",
            (None, None) => return f.write_str("none"),
        };
        write!(f, "{kind} {}", self.fingerprint)?;
        match &self.impersonation {
            Some(who) => write!(f, " as {}", who.user.escape_debug()),
            None => Ok(()),
        }
    }
}

/// A client certificate's chain and its private key. Prints nothing of them.
pub struct ClientCertificate {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl ClientCertificate {
    /// The chain, the client's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The private key: PKCS#1, SEC1 or PKCS#8. Wiped when the last access that has it is dropped.
    pub fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate(redacted)")
    }
}

impl Drop for ClientCertificate {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}
