//! Writes: what a fake API server adds to an object that it is given, and when it refuses one.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    kinds::Kind,
    object::{Key, Object},
    status::Status,
    store::{State, Store},
};

/// An object that a test handed in cannot be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The fake knows no such kind.
    #[error(
        "no kind `{kind}` in `{api_version}`: a fake cluster has nodes, pods, configmaps, namespaces, deployments"
    )]
    UnknownKind {
        /// What the object says.
        api_version: String,
        /// What the object says.
        kind: String,
    },
    /// `metadata.name` is missing.
    #[error("an object of kind `{kind}` has no metadata.name")]
    NoName {
        /// The kind of the object.
        kind: &'static str,
    },
}

impl Store {
    /// What a test hands in: created or replaced, whatever its version; `default` where no namespace is named.
    pub(super) fn put(&self, value: Value) -> Result<Arc<Object>, ObjectError> {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (api_version, name) = (text("apiVersion"), text("kind"));
        let Some(kind) = Kind::by_name(&api_version, &name) else {
            return Err(ObjectError::UnknownKind {
                api_version,
                kind: name,
            });
        };
        let metadata = |field: &str| value["metadata"][field].as_str();
        let namespace = if kind.namespaced {
            metadata("namespace").unwrap_or("default")
        } else {
            ""
        };
        let name = metadata("name").ok_or(ObjectError::NoName { kind: kind.name })?;
        let key = Key {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        Ok(self.with(|state| write(state, &key, value)))
    }

    pub(super) fn create(
        &self,
        kind: &'static Kind,
        namespace: &str,
        value: Value,
    ) -> Result<Arc<Object>, Status> {
        check(kind, &value)?;
        let metadata = |field: &str| {
            value["metadata"][field]
                .as_str()
                .filter(|text| !text.is_empty())
        };
        let name = match (metadata("name"), metadata("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => format!("{prefix}{:05x}", fastrand::u32(..1 << 20)),
            (None, None) => return Err(Status::bad_request("name or generateName is required")),
        };
        check_namespace(&value, namespace)?;
        let key = Key {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        self.with(|state| {
            if let Some(owner) = Kind::by_path("", "namespaces").filter(|_| kind.namespaced) {
                let owner = Key {
                    kind: owner,
                    namespace: "".into(),
                    name: namespace.into(),
                };
                if state.get(&owner).is_none() {
                    return Err(Status::not_found(owner.kind, namespace));
                }
            }
            if state.get(&key).is_some() {
                return Err(Status::already_exists(kind, &key.name));
            }
            Ok(write(state, &key, value))
        })
    }

    pub(super) fn update(&self, key: &Key, value: Value) -> Result<Arc<Object>, Status> {
        check(key.kind, &value)?;
        check_namespace(&value, &key.namespace)?;
        if value["metadata"]["name"]
            .as_str()
            .is_some_and(|name| *name != *key.name)
        {
            return Err(Status::bad_request(
                "the name of the object does not match the name on the URL",
            ));
        }
        self.with(|state| {
            let now = state
                .get(key)
                .ok_or_else(|| Status::not_found(key.kind, &key.name))?;
            let based_on = value["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default();
            if !based_on.is_empty() && based_on != now.version.to_string() {
                return Err(Status::conflict(key.kind, &key.name));
            }
            Ok(write(state, key, value))
        })
    }

    pub(super) fn remove(&self, key: &Key) -> Result<Arc<Object>, Status> {
        self.with(|state| state.delete(key))
            .ok_or_else(|| Status::not_found(key.kind, &key.name))
    }
}

/// Stores `value` under `key` with the metadata that the server owns.
fn write(state: &mut State, key: &Key, mut value: Value) -> Arc<Object> {
    let before = state.get(key).map(|object| object.value());
    let kept = |field: &str| {
        before
            .as_ref()
            .map(|before| before["metadata"][field].clone())
    };
    let uid = kept("uid").unwrap_or_else(|| uid().into());
    let created = kept("creationTimestamp").unwrap_or_else(now);
    state.put(key, |version| {
        if let Some(fields) = value.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
            let metadata = fields
                .entry("metadata")
                .or_insert_with(|| Map::new().into());
            metadata["name"] = (*key.name).into();
            if key.kind.namespaced {
                metadata["namespace"] = (*key.namespace).into();
            }
            metadata["uid"] = uid;
            metadata["creationTimestamp"] = created;
            metadata["resourceVersion"] = version.to_string().into();
        }
        value
    })
}

fn check(kind: &Kind, value: &Value) -> Result<(), Status> {
    let field = |field: &str| value.get(field).and_then(Value::as_str);
    let metadata = value.get("metadata").is_none_or(Value::is_object);
    if !value.is_object() || !metadata {
        return Err(Status::bad_request("the body is no object with metadata"));
    }
    if field("kind").is_some_and(|name| name != kind.name)
        || field("apiVersion").is_some_and(|v| v != kind.api_version())
    {
        let message = format!(
            "the object provided is no {} of {}",
            kind.name,
            kind.api_version()
        );
        return Err(Status::bad_request(message));
    }
    Ok(())
}

fn check_namespace(value: &Value, namespace: &str) -> Result<(), Status> {
    if value["metadata"]["namespace"]
        .as_str()
        .is_some_and(|named| !named.is_empty() && named != namespace)
    {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// A random UUID of version 4.
fn uid() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff | 0x4000);
    format!(
        "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}",
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

/// The time in whole seconds, as Kubernetes writes it.
fn now() -> Value {
    json!(
        jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string()
    )
}
