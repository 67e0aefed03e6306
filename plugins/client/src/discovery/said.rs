//! Discovery documents as servers say them: aggregated (v2, and v2beta1, which is shaped alike), and one document a group and version as old
//! servers do. What is not a name is left out.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::error::Category;

use super::document::{Group, Resource, Version};

/// All objects of a document together, and the quotes of all its strings and names: each takes more memory than it takes bytes.
const MOST_OBJECTS: usize = 100_000;
const MOST_QUOTES: usize = 2_000_000;

/// What `/api` and `/apis` answer.
pub(super) enum Root {
    Groups(Vec<Group>),
    /// An old server: what is to be asked for, by group.
    Ask(Vec<Listed>),
}

pub(super) struct Listed {
    pub(super) group: Box<str>,
    /// The preferred one first.
    pub(super) versions: Vec<Box<str>>,
}

#[derive(Debug)]
pub(super) enum Wrong {
    TooMany,
    Malformed(String),
}

pub(super) fn root(body: &[u8]) -> Result<Root, Wrong> {
    let Kind { kind } = parse(body)?;
    match &*kind {
        "APIGroupDiscoveryList" => {
            let Aggregated { items } = parse(body)?;
            let groups = items.into_iter().filter_map(AggregatedGroup::into_group);
            Ok(Root::Groups(groups.collect()))
        }
        "APIVersions" => {
            let Versions { versions } = parse(body)?;
            let versions = names(versions);
            let group = "".into();
            Ok(Root::Ask(vec![Listed { group, versions }]))
        }
        "APIGroupList" => {
            let Groups { groups } = parse(body)?;
            let listed = groups.into_iter().filter_map(ListedGroup::into_listed);
            Ok(Root::Ask(listed.collect()))
        }
        _ => Err(unexpected()),
    }
}

/// What `/api/v1` and `/apis/GROUP/VERSION` answer.
pub(super) fn resources(body: &[u8], group: &str, version: &str) -> Result<Box<[Resource]>, Wrong> {
    let Kind { kind } = parse(body)?;
    if kind != "APIResourceList" {
        return Err(unexpected());
    }
    let Resources { resources } = parse(body)?;
    let (subs, tops): (Vec<_>, Vec<_>) = resources
        .into_iter()
        .partition(|resource| resource.name.contains('/'));
    let mut tops: Vec<_> = tops
        .into_iter()
        .filter_map(|resource| {
            resource
                .into_resource(group, version)
                .map(|it| (it, vec![]))
        })
        .collect();
    let places: HashMap<Box<str>, usize> = tops
        .iter()
        .enumerate()
        .map(|(place, (top, _))| (top.plural.clone(), place))
        .collect();
    for mut sub in subs {
        let Some((parent, name)) = sub.name.split_once('/') else {
            continue;
        };
        let Some(&place) = places.get(parent) else {
            continue;
        };
        sub.name = name.into();
        tops[place].1.extend(sub.into_resource(group, version));
    }
    let with_subresources = |(mut top, subs): (Resource, Vec<Resource>)| {
        top.subresources = subs.into();
        top
    };
    Ok(tops.into_iter().map(with_subresources).collect())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Wrong> {
    let (mut objects, mut quotes) = (0, 0);
    for byte in body {
        match byte {
            b'{' => objects += 1,
            b'"' => quotes += 1,
            _ => (),
        }
    }
    if objects > MOST_OBJECTS || quotes > MOST_QUOTES {
        return Err(Wrong::TooMany);
    }
    serde_json::from_slice(body).map_err(|error| {
        // Its own text may repeat what the server said, and that may be our token.
        let what = match error.classify() {
            Category::Data => "it has another form",
            Category::Eof => "it ends too soon",
            Category::Syntax | Category::Io => "it is no JSON",
        };
        let (line, column) = (error.line(), error.column());
        Wrong::Malformed(format!("at line {line}, column {column}, {what}"))
    })
}

fn unexpected() -> Wrong {
    Wrong::Malformed("its kind is none of one".into())
}

/// Groups, versions, resources, kinds and verbs are made of these, and stand in URLs.
fn is_name(text: &str) -> bool {
    let fits = (1..=253).contains(&text.len());
    // `..` is a way to somewhere else.
    let leads = text.bytes().all(|byte| byte == b'.');
    fits && !leads
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

fn names(texts: Vec<String>) -> Vec<Box<str>> {
    let names = texts.into_iter().filter(|text| is_name(text));
    names.map(Into::into).collect()
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct Aggregated {
    #[serde(default, deserialize_with = "nullable")]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Name,
    #[serde(default, deserialize_with = "nullable")]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct Name {
    /// The core group has none.
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    #[serde(default)]
    version: String,
    #[serde(default, deserialize_with = "nullable")]
    freshness: String,
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<AggregatedResource>,
}

/// A resource, or a subresource.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    #[serde(default, alias = "subresource")]
    resource: String,
    #[serde(default, deserialize_with = "nullable")]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "nullable")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    subresources: Vec<AggregatedResource>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Versions {
    #[serde(default, deserialize_with = "nullable")]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default, deserialize_with = "nullable")]
    groups: Vec<ListedGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedGroup {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    versions: Vec<ListedVersion>,
    #[serde(default, deserialize_with = "nullable")]
    preferred_version: ListedVersion,
}

#[derive(Default, Deserialize)]
struct ListedVersion {
    #[serde(default)]
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<PlainResource>,
}

#[derive(Deserialize)]
struct PlainResource {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    /// Only where it is not that of the document.
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default, deserialize_with = "nullable")]
    verbs: Vec<String>,
}

/// Servers say null where there is nothing.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl AggregatedGroup {
    fn into_group(self) -> Option<Group> {
        let name = self.metadata.name;
        if !name.is_empty() && !is_name(&name) {
            return None;
        }
        let versions = self.versions.into_iter();
        let versions = versions.filter_map(|version| version.into_version(&name));
        Some(Group {
            versions: versions.collect(),
            name: name.into(),
        })
    }
}

