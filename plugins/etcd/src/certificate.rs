//! Making a certificate, and all that a client needs beside it: pure, but for the randomness of its key and serial number. The time is handed in.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use pkcs8::{LineEnding, der::pem};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    SerialNumber,
};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::{CryptoProvider, ring, ring::sign},
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::{
    AuthorityError, EtcdIssuer, IssueError, KeyAlgorithm,
    authority::{self, Bundle},
    key::ClientKey,
    private_key::{Form, Parsed},
    source::Credential,
    wall,
};

/// How far clocks of servers may be behind ours.
const BACKDATED: Duration = Duration::from_secs(5 * 60);

static RING: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// What certificates say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wording {
    pub(crate) common_name: String,
    pub(crate) lifetime: Duration,
}

/// A client certificate with its key, and how TLS uses both: one value, so that its parts always fit. It never changes; the key is wiped with
/// its last holder.
pub struct IssuedCertificate {
    certificate: CertificateDer<'static>,
    pem: String,
    bundle_pem: String,
    key: Key,
    config: Arc<ClientConfig>,
    issued: SystemTime,
    expires: SystemTime,
    issuer: Option<[u8; 32]>,
}

enum Key {
    /// Ours, perhaps also of other certificates.
    Made(Arc<ClientKey>),
    /// As it was given.
    Given(Zeroizing<String>),
}

impl IssuedCertificate {
    /// For any TLS client: it shows the certificate, and trusts the servers that any CA of the bundle signed. No ALPN protocol is set;
    /// clone it to set `h2`.
    pub fn client_config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// The certificate as PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Its private key as PEM. A secret: PKCS #8, but for one that was given as it is.
    pub fn key_pem(&self) -> &str {
        match &self.key {
            Key::Made(key) => key.pem(),
            Key::Given(pem) => pem,
        }
    }

    /// The CAs that servers are trusted by, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.bundle_pem
    }

    /// The certificate as DER.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// When it was issued, by our clock.
    pub fn issued(&self) -> SystemTime {
        self.issued
    }

    /// When it ends.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// SHA-256 of the CA certificate that signed it, as `openssl x509 -fingerprint -sha256` shows it; `None`: it was given as it is.
    pub fn issuer_fingerprint(&self) -> Option<&[u8; 32]> {
        self.issuer.as_ref()
    }

    /// What kind of key it has; `None`: it was given as it is.
    pub fn key_algorithm(&self) -> Option<KeyAlgorithm> {
        self.made_with().map(|key| key.algorithm)
    }

    pub(crate) fn made_with(&self) -> Option<&Arc<ClientKey>> {
        match &self.key {
            Key::Made(key) => Some(key),
            Key::Given(_) => None,
        }
    }
}

impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedCertificate")
            .field("key_algorithm", &self.key_algorithm())
            .field("issued", &self.issued)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Signs a certificate for `key` by the CA that `ca_key_pem` belongs to.
pub(crate) fn issue(
    bundle_pem: &[u8],
    ca_key_pem: &[u8],
    key: Arc<ClientKey>,
    wording: &Wording,
    now: SystemTime,
) -> Result<IssuedCertificate, AuthorityError> {
    let bundle = Bundle::parse(bundle_pem)?;
    let authority = bundle.authority(ca_key_pem, now)?;
    // Certificates know whole seconds only.
    let expires = seconds(now + wording.lifetime).min(authority.not_after);
    let params = params(wording, seconds(now - BACKDATED), expires)?;
    let certificate = authority.sign(&params, key.public())?;
    let fingerprint = authority::fingerprint(&authority.certificate);
    // The CA's key is wiped here, before anything else is done.
    drop(authority);
    let certified = CertifiedKey::new(vec![certificate.clone()], Arc::clone(key.signing()));
    Ok(IssuedCertificate {
        config: config(&bundle, certified)?,
        bundle_pem: text(bundle_pem)?,
        pem: as_pem(&certificate)?,
        certificate,
        key: Key::Made(key),
        issued: now,
        expires,
        issuer: Some(fingerprint),
    })
}

