//! What a cluster serves, as it is kept: no more than what answers questions, and each group that clusters have alike once in the process.

use std::sync::{Arc, LazyLock};

use kube::{
    core::{GroupVersion, GroupVersionKind},
    discovery::{ApiCapabilities, ApiResource, Scope},
};

use crate::intern::Interner;

static DOCUMENTS: LazyLock<Interner<Document>> = LazyLock::new(Interner::new);
static GROUPS: LazyLock<Interner<Group>> = LazyLock::new(Interner::new);

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Document {
    /// In the server's order.
    groups: Box<[Arc<Group>]>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// Empty: the core group.
    pub(super) name: Box<str>,
    /// The preferred one first.
    pub(super) versions: Box<[Version]>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Version {
    pub(super) name: Box<str>,
    /// The server could not say all of it, or anything.
    pub(super) incomplete: bool,
    pub(super) resources: Box<[Resource]>,
}

/// A resource, or a subresource of one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Resource {
    pub(super) plural: Box<str>,
    pub(super) kind: Box<str>,
    /// The kind's group and version, where they are not those of its place: `Scale` is of `autoscaling/v1` wherever it is.
    pub(super) foreign: Option<Box<(Box<str>, Box<str>)>>,
    pub(super) namespaced: bool,
    /// With a space between them.
    pub(super) verbs: Box<str>,
    pub(super) subresources: Box<[Resource]>,
}

pub(super) enum Found {
    Kind(Box<(ApiResource, ApiCapabilities)>),
    Nothing,
    /// It may be there.
    CannotSay,
}

impl Document {
    /// The one copy of it.
    pub(super) fn of(groups: Vec<Group>) -> Arc<Self> {
        let groups = groups.into_iter().map(|group| GROUPS.intern(group));
        DOCUMENTS.intern(Self {
            groups: groups.collect(),
        })
    }

    pub(super) fn find(&self, gvk: &GroupVersionKind) -> Found {
        let version = self
            .group(&gvk.group)
            .and_then(|group| group.versions.iter().find(|of| *of.name == gvk.version));
        let Some(version) = version else {
            return Found::Nothing;
        };
        let mut resources = version.resources.iter();
        match resources.find(|resource| *resource.kind == gvk.kind) {
            Some(resource) => Found::Kind(Box::new(resource.describe(&gvk.group, &gvk.version))),
            None if version.incomplete => Found::CannotSay,
            None => Found::Nothing,
        }
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = GroupVersionKind> {
        let versions = self.groups.iter().flat_map(|group| {
            let name = &group.name;
            group.versions.iter().map(move |version| (name, version))
        });
        versions.flat_map(|(group, version)| {
            let kinds = version.resources.iter();
            kinds.map(move |resource| GroupVersionKind::gvk(group, &version.name, &resource.kind))
        })
    }

    pub(super) fn preferred_version(&self, group: &str) -> Option<&str> {
        let first = self.group(group)?.versions.first()?;
        Some(&first.name)
    }

    fn group(&self, name: &str) -> Option<&Group> {
        let found = self.groups.iter().find(|group| *group.name == *name);
        found.map(|group| &**group)
    }
}

impl Resource {
    fn describe(&self, group: &str, version: &str) -> (ApiResource, ApiCapabilities) {
        let (group_of_kind, version_of_kind) = match &self.foreign {
            Some(foreign) => (&*foreign.0, &*foreign.1),
            None => (group, version),
        };
        let resource = ApiResource {
            group: group_of_kind.into(),
            version: version_of_kind.into(),
            api_version: GroupVersion::gv(group_of_kind, version_of_kind).api_version(),
            kind: (&*self.kind).into(),
            plural: (&*self.plural).into(),
        };
        let subresources = self.subresources.iter();
        let capabilities = ApiCapabilities {
            scope: if self.namespaced {
                Scope::Namespaced
            } else {
                Scope::Cluster
            },
            subresources: subresources
                .map(|resource| resource.describe(group, version))
                .collect(),
            operations: self.verbs.split_whitespace().map(str::to_owned).collect(),
        };
        (resource, capabilities)
    }
}
