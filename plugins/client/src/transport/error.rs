//! How a request, or the way to the server, fails: which stage it was, and what kind of failure that is to the health check
//! (each kind told apart). No error holds a header, a body or a secret.

use std::{error::Error, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use clustercache::{FailureKind, ForbiddenAddress};
use http::StatusCode;

/// Why a request to a cluster failed below HTTP, or before it was sent. A `kube::Error::Service` of our client holds one.
///
/// ```
/// use clustercache_client::TransportError;
///
/// fn is_over(error: &kube::Error) -> bool {
///     let kube::Error::Service(error) = error else { return false };
///     matches!(error.downcast_ref(), Some(TransportError::Retired))
/// }
/// # let _ = is_over;
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The endpoint's name did not resolve.
    #[error("the name {host} did not resolve")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver said.
        #[source]
        source: Arc<io::Error>,
    },
    /// No TCP connection came about: refused, unreachable, reset.
    #[error("connecting to {address} failed")]
    Connect {
        /// The last address that was tried.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The address policy forbids what the endpoint or its proxy is, or resolves to.
    #[error("{host} is not dialled")]
    Forbidden {
        /// The host.
        host: String,
        /// Which address, and why; of several, the last.
        #[source]
        source: ForbiddenAddress,
    },
    /// The proxy did not let us through.
    #[error("the way through the proxy {proxy} failed")]
    Proxy {
        /// Its host and port.
        proxy: String,
        /// What it said, or what became of its connection.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The [`Dialer`](crate::Dialer) that was given to [`KubeClient::dialer`](crate::KubeClient::dialer) failed.
    #[error("the dialer failed")]
    Dialer {
        /// What it said.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// TLS failed.
    #[error("TLS failed: {reason}")]
    Tls {
        /// Why.
        reason: TlsReason,
        /// What rustls said.
        #[source]
        source: Arc<rustls::Error>,
    },
    /// The server did not take up HTTP on a new connection.
    #[error("HTTP did not begin on a new connection")]
    Handshake {
        /// What was seen.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A deadline passed.
    #[error("{stage} took longer than {after:?}")]
    Deadline {
        /// What was waited for.
        stage: Wait,
        /// The whole deadline.
        after: Duration,
    },
    /// A permit to dial, or one of the limited connections, was not to be had in time: says nothing of the cluster.
    #[error("{what} was not to be had within {after:?}")]
    Busy {
        /// What was not to be had.
        what: &'static str,
        /// The whole deadline.
        after: Duration,
    },
    /// The dial was silent for long, and given up for a newer cluster's.
    #[error("the dial was silent, and was given up so that another cluster could be dialled")]
    Evicted,
    /// The connection that this client belongs to is over: get the client from the cache again.
    #[error("the connection of this client is over; get the client from the cache again")]
    Retired,
    /// The server wanted to send us elsewhere.
    #[error("the server redirects ({status}), which is not followed; give the final address")]
    Redirect {
        /// The status.
        status: StatusCode,
    },
    /// The connection, or the request's stream on it, was reset or closed.
    #[error("the connection was reset or closed")]
    Reset {
        /// What was seen.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// An answer is larger than its limit.
    #[error("{what} is larger than {limit} bytes{}", what.remedy())]
    TooLarge {
        /// What of it.
        what: Part,
        /// The limit, in bytes.
        limit: u64,
    },
    /// An answer is compressed, or otherwise encoded, though its request did not ask for that.
    #[error("the answer has a Content-Encoding that was not asked for, and is not decoded")]
    Encoded,
    /// What came back is not what the protocol says.
    #[error("what came back is not proper HTTP")]
    Protocol {
        /// What was seen.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
}

/// What is short where a question was let out late.
const LATE: &str = "an answer, after waiting for a permit to dial or a stream,";

/// What of an answer was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The answer to a call, or any refusal: [`Limits::call`](crate::Limits::call).
    Call,
    /// The answer to a list: [`Limits::list`](crate::Limits::list).
    List,
    /// One line of a watch: [`Limits::line`](crate::Limits::line).
    Line,
}

impl Part {
    fn remedy(self) -> &'static str {
        match self {
            Self::Call => "; raise Limits::call if it is not a mistake",
            Self::List => "; list in pages, or raise Limits::list",
            Self::Line => "; raise Limits::line if it is not a mistake",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "the answer",
            Self::List => "the answer to a list",
            Self::Line => "a line of the answer to a watch",
        })
    }
}

/// What a passed deadline was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wait {
    /// The endpoint's name to resolve.
    Resolve,
    /// A TCP connection.
    Connect,
    /// The proxy.
    Proxy,
    /// TLS.
    Tls,
    /// HTTP to begin.
    Handshake,
    /// A connection to send the request on.
    Connection,
    /// The head of the answer.
    Head,
    /// The body of the answer.
    Body,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Proxy => "the way through the proxy",
            Self::Tls => "the TLS handshake",
            Self::Handshake => "the HTTP handshake",
            Self::Connection => "waiting for a connection",
            Self::Head => "the head of the answer",
            Self::Body => "the body of the answer",
        })
    }
}

