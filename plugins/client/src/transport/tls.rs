//! TLS as an access has it: its CA bundle as the only roots, its client certificate, its server name. Ring is given explicitly, never
//! a process-wide default, so that nobody else's choice changes ours.

use std::sync::{Arc, LazyLock};

use clustercache::ClusterAccess;
use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::ServerName,
};

/// What it takes to be known to a server, and to know it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

/// Why an access cannot be used: only another one mends that.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AccessProblem {
    /// Another scheme than https.
    #[error("the endpoint's scheme is not https")]
    Scheme,
    /// There is no CA.
    #[error(
        "the access names no CA, so no server could be trusted; give certificate-authority-data"
    )]
    NoCa,
    /// No certificate of the CA bundle can be a root.
    #[error("no certificate of the CA bundle can be used as a root")]
    Ca,
    /// The server's name is neither a DNS name nor an address.
    #[error(
        "the server name is neither a DNS name nor an IP address; mend the URL's host or tls-server-name"
    )]
    ServerName,
    /// The client certificate and its key cannot be used.
    #[error("the client certificate and its key cannot be used together")]
    ClientCertificate(#[source] Arc<rustls::Error>),
}

static RING: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

impl Tls {
    pub(crate) fn new(access: &ClusterAccess) -> Result<Self, AccessProblem> {
        let endpoint = access.endpoint();
        if endpoint.url().scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(AccessProblem::Scheme);
        }
        let host = endpoint.url().host().unwrap_or_default();
        let name = endpoint.server_name().unwrap_or(unbracketed(host));
        let name = ServerName::try_from(name)
            .map_err(|_| AccessProblem::ServerName)?
            .to_owned();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots(access)?, Arc::clone(&RING));
        let verifier = verifier.build().map_err(|_| AccessProblem::Ca)?;
        let config = ClientConfig::builder_with_provider(Arc::clone(&RING))
            .with_safe_default_protocol_versions()
            .map_err(|_| AccessProblem::Ca)?
            .with_webpki_verifier(verifier);
        let mut config = match access.credential().client_certificate() {
            Some(certificate) => config
                .with_client_auth_cert(certificate.chain().to_vec(), certificate.key().clone_key())
                .map_err(|error| AccessProblem::ClientCertificate(Arc::new(error)))?,
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session is who it was when it began: not to be had with a client certificate. Without one it would save a
        // signature on the rare second handshake of a connection, at two kilobytes for each of ten thousand clusters.
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }
}

fn roots(access: &ClusterAccess) -> Result<Arc<RootCertStore>, AccessProblem> {
    let certificates = access.ca().certificates();
    if certificates.is_empty() {
        return Err(AccessProblem::NoCa);
    }
    let mut roots = RootCertStore::empty();
    // One that webpki cannot read does not take the others with it: bundles gather old things.
    match roots.add_parsable_certificates(certificates.iter().cloned()) {
        (0, _) => Err(AccessProblem::Ca),
        _ => Ok(Arc::new(roots)),
    }
}

/// A host as a URL has it, without the brackets of an IPv6 address.
pub(crate) fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}