impl AggregatedVersion {
    fn into_version(self, group: &str) -> Option<Version> {
        let name = self.version;
        let resources = self.resources.into_iter();
        let resources = resources.filter_map(|it| it.into_resource(group, &name, None));
        is_name(&name).then(|| Version {
            incomplete: self.freshness == "Stale",
            resources: resources.collect(),
            name: name.as_str().into(),
        })
    }
}

impl AggregatedResource {
    /// Below a resource, with the scope of that.
    fn into_resource(self, group: &str, version: &str, scope: Option<bool>) -> Option<Resource> {
        let namespaced = scope.unwrap_or(self.scope == "Namespaced");
        let of = self.response_kind;
        let subresources = self.subresources.into_iter();
        let subresources =
            subresources.filter_map(|it| it.into_resource(group, version, Some(namespaced)));
        Some(Resource {
            subresources: subresources.collect(),
            namespaced,
            ..resource(&self.resource, of, self.verbs, (group, version))?
        })
    }
}

impl ListedGroup {
    fn into_listed(self) -> Option<Listed> {
        let versions = self.versions.into_iter().map(|version| version.version);
        let mut versions = names(versions.collect());
        // Stable: the others keep their order.
        versions.sort_by_key(|version| **version != *self.preferred_version.version);
        is_name(&self.name).then(|| Listed {
            group: self.name.into(),
            versions,
        })
    }
}

impl PlainResource {
    fn into_resource(self, group: &str, version: &str) -> Option<Resource> {
        let of = ResponseKind {
            group: self.group,
            version: self.version,
            kind: self.kind,
        };
        Some(Resource {
            namespaced: self.namespaced,
            ..resource(&self.name, of, self.verbs, (group, version))?
        })
    }
}

