//! What is wrong with a file: visible for as long as it is.

use std::{fmt, io, path::PathBuf, time::Duration};

use crate::Refusal;

/// A file that could not be taken as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    pub(crate) file: PathBuf,
    pub(crate) reason: FileProblemReason,
    pub(crate) kept: bool,
}

impl FileProblem {
    /// Which file.
    pub fn file(&self) -> &std::path::Path {
        &self.file
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &FileProblemReason {
        &self.reason
    }

    /// Whether what the file said when it was last sound still holds. If not, it was never sound.
    pub fn last_good_kept(&self) -> bool {
        self.kept
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.to_string_lossy();
        write!(f, "{} {}", file.escape_debug(), self.reason)?;
        if self.kept {
            f.write_str(" (what it said before still holds)")?;
        }
        Ok(())
    }
}

impl std::error::Error for FileProblem {}

/// What is wrong with a file, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblemReason {
    /// It is not there.
    #[error("is not there; put it there, or name another")]
    Missing,
    /// It is a directory, a pipe or a device.
    #[error("is no regular file; name one that is")]
    NotAFile,
    /// It is larger than its policy reads.
    #[error("is larger than {limit} bytes; leave out the contexts that are not needed")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// There is nothing in it.
    #[error("is empty; write what belongs there, or name another")]
    Empty,
    /// It cannot be read.
    #[error("cannot be read ({0}); see to its permissions and its file system")]
    Unreadable(io::ErrorKind),
    /// Whoever asked for it, or for what it is reached by, has had no answer for so long.
    #[error("was not read within {0:?}; see to its file system")]
    NoAnswer(Duration),
    /// A list that it had is gone, so it is taken for cut off. Tools write an empty list where nothing is left.
    #[error("has lost its `{list}`, as if cut off; write `{list}: []` if there are none")]
    CutOff {
        /// `clusters`, `users` or `contexts`.
        list: &'static str,
    },
    /// It is not a sound kubeconfig.
    #[error("is refused: {0}")]
    Refused(#[source] Refusal),
}

impl FileProblemReason {
    /// One word, for metrics: `missing`, `not_a_file`, `too_large`, `empty`, `unreadable`, `no_answer`, `cut_off` or `refused`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotAFile => "not_a_file",
            Self::TooLarge { .. } => "too_large",
            Self::Empty => "empty",
            Self::Unreadable(_) => "unreadable",
            Self::NoAnswer(_) => "no_answer",
            Self::CutOff { .. } => "cut_off",
            Self::Refused(_) => "refused",
        }
    }

    /// All that [`label`](Self::label) can be.
    pub const fn labels() -> &'static [&'static str] {
        &[
            "missing",
            "not_a_file",
            "too_large",
            "empty",
            "unreadable",
            "no_answer",
            "cut_off",
            "refused",
        ]
    }
}

/// Why a stream of the source ends. It is asked for again, with backoff.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("no kubeconfig is named; set $KUBECONFIG or $HOME, or name a file")]
    NoFile,
    #[error("no kubeconfig can be read yet: {0}")]
    Nothing(Box<FileProblem>),
    #[error("reading the kubeconfig panicked")]
    Panicked,
}
