//! Which keys there are, by the names that Cluster API's `encryptionAlgorithm` gives them.

use std::{fmt, str::FromStr};

/// What kind of key a client certificate has.
///
/// ```
/// use clustercache_etcd::KeyAlgorithm;
///
/// let algorithm: KeyAlgorithm = "ECDSA-P384".parse()?; // as in a KubeadmControlPlane
/// assert_eq!(algorithm, KeyAlgorithm::EcdsaP384);
/// # Ok::<_, clustercache_etcd::UnknownAlgorithm>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeyAlgorithm {
    /// `RSA-2048`, the default of Cluster API. Made with the feature `rsa` only, as are the other two.
    Rsa2048,
    /// `RSA-3072`.
    Rsa3072,
    /// `RSA-4096`; one takes seconds of a processor.
    Rsa4096,
    /// `ECDSA-P256`, the default.
    #[default]
    EcdsaP256,
    /// `ECDSA-P384`.
    EcdsaP384,
    /// `Ed25519`, which Cluster API does not know; etcd does.
    Ed25519,
}

impl KeyAlgorithm {
    /// All that there are.
    pub const ALL: [Self; 6] = [
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::Ed25519,
    ];

    /// Its name, such as `RSA-2048`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "RSA-2048",
            Self::Rsa3072 => "RSA-3072",
            Self::Rsa4096 => "RSA-4096",
            Self::EcdsaP256 => "ECDSA-P256",
            Self::EcdsaP384 => "ECDSA-P384",
            Self::Ed25519 => "Ed25519",
        }
    }

    /// Whether making one takes long enough that nobody's key should wait for it.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096)
    }

    /// Whether this build can make such keys: those of RSA need the feature `rsa`.
    pub fn is_available(self) -> bool {
        cfg!(feature = "rsa") || !self.is_slow()
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KeyAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let all = Self::ALL.into_iter();
        let mut named = all.filter(|algorithm| algorithm.name() == name);
        named.next().ok_or(UnknownAlgorithm)
    }
}

/// A name that stands for no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no such key algorithm; give RSA-2048, RSA-3072, RSA-4096, ECDSA-P256, ECDSA-P384 or Ed25519"
)]
pub struct UnknownAlgorithm;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_is_found_by_its_name_and_nothing_else_is() {
        for algorithm in KeyAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert_eq!("rsa-2048".parse::<KeyAlgorithm>(), Err(UnknownAlgorithm));
    }
}
