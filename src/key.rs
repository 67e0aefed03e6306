//! The name of a cluster. A key is only a name: which cluster stands behind it is said by its [`Identity`](crate::Identity).

use std::{
    borrow::Borrow,
    convert::Infallible,
    fmt::{self, Write as _},
    str::FromStr,
    sync::Arc,
};

use crate::resource::is_hostile;

/// An optional namespace, and a name; cheap to clone, hash and compare.
///
/// It prints as client-go's `NamespacedName` does: `ns/name`, and `/name` without a namespace. What it prints parses back to
/// itself, also when the name has slashes in it, as the contexts that `aws eks update-kubeconfig` writes have. In a log, print it
/// [`shown`](Self::shown).
///
/// ```
/// use clustercache::ClusterKey;
///
/// let key: ClusterKey = "prod/eu-1".parse().unwrap();
/// assert_eq!((key.namespace(), key.name()), (Some("prod"), "eu-1"));
///
/// let context = ClusterKey::named("arn:aws:eks:eu-1:1:cluster/a");
/// assert_eq!((context.namespace(), context.name()), (None, "arn:aws:eks:eu-1:1:cluster/a"));
/// assert_eq!(context.to_string().parse(), Ok(context));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterKey(Arc<str>);

impl ClusterKey {
    /// A key with a namespace; an empty one is none. A namespace has no slash (a Kubernetes name cannot): one that had would end at its first.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// A key without a namespace. The name may have slashes in it.
    pub fn named(name: &str) -> Self {
        Self::new("", name)
    }

    /// The namespace, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        let (namespace, _) = self.split();
        (!namespace.is_empty()).then_some(namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.split().1
    }

    /// As it prints: `ns/name`, or `/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As errors and logs show it: a name may come from a document of somebody else's, so control characters in it, and those that turn
    /// text, are escaped. It does not parse back.
    ///
    /// ```
    /// use clustercache::ClusterKey;
    ///
    /// let key = ClusterKey::new("fleet", "a\n2026-01-01 INFO all is well");
    /// assert_eq!(key.shown().to_string(), r"fleet/a\n2026-01-01 INFO all is well");
    /// ```
    pub fn shown(&self) -> impl fmt::Display + '_ {
        Shown(&self.0)
    }

    fn split(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or(("", &self.0))
    }
}

/// A key with what could forge a line escaped.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if is_hostile(letter) {
                write!(f, "{}", letter.escape_default())?;
            } else {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

// === impl ClusterKey ===

impl FromStr for ClusterKey {
    type Err = Infallible;

    /// Splits at the first `/`; text without one is a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once('/') {
            Some((namespace, name)) => Self::new(namespace, name),
            None => Self::named(text),
        })
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Borrow<str> for ClusterKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ClusterKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_first_slash() {
        let key: ClusterKey = "a/b/c".parse().unwrap();
        assert_eq!((key.namespace(), key.name()), (Some("a"), "b/c"));
    }

    #[test]
    fn an_empty_namespace_prints_a_leading_slash() {
        assert_eq!(ClusterKey::new("", "x").to_string(), "/x");
        assert_eq!(ClusterKey::named("x"), "x".parse().unwrap());
        assert_eq!(ClusterKey::named("x"), "/x".parse().unwrap());
        assert_eq!(ClusterKey::named("x").namespace(), None);
    }

    #[test]
    fn in_errors_and_logs_a_name_forges_no_line() {
        let key = ClusterKey::new("ns", "a\n\u{1b}[31m\u{202e}é");
        assert_eq!(key.shown().to_string(), r"ns/a\n\u{1b}[31m\u{202e}é");
        let error = crate::GetError::Unknown { key: key.clone() };
        assert!(error.to_string().contains(r"a\n"), "{error}");
        assert!(!format!("{key:?}").contains('\n'));
        assert_eq!(key.to_string().parse(), Ok(key));
    }

    proptest::proptest! {
        #[test]
        fn what_it_prints_parses_back(namespace in "[^/]*", name in ".*") {
            let key = ClusterKey::new(&namespace, &name);
            proptest::prop_assert_eq!(key.name(), &name);
            proptest::prop_assert_eq!(key.namespace().unwrap_or_default(), &namespace);
            proptest::prop_assert_eq!(key.to_string().parse::<ClusterKey>().unwrap(), key);
        }
    }
}
