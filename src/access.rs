//! The sanitised way to reach a cluster. Endpoint, CA and credential are always one value, so that a credential cannot be sent to
//! another endpoint than its own, and none of its secrets prints (rule 19 of the design).

use std::{fmt, sync::Arc, time::SystemTime};

use http::Uri;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How to reach a cluster: endpoint, CA and credential as one value, with a fingerprint of each. Cheap to clone, immutable, and
/// safe to print.
///
/// ```
/// use clustercache::ClusterAccess;
///
/// let access = ClusterAccess::builder("https://10.0.0.1:6443").token("s3cret").build()?;
/// assert_eq!(access.endpoint().url().port_u16(), Some(6443));
/// assert!(!format!("{access:?}").contains("s3cret"));
/// # Ok::<(), clustercache::AccessError>(())
/// ```
#[derive(Clone)]
pub struct ClusterAccess(Arc<Parts>);

struct Parts {
    endpoint: Endpoint,
    ca: CaBundle,
    credential: Credential,
}

impl ClusterAccess {
    /// Begins an access to the API server at `url`, such as `https://10.0.0.1:6443`.
    pub fn builder(url: impl Into<String>) -> AccessBuilder {
        AccessBuilder {
            url: url.into(),
            server_name: None,
            ca: Vec::new(),
            certificate: None,
            token: None,
            expires: None,
        }
    }

    /// Where the API server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// The certificates that may sign the API server's.
    pub fn ca(&self) -> &CaBundle {
        &self.0.ca
    }

    /// Who we are to it.
    pub fn credential(&self) -> &Credential {
        &self.0.credential
    }

    /// What it takes to come from this access to a newer one of the same cluster.
    pub fn change_to(&self, newer: &Self) -> AccessChange {
        if self.0.endpoint != newer.0.endpoint || self.0.ca.fingerprint != newer.0.ca.fingerprint {
            AccessChange::Endpoint
        } else if self.0.credential.fingerprint != newer.0.credential.fingerprint {
            AccessChange::Credential
        } else {
            AccessChange::None
        }
    }

    /// Whether the two are accesses to one cluster, as far as their CAs tell: the bundles share a public key, or, where neither has a
    /// certificate, the endpoints are equal. This is what decides where a source gives no UID.
    pub fn continues(&self, newer: &Self) -> bool {
        let (old, new) = (&self.0.ca.keys, &newer.0.ca.keys);
        match (old.is_empty(), new.is_empty()) {
            (true, true) => self.0.endpoint == newer.0.endpoint,
            _ => old.iter().any(|key| new.contains(key)),
        }
    }
}

impl PartialEq for ClusterAccess {
    fn eq(&self, other: &Self) -> bool {
        self.change_to(other) == AccessChange::None
    }
}

impl Eq for ClusterAccess {}

impl fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAccess")
            .field("endpoint", &self.0.endpoint)
            .field("ca", &self.0.ca)
            .field("credential", &self.0.credential)
            .finish()
    }
}

/// The difference between two accesses of one cluster, by what must be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// They are equal.
    None,
    /// Only the credential differs: taken in place (kind 1).
    Credential,
    /// Endpoint or CA differ: a new connection is made before the old one is broken (kind 2).
    Endpoint,
}

/// Where an API server is, and by which name its certificate is judged.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: Uri,
    /// The URL as it prints: every state of the cluster shows it.
    text: Arc<str>,
    server_name: Option<String>,
}

impl Endpoint {
    /// Scheme, host, port and path prefix; without user info and query.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The name that the server's certificate must have, where it is not the host's (`tls-server-name` of a kubeconfig).
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// A fingerprint of the whole endpoint.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of([
            self.text.as_bytes(),
            self.server_name().unwrap_or_default().as_bytes(),
        ])
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        match &self.server_name {
            Some(name) => write!(f, " as {}", name.escape_debug()),
            None => Ok(()),
        }
    }
}

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

    fn from_pem(pem: &[u8]) -> Result<Self, AccessError> {
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

/// Who we are to a cluster: a client certificate, a token, both, or nobody.
#[derive(Clone)]
pub struct Credential {
    certificate: Option<Arc<ClientCertificate>>,
    token: Option<SecretString>,
    expires: Option<SystemTime>,
    fingerprint: Fingerprint,
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

    /// When it ends: the earlier of what its source says and the client certificate's own end. By the wall clock; it is
    /// shown, and never decides on its own that a credential is refused.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// A fingerprint of certificate, key and token.
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
        write!(f, "{kind} {}", self.fingerprint)
    }
}

