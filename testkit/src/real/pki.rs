//! A certificate authority and what it signs, as PEM.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

use super::RealError;

/// A certificate and its private key.
#[derive(Clone)]
pub struct PemPair {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key, PKCS #8.
    pub key_pem: String,
}

impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemPair")
            .field("cert_pem", &self.cert_pem)
            .finish_non_exhaustive()
    }
}

/// The files of a [`PemPair`].
#[derive(Debug)]
pub(super) struct PairFiles {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl PemPair {
    pub(super) fn write(&self, folder: &Path, name: &str) -> Result<PairFiles, RealError> {
        Ok(PairFiles {
            cert: write(folder, &format!("{name}.crt"), &self.cert_pem)?,
            key: write(folder, &format!("{name}.key"), &self.key_pem)?,
        })
    }
}

pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, RealError> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(RealError::io(format!("write {}", path.display())))?;
    Ok(path)
}

/// A certificate authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new(name: &str) -> Result<Self, RealError> {
        let make = || {
            let mut params = named(name, None);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        };
        make().map(Self).map_err(wrong(name))
    }

    pub(super) fn cert_pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server on loopback, that may be a client too: etcd dials itself with its own.
    pub(super) fn server(&self, name: &str) -> Result<PemPair, RealError> {
        let mut params = named(name, None);
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        for host in [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ] {
            let host = host.try_into().map_err(wrong(name))?;
            params.subject_alt_names.push(SanType::DnsName(host));
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.sign(params, name)
    }

    /// A certificate for a client; to Kubernetes its common name is the user, its organisation a group.
    pub(super) fn client(&self, name: &str, group: Option<&str>) -> Result<PemPair, RealError> {
        let mut params = named(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, name)
    }

    fn sign(&self, mut params: CertificateParams, name: &str) -> Result<PemPair, RealError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(wrong(name))?;
        let cert = params.signed_by(&key, &self.0).map_err(wrong(name))?;
        Ok(PemPair {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

/// The key by which service account tokens are signed: private and public half, as PEM.
pub(super) fn token_keys() -> Result<(String, String), RealError> {
    let key = KeyPair::generate().map_err(wrong("service account tokens"))?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn named(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params
}

fn wrong(subject: &str) -> impl FnOnce(rcgen::Error) -> RealError {
    let subject = subject.to_owned();
    move |source| RealError::Certificate { subject, source }
}