/// Why TLS failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsReason {
    /// The server's certificate is over.
    Expired,
    /// The server's certificate is not valid yet.
    NotYetValid,
    /// The server's certificate is for another name.
    WrongName,
    /// The server's certificate is by another CA than the cluster's.
    UnknownIssuer,
    /// The server's certificate is by no CA: it signs itself.
    SelfSigned,
    /// The server's certificate may not be used by servers.
    NotForServers,
    /// The server's chain of certificates, or another message of its handshake, is longer than 64 KiB.
    TooLong,
    /// Anything else about the server's certificate.
    Certificate,
    /// The server refused our client certificate, or wants one.
    ClientCertificateRefused,
    /// The server speaks no TLS that is new enough: TLS 1.2 is the oldest that is spoken.
    Version,
    /// No cipher, or whatever else is negotiated, in common.
    Incompatible,
    /// What answered does not speak TLS: it may be plain http, or another service.
    NotTls,
    /// Anything else.
    Other,
}

impl fmt::Display for TlsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the server's certificate has expired",
            Self::NotYetValid => "the server's certificate is not valid yet",
            Self::WrongName => "the server's certificate is for another name",
            Self::UnknownIssuer => "the server's certificate is not signed by the cluster's CA",
            Self::SelfSigned => {
                "the server's certificate signs itself, and is not in the CA bundle"
            }
            Self::NotForServers => "the server's certificate is not for servers",
            Self::TooLong => "the server's certificates are longer than 64 KiB",
            Self::Certificate => "the server's certificate is bad",
            Self::ClientCertificateRefused => {
                "the server refuses our client certificate, or wants one"
            }
            Self::Version => "the server speaks no TLS of version 1.2 or newer",
            Self::Incompatible => "no cipher in common",
            Self::NotTls => "what answered does not speak TLS",
            Self::Other => "the handshake or a record is not as it should be",
        })
    }
}

impl TransportError {
    /// What a [`Dialer`](crate::Dialer) says if its own way fails. The kind of an `io::Error` is told from it.
    pub fn dialer(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Dialer {
            source: error.into().into(),
        }
    }

    /// What kind of failure it is to the health check.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Dns { .. } => FailureKind::Dns,
            Self::Connect { source, .. } => of_io(source.kind()),
            Self::Forbidden { .. } => FailureKind::Forbidden,
            Self::Dialer { source } | Self::Proxy { source, .. } => {
                match source.downcast_ref::<io::Error>() {
                    Some(error) => of_io(error.kind()),
                    None => FailureKind::Other,
                }
            }
            Self::Tls { .. } => FailureKind::Tls,
            Self::Handshake { .. }
            | Self::Protocol { .. }
            | Self::TooLarge { .. }
            | Self::Encoded => FailureKind::Protocol,
            Self::Deadline { .. } => FailureKind::TimedOut,
            Self::Busy { .. } | Self::Evicted | Self::Retired => FailureKind::Busy,
            Self::Redirect { status } => FailureKind::Status(status.as_u16()),
            Self::Reset { .. } => FailureKind::Reset,
        }
    }

    /// The same of a question to which the server had less than its time, because `withheld` of that went by before it was let out: if it
    /// found no answer until its end, that is not the server's fault. (There is always a moment that does.)
    pub(crate) fn after_waiting(self, withheld: Duration) -> Self {
        /// This part of a deadline makes no difference to a server that lives.
        const MOMENT: u32 = 4;
        match self {
            Self::Deadline {
                stage: Wait::Connection | Wait::Head | Wait::Body,
                after,
            } if withheld > after / MOMENT => Self::Busy { what: LATE, after },
            error => error,
        }
    }

    pub(crate) fn informational() -> Self {
        Self::Protocol {
            source: Arc::new(io::Error::other("informational answers come and no other")),
        }
    }

    /// The error and its sources on one line.
    pub(crate) fn text(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        text
    }
}

fn of_io(kind: io::ErrorKind) -> FailureKind {
    match kind {
        io::ErrorKind::ConnectionRefused => FailureKind::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => FailureKind::Reset,
        io::ErrorKind::TimedOut => FailureKind::TimedOut,
        _ => FailureKind::Other,
    }
}
