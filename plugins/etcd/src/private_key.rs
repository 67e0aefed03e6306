//! A CA's private key in any of its three forms (PKCS #1, SEC1, PKCS #8). Ring takes PKCS #8 only: the other two are wrapped. Every copy that is
//! made here is wiped.

use base64::{Engine, prelude::BASE64_STANDARD};
use pkcs8::{
    AlgorithmIdentifierRef, ObjectIdentifier, PrivateKeyInfoRef, SecretDocument,
    der::{
        Decode,
        asn1::{AnyRef, OctetStringRef},
    },
};
use rcgen::{KeyPair, SignatureAlgorithm};
use rustls_pki_types::PrivatePkcs8KeyDer;
use sec1::{EcParameters, EcPrivateKey};
use zeroize::{Zeroize, Zeroizing};

use crate::AuthorityError;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Larger than any key that ring takes.
const LONGEST_PEM: usize = 64 * 1024;

/// A private key as its file has it.
pub(crate) struct Parsed {
    pub(crate) form: Form,
    pub(crate) der: Zeroizing<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Pkcs1,
    Sec1,
    Pkcs8,
}

/// A key pair that is wiped when it is dropped, as far as it is ours.
pub(crate) struct Signer(KeyPair);

impl Signer {
    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Parsed {
    /// The first private key of a PEM file; what else stands in it, such as the parameters that OpenSSL writes before, is left alone.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, AuthorityError> {
        if pem.len() > LONGEST_PEM {
            return Err(AuthorityError::TooLarge { bytes: pem.len() });
        }
        let mut rest = std::str::from_utf8(pem).map_err(|_| AuthorityError::NoKey)?;
        while let Some((_, after)) = rest.split_once("-----BEGIN ") {
            let (label, after) = after.split_once("-----").ok_or(AuthorityError::NotAKey)?;
            rest = after;
            let form = match label {
                "RSA PRIVATE KEY" => Form::Pkcs1,
                "EC PRIVATE KEY" => Form::Sec1,
                "PRIVATE KEY" => Form::Pkcs8,
                "ENCRYPTED PRIVATE KEY" => return Err(AuthorityError::EncryptedKey),
                _ => continue,
            };
            let (body, _) = after
                .split_once("-----END ")
                .ok_or(AuthorityError::NotAKey)?;
            if body.contains("ENCRYPTED") {
                return Err(AuthorityError::EncryptedKey);
            }
            let der = decoded(body).ok_or(AuthorityError::NotAKey)?;
            return Ok(Self { form, der });
        }
        Err(AuthorityError::NoKey)
    }

    /// What signs. The public points are those of the certificates that it may belong to: ring wants one beside an elliptic key, which need
    /// not have it.
    pub(crate) fn signer<'a>(
        &self,
        points: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Signer, AuthorityError> {
        match self.form {
            Form::Pkcs1 => rsa(&self.der),
            Form::Sec1 => elliptic(&self.der, None, points),
            Form::Pkcs8 => {
                let info = PrivateKeyInfoRef::from_der(&self.der);
                let info = info.map_err(|_| AuthorityError::NotAKey)?;
                match info.algorithm.oid {
                    RSA => of(&self.der, &rcgen::PKCS_RSA_SHA256),
                    ED25519 => of(&self.der, &rcgen::PKCS_ED25519),
                    EC => {
                        let curve = info.algorithm.parameters_oid().ok();
                        elliptic(info.private_key.as_bytes(), curve, points)
                    }
                    _ => Err(AuthorityError::UnsupportedKey),
                }
            }
        }
    }
}

/// Without a copy that is not wiped: it is of one size from the beginning.
fn decoded(body: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(body.len()));
    text.extend(body.bytes().filter(|byte| !byte.is_ascii_whitespace()));
    let mut der = Zeroizing::new(vec![0; text.len() / 4 * 3 + 3]);
    let length = BASE64_STANDARD.decode_slice(&*text, &mut der).ok()?;
    der.truncate(length);
    Some(der)
}

fn rsa(pkcs1: &[u8]) -> Result<Signer, AuthorityError> {
    let algorithm = AlgorithmIdentifierRef {
        oid: RSA,
        parameters: Some(AnyRef::NULL),
    };
    of(
        wrapped(algorithm, pkcs1)?.as_bytes(),
        &rcgen::PKCS_RSA_SHA256,
    )
}

fn elliptic<'a>(
    sec1: &[u8],
    curve: Option<ObjectIdentifier>,
    mut points: impl Iterator<Item = &'a [u8]>,
) -> Result<Signer, AuthorityError> {
    let key = EcPrivateKey::from_der(sec1).map_err(|_| AuthorityError::NotAKey)?;
    let named = key.parameters.and_then(EcParameters::named_curve);
    // Of keys that do not say, the length tells.
    let by_length = match key.private_key.len() {
        32 => P256,
        48 => P384,
        _ => return Err(AuthorityError::UnsupportedKey),
    };
    let curve = curve.or(named).unwrap_or(by_length);
    let signature = match curve {
        P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        _ => return Err(AuthorityError::UnsupportedKey),
    };
    let with = |point| {
        let key = EcPrivateKey {
            private_key: key.private_key,
            parameters: None,
            public_key: Some(point),
        };
        let inner = SecretDocument::encode_msg(&key).map_err(|_| AuthorityError::NotAKey)?;
        let parameters = AnyRef::from(&curve);
        let algorithm = AlgorithmIdentifierRef {
            oid: EC,
            parameters: Some(parameters),
        };
        of(wrapped(algorithm, inner.as_bytes())?.as_bytes(), signature)
    };
    match key.public_key {
        Some(point) => with(point),
        // One that is not its own is refused.
        None => points
            .find_map(|point| with(point).ok())
            .ok_or(AuthorityError::NotAKey),
    }
}

/// PKCS #8 of an Ed25519 key, of which `key` is the OCTET STRING.
pub(crate) fn ed25519(key: &[u8]) -> Result<SecretDocument, AuthorityError> {
    let algorithm = AlgorithmIdentifierRef {
        oid: ED25519,
        parameters: None,
    };
    wrapped(algorithm, key)
}

fn wrapped(
    algorithm: AlgorithmIdentifierRef<'_>,
    key: &[u8],
) -> Result<SecretDocument, AuthorityError> {
    let key = OctetStringRef::new(key).map_err(|_| AuthorityError::NotAKey)?;
    SecretDocument::try_from(PrivateKeyInfoRef::new(algorithm, key))
        .map_err(|_| AuthorityError::NotAKey)
}

fn of(pkcs8: &[u8], signature: &'static SignatureAlgorithm) -> Result<Signer, AuthorityError> {
    let pkcs8 = PrivatePkcs8KeyDer::from(pkcs8);
    KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, signature)
        .map(Signer)
        .map_err(|_| AuthorityError::NotAKey)
}