/// `None` if it has no name or kind that could be one.
fn resource(
    plural: &str,
    of: ResponseKind,
    verbs: Vec<String>,
    (group, version): (&str, &str),
) -> Option<Resource> {
    if !is_name(plural) || !is_name(&of.kind) {
        return None;
    }
    // An empty group is the core one only beside a version.
    let is_foreign = is_name(&of.version) && (&*of.group, &*of.version) != (group, version);
    let is_foreign = is_foreign && (of.group.is_empty() || is_name(&of.group));
    Some(Resource {
        plural: plural.into(),
        kind: of.kind.into(),
        foreign: is_foreign.then(|| Box::new((of.group.into(), of.version.into()))),
        namespaced: false,
        verbs: names(verbs).join(" ").into(),
        subresources: Box::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(json: &str) -> Vec<Group> {
        match root(json.as_bytes()) {
            Ok(Root::Groups(groups)) => groups,
            _ => panic!("it is aggregated: {json}"),
        }
    }

    fn malformed(json: &str) -> String {
        match root(json.as_bytes()) {
            Err(Wrong::Malformed(what)) => what,
            _ => panic!("it is malformed: {json}"),
        }
    }

    #[test]
    fn null_is_nothing_and_what_is_new_is_passed_over() {
        let groups = groups(
            r#"{"kind":"APIGroupDiscoveryList","new":1,"items":[
                {"metadata":null,"versions":[{"version":"v1","resources":null}]},
                {"metadata":{"name":"a.io","new":[]},"versions":null},
                {"metadata":{"name":"b.io"},"versions":[{"version":"v1","freshness":"Stale","resources":[
                    {"resource":"things","responseKind":{"kind":"Thing"},"verbs":null,"scope":"Namespaced"},
                    {"resource":"kindless","responseKind":null}]}]}]}"#,
        );
        let names: Vec<_> = groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["", "a.io", "b.io"]);
        let version = &groups[2].versions[0];
        assert!(version.incomplete && version.resources.len() == 1);
        assert!(version.resources[0].namespaced && version.resources[0].foreign.is_none());
    }

    #[test]
    fn what_is_not_a_name_is_left_out_and_never_asked_for() {
        let Ok(Root::Ask(listed)) = root(
            br#"{"kind":"APIGroupList","groups":[
                {"name":"../../api","versions":[{"version":"v1"}]},
                {"name":"a.io","versions":[{"version":"v1/../.."},{"version":"v1beta1"},{"version":"v1"}],"preferredVersion":{"version":"v1"}},
                {"name":"b\u001b[31m","versions":[]}]}"#,
        ) else {
            panic!("it lists groups")
        };
        assert_eq!(listed.len(), 1);
        assert_eq!(&*listed[0].group, "a.io");
        assert_eq!(listed[0].versions, ["v1".into(), Box::from("v1beta1")]);
    }

    #[test]
    fn resources_of_an_old_server_have_their_subresources() {
        let resources = resources(
            br#"{"kind":"APIResourceList","resources":[
                {"name":"things/scale","kind":"Scale","group":"autoscaling","version":"v1","verbs":["get"]},
                {"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list"]},
                {"name":"orphans/status","kind":"Orphan"}]}"#,
            "a.io",
            "v1",
        )
        .unwrap();
        assert_eq!(resources.len(), 1);
        assert_eq!(&*resources[0].verbs, "get list");
        let scale = &resources[0].subresources[0];
        let foreign = scale.foreign.as_deref().unwrap();
        assert_eq!(
            (&*scale.plural, &*foreign.0, &*foreign.1),
            ("scale", "autoscaling", "v1")
        );
    }

    #[test]
    fn what_is_no_document_is_said_escaped_and_in_few_words() {
        for json in [
            "",
            "<html>",
            "[]",
            r#"{"kind":"Status"}"#,
            r#"{"kind":"\u001b[31m"}"#,
            r#"{"kind":"APIGroupDiscoveryList","items":"\u001b[31m"}"#,
        ] {
            let what = malformed(json);
            assert!(!what.contains('\u{1b}') && what.len() < 1_000, "{what}");
        }
        let long = format!(r#"{{"kind":"{}"}}"#, "x".repeat(1 << 20));
        assert!(malformed(&long).len() < 200);
        let deep = format!(
            r#"{{"kind":"APIVersions","versions":{}"#,
            "[".repeat(200_000)
        );
        assert!(malformed(&deep).len() < 1_000);
    }

    #[test]
    fn a_document_that_would_be_much_larger_than_its_bytes_is_not_read() {
        let many = vec!["{}"; MOST_OBJECTS].join(",");
        let json = format!(r#"{{"kind":"APIGroupList","groups":[{many}]}}"#);
        assert!(matches!(root(json.as_bytes()), Err(Wrong::TooMany)));
        let many = vec![r#""""#; MOST_QUOTES / 2].join(",");
        let json = format!(r#"{{"kind":"APIVersions","versions":[{many}]}}"#);
        assert!(matches!(root(json.as_bytes()), Err(Wrong::TooMany)));
    }
}
