//! Certificate authorities of fake clusters: each cluster has one of its own, and so an identity of its own.
//!
//! All keys are ECDSA P-256 by ring, so that a thousand authorities take well under a second. A CA can be renewed with
//! the key that it has (the same cluster, by the rule on CA bundles that share a public key), or be made anew
//! (another cluster).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A key could not be made, or a certificate not be signed.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the certificate of `{subject}`")]
pub struct PkiError {
    subject: String,
    #[source]
    source: rcgen::Error,
}

/// From when and until when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment at which it is valid; certificates know whole seconds only.
    pub not_before: SystemTime,
    /// The last moment at which it is valid; certificates know whole seconds only.
    pub not_after: SystemTime,
}

// Certificates are valid by the calendar.
#[allow(clippy::disallowed_methods)]
impl Validity {
    const HOUR: Duration = Duration::from_secs(3600);

    /// Valid since an hour ago, and for `length` from now on.
    pub fn lasting(length: Duration) -> Self {
        let now = SystemTime::now();
        Self {
            not_before: now - Self::HOUR,
            not_after: now + length,
        }
    }

    /// Valid since an hour ago, and for ten years from now on.
    pub fn years() -> Self {
        Self::lasting(Self::HOUR * 24 * 3650)
    }

    /// Was valid once; ended an hour ago.
    pub fn expired() -> Self {
        let now = SystemTime::now();
        Self {
            not_before: now - Self::HOUR * 48,
            not_after: now - Self::HOUR,
        }
    }

    /// Will be valid in an hour, for a day.
    pub fn not_yet() -> Self {
        let now = SystemTime::now();
        Self {
            not_before: now + Self::HOUR,
            not_after: now + Self::HOUR * 25,
        }
    }
}

/// The certificate authority of one cluster: it signs the server's certificate and those of its users.
#[derive(Clone)]
pub struct ClusterCa {
    name: Arc<str>,
    key: Arc<KeyPair>,
    certificate: Certificate,
}

impl ClusterCa {
    /// A new authority with a key of its own. `name` is its common name.
    pub fn new(name: &str) -> Result<Self, PkiError> {
        Self::with_key(name.into(), Arc::new(new_key(name)?))
    }

    /// An authority that is valid in this time only.
    pub fn lasting(name: &str, validity: Validity) -> Result<Self, PkiError> {
        let key = Arc::new(new_key(name)?);
        let params = ca_params(name, validity);
        let certificate = params.self_signed(&*key).map_err(failed(name))?;
        Ok(Self {
            name: name.into(),
            key,
            certificate,
        })
    }

    /// The same authority with a new certificate: same name, same key, another serial number.
    pub fn renewed(&self) -> Result<Self, PkiError> {
        Self::with_key(self.name.clone(), self.key.clone())
    }

    fn with_key(name: Arc<str>, key: Arc<KeyPair>) -> Result<Self, PkiError> {
        let params = ca_params(&name, Validity::years());
        let certificate = params.self_signed(&*key).map_err(failed(&name))?;
        Ok(Self {
            name,
            key,
            certificate,
        })
    }