/// A certificate and its key as somebody else made them, for an etcd whose CA is not ours.
pub(crate) fn given(
    bundle_pem: &[u8],
    certificate_pem: &[u8],
    key_pem: &[u8],
    now: SystemTime,
) -> Result<IssuedCertificate, AuthorityError> {
    let bundle = Bundle::parse(bundle_pem)?;
    bundle.parsed()?;
    let chain = Bundle::parse(certificate_pem)?.certificates().to_vec();
    let certificate = chain[0].clone();
    let parsed = authority::parsed(&certificate, 1)?;
    let validity = parsed.validity();
    let (from, until) = (
        authority::time(validity.not_before),
        authority::time(validity.not_after),
    );
    if now >= until {
        return Err(AuthorityError::Ended { at: until });
    }
    let key = Parsed::from_pem(key_pem)?;
    let signing = {
        let der = match key.form {
            Form::Pkcs1 => PrivateKeyDer::Pkcs1((&key.der[..]).into()),
            Form::Sec1 => PrivateKeyDer::Sec1((&key.der[..]).into()),
            Form::Pkcs8 => PrivateKeyDer::Pkcs8((&key.der[..]).into()),
        };
        sign::any_supported_type(&der).map_err(|_| AuthorityError::UnsupportedKey)?
    };
    let certified = CertifiedKey::new(chain, signing);
    certified
        .keys_match()
        .map_err(|_| AuthorityError::Mismatch)?;
    Ok(IssuedCertificate {
        config: config(&bundle, certified)?,
        bundle_pem: text(bundle_pem)?,
        pem: text(certificate_pem)?,
        certificate,
        key: Key::Given(Zeroizing::new(text(key_pem)?)),
        issued: from,
        expires: until,
        issuer: None,
    })
}

/// Key, certificate and TLS configuration, as a cluster has them: for the bench.
#[doc(hidden)]
pub fn issue_once(
    issuer: EtcdIssuer,
    algorithm: KeyAlgorithm,
) -> Result<IssuedCertificate, IssueError> {
    let wording = Wording {
        common_name: "cluster-api.x-k8s.io".to_owned(),
        lifetime: Duration::from_secs(86_400),
    };
    let EtcdIssuer {
        what, bundle, key, ..
    } = issuer;
    let Credential::Ca(ca_key) = key else {
        return Err(IssueError::Unavailable { algorithm });
    };
    let key = Arc::new(ClientKey::generate(algorithm, Instant::now())?);
    issue(&bundle, &ca_key, key, &wording, wall::now())
        .map_err(|why| IssueError::Authority { what, why })
}

fn params(
    wording: &Wording,
    not_before: SystemTime,
    not_after: SystemTime,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, wording.common_name.as_str());
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = not_before.into();
    params.not_after = not_after.into();
    let mut serial = [0; 16];
    RING.secure_random
        .fill(&mut serial)
        .map_err(|_| AuthorityError::Sign)?;
    // Positive, and never zero.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn as_pem(certificate: &CertificateDer<'_>) -> Result<String, AuthorityError> {
    let pem = pem::encode_string("CERTIFICATE", LineEnding::LF, certificate);
    pem.map_err(|_| AuthorityError::Sign)
}

fn config(bundle: &Bundle, certified: CertifiedKey) -> Result<Arc<ClientConfig>, AuthorityError> {
    let mut roots = RootCertStore::empty();
    // One that webpki cannot read does not take the others with it: bundles gather old things.
    let certificates = bundle.certificates().iter().cloned();
    if let (0, _) = roots.add_parsable_certificates(certificates) {
        return Err(AuthorityError::Tls);
    }
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&RING))
        .with_safe_default_protocol_versions()
        .map_err(|_| AuthorityError::Tls)?
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    // A resumed session is who it was when it began: not to be had with a client certificate.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn seconds(at: SystemTime) -> SystemTime {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

fn text(pem: &[u8]) -> Result<String, AuthorityError> {
    match std::str::from_utf8(pem) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(AuthorityError::NotPem),
    }
}
