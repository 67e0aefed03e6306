//! How a server's certificate is judged: by webpki against the cluster's CA. What webpki leaves in one pot is told apart here, because
//! people mend it differently; what it copies from the certificate is cut. And, where the operator asked for it by name, not at all.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How many of a certificate's names an error shows, and how much of each.
const NAMES: usize = 8;
const NAME: usize = 128;

/// The certificate signs itself, and is none of the CA bundle's.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the certificate signs itself")]
pub(super) struct SelfSigned;

/// Judges by the cluster's CA.
#[derive(Debug)]
pub(super) struct ByCa {
    pub(super) webpki: Arc<WebPkiServerVerifier>,
    pub(super) roots: Arc<RootCertStore>,
}

impl ByCa {
    fn told_apart(&self, error: Error, certificate: &CertificateDer<'_>) -> Error {
        let Error::InvalidCertificate(mut bad) = error else {
            return error;
        };
        match &mut bad {
            // One that signs itself is often a CA's as well, which is what webpki says then.
            CertificateError::UnknownIssuer | CertificateError::Other(_)
                if self.is_self_signed(certificate) =>
            {
                bad = CertificateError::Other(OtherError(Arc::new(SelfSigned)));
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                presented.truncate(NAMES);
                for name in presented {
                    *name = name.chars().take(NAME).collect();
                }
            }
            _ => (),
        }
        bad.into()
    }

    fn is_self_signed(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return false;
        };
        let (subject, key) = (certificate.subject().as_raw(), certificate.public_key().raw);
        // An anchor has what is inside of both, without tag and length.
        let ours = self.roots.roots.iter().any(|anchor| {
            subject.ends_with(&anchor.subject) && key.ends_with(&anchor.subject_public_key_info)
        });
        !ours
            && certificate.issuer().as_raw() == subject
            && certificate.verify_signature(None).is_ok()
    }
}

impl ServerCertVerifier for ByCa {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.webpki
            .verify_server_cert(certificate, intermediates, name, ocsp, now)
            .map_err(|error| self.told_apart(error, certificate))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Takes any certificate whose key the server holds: `insecure-skip-tls-verify`.
#[derive(Debug)]
pub(super) struct Any(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