    /// Its common name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The authority's certificate, as a kubeconfig's `certificate-authority-data` holds it before base64.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The authority's certificate as DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    /// A server certificate for `localhost`, `kubernetes.default.svc` and `127.0.0.1`.
    pub fn server(&self, validity: Validity) -> Result<Leaf, PkiError> {
        self.server_at(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], validity)
    }

    /// A server certificate for `localhost`, `kubernetes.default.svc` and these addresses.
    pub fn server_at(&self, addresses: &[IpAddr], validity: Validity) -> Result<Leaf, PkiError> {
        self.server_named(
            &["localhost", "kubernetes.default.svc"],
            addresses,
            validity,
        )
    }

    /// A server certificate for these names and addresses. What is no name is left out.
    pub fn server_named(
        &self,
        names: &[&str],
        addresses: &[IpAddr],
        validity: Validity,
    ) -> Result<Leaf, PkiError> {
        let mut params = leaf_params(
            "kube-apiserver",
            None,
            validity,
            ExtendedKeyUsagePurpose::ServerAuth,
        );
        let names = names.iter().filter_map(|name| (*name).try_into().ok());
        let addresses = addresses.iter().copied().map(SanType::IpAddress);
        params.subject_alt_names = names.map(SanType::DnsName).chain(addresses).collect();
        self.sign(&params, "kube-apiserver")
    }

    /// Its private key as PEM (PKCS #8), for whoever signs in its name.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The certificate of an etcd member as kubeadm makes it: for the node's name, `localhost` and loopback, and for a client too.
    pub fn etcd_member(&self, node: &str, validity: Validity) -> Result<Leaf, PkiError> {
        let names = [node, "localhost"].into_iter();
        let names = names.filter_map(|name| name.try_into().ok());
        let mut params = leaf_params(node, None, validity, ExtendedKeyUsagePurpose::ServerAuth);
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ClientAuth);
        params.subject_alt_names = names.map(SanType::DnsName).collect();
        for address in [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        self.sign(&params, node)
    }

    /// A client certificate for the user `common_name` in `organization`, which Kubernetes reads as a group.
    pub fn client(
        &self,
        common_name: &str,
        organization: Option<&str>,
        validity: Validity,
    ) -> Result<Leaf, PkiError> {
        let params = leaf_params(
            common_name,
            organization,
            validity,
            ExtendedKeyUsagePurpose::ClientAuth,
        );
        self.sign(&params, common_name)
    }

    fn sign(&self, params: &CertificateParams, subject: &str) -> Result<Leaf, PkiError> {
        let key = new_key(subject)?;
        let certificate = params
            .signed_by(
                &key,
                &Issuer::new(ca_params(&self.name, Validity::years()), &*self.key),
            )
            .map_err(failed(subject))?;
        Ok(Leaf { certificate, key })
    }
}

/// A certificate that a [`ClusterCa`] signed, and its private key.
pub struct Leaf {
    certificate: Certificate,
    key: KeyPair,
}

impl Leaf {
    /// The certificate as PEM.
    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    /// The private key as PEM (PKCS #8).
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The certificate as DER.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    /// The private key as DER (PKCS #8).
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

fn new_key(subject: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed(subject))
}

fn failed(subject: &str) -> impl FnOnce(rcgen::Error) -> PkiError {
    move |source| PkiError {
        subject: subject.to_owned(),
        source,
    }
}

fn ca_params(name: &str, validity: Validity) -> CertificateParams {
    let mut params = params(name, None, validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn leaf_params(
    name: &str,
    organization: Option<&str>,
    validity: Validity,
    purpose: ExtendedKeyUsagePurpose,
) -> CertificateParams {
    let mut params = params(name, organization, validity);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    params
}

fn params(name: &str, organization: Option<&str>, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = validity.not_before.into();
    params.not_after = validity.not_after.into();
    // 63 bits: a positive number in any reader.
    params.serial_number = Some(SerialNumber::from(fastrand::u64(1..=u64::MAX >> 1)));
    params
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    fn public_key(ca: &ClusterCa) -> Vec<u8> {
        X509Certificate::from_der(ca.der())
            .unwrap()
            .1
            .public_key()
            .raw
            .to_vec()
    }

    #[test]
    fn a_renewed_ca_shares_the_public_key_and_a_new_one_does_not() {
        let first = ClusterCa::new("a").unwrap();
        let renewed = first.renewed().unwrap();
        assert_ne!(first.pem(), renewed.pem());
        assert_eq!(public_key(&first), public_key(&renewed));
        assert_ne!(
            public_key(&first),
            public_key(&ClusterCa::new("a").unwrap())
        );
    }

    #[test]
    fn a_client_certificate_names_its_user_and_its_validity() {
        let leaf = ClusterCa::new("a")
            .unwrap()
            .client("jane", Some("ops"), Validity::expired())
            .unwrap();
        let (_, parsed) = X509Certificate::from_der(leaf.certificate_der()).unwrap();
        assert_eq!(
            parsed
                .subject()
                .iter_common_name()
                .next()
                .unwrap()
                .as_str()
                .unwrap(),
            "jane"
        );
        assert_eq!(
            parsed
                .subject()
                .iter_organization()
                .next()
                .unwrap()
                .as_str()
                .unwrap(),
            "ops"
        );
        assert!(!parsed.validity().is_valid());
    }
}
