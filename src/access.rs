//! The sanitised way to reach a cluster. Endpoint, CA and credential are always one value, so that a credential cannot be sent to
//! another endpoint than its own, and none of its secrets prints (rule 19 of the design).

mod address;
mod builder;
mod ca;
mod credential;
mod endpoint;
mod fingerprint;
mod impersonation;
mod proxy;

use std::{fmt, sync::Arc};

pub use self::{
    address::{AddressPolicy, Forbidden, ForbiddenAddress},
    builder::{AccessBuilder, AccessError},
    ca::CaBundle,
    credential::{ClientCertificate, Credential},
    endpoint::Endpoint,
    fingerprint::Fingerprint,
    impersonation::Impersonation,
    proxy::{Proxy, ProxyUser},
};

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
        AccessBuilder::new(url.into())
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
        if self.0.endpoint != newer.0.endpoint || self.0.ca != newer.0.ca {
            AccessChange::Endpoint
        } else if self.0.credential.fingerprint() != newer.0.credential.fingerprint() {
            AccessChange::Credential
        } else {
            AccessChange::None
        }
    }

    /// Whether the two are accesses to one cluster, as far as their CAs tell: the bundles share a public key, or, where neither has a
    /// certificate, the URLs are equal. This is what decides where a source gives no UID.
    pub fn continues(&self, newer: &Self) -> bool {
        let (old, new) = (self.0.ca.public_keys(), newer.0.ca.public_keys());
        match (old.is_empty(), new.is_empty()) {
            (true, true) => self.0.endpoint.url() == newer.0.endpoint.url(),
            _ => old.iter().any(|key| new.contains(key)),
        }
    }
}

impl ClusterAccess {
    /// Equal, and known to end at the same time.
    pub(crate) fn is_identical(&self, other: &Self) -> bool {
        self == other && self.credential().expires() == other.credential().expires()
    }
}

impl PartialEq for ClusterAccess {
    fn eq(&self, other: &Self) -> bool {
        self.change_to(other) == AccessChange::None
    }
}

impl Eq for ClusterAccess {}

impl std::hash::Hash for ClusterAccess {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.ca.fingerprint().hash(state);
        self.0.credential.fingerprint().hash(state);
    }
}

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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

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

    #[test]
    fn what_weakens_an_access_is_asked_for_by_name() {
        let plain = || ClusterAccess::builder("http://a");
        assert_eq!(plain().build().unwrap_err(), AccessError::PlainHttp);
        assert!(plain().allow_http().build().is_ok());
        let insecure = || ClusterAccess::builder("https://a").insecure_skip_tls_verify();
        assert!(insecure().build().unwrap().endpoint().skips_tls_verify());
        let both = insecure().ca_pem(ca(&key(), 1)).build();
        assert_eq!(both.unwrap_err(), AccessError::InsecureWithCa);
        let other = ClusterAccess::builder("ftp://a").allow_http().build();
        assert_eq!(other.unwrap_err(), AccessError::Url);
    }

    #[test]
    fn proxy_and_address_policy_are_of_the_endpoint_and_impersonation_of_the_credential() {
        let build = |builder: AccessBuilder| builder.build().unwrap();
        let base = || ClusterAccess::builder("https://a").token("t");
        let old = build(base());
        for (newer, change) in [
            (base().proxy("http://p:3128"), AccessChange::Endpoint),
            (
                base().addresses(AddressPolicy::tenant()),
                AccessChange::Endpoint,
            ),
            (base().insecure_skip_tls_verify(), AccessChange::Endpoint),
            (
                base().impersonate(Impersonation::user("u")),
                AccessChange::Credential,
            ),
        ] {
            let newer = build(newer);
            assert_eq!(old.change_to(&newer), change);
            assert!(
                old.continues(&newer),
                "the way to a cluster is not the cluster"
            );
        }
    }
}
