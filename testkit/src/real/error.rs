//! What can go wrong with real API servers, said so that a person can act on it.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a real API server could not be started, asked or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RealError {
    /// There are no binaries to start.
    #[error(
        "no kube-apiserver and etcd: {why}; `cargo xtask api-server` builds them, or set KUBEBUILDER_ASSETS"
    )]
    Unavailable {
        /// Where they were looked for.
        why: String,
    },
    /// A file, a port or a process could not be had.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate for {subject}")]
    Certificate {
        /// Whose.
        subject: String,
        /// What was wrong.
        #[source]
        source: rcgen::Error,
    },
    /// A TLS configuration was refused.
    #[error("cannot use the certificates of {name}")]
    Tls {
        /// Whose.
        name: String,
        /// What was wrong.
        #[source]
        source: rustls::Error,
    },
    /// A process ended before it was ready.
    #[error("{name} ended before it was ready ({status}); the end of its log:\n{log}")]
    DiedEarly {
        /// Which process.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it wrote.
        log: String,
    },
    /// A process was not ready in time.
    #[error(
        "{name} was not ready after {limit:?} (last answer: {last}); the end of its log:\n{log}"
    )]
    NotReady {
        /// Which process.
        name: String,
        /// How long it was given.
        limit: Duration,
        /// What it said last.
        last: String,
        /// The end of what it wrote.
        log: String,
    },
    /// A request got no answer.
    #[error("{request} got no answer: {why}")]
    NoAnswer {
        /// Method, address and path.
        request: String,
        /// At which step, and why.
        why: String,
    },
    /// A request of the harness itself was answered with something else than success.
    #[error("{request} was answered {status}: {body}")]
    Refused {
        /// Method and path.
        request: String,
        /// The status.
        status: ::http::StatusCode,
        /// The beginning of the body.
        body: String,
    },
    /// An answer was not what the API says.
    #[error("{request} was answered with JSON of another shape")]
    Json {
        /// Method and path.
        request: String,
        /// What was wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A handle was asked for something that a process which does not run cannot do.
    #[error("{name} does not run")]
    NotRunning {
        /// Which process.
        name: String,
    },
}

impl RealError {
    /// Whether the only reason is that there are no binaries.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether somebody else took the port first, so that other ports may do.
    pub(super) fn is_port_taken(&self) -> bool {
        matches!(self, Self::DiedEarly { log, .. } if log.contains("address already in use"))
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
