//! The TLS side of a fake API server: it asks for a client certificate and requires none, as a real one does.
//!
//! Any certificate passes the handshake if its owner holds the key. Whether it is one of this cluster, and valid now, is
//! judged at every request, so that a wrong or expired one is answered 401 and not a TLS alert: that is what a real
//! kube-apiserver does. No session is resumed.

use std::sync::{Arc, LazyLock};

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
    pki::{ClusterCa, Validity},
};

static RING: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// A CA, and what the server presents under it.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) ca: ClusterCa,
    pub(crate) config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Identity {
    pub(crate) fn new(ca: ClusterCa, http2: bool) -> Result<Self, FleetError> {
        Self::serving(ca, Validity::years(), http2)
    }

    /// With a server certificate of the given validity.
    pub(super) fn serving(
        ca: ClusterCa,
        validity: Validity,
        http2: bool,
    ) -> Result<Self, FleetError> {
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone())?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), RING.clone()).build()?;
        let leaf = ca.server(validity)?;
        let mut config = ServerConfig::builder_with_provider(RING.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(AskOnly(verifier.clone())))
            .with_single_cert(vec![leaf.certificate_der().clone()], leaf.key_der())?;
        // The default cache reserves 20 KB a cluster.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = if http2 { vec![b"h2".to_vec()] } else { vec![] };
        config.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(Self {
            ca,
            config: config.into(),
            verifier,
        })
    }

    /// The user whom a certificate names, if this CA signed it and it is valid now.
    pub(super) fn user(&self, chain: &[CertificateDer<'_>]) -> Option<Caller> {
        let (leaf, rest) = chain.split_first()?;
        self.verifier
            .verify_client_cert(leaf, rest, UnixTime::now())
            .ok()?;
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let organizations = certificate.subject().iter_organization();
        let groups: Vec<_> = organizations
            .filter_map(|name| name.as_str().ok())
            .collect();
        Some(Caller::new(&common_name(leaf)?, &groups))
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
