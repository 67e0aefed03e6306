//! One object as it is kept: as the line that a watch sends of it, in two parts.
//!
//! Lists, gets and watches send copies of these, so that it is encoded once for all of them. What comes after the metadata is
//! kept once for all objects, of whatever server, that have the same:
//!
//! ```text
//! {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7",…},"spec":…}}
//! ╰─────── change ────────╯╰────────── head ─────────────╯╰──── metadata, version first ─────╯╰─ rest ─╯
//! ```

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};

use super::{fields::Fields, kind::Kind, shared::SharedBytes};

/// What an event says of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(super) fn head(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}

const METADATA: &[u8] = br#""metadata":{"resourceVersion":""#;
const TAIL: &[u8] = b"}\n";

pub(super) struct Object {
    pub(super) kind: Arc<Kind>,
    /// The place in the list of its kind, see [`Kind::key`].
    pub(super) key: Arc<str>,
    pub(super) version: u64,
    change: Change,
    /// The line to the end of the metadata.
    own: Box<[u8]>,
    /// Where in that the version's digits end, before their `"`.
    versioned: usize,
    rest: SharedBytes,
    labels: OnceLock<BTreeMap<String, String>>,
    fields: OnceLock<Fields>,
}

impl Object {
    /// Encodes an object; `value` has its metadata, and `version` wins over what it says there.
    pub(super) fn new(
        kind: Arc<Kind>,
        key: Arc<str>,
        change: Change,
        version: u64,
        value: Value,
    ) -> Self {
        let Value::Object(mut value) = value else {
            unreachable!("what is stored was checked to be an object");
        };
        value.remove("kind");
        value.remove("apiVersion");
        let mut metadata = match value.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        metadata.remove("resourceVersion");
        let mut own = begun(change, &kind, version);
        let versioned = own.len();
        own.put_u8(b'"');
        members(&mut own, &metadata, true);
        own.put_u8(b'}');
        let mut rest = BytesMut::with_capacity(512);
        members(&mut rest, &value, true);
        rest.put_u8(b'}');
        rest.put_slice(TAIL);
        Self {
            kind,
            key,
            version,
            change,
            own: own[..].into(),
            versioned,
            rest: SharedBytes::new(&rest),
            labels: OnceLock::new(),
            fields: OnceLock::new(),
        }
    }

    /// The same content, as of another change and version.
    pub(super) fn as_of(&self, change: Change, version: u64) -> Self {
        let mut own = begun(change, &self.kind, version);
        let versioned = own.len();
        own.put_slice(&self.own[self.versioned..]);
        Self {
            kind: self.kind.clone(),
            key: self.key.clone(),
            version,
            change,
            own: own[..].into(),
            versioned,
            rest: self.rest.clone(),
            labels: OnceLock::new(),
            fields: OnceLock::new(),
        }
    }

    /// The line of a watch.
    pub(super) fn line(&self, change: Change) -> Bytes {
        [change.head(), self.beginning(), &self.rest]
            .concat()
            .into()
    }

    /// The whole object.
    pub(super) fn json(&self) -> Bytes {
        [self.beginning(), self.to_end()].concat().into()
    }

    /// As an item of a list, in two parts: built-in kinds stand there without `kind` and `apiVersion`. What precedes the first
    /// item's bytes is `{`.
    pub(super) fn item(&self) -> [&[u8]; 2] {
        let own = if self.kind.custom {
            &self.beginning()[1..]
        } else {
            self.metadata()
        };
        [own, self.to_end()]
    }

    /// `"metadata":{…}`.
    pub(super) fn metadata(&self) -> &[u8] {
        &self.beginning()[head_length(&self.kind)..]
    }

    fn beginning(&self) -> &[u8] {
        &self.own[self.change.head().len()..]
    }

    fn to_end(&self) -> &[u8] {
        &self.rest[..self.rest.len() - TAIL.len()]
    }

    /// Decoded, with `kind` and `apiVersion`.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).expect("it was written by this file")
    }

    pub(super) fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    pub(super) fn name(&self) -> &str {
        self.key
            .split_once('/')
            .map_or(&*self.key, |(_, name)| name)
    }

    pub(super) fn labels(&self) -> &BTreeMap<String, String> {
        self.labels.get_or_init(|| {
            let value = self.value();
            let labels = value["metadata"]["labels"].as_object();
            let text =
                |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            labels.into_iter().flatten().filter_map(text).collect()
        })
    }

    /// What a field selector can ask for, beside name and namespace.
    pub(super) fn fields(&self) -> &Fields {
        self.fields
            .get_or_init(|| Fields::of(&self.kind, &self.value()))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.kind.plural, self.key, self.version)
    }
}

