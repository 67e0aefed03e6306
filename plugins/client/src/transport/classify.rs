//! Telling what kind of failure an error of tokio-rustls, hyper or h2 is: what each wraps differs, and what is said to a person does not.

use std::{error::Error, io, sync::Arc};

use super::{
    error::{TlsReason, TransportError},
    verify::SelfSigned,
    wire::Record,
};

impl TransportError {
    pub(crate) fn from_tls(error: io::Error) -> Self {
        tls_inside(&error).unwrap_or_else(|| Self::from_io(error))
    }

    /// An error of a connection that was up, or of a body on it.
    pub(crate) fn from_hyper(error: hyper::Error) -> Self {
        let is_reset = match found(&error) {
            Found::Tls(tls) => return tls,
            Found::Io(kind) => is_reset(kind),
            Found::Nothing => {
                error.is_incomplete_message() || error.is_closed() || error.is_canceled()
            }
        };
        let source = Arc::new(error);
        if is_reset {
            Self::Reset { source }
        } else {
            Self::Protocol { source }
        }
    }

    /// An error of a stream, on a connection of which that was seen.
    pub(crate) fn from_h2(error: h2::Error, seen: &Record) -> Self {
        if let Some(tls) = seen.broke().filter(|_| error.is_io()) {
            return Self::Tls {
                reason: TlsReason::of(tls),
                source: Arc::new(tls.clone()),
            };
        }
        let is_reset = match error.get_io() {
            Some(io) => is_reset(io.kind()),
            None => error.is_remote(),
        };
        let source = brief(error);
        if is_reset {
            Self::Reset { source }
        } else {
            Self::Protocol { source }
        }
    }

    fn from_io(error: io::Error) -> Self {
        Self::Reset {
            source: Arc::new(error),
        }
    }
}

fn is_reset(kind: io::ErrorKind) -> bool {
    !matches!(
        kind,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
    )
}

/// Without what a server says when it goes away: it is another party's text, and may repeat our token.
fn brief(error: h2::Error) -> Arc<dyn Error + Send + Sync> {
    match error.reason() {
        Some(reason) if error.is_go_away() => {
            Arc::from(Box::from(format!("the connection ends: {reason}")))
        }
        _ => Arc::new(error),
    }
}

/// What is at the bottom of an error of hyper.
enum Found {
    Tls(TransportError),
    Io(io::ErrorKind),
    Nothing,
}

fn found(error: &hyper::Error) -> Found {
    let mut next = Some(error as &(dyn Error + 'static));
    while let Some(inner) = next {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return tls_inside(io).map_or(Found::Io(io.kind()), Found::Tls);
        }
        next = inner.source();
    }
    Found::Nothing
}

/// The rustls error that `error` carries. `source()` of an `io::Error` is its content's source, not its content.
fn tls_inside(error: &io::Error) -> Option<TransportError> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(TransportError::Tls {
        reason: TlsReason::of(tls),
        source: Arc::new(tls.clone()),
    })
}

impl TlsReason {
    fn of(error: &rustls::Error) -> Self {
        use rustls::{AlertDescription as Alert, Error, InvalidMessage, PeerIncompatible};
        match error {
            Error::InvalidCertificate(bad) => Self::of_certificate(bad),
            Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::CertificateRequired,
            ) => Self::ClientCertificateRefused,
            Error::AlertReceived(Alert::ProtocolVersion)
            | Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => Self::Version,
            Error::PeerIncompatible(_) | Error::AlertReceived(Alert::HandshakeFailure) => {
                Self::Incompatible
            }
            Error::InvalidMessage(
                InvalidMessage::HandshakePayloadTooLarge
                | InvalidMessage::CertificatePayloadTooLarge,
            ) => Self::TooLong,
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            _ => Self::Other,
        }
    }

    fn of_certificate(bad: &rustls::CertificateError) -> Self {
        use rustls::CertificateError as Bad;
        match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => Self::Expired,
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => Self::NotYetValid,
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Self::WrongName,
            Bad::UnknownIssuer => Self::UnknownIssuer,
            Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => Self::NotForServers,
            Bad::Other(other) if other.0.is::<SelfSigned>() => Self::SelfSigned,
            _ => Self::Certificate,
        }
    }
}
