//! From loose parts to an access, or to what is wrong with one of them.

use std::{sync::Arc, time::SystemTime};

use http::Uri;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::{ExposeSecret, SecretString};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    AddressPolicy, CaBundle, ClientCertificate, ClusterAccess, Credential, Endpoint, Fingerprint,
    Impersonation, Parts, Proxy,
};

/// Gathers the parts of an access; they are judged by [`build`](Self::build).
#[must_use]
pub struct AccessBuilder {
    url: String,
    server_name: Option<String>,
    ca: Vec<u8>,
    certificate: Option<(Vec<u8>, SecretString)>,
    token: Option<SecretString>,
    expires: Option<SystemTime>,
    plain_http: bool,
    insecure: bool,
    proxy: Option<SecretString>,
    impersonation: Option<Impersonation>,
    addresses: AddressPolicy,
}

impl AccessBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            server_name: None,
            ca: Vec::new(),
            certificate: None,
            token: None,
            expires: None,
            plain_http: false,
            insecure: false,
            proxy: None,
            impersonation: None,
            addresses: AddressPolicy::any(),
        }
    }

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

    /// Takes an endpoint whose scheme is `http`: everything, the credential too, is there for whoever is in between.
    pub fn allow_http(mut self) -> Self {
        self.plain_http = true;
        self
    }

    /// Does not judge the server's certificate: whoever is in between can read and change everything. Not together with a CA.
    pub fn insecure_skip_tls_verify(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Reaches the endpoint through the proxy at this URL: `http`, `https` or `socks5`, with user info if it asks for it.
    pub fn proxy(mut self, url: impl Into<SecretString>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Acts as somebody else.
    pub fn impersonate(mut self, who: Impersonation) -> Self {
        self.impersonation = Some(who);
        self
    }

    /// Which addresses may be dialled; any, if it is not said.
    pub fn addresses(mut self, policy: AddressPolicy) -> Self {
        self.addresses = policy;
        self
    }

    /// Judges the parts. No error has a secret in it.
    pub fn build(self) -> Result<ClusterAccess, AccessError> {
        let url = checked_url(&self.url, self.plain_http)?;
        let ca = match self.ca.as_slice() {
            [] => CaBundle::none(),
            _ if self.insecure => return Err(AccessError::InsecureWithCa),
            pem => CaBundle::from_pem(pem)?,
        };
        let proxy = self.proxy.as_ref().map(Proxy::parse).transpose()?;
        let endpoint = Endpoint {
            text: url.to_string().into(),
            url,
            server_name: self.server_name,
            insecure: self.insecure,
            proxy: proxy.map(Arc::new),
            addresses: self.addresses,
        };
        let credential = credential(
            self.certificate,
            self.token,
            self.impersonation,
            self.expires,
        )?;
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
    /// The endpoint's scheme is `http`, and nobody asked for that.
    #[error("the endpoint's scheme is http, which anybody in between can read; give https")]
    PlainHttp,
    /// A CA is given for a server that is not to be judged.
    #[error("there is a CA, and the server is not to be verified; leave one of the two out")]
    InsecureWithCa,
    /// The proxy is not one that can be used.
    #[error(
        "the proxy is not a URL with the scheme http, https or socks5 and a host; give one like http://10.0.0.1:3128"
    )]
    Proxy,
    /// A part of an impersonation cannot be sent.
    #[error(
        "the impersonation's {field} is empty, or has characters that cannot stand in an HTTP header"
    )]
    Impersonation {
        /// Which part: `user`, `uid`, `groups` or `extra`.
        field: &'static str,
    },
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

fn checked_url(text: &str, plain_http: bool) -> Result<Uri, AccessError> {
    let url = text.parse::<Uri>().map_err(|_| AccessError::Url)?;
    let Some(authority) = url.authority().filter(|_| url.host().is_some()) else {
        return Err(AccessError::Url);
    };
    match url.scheme_str() {
        Some("https") => (),
        Some("http") if plain_http => (),
        Some("http") => return Err(AccessError::PlainHttp),
        _ => return Err(AccessError::Url),
    }
    if authority.as_str().contains('@') || url.query().is_some() {
        return Err(AccessError::UrlParts);
    }
    Ok(url)
}

fn credential(
    certificate: Option<(Vec<u8>, SecretString)>,
    token: Option<SecretString>,
    impersonation: Option<Impersonation>,
    mut expires: Option<SystemTime>,
) -> Result<Credential, AccessError> {
    let token = token.map(checked_token).transpose()?;
    let text = token.as_ref().map_or("", |token| token.expose_secret());
    let mut parts = vec![text.as_bytes().to_vec()];
    let certificate = match certificate {
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
    let impersonation = impersonation.map(Impersonation::checked).transpose()?;
    if let Some(who) = &impersonation {
        parts.push(b"as".to_vec());
        parts.extend(who.parts());
    }
    let fingerprint = Fingerprint::of(&parts);
    parts.iter_mut().for_each(zeroize::Zeroize::zeroize);
    Ok(Credential {
        certificate,
        token,
        impersonation: impersonation.map(Arc::new),
        expires,
        fingerprint,
    })
}

fn checked_token(token: SecretString) -> Result<SecretString, AccessError> {
    let text = token.expose_secret();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(token)
    } else {
        Err(AccessError::Token)
    }
}

pub(super) fn certificates(
    part: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(AccessError::NoCertificate { part }),
    }
}

pub(super) fn public_key(
    part: &'static str,
    der: &CertificateDer<'_>,
) -> Result<Fingerprint, AccessError> {
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
