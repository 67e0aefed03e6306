//! How an `init` fails.

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

/// Why an `init` made no value. Anything that is a [`std::error::Error`] becomes [`InitError::retry`] by `?`, so this is none itself.
///
/// ```
/// use clustercache::InitError;
///
/// fn parse(text: &str) -> Result<u16, InitError> {
///     Ok(text.parse::<u16>()?)
/// }
/// assert!(parse("x").is_err());
/// ```
pub struct InitError {
    pub(crate) then: Then,
    pub(crate) failure: FailureKind,
    pub(crate) text: Arc<str>,
    pub(crate) retry_after: Option<Duration>,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Retry,
    NeedsAccess,
    NotApplicable,
}

impl InitError {
    /// Try again, with backoff.
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Then::Retry, &*error.into())
    }

    /// Only new access can mend this: it is not tried before there is some (or `retry_now`).
    pub fn needs_access(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Then::NeedsAccess, &*error.into())
    }

    /// This cluster has no such thing, on positive evidence (an etcd that is external, not a Secret that is missing). Passes on
    /// to what requires it. Asked again on new access, a new connection, or `reconsider`.
    pub fn not_applicable(why: impl Into<Cow<'static, str>>) -> Self {
        Self {
            then: Then::NotApplicable,
            failure: FailureKind::Other,
            text: escaped(&why.into()),
            retry_after: None,
        }
    }

    /// Says what kind of failure it was. [`FailureKind::Unauthorized`] makes the source read its access again.
    #[must_use]
    pub fn of_kind(mut self, kind: FailureKind) -> Self {
        self.failure = kind;
        self
    }

    /// Not before this; at most the highest ceiling of the backoff counts.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    fn new(then: Then, error: &(dyn Error + 'static)) -> Self {
        Self {
            then,
            failure: FailureKind::Other,
            text: chain(error),
            retry_after: None,
        }
    }
}

/// An error with its sources on one line, control characters escaped: some of it may be a cluster's text.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> Arc<str> {
    // One that is its own source ends too.
    const MOST: usize = 32;
    let mut text = error.to_string();
    let mut next = error.source();
    for _ in 0..MOST {
        let Some(source) = next else { break };
        let more = source.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    escaped(&text)
}

/// Whether a letter could forge lines of a log, or turn text around.
pub(crate) fn is_hostile(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of somebody else's, on one line and of bounded length.
pub(crate) fn escaped(text: &str) -> Arc<str> {
    const MOST: usize = 1_024;
    let mut out = String::with_capacity(text.len().min(MOST));
    for letter in text.chars() {
        if out.len() >= MOST {
            out.push('…');
            break;
        }
        if is_hostile(letter) {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out.into()
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?}, {})", self.then, self.failure, self.text)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for InitError {
    fn from(error: E) -> Self {
        Self::new(Then::Retry, &error)
    }
}

/// What kind of failure it was, for the state and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FailureKind {
    /// A deadline passed.
    TimedOut,
    /// The connection was refused.
    Refused,
    /// The connection was reset or closed.
    Reset,
    /// The name did not resolve.
    Dns,
    /// The address policy forbids the address.
    Forbidden,
    /// TLS failed: a certificate, a name, a version.
    Tls,
    /// What came back is not what the protocol says.
    Protocol,
    /// 401.
    Unauthorized,
    /// Any other HTTP status.
    Status(u16),
    /// A permit or a stream was not to be had: says nothing of the cluster.
    Busy,
    /// A hook panicked.
    Panicked,
    /// Anything else.
    Other,
}

impl FailureKind {
    pub(crate) const LABELS: [&'static str; 15] = [
        "timed_out",
        "connection_refused",
        "connection_reset",
        "dns",
        "forbidden_address",
        "tls",
        "protocol",
        "unauthorized",
        "busy",
        "panicked",
        "other",
        "http_3xx",
        "http_4xx",
        "http_5xx",
        "http_other",
    ];

    /// All labels that there are.
    pub fn labels() -> &'static [&'static str] {
        &Self::LABELS
    }

    /// A word for it that can stand as the label of a metric. Of a status only its class shows: a cluster chooses its statuses, and must not
    /// choose how many labels there are.
    pub fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::TimedOut => 0,
            Self::Refused => 1,
            Self::Reset => 2,
            Self::Dns => 3,
            Self::Forbidden => 4,
            Self::Tls => 5,
            Self::Protocol => 6,
            Self::Unauthorized => 7,
            Self::Busy => 8,
            Self::Panicked => 9,
            Self::Other => 10,
            Self::Status(300..=399) => 11,
            Self::Status(400..=499) => 12,
            Self::Status(500..=599) => 13,
            Self::Status(_) => 14,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Circle;

    impl fmt::Display for Circle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round\nand round")
        }
    }

    impl Error for Circle {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn an_error_that_is_its_own_source_is_told_once() {
        assert_eq!(InitError::from(Circle).to_string(), "round\\nand round");
    }

    #[test]
    fn a_cluster_chooses_no_label_by_its_status() {
        let labels = (0..=u16::MAX).map(|status| FailureKind::Status(status).label());
        let labels: std::collections::BTreeSet<_> = labels.collect();
        assert_eq!(
            Vec::from_iter(labels),
            ["http_3xx", "http_4xx", "http_5xx", "http_other"]
        );
        assert_eq!(FailureKind::Other.label(), "other");
        assert_eq!(FailureKind::Forbidden.label(), "forbidden_address");
    }

    #[test]
    fn also_why_something_is_not_applicable_is_escaped_and_bounded() {
        let why = InitError::not_applicable("\u{1b}[2J".repeat(10_000)).to_string();
        assert!(why.starts_with("\\u{1b}[2J") && why.len() < 2_000, "{why}");
    }
}
