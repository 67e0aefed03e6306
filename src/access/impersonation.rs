//! As whom we act, where our own user may act as others: `as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig.

use std::collections::BTreeMap;

use http::HeaderValue;

use super::AccessError;

/// As whom requests are made: the API server takes it from the headers `Impersonate-*`, if our own user may
/// (<https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>).
///
/// ```
/// use clustercache::{ClusterAccess, Impersonation};
///
/// let mut reader = Impersonation::user("reader");
/// reader.groups.push("viewers".into());
/// let access = ClusterAccess::builder("https://10.0.0.1").token("s3cret").impersonate(reader).build()?;
/// assert_eq!(access.credential().impersonation().unwrap().user, "reader");
/// # Ok::<(), clustercache::AccessError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Impersonation {
    /// The user's name.
    pub user: String,
    /// Its UID.
    pub uid: Option<String>,
    /// Its groups.
    pub groups: Vec<String>,
    /// What else authorizers look at, by name.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    /// The user `name`, without a UID, groups or extras.
    pub fn user(name: impl Into<String>) -> Self {
        Self {
            user: name.into(),
            uid: None,
            groups: Vec::new(),
            extra: BTreeMap::new(),
        }
    }

    /// Each part, for a fingerprint.
    pub(super) fn parts(&self) -> Vec<Vec<u8>> {
        let extra = self.extra.iter().flat_map(|(name, values)| {
            let count = values.len().to_string();
            [name.clone(), count]
                .into_iter()
                .chain(values.iter().cloned())
        });
        let first = [
            self.user.clone(),
            self.uid
                .clone()
                .map_or_else(String::new, |uid| format!("uid {uid}")),
            self.groups.len().to_string(),
        ];
        first
            .into_iter()
            .chain(self.groups.iter().cloned())
            .chain(extra)
            .map(String::into_bytes)
            .collect()
    }

    pub(super) fn checked(self) -> Result<Self, AccessError> {
        let stands = |text: &str| HeaderValue::from_bytes(text.as_bytes()).is_ok();
        let wrong = |field| Err(AccessError::Impersonation { field });
        if self.user.is_empty() || !stands(&self.user) {
            return wrong("user");
        }
        if !self.uid.as_deref().is_none_or(stands) {
            return wrong("uid");
        }
        if !self.groups.iter().all(|group| stands(group)) {
            return wrong("groups");
        }
        // A name is part of a header's name; it is encoded there.
        let extras = self.extra.iter();
        if !extras
            .into_iter()
            .all(|(name, values)| !name.is_empty() && values.iter().all(|value| stands(value)))
        {
            return wrong("extra");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_stand_in_a_header_is_named() {
        let mut who = Impersonation::user("a");
        assert!(who.clone().checked().is_ok());
        who.groups.push("b\r\nAuthorization: x".into());
        assert_eq!(
            who.checked(),
            Err(AccessError::Impersonation { field: "groups" })
        );
        assert_eq!(
            Impersonation::user("").checked(),
            Err(AccessError::Impersonation { field: "user" })
        );
    }

    #[test]
    fn no_two_read_the_same() {
        let (mut a, mut b) = (Impersonation::user("u"), Impersonation::user("u"));
        a.groups = vec!["x".into()];
        b.extra.insert("x".into(), Vec::new());
        assert_ne!(a.parts(), b.parts());
    }
}
