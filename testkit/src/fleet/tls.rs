//! The TLS side of a fake API server: it asks for a client certificate and requires none, as a real one does.
//!
//! Any certificate passes the handshake if its owner holds the key. Whether it is one of this cluster, and valid now, is
//! judged at every request, so that a wrong or expired one is answered 401 and not a TLS alert: that is what a real
//! kube-apiserver does. No session is resumed.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, LazyLock, OnceLock},
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::FleetError;
use crate::{
    api::Caller,
    pki::{ClusterCa, Leaf, Validity},
};

static RING: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// A CA, and what the server presents under it, which is made when the first client comes.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) ca: ClusterCa,
    validity: Validity,
    address: IpAddr,
    http2: bool,
    made: Arc<OnceLock<Made>>,
}

struct Made {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// What is wrong with a certificate that a server presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BadCertificate {
    /// It ended an hour ago.
    Expired,
    /// It names another server.
    WrongName,
    /// Another CA of the same name signed it.
    Foreign,
}

impl Identity {
    /// Of a server at this address of loopback, and at `127.0.0.1`.
    pub(crate) fn new(ca: ClusterCa, address: IpAddr, http2: bool) -> Self {
        Self::serving(ca, Validity::years(), address, http2)
    }

    /// With a server certificate of the given validity.
    pub(super) fn serving(ca: ClusterCa, validity: Validity, address: IpAddr, http2: bool) -> Self {
        Self {
            ca,
            validity,
            address,
            http2,
            made: Arc::default(),
        }
    }

    /// The same server under another CA, or with a certificate of another validity.
    pub(super) fn with(&self, ca: ClusterCa, validity: Validity) -> Self {
        Self::serving(ca, validity, self.address, self.http2)
    }

    /// The same server, speaking HTTP/2 or not.
    pub(crate) fn speaking(&self, http2: bool) -> Self {
        Self::serving(self.ca.clone(), self.validity, self.address, http2)
    }

    /// What a handshake needs.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, FleetError> {
        Ok(self.made()?.config.clone())
    }

    /// What a handshake needs in which something is wrong with the server's certificate.
    pub(super) fn spoilt(&self, bad: BadCertificate) -> Result<Arc<ServerConfig>, FleetError> {
        let leaf = match bad {
            BadCertificate::Expired => self.ca.server_at(&self.addresses(), Validity::expired())?,
            BadCertificate::WrongName => {
                self.ca
                    .server_named(&["elsewhere.example"], &[], self.validity)?
            }
            BadCertificate::Foreign => {
                ClusterCa::new(self.ca.name())?.server_at(&self.addresses(), self.validity)?
            }
        };
        self.serve(&leaf, &self.made()?.verifier)
    }

    /// The user whom a certificate names, if this CA signed it and it is valid now.
    pub(super) fn user(&self, chain: &[CertificateDer<'_>]) -> Option<Caller> {
        let (leaf, rest) = chain.split_first()?;
        let verifier = &self.made().ok()?.verifier;
        verifier
            .verify_client_cert(leaf, rest, UnixTime::now())
            .ok()?;
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let organizations = certificate.subject().iter_organization();
        let groups: Vec<_> = organizations
            .filter_map(|name| name.as_str().ok())
            .collect();
        Some(Caller::new(&common_name(leaf)?, &groups))
    }

    fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), self.address];
        addresses.dedup();
        addresses
    }

    /// Two that come at once both make it, and one of them is kept.
    fn made(&self) -> Result<&Made, FleetError> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone())?;
        let verifier: Arc<dyn ClientCertVerifier> =
            WebPkiClientVerifier::builder_with_provider(roots.into(), RING.clone()).build()?;
        let leaf = self.ca.server_at(&self.addresses(), self.validity)?;
        let config = self.serve(&leaf, &verifier)?;
        Ok(self.made.get_or_init(|| Made { config, verifier }))
    }

    fn serve(
        &self,
        leaf: &Leaf,
        verifier: &Arc<dyn ClientCertVerifier>,
    ) -> Result<Arc<ServerConfig>, FleetError> {
        let mut config = ServerConfig::builder_with_provider(RING.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(AskOnly(verifier.clone())))
            .with_single_cert(vec![leaf.certificate_der().clone()], leaf.key_der())?;
        // The default cache reserves 20 KB a cluster.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = if self.http2 {
            vec![b"h2".to_vec()]
        } else {
            vec![]
        };
        config.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(config.into())
    }
}

/// The common name of a certificate, whoever signed it.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// Asks for a certificate, and takes any whose key the client holds.
#[derive(Debug)]
struct AskOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