/// A client certificate's chain and its private key. Prints nothing of them.
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
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

/// SHA-256 of a part of an access. Prints its first eight bytes: enough to tell two apart in a log, and nothing to attack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// All 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Each part goes in with its length, so that no two lists of parts read the same.
    fn of<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(8)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Gathers the parts of an access; they are judged by [`build`](Self::build).
#[must_use]
pub struct AccessBuilder {
    url: String,
    server_name: Option<String>,
    ca: Vec<u8>,
    certificate: Option<(Vec<u8>, SecretString)>,
    token: Option<SecretString>,
    expires: Option<SystemTime>,
}

impl AccessBuilder {
    /// The name that the server's certificate must have, instead of the URL's host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// The cluster's CA: one or more certificates as PEM.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = pem.into();
        self
    }

    /// A client certificate's chain and its private key, both PEM.
    pub fn client_certificate_pem(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<SecretString>,
    ) -> Self {
        self.certificate = Some((chain.into(), key.into()));
        self
    }

    /// A bearer token.
    pub fn token(mut self, token: impl Into<SecretString>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// When the credential ends, where its source knows. A client certificate's own end is read from it.
    pub fn expires(mut self, at: SystemTime) -> Self {
        self.expires = Some(at);
        self
    }

    /// Judges the parts. No error has a secret in it.
    pub fn build(self) -> Result<ClusterAccess, AccessError> {
        let url = self
            .url
            .parse::<Uri>()
            .ok()
            .filter(|url| url.host().is_some() && url.scheme().is_some());
        let url = url.ok_or(AccessError::Url)?;
        if url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
            || url.query().is_some()
        {
            return Err(AccessError::UrlParts);
        }
        let ca = if self.ca.is_empty() {
            CaBundle {
                certificates: Vec::new(),
                keys: Vec::new(),
                fingerprint: Fingerprint::of::<&[u8]>([]),
            }
        } else {
            CaBundle::from_pem(&self.ca)?
        };
        let token = self.token.map(checked_token).transpose()?;
        let mut expires = self.expires;
        let mut parts = vec![
            token
                .as_ref()
                .map_or(&[][..], |token| token.expose_secret().as_bytes())
                .to_vec(),
        ];
        let certificate = match self.certificate {
            None => None,
            Some((chain, key)) => {
                let chain = certificates("the client certificate", &chain)?;
                let end = not_after(&chain[0])?;
                expires = Some(expires.map_or(end, |at| at.min(end)));
                let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
                    .map_err(|_| AccessError::Key)?;
                parts.extend(chain.iter().map(|der| der.to_vec()));
                parts.push(key.secret_der().to_vec());
                Some(Arc::new(ClientCertificate { chain, key }))
            }
        };
        let fingerprint = Fingerprint::of(&parts);
        parts.iter_mut().for_each(zeroize::Zeroize::zeroize);
        let credential = Credential {
            certificate,
            token,
            expires,
            fingerprint,
        };
        let endpoint = Endpoint {
            text: url.to_string().into(),
            url,
            server_name: self.server_name,
        };
        Ok(ClusterAccess(Arc::new(Parts {
            endpoint,
            ca,
            credential,
        })))
    }
}

/// Why parts do not make an access.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessError {
    /// The endpoint is no URL with a scheme and a host.
    #[error(
        "the endpoint is not a URL with a scheme and a host; give one like https://10.0.0.1:6443"
    )]
    Url,
    /// The endpoint has user info or a query.
    #[error("the endpoint has user info or a query; give scheme, host and port only")]
    UrlParts,
    /// A part that must be PEM with a certificate is not.
    #[error("{part} has no certificate in PEM form (-----BEGIN CERTIFICATE-----)")]
    NoCertificate {
        /// Which part.
        part: &'static str,
    },
    /// A certificate cannot be read.
    #[error("{part} has a certificate that is not X.509; make it again")]
    Certificate {
        /// Which part.
        part: &'static str,
    },
    /// The client certificate's private key cannot be read.
    #[error("the client certificate's private key is not PEM in PKCS#8, PKCS#1 or SEC1 form")]
    Key,
    /// The token is empty or cannot stand in a header.
    #[error("the token is empty or has characters that cannot stand in an HTTP header")]
    Token,
}

