//! Where an API server is, and on what terms it may be reached.

use std::{fmt, sync::Arc};

use http::Uri;

use super::{AddressPolicy, Fingerprint, Proxy};

/// Where an API server is, and by which name its certificate is judged.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) url: Uri,
    /// The URL as it prints: every state of the cluster shows it.
    pub(super) text: Arc<str>,
    pub(super) server_name: Option<String>,
    pub(super) insecure: bool,
    pub(super) proxy: Option<Arc<Proxy>>,
    pub(super) addresses: AddressPolicy,
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

    /// Whether the server's certificate is not judged (`insecure-skip-tls-verify` of a kubeconfig): whoever is in between can read and
    /// change everything.
    pub fn skips_tls_verify(&self) -> bool {
        self.insecure
    }

    /// The proxy through which it is reached.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_deref()
    }

    /// Which addresses may be dialled on the way to it.
    pub fn addresses(&self) -> &AddressPolicy {
        &self.addresses
    }

    /// A fingerprint of the whole endpoint.
    pub fn fingerprint(&self) -> Fingerprint {
        let proxy = self.proxy().map(Proxy::fingerprint);
        let addresses = format!("{:?}", self.addresses);
        Fingerprint::of([
            self.text.as_bytes(),
            self.server_name().unwrap_or_default().as_bytes(),
            &[u8::from(self.insecure)],
            proxy.as_ref().map_or(&[], |proxy| proxy.as_bytes()),
            addresses.as_bytes(),
        ])
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        if let Some(name) = &self.server_name {
            write!(f, " as {}", name.escape_debug())?;
        }
        if self.insecure {
            f.write_str(", not verified")?;
        }
        match &self.proxy {
            Some(proxy) => write!(f, " through {proxy:?}"),
            None => Ok(()),
        }
    }
}
