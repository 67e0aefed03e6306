//! Who signs: the certificates and the key of a Secret, judged. Of a bundle of several CA certificates the one whose public key is that of the
//! key signs, wherever it stands; all of them are trusted for servers.

use std::time::{Duration, SystemTime};

use rcgen::PublicKeyData;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use sha2::{Digest, Sha256};
use x509_parser::{
    certificate::X509Certificate,
    extensions::ParsedExtension,
    prelude::{ASN1Time, FromDer},
};

use crate::{
    AuthorityError,
    private_key::{self, Signer},
};

/// Both are ten times what the largest rotation needs: they limit what one Secret of somebody's costs.
const MOST_CERTIFICATES: usize = 64;
const LONGEST_PEM: usize = 256 * 1024;

/// The certificates of a bundle, which are trusted for servers: read as PEM, and not judged.
#[derive(Clone)]
pub(crate) struct Bundle(Vec<CertificateDer<'static>>);

/// A CA and its key, for one signature: the key is wiped when this is dropped.
pub(crate) struct Authority {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) not_after: SystemTime,
    /// Its name, as it is written in the certificate.
    pub(crate) name: Vec<u8>,
    /// What it calls its key, if it does.
    pub(crate) key_identifier: Option<Vec<u8>>,
    pub(crate) signer: Signer,
}

impl Bundle {
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, AuthorityError> {
        if pem.len() > LONGEST_PEM {
            return Err(AuthorityError::TooLarge { bytes: pem.len() });
        }
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let nth = certificates.len() + 1;
            if nth > MOST_CERTIFICATES {
                return Err(AuthorityError::TooMany);
            }
            certificates.push(certificate.map_err(|_| AuthorityError::NotPem)?);
        }
        if certificates.is_empty() {
            return Err(AuthorityError::NoCertificate);
        }
        Ok(Self(certificates))
    }

    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }

    /// The one that signs, at this time.
    pub(crate) fn authority(
        &self,
        key_pem: &[u8],
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        let all = self.parsed()?;
        let points = all.iter().map(|parsed| public_key(parsed));
        let signer = private_key::Parsed::from_pem(key_pem)?.signer(points)?;
        let its_own = all
            .iter()
            .zip(&self.0)
            .filter(|(parsed, _)| public_key(parsed) == signer.pair().der_bytes());
        // A CA that was renewed with its key is there twice: the one that lasts longest signs.
        let mut best = Err(AuthorityError::NoMatch {
            certificates: all.len(),
        });
        for (parsed, certificate) in its_own {
            match (usable(parsed, now), &best) {
                (Ok(until), Ok((other, _))) if until <= *other => {}
                (Ok(until), _) => best = Ok((until, (certificate, parsed))),
                (Err(why), Err(_)) => best = Err(why),
                (Err(_), Ok(_)) => {}
            }
        }
        let (not_after, (certificate, parsed)) = best?;
        Ok(Authority {
            certificate: certificate.clone(),
            not_after,
            name: parsed.subject().as_raw().to_vec(),
            key_identifier: key_identifier(parsed),
            signer,
        })
    }

    pub(crate) fn parsed(&self) -> Result<Vec<X509Certificate<'_>>, AuthorityError> {
        let all = self.0.iter().zip(1..);
        all.map(|(certificate, nth)| parsed(certificate, nth))
            .collect()
    }
}

/// SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` shows it.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

fn key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    let mut extensions = certificate.iter_extensions();
    extensions.find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
        _ => None,
    })
}

fn public_key<'a>(certificate: &'a X509Certificate<'_>) -> &'a [u8] {
    &certificate.public_key().subject_public_key.data
}

pub(crate) fn parsed(der: &[u8], nth: usize) -> Result<X509Certificate<'_>, AuthorityError> {
    match X509Certificate::from_der(der) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err(AuthorityError::NotACertificate { nth }),
    }
}

/// Until when it may sign.
fn usable(
    certificate: &X509Certificate<'_>,
    now: SystemTime,
) -> Result<SystemTime, AuthorityError> {
    let is_ca = certificate
        .basic_constraints()
        .is_ok_and(|found| found.is_some_and(|constraints| constraints.value.ca));
    let may_sign = certificate
        .key_usage()
        .is_ok_and(|found| found.is_none_or(|usage| usage.value.key_cert_sign()));
    if !(is_ca && may_sign) {
        return Err(AuthorityError::NotACa);
    }
    let validity = certificate.validity();
    let (from, until) = (time(validity.not_before), time(validity.not_after));
    if now < from {
        return Err(AuthorityError::NotYetValid { from });
    }
    if now >= until {
        return Err(AuthorityError::Expired { at: until });
    }
    Ok(until)
}

/// A certificate's time; what is before 1970 is 1970.
pub(crate) fn time(at: ASN1Time) -> SystemTime {
    let seconds = u64::try_from(at.timestamp()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
