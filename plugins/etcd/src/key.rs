//! A client's private key: made once, used for as many certificates as its policy says, wiped when its last user drops it.

use std::{fmt, sync::Arc};

use pkcs8::SecretDocument;
use rcgen::SubjectPublicKeyInfo;
use ring::{
    rand::{SecureRandom, SystemRandom},
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair},
};
use rustls::{crypto::ring::sign, sign::SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::{IssueError, KeyAlgorithm, private_key};

/// A private key. Its PEM is wiped when it is dropped; what the crypto library keeps of it cannot be.
pub(crate) struct ClientKey {
    pub(crate) algorithm: KeyAlgorithm,
    /// When it was made.
    pub(crate) born: Instant,
    /// PKCS #8.
    pem: Zeroizing<String>,
    signing: Arc<dyn SigningKey>,
    public: SubjectPublicKeyInfo,
}

impl ClientKey {
    /// Makes one; takes from a tenth of a millisecond to seconds of this thread.
    pub(crate) fn generate(algorithm: KeyAlgorithm, born: Instant) -> Result<Self, IssueError> {
        let of = |document: &SecretDocument| {
            let der = PrivatePkcs8KeyDer::from(document.as_bytes());
            let signing = signing_key(algorithm, &der.into())?;
            Some(Self {
                algorithm,
                born,
                pem: document.to_pem("PRIVATE KEY", pkcs8::LineEnding::LF).ok()?,
                public: SubjectPublicKeyInfo::from_der(&signing.public_key()?).ok()?,
                signing,
            })
        };
        of(&generate(algorithm)?).ok_or(IssueError::Generate { algorithm })
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// As a certificate has it.
    pub(crate) fn public(&self) -> &SubjectPublicKeyInfo {
        &self.public
    }

    /// As TLS signs with it.
    pub(crate) fn signing(&self) -> &Arc<dyn SigningKey> {
        &self.signing
    }
}

/// One that TLS signs with. It borrows the key, so that nothing of it is left behind that is not the crypto library's own.
fn signing_key(algorithm: KeyAlgorithm, der: &PrivateKeyDer<'_>) -> Option<Arc<dyn SigningKey>> {
    match algorithm {
        KeyAlgorithm::Ed25519 => match der {
            PrivateKeyDer::Pkcs8(der) => sign::any_eddsa_type(der).ok(),
            _ => None,
        },
        KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => sign::any_ecdsa_type(der).ok(),
        _ => sign::any_supported_type(der).ok(),
    }
}

/// PKCS #8.
fn generate(algorithm: KeyAlgorithm) -> Result<SecretDocument, IssueError> {
    let failed = || IssueError::Generate { algorithm };
    let random = SystemRandom::new();
    let document = match algorithm {
        KeyAlgorithm::EcdsaP256 => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
        }
        KeyAlgorithm::EcdsaP384 => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_ASN1_SIGNING, &random)
        }
        KeyAlgorithm::Ed25519 => return ed25519(&random),
        KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => {
            return rsa(algorithm);
        }
    };
    let document = document.map_err(|_| failed())?;
    SecretDocument::try_from(document.as_ref()).map_err(|_| failed())
}

/// Of version 1: what ring makes of version 2 is nothing that OpenSSL reads.
fn ed25519(random: &SystemRandom) -> Result<SecretDocument, IssueError> {
    let failed = || IssueError::Generate {
        algorithm: KeyAlgorithm::Ed25519,
    };
    // An OCTET STRING of the seed.
    let mut seed = Zeroizing::new([0; 34]);
    seed[..2].copy_from_slice(&[0x04, 32]);
    random.fill(&mut seed[2..]).map_err(|_| failed())?;
    private_key::ed25519(&seed[..]).map_err(|_| failed())
}

#[cfg(feature = "rsa")]
fn rsa(algorithm: KeyAlgorithm) -> Result<SecretDocument, IssueError> {
    use aws_lc_rs::{
        encoding::AsDer,
        rsa::{KeyPair, KeySize},
    };
    let size = match algorithm {
        KeyAlgorithm::Rsa4096 => KeySize::Rsa4096,
        KeyAlgorithm::Rsa3072 => KeySize::Rsa3072,
        _ => KeySize::Rsa2048,
    };
    let failed = || IssueError::Generate { algorithm };
    let pair = KeyPair::generate(size).map_err(|_| failed())?;
    let der = pair.as_der().map_err(|_| failed())?;
    SecretDocument::try_from(der.as_ref()).map_err(|_| failed())
}

#[cfg(not(feature = "rsa"))]
fn rsa(algorithm: KeyAlgorithm) -> Result<SecretDocument, IssueError> {
    Err(IssueError::Unavailable { algorithm })
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientKey({})", self.algorithm)
    }
}
