//! How reading fails. Each way in which objects can be out of sight has its own name, so that "cannot say" is never "none" (rule 4).

use std::{fmt, sync::Arc, time::Duration};

use serde_json::error::Category;

/// Why there is no store to read. None of these is worth a retry with backoff: return without a timer, and let the cache wake you.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The kind was never declared: nothing is informed by accident.
    #[error("{what} is not cached; declare it by Informers::kind")]
    NotCached {
        /// What was asked for.
        what: String,
    },
    /// Several kinds were declared that are read as this type.
    #[error("{what} stands for several kinds; name one by ClusterInformers::store_of")]
    Ambiguous {
        /// The type.
        what: &'static str,
    },
    /// What there is has not been listed yet.
    #[error("{resource} are not synced yet{}", Because(.trouble))]
    NotSynced {
        /// The kind, as in `deployments.apps`.
        resource: Arc<str>,
        /// What went wrong so far.
        trouble: Option<Trouble>,
    },
    /// The server refuses the kind to us, or does not serve it.
    #[error("{resource} cannot be read: {trouble}")]
    Refused {
        /// The kind, as in `deployments.apps`.
        resource: Arc<str>,
        /// How.
        trouble: Trouble,
    },
    /// The kind takes more room than there is: nothing of it is kept, and it is tried again later.
    #[error(
        "{resource} are over the budget of cached bytes; raise it, select fewer, or keep less of each"
    )]
    OverBudget {
        /// The kind, as in `deployments.apps`.
        resource: Arc<str>,
    },
}

/// What last went wrong in listing or watching a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub(crate) verb: &'static str,
    pub(crate) resource: Arc<str>,
    pub(crate) status: Option<u16>,
    pub(crate) message: Arc<str>,
    pub(crate) failures: u32,
}

impl Trouble {
    /// `list` or `watch`.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// The kind, as in `deployments.apps`.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The status that the server answered, if it answered.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// What was wrong, on one line and cut: some of it is the server's text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How often in a row it went wrong.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            resource,
            status,
            message,
            ..
        } = self;
        write!(f, "{verb} {resource} failed")?;
        if let Some(status) = status {
            write!(f, " with {status}")?;
        }
        write!(f, ": {message}")
    }
}

impl std::error::Error for Trouble {}

struct Because<'a>(&'a Option<Trouble>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(trouble) => write!(f, ": {trouble}"),
            None => Ok(()),
        }
    }
}

/// Why an object that is there cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It does not fit the type that it is read as.
    #[error("{resource} {} does not fit its type: {why}", Named(.namespace, .name))]
    Undecodable {
        /// The kind, as in `deployments.apps`.
        resource: Arc<str>,
        /// Its namespace; empty if it is in none.
        namespace: Arc<str>,
        /// Its name.
        name: Box<str>,
        /// What is wrong with it.
        why: Arc<str>,
    },
    /// The kind has no such index.
    #[error("{resource} have no index {index:?}; declare it by Kind::index or Kind::index_field")]
    NoIndex {
        /// The kind, as in `deployments.apps`.
        resource: Arc<str>,
        /// What was asked for.
        index: String,
    },
}

struct Named<'a>(&'a str, &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => write!(f, "{}", self.1.escape_debug()),
            namespace => write!(f, "{}/{}", namespace.escape_debug(), self.1.escape_debug()),
        }
    }
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreWaitError {
    /// The deadline passed; this is why there was no store then.
    #[error("not there within {after:?}")]
    NotReadable {
        /// The whole deadline.
        after: Duration,
        /// Why.
        #[source]
        why: StoreError,
    },
    /// The deadline passed, and the store was never as it was waited for.
    #[error("{resource} were not as waited for within {after:?}")]
    Deadline {
        /// The kind, as in `deployments.apps`.
        resource: Arc<str>,
        /// The whole deadline.
        after: Duration,
    },
    /// The connection that the store belongs to is over.
    #[error("the connection is over; get the informers from the cache again")]
    Retired,
    /// There is nothing to wait for.
    #[error(transparent)]
    Store(StoreError),
}

/// Text of somebody else's, on one line and cut.
pub(crate) fn shortened(text: &str) -> String {
    const MOST: usize = 300;
    let mut out: String = text.escape_debug().take(MOST).collect();
    if text.len() > MOST {
        out.push('…');
    }
    out
}

/// Where JSON is not as it should be, and nothing of what stands there: serde's own words quote it, and it may be a secret (rule 19).
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{what}, at line {line}, column {column}")]
pub(crate) struct Misplaced {
    what: &'static str,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for Misplaced {
    fn from(error: serde_json::Error) -> Self {
        let what = match error.classify() {
            Category::Data => "a value is missing, or not of the type that is expected",
            Category::Syntax => "it is no JSON",
            Category::Eof => "it ends too soon",
            Category::Io => "it cannot be read",
        };
        Self {
            what,
            line: error.line(),
            column: error.column(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misplaced_is_not_quoted() {
        let error = serde_json::from_str::<u8>("\"hunter2\"").unwrap_err();
        assert!(error.to_string().contains("hunter2"), "as serde has it");
        let ours = Misplaced::from(error).to_string();
        assert_eq!(
            ours,
            "a value is missing, or not of the type that is expected, at line 1, column 9"
        );
    }
}
