//! TLS as an access has it: its CA bundle as the only roots, its client certificate, its server name. Ring is given explicitly, never
//! a process-wide default, so that nobody else's choice changes ours.

use std::sync::{Arc, LazyLock};

use clustercache::{ClientCertificate, ClusterAccess};
use http::uri::Scheme;
use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::ServerName,
};

use super::verify::{Any, ByCa};

/// What it takes to be known to a server, and to know it. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Tls {
    /// The endpoint is plain http, as the operator allowed.
    Off,
    On {
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    },
}

/// Why an access cannot be used: only another one mends that.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AccessProblem {
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
    /// The user of the proxy cannot be sent.
    #[error(
        "the user name or the password of the proxy is too long, or has characters that it cannot be told"
    )]
    ProxyUser,
}

static RING: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// What may be spoken on a connection, as ALPN has it.
const HTTP_2_OR_1: &[&[u8]] = &[b"h2", b"http/1.1"];
const HTTP_1: &[&[u8]] = &[b"http/1.1"];

impl Tls {
    pub(crate) fn new(access: &ClusterAccess) -> Result<Self, AccessProblem> {
        let endpoint = access.endpoint();
        if endpoint.url().scheme() == Some(&Scheme::HTTP) {
            return Ok(Self::Off);
        }
        let host = endpoint.url().host().unwrap_or_default();
        let name = endpoint.server_name().unwrap_or(unbracketed(host));
        let who = access.credential().client_certificate();
        Self::on(access, name, who, HTTP_2_OR_1)
    }

    /// For an https proxy on the way to the endpoint. It is judged by the cluster's CA, as client-go does, and is not told who we are
    /// to the cluster.
    pub(crate) fn to_proxy(access: &ClusterAccess, host: &str) -> Result<Self, AccessProblem> {
        Self::on(access, unbracketed(host), None, HTTP_1)
    }

    /// The same for a connection that is to be upgraded, which HTTP/2 does not do.
    pub(crate) fn http1(&self) -> Self {
        match self {
            Self::Off => Self::Off,
            Self::On { config, name } => {
                let mut config = ClientConfig::clone(config);
                config.alpn_protocols = protocols(HTTP_1);
                Self::On {
                    config: Arc::new(config),
                    name: name.clone(),
                }
            }
        }
    }

    fn on(
        access: &ClusterAccess,
        name: &str,
        who: Option<&ClientCertificate>,
        alpn: &[&[u8]],
    ) -> Result<Self, AccessProblem> {
        let name = ServerName::try_from(name)
            .map_err(|_| AccessProblem::ServerName)?
            .to_owned();
        let config = ClientConfig::builder_with_provider(Arc::clone(&RING))
            .with_safe_default_protocol_versions()
            .map_err(|_| AccessProblem::Ca)?
            .dangerous()
            .with_custom_certificate_verifier(verifier(access)?);
        let mut config = match who {
            Some(certificate) => config
                .with_client_auth_cert(certificate.chain().to_vec(), certificate.key().clone_key())
                .map_err(|error| AccessProblem::ClientCertificate(Arc::new(error)))?,
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols(alpn);
        // A resumed session is who it was when it began: not to be had with a client certificate. Without one it would save a
        // signature on the rare second handshake of a connection, at two kilobytes for each of ten thousand clusters.
        config.resumption = Resumption::disabled();
        Ok(Self::On {
            config: Arc::new(config),
            name,
        })
    }
}

fn protocols(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|protocol| protocol.to_vec()).collect()
}

fn verifier(access: &ClusterAccess) -> Result<Arc<dyn ServerCertVerifier>, AccessProblem> {
    if access.endpoint().skips_tls_verify() {
        return Ok(Arc::new(Any(Arc::clone(&RING))));
    }
    let roots = roots(access)?;
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&RING));
    let webpki = webpki.build().map_err(|_| AccessProblem::Ca)?;
    Ok(Arc::new(ByCa { webpki, roots }))
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
