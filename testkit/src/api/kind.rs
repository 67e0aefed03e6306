//! What a kind is: its names, its scope, and the rules by which the real server's registry treats it.

use std::{borrow::Cow, cmp::Ordering};

type Text = Cow<'static, str>;

/// A kind that a server serves, in the one version in which it serves it.
///
/// Built-in kinds are there from the start; others are added and removed at run time: [`FakeApi::add_kind`].
///
/// ```
/// use clustercache_testkit::api::Kind;
///
/// let widgets = Kind::custom("example.com", "v1", "Widget").short_name("wd").without_status();
/// assert_eq!(widgets.plural(), "widgets");
/// ```
///
/// [`FakeApi::add_kind`]: super::FakeApi::add_kind
#[derive(Clone, Debug)]
pub struct Kind {
    pub(super) group: Text,
    pub(super) version: Text,
    pub(super) name: Text,
    pub(super) plural: Text,
    pub(super) singular: Text,
    pub(super) short_names: Cow<'static, [&'static str]>,
    pub(super) namespaced: bool,
    pub(super) status: bool,
    pub(super) custom: bool,
    pub(super) rules: Rules,
}

/// What the real server's registry does with objects of a kind, where kinds differ.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the real registry, under its name there"
)]
pub(super) struct Rules {
    /// `metadata.generation` counts the changes of what is neither metadata nor status.
    pub(super) generation: bool,
    /// An update need not say which version it is based on.
    pub(super) unconditional_update: bool,
    /// An update of what is not there creates it.
    pub(super) create_on_update: bool,
    /// A deletion is answered with what was deleted, not with a `Status`.
    pub(super) returns_deleted: bool,
    /// What a field selector may name, beside `metadata.name` and, of namespaced kinds, `metadata.namespace`.
    pub(super) fields: &'static [&'static str],
}

impl Rules {
    pub(super) const COMMON: Self = Self {
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        fields: &[],
    };

    const CUSTOM: Self = Self {
        generation: true,
        unconditional_update: false,
        ..Self::COMMON
    };
}

impl Kind {
    /// A namespaced custom resource with a status subresource. Its plural is the kind in lower case with an `s`.
    pub fn custom(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        let kind = kind.into();
        let singular = kind.to_lowercase();
        Self {
            group: Cow::Owned(group.into()),
            version: Cow::Owned(version.into()),
            plural: Cow::Owned(format!("{singular}s")),
            singular: Cow::Owned(singular),
            name: Cow::Owned(kind),
            short_names: Cow::Borrowed(&[]),
            namespaced: true,
            status: true,
            custom: true,
            rules: Rules::CUSTOM,
        }
    }

    /// Its objects belong to no namespace.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// It has no status subresource: `status` is a field like any other.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.status = false;
        self
    }

    /// Its name in paths, where it is not the kind in lower case with an `s`.
    #[must_use]
    pub fn with_plural(mut self, plural: impl Into<String>) -> Self {
        self.plural = Cow::Owned(plural.into());
        self
    }

    /// A short name for kubectl, beside the others.
    #[must_use]
    pub fn short_name(mut self, name: &'static str) -> Self {
        self.short_names.to_mut().push(name);
        self
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version, as in `v1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The kind, as in `Pod`.
    pub fn kind(&self) -> &str {
        &self.name
    }

    /// The name in paths, as in `pods`.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Whether its objects belong to namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// Whether it has a status subresource.
    pub fn has_status(&self) -> bool {
        self.status
    }

    /// `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether it is this built-in kind, and not a custom one of the same name.
    pub(super) fn is(&self, kind: &str) -> bool {
        !self.custom && self.name == kind
    }

    /// `nodes`, or `deployments.apps`: as errors name it.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The key of an object, by which lists are sorted: that of etcd, so that `a-b/x` comes before `a/x`.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Whether a client can tell its objects apart in `other`: the same path, version, kind and scope.
    pub(super) fn same(&self, other: &Self) -> bool {
        self == other && self.version == other.version && self.namespaced == other.namespaced
    }
}

// By path: a server serves one kind there.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.group, &self.plural).cmp(&(&other.group, &other.plural))
    }
}