/// A line up to the digits of the version.
fn begun(change: Change, kind: &Kind, version: u64) -> BytesMut {
    let mut line = BytesMut::with_capacity(512);
    line.put_slice(change.head());
    head(&mut line, kind);
    line.put_slice(METADATA);
    line.put_slice(version.to_string().as_bytes());
    line
}

/// `{"kind":"Pod","apiVersion":"v1",`
pub(super) fn head(out: &mut BytesMut, kind: &Kind) {
    for part in [
        r#"{"kind":""#,
        &kind.name,
        r#"","apiVersion":""#,
        &kind.group,
    ] {
        out.put_slice(part.as_bytes());
    }
    if !kind.group.is_empty() {
        out.put_u8(b'/');
    }
    out.put_slice(kind.version.as_bytes());
    out.put_slice(br#"","#);
}

fn head_length(kind: &Kind) -> usize {
    let slash = usize::from(!kind.group.is_empty());
    r#"{"kind":"","apiVersion":"","#.len()
        + kind.name.len()
        + kind.group.len()
        + slash
        + kind.version.len()
}

/// The members of a JSON object without its braces.
fn members(out: &mut BytesMut, map: &Map<String, Value>, mut comma: bool) {
    for (name, value) in map {
        if std::mem::replace(&mut comma, true) {
            out.put_u8(b',');
        }
        serde_json::to_writer((&mut *out).writer(), name).expect("a buffer takes any text");
        out.put_u8(b':');
        serde_json::to_writer((&mut *out).writer(), value).expect("a buffer takes any JSON");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::builtin, *};

    fn pod(change: Change) -> Object {
        let value = json!({
            "kind": "Pod", "apiVersion": "v1", "spec": { "nodeName": "n" },
            "metadata": { "name": "a", "labels": { "app": "x" }, "resourceVersion": "3" },
        });
        let kind = builtin::named("", "pods").clone();
        Object::new(kind, "default/a".into(), change, 7, value)
    }

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn one_line_is_the_event_the_object_the_item_and_the_metadata() {
        let pod = pod(Change::Added);
        let event = parsed(&pod.line(Change::Added));
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"], parsed(&pod.json()));
        let item = [b"{", &pod.item().concat()[..]].concat();
        assert_eq!(
            parsed(&item),
            json!({
                "metadata": { "name": "a", "labels": { "app": "x" }, "resourceVersion": "7" },
                "spec": { "nodeName": "n" },
            })
        );
        let metadata = [b"{", pod.metadata(), b"}"].concat();
        assert_eq!(parsed(&metadata)["metadata"], parsed(&item)["metadata"]);
        assert_eq!(pod.labels()["app"], "x");
        assert_eq!((pod.namespace(), pod.name()), ("default", "a"));
    }

    #[test]
    fn an_object_as_of_another_change_and_version_has_the_same_content() {
        let pod = pod(Change::Modified);
        let gone = pod
            .as_of(Change::Deleted, 1234)
            .as_of(Change::Deleted, 12345);
        let event = parsed(&gone.line(Change::Deleted));
        let mut expected = parsed(&pod.json());
        expected["metadata"]["resourceVersion"] = "12345".into();
        assert_eq!(event, json!({ "type": "DELETED", "object": expected }));
        assert_eq!(parsed(&gone.line(Change::Added))["object"], expected);
        assert_eq!(
            parsed(&[b"{", gone.metadata(), b"}"].concat())["metadata"],
            expected["metadata"]
        );
    }

    #[test]
    fn objects_that_differ_in_their_metadata_only_share_the_rest() {
        let one = pod(Change::Modified);
        let mut value = one.value();
        value["metadata"]["uid"] = "other".into();
        let kind = one.kind.clone();
        let other = Object::new(kind, "default/b".into(), Change::Added, 8, value);
        let gone = one.as_of(Change::Deleted, 9);
        assert_eq!(one.rest.as_ptr(), other.rest.as_ptr());
        assert_eq!(one.rest.as_ptr(), gone.rest.as_ptr());
    }
}