fn checked_token(token: SecretString) -> Result<SecretString, AccessError> {
    let text = token.expose_secret();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(token)
    } else {
        Err(AccessError::Token)
    }
}

fn certificates(
    part: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(AccessError::NoCertificate { part }),
    }
}

fn public_key(part: &'static str, der: &CertificateDer<'_>) -> Result<Fingerprint, AccessError> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|_| AccessError::Certificate { part })?;
    Ok(Fingerprint::of([certificate.public_key().raw]))
}

fn not_after(der: &CertificateDer<'_>) -> Result<SystemTime, AccessError> {
    let part = "the client certificate";
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|_| AccessError::Certificate { part })?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    Ok(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca(key: &rcgen::KeyPair, serial: u64) -> String {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.serial_number = Some(serial.into());
        params.self_signed(key).unwrap().pem()
    }

    fn key() -> rcgen::KeyPair {
        rcgen::KeyPair::generate().unwrap()
    }

    fn access(ca: &str, token: &str) -> ClusterAccess {
        ClusterAccess::builder("https://a:6443")
            .ca_pem(ca)
            .token(token)
            .build()
            .unwrap()
    }

    #[test]
    fn a_ca_that_keeps_its_key_is_the_same_cluster_and_a_new_endpoint() {
        let kept = key();
        let (old, renewed) = (access(&ca(&kept, 1), "t"), access(&ca(&kept, 2), "t"));
        assert!(old.continues(&renewed));
        assert_eq!(old.change_to(&renewed), AccessChange::Endpoint);
    }

    #[test]
    fn a_bundle_that_shares_one_of_two_keys_continues_and_a_foreign_one_does_not() {
        let (a, b, c) = (key(), key(), key());
        let both = access(&format!("{}{}", ca(&a, 1), ca(&b, 2)), "t");
        assert!(access(&ca(&a, 1), "t").continues(&both));
        assert!(both.continues(&access(&ca(&b, 3), "t")));
        assert!(!both.continues(&access(&ca(&c, 4), "t")));
    }

    #[test]
    fn another_token_is_a_change_of_the_credential_only() {
        let ca = ca(&key(), 1);
        assert_eq!(
            access(&ca, "a").change_to(&access(&ca, "b")),
            AccessChange::Credential
        );
        assert_eq!(
            access(&ca, "a").change_to(&access(&ca, "a")),
            AccessChange::None
        );
    }

    #[test]
    fn a_client_certificate_ends_when_it_says() {
        let key = key();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2031, 1, 1);
        let pem = params.self_signed(&key).unwrap().pem();
        let built = ClusterAccess::builder("https://a")
            .client_certificate_pem(pem, key.serialize_pem())
            .build()
            .unwrap();
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_924_992_000);
        assert_eq!(built.credential().expires(), Some(end));
    }

    #[test]
    fn no_secret_prints() {
        let key = key();
        let pem = ca(&key, 1);
        let secret = key.serialize_pem();
        let built = ClusterAccess::builder("https://a")
            .client_certificate_pem(pem, secret.clone())
            .token("canary")
            .build()
            .unwrap();
        let text = format!("{built:?} {:?}", built.credential().client_certificate());
        assert!(
            !text.contains("canary")
                && !secret
                    .lines()
                    .any(|line| line.len() > 20 && text.contains(line))
        );
    }

    #[test]
    fn a_bad_part_is_named() {
        let build = |builder: AccessBuilder| builder.build().unwrap_err().to_string();
        assert!(build(ClusterAccess::builder("10.0.0.1")).contains("endpoint"));
        assert!(build(ClusterAccess::builder("https://u:p@a")).contains("user info"));
        assert!(build(ClusterAccess::builder("https://a").ca_pem("x")).contains("CA bundle"));
        assert!(build(ClusterAccess::builder("https://a").token("a b")).contains("token"));
        assert!(
            build(ClusterAccess::builder("https://a").client_certificate_pem("x", "y"))
                .contains("client certificate")
        );
    }
}
