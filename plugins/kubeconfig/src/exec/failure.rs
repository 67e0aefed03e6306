//! Why a program gave no credential. What it printed is in none of it: that may be a secret (rule 19 of the design).

use std::{io, sync::Arc, time::Duration};

use clustercache::AccessError;

/// Why a program that was allowed gave no credential. Nothing of its output is in it. It is run again, with backoff.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecFailure {
    /// It is not where it was looked for.
    #[error(
        "it is not there; put it into a directory of PATH, or name it by its path{}",
        hinted(hint)
    )]
    NotFound {
        /// What the document says to whoever lacks it; another party's words.
        hint: String,
    },
    /// It could not be started.
    #[error("it cannot be started ({0}); see to its permissions and its form")]
    NotStarted(io::ErrorKind),
    /// It took too long, and was killed.
    #[error("it did not end within {0:?} and was killed; run it by hand to see what it waits for")]
    TimedOut(Duration),
    /// It printed more than is read, and was killed.
    #[error(
        "it printed more than {limit} bytes and was killed; it must print an ExecCredential and no more"
    )]
    TooMuch {
        /// In bytes, of its output and of its errors each.
        limit: usize,
    },
    /// It failed.
    #[error(
        "it failed with {status}; what it printed may hold secrets and is not shown; run it by hand to see it"
    )]
    Failed {
        /// As the operating system tells it. Nothing else, which differs from one run to the next: who fails again in the same way
        /// is no news.
        status: String,
    },
    /// What it printed is no credential.
    #[error(
        "it printed {output} bytes, which are no `ExecCredential` in JSON; run it by hand to see them"
    )]
    Malformed {
        /// In bytes.
        output: usize,
    },
    /// It answered in another version than the document says.
    #[error(
        "it did not answer in {expected}, as the document says it does; mend `apiVersion`, or update the program"
    )]
    Version {
        /// What the document says.
        expected: &'static str,
    },
    /// Its answer has neither token nor client certificate.
    #[error("its answer has neither a token nor a client certificate; see whether it is logged in")]
    Nothing,
    /// Its answer has a certificate or a key, and not the other.
    #[error("its answer has only one of certificate and key; update the program")]
    Half,
    /// The end that it gave is no time.
    #[error("its answer's `expirationTimestamp` is no RFC 3339 time; update the program")]
    Time,
    /// What it gave had ended already.
    #[error(
        "its answer has a credential that has expired; see whether it is logged in, and to the clock"
    )]
    Expired,
    /// What it gave cannot be used.
    #[error("its answer cannot be used: {0}")]
    Access(#[source] Arc<AccessError>),
    /// Whoever ran it panicked.
    #[error("running it panicked")]
    Panicked,
}

fn hinted(hint: &str) -> String {
    match hint.trim() {
        "" => String::new(),
        hint => {
            let cut: String = hint.chars().take(400).collect();
            format!(" (the document says: \"{}\")", cut.escape_debug())
        }
    }
}
