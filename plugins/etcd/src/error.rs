//! What can be wrong with an issuer, a certificate, and the ways to both. Nothing of a Secret's contents is in any of these.

use std::time::{Duration, SystemTime};

use clustercache::FailureKind;

use crate::KeyAlgorithm;

/// What is wrong with a CA's certificates or its key, as a Secret has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// There is no certificate.
    #[error("tls.crt has no certificate; give the etcd CA's as PEM")]
    NoCertificate,
    /// It is not PEM.
    #[error(
        "tls.crt is not PEM throughout; give the etcd CA's certificates as PEM, and nothing else"
    )]
    NotPem,
    /// One certificate is not X.509.
    #[error("certificate {nth} of tls.crt is not X.509")]
    NotACertificate {
        /// Which of them, from 1.
        nth: usize,
    },
    /// There are more certificates than any rotation needs.
    #[error("tls.crt has more than 64 certificates; leave those that no member of etcd uses away")]
    TooMany,
    /// It is larger than any such thing is.
    #[error("it has {bytes} bytes, which no bundle of CAs and no key has")]
    TooLarge {
        /// How large.
        bytes: usize,
    },
    /// There is no private key.
    #[error("tls.key has no private key; give one as PEM: PKCS #8, PKCS #1 or SEC1")]
    NoKey,
    /// It is no private key.
    #[error(
        "tls.key is no private key that can be read: PKCS #8, PKCS #1 or SEC1 in PEM is wanted"
    )]
    NotAKey,
    /// The private key is encrypted.
    #[error("tls.key is encrypted; give it as plain PEM")]
    EncryptedKey,
    /// The private key is of another kind.
    #[error(
        "tls.key is of a kind that cannot sign here; RSA of 2048 to 4096 bits, ECDSA P-256 and P-384, and Ed25519 can"
    )]
    UnsupportedKey,
    /// The key belongs to none of the certificates.
    #[error(
        "tls.key belongs to none of the {certificates} certificate(s) of tls.crt; give the CA certificate that was made with it"
    )]
    NoMatch {
        /// How many there are.
        certificates: usize,
    },
    /// The key's certificate may not sign others.
    #[error(
        "the certificate that tls.key belongs to is no CA, or one that may not sign certificates"
    )]
    NotACa,
    /// The CA has ended.
    #[error("the CA that tls.key belongs to has expired at {}", shown(*.at))]
    Expired {
        /// When.
        at: SystemTime,
    },
    /// The CA has not begun.
    #[error("the CA that tls.key belongs to is not valid before {}", shown(*.from))]
    NotYetValid {
        /// When it will be.
        from: SystemTime,
    },
    /// A client certificate that was given as it is has ended.
    #[error("the client certificate of tls.crt has expired at {}; give another one", shown(*.at))]
    Ended {
        /// When.
        at: SystemTime,
    },
    /// A client certificate that was given as it is belongs to another key.
    #[error("tls.key does not belong to the certificate of tls.crt")]
    Mismatch,
    /// A name that cannot be written as the CA writes it.
    #[error(
        "the CA's name cannot be written as the CA has it, so that nobody would take what it signs; make the CA with a plain name"
    )]
    Name,
    /// No certificate of the bundle can be a root.
    #[error("no certificate of tls.crt can be used as a root by TLS")]
    Tls,
    /// The crypto library refuses to sign.
    #[error("the CA cannot sign")]
    Sign,
}

/// Why an issuer cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssuerError {
    /// There is none yet, or none any more.
    #[error("{what} does not exist (yet)")]
    Missing {
        /// Of what.
        what: String,
    },
    /// It is on its way out.
    #[error("{what} is being deleted")]
    BeingDeleted {
        /// Of what.
        what: String,
    },
    /// It belongs to another cluster of the same name.
    #[error("{what} is owned by another Cluster of that name (UID {}), and is not used", .owner.escape_debug())]
    Foreign {
        /// Of what.
        what: String,
        /// That cluster's UID.
        owner: String,
    },
    /// It has no `tls.crt`.
    #[error("{what} has no {entry}")]
    Incomplete {
        /// Of what.
        what: String,
        /// What is not in it.
        entry: &'static str,
    },
    /// It is not what it should be.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// Of what.
        what: String,
        /// Why; nothing that it says itself.
        why: &'static str,
    },
    /// No such thing can be asked for.
    #[error("{} cannot be the name of a cluster's Secret", .name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
    /// The deadline passed.
    #[error("{what} was not read within {after:?}")]
    TimedOut {
        /// Of what.
        what: String,
        /// What it was given.
        after: Duration,
    },
    /// The management cluster answered with something else.
    #[error("reading {what} was answered {status}: {message}")]
    Status {
        /// Of what.
        what: String,
        /// The HTTP status.
        status: u16,
        /// What it said, escaped and cut.
        message: String,
    },
    /// The management cluster did not answer.
    #[error("reading {what} failed: {why}")]
    Unreachable {
        /// Of what.
        what: String,
        /// Why, escaped and cut.
        why: String,
    },
    /// Any other source's own reason.
    #[error("{0}")]
    Other(String),
}

impl IssuerError {
    /// As the state and the metrics call it.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::TimedOut { .. } => FailureKind::TimedOut,
            Self::Status { status, .. } => FailureKind::Status(*status),
            _ => FailureKind::Other,
        }
    }
}

/// Why there is no certificate, or no new one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// Its issuer cannot be had.
    #[error("no etcd client certificate: {0}")]
    Issuer(#[from] IssuerError),
    /// Its issuer cannot sign, or is not to be trusted.
    #[error("no etcd client certificate from {what}: {why}")]
    Authority {
        /// Where the issuer comes from.
        what: String,
        /// What is wrong with it.
        why: AuthorityError,
    },
    /// This build makes no such keys.
    #[error(
        "keys of {algorithm} cannot be made: build clustercache-etcd with its feature `rsa`, or choose ECDSA-P256"
    )]
    Unavailable {
        /// Of this kind.
        algorithm: KeyAlgorithm,
    },
    /// The crypto library made no key.
    #[error("no key of {algorithm} could be made")]
    Generate {
        /// Of this kind.
        algorithm: KeyAlgorithm,
    },
    /// The certificate has ended, and there is no other.
    #[error("the etcd client certificate ended at {}, and could not be renewed", shown(*.at))]
    Expired {
        /// When.
        at: SystemTime,
    },
    /// Somebody else's code panicked: an issuer source, or a function that chooses.
    #[error("the issuer source, or a function that was given to EtcdClientKey, panicked")]
    Panicked,
    /// The cluster is no more, or is another one now.
    #[error("the cluster is no more, or another one has its name")]
    Retired,
}

impl IssueError {
    /// As the state and the metrics call it.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Issuer(error) => error.kind(),
            Self::Panicked => FailureKind::Panicked,
            _ => FailureKind::Other,
        }
    }
}

/// Why a handle has no certificate just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CurrentError {
    /// The cluster is no more, or another one has its name. Get the resource anew.
    #[error("the cluster is no more, or another one has its name; get the resource anew")]
    Retired,
    /// It has ended, and could not be renewed. The cluster's state says why.
    #[error(
        "the etcd client certificate has expired and could not be renewed; the cluster's state says why"
    )]
    Expired,
}

/// Seconds since the epoch, which is what a certificate has.
pub(crate) fn shown(at: SystemTime) -> String {
    match jiff::Timestamp::try_from(at) {
        Ok(at) => at.to_string(),
        Err(_) => "a time beyond all calendars".to_owned(),
    }
}
