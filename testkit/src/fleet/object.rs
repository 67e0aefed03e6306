//! One object as it is kept: as the JSON that goes out, without `kind` and `apiVersion`. Lists leave them out, a get or a
//! watch puts them in front.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use super::kinds::Kind;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: &'static Kind,
    /// Empty for objects that belong to no namespace.
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: Key,
    pub(super) version: u64,
    pub(super) labels: BTreeMap<String, String>,
    /// JSON without `kind` and `apiVersion`; never empty, so that what is put in front ends with a comma.
    pub(super) json: Bytes,
}

impl Object {
    pub(super) fn new(key: Key, version: u64, value: &Value) -> Self {
        let labels = value["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten();
        let labels = labels
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect();
        Self {
            key,
            version,
            labels,
            json: value.to_string().into(),
        }
    }

    /// Writes the whole object.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let kind = self.key.kind;
        out.put_slice(br#"{"kind":""#);
        out.put_slice(kind.name.as_bytes());
        out.put_slice(br#"","apiVersion":""#);
        out.put_slice(kind.api_version().as_bytes());
        out.put_slice(br#"","#);
        out.put_slice(&self.json[1..]);
    }

    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("it was written by serde_json")
    }
}
