//! Updates, and what all writes have in common: which fields are the server's, and when a version is a conflict.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Shared, create,
    kind::Kind,
    names,
    object::Object,
    request::Place,
    status::{Cause, Status},
    store::State,
};

/// What a write made.
pub(super) enum Written {
    Stored(Arc<Object>),
    /// What would have been stored.
    Dry(Value),
}

/// An update. Some kinds are created by it; the flag says that this was so.
pub(super) fn update(
    shared: &Shared,
    place: &Place,
    mut value: Value,
    dry_run: bool,
) -> Result<(Written, bool), Status> {
    let kind = &place.kind;
    check_shape(kind, &value)?;
    check_namespace(kind, &mut value, &place.namespace)?;
    match value["metadata"]["name"].as_str().unwrap_or_default() {
        "" => {
            let message = format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                place.name
            );
            return Err(Status::bad_request(message));
        }
        name if name != place.name => return Err(other_name(name, &place.name)),
        _ => {}
    }
    let missing = shared
        .store
        .with(|state| state.get(kind, &place.key()).is_none());
    if missing && kind.rules.create_on_update && place.part.is_empty() {
        return create::create(shared, place, value, dry_run).map(|written| (written, true));
    }
    let written = shared
        .store
        .with(|state| replace(state, place, dry_run, |_| Ok(value)))?;
    Ok((written, false))
}

/// Replaces an object, or its status, by what `change` makes of it.
pub(super) fn replace(
    state: &mut State,
    place: &Place,
    dry_run: bool,
    change: impl FnOnce(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    let kind = &place.kind;
    let key = place.key();
    let now = state
        .get(kind, &key)
        .cloned()
        .ok_or_else(|| Status::not_found(kind, &place.name))?;
    let old = now.value();
    let mut new = change(&old)?;
    check_basis(kind, &now, &new)?;
    keep(kind, &place.part, &old, &mut new);
    let causes = causes(kind, &old, &new);
    if !causes.is_empty() {
        return Err(Status::invalid(kind, &place.name, &causes));
    }
    if kind.rules.generation {
        new["metadata"]["generation"] = next_generation(kind, &old, &new).into();
    }
    new["metadata"]["resourceVersion"] = now.version.to_string().into();
    if dry_run {
        return Ok(Written::Dry(new));
    }
    if new == old {
        return Ok(Written::Stored(now));
    }
    if is_over(&new) {
        state.delete(kind, &key);
        return Ok(Written::Dry(new));
    }
    Ok(Written::Stored(state.put(kind, &key, new)))
}

/// The version and the UID that a change is based on, if it names them.
fn check_basis(kind: &Kind, now: &Object, new: &Value) -> Result<(), Status> {
    let metadata = &new["metadata"];
    let text = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    if let Some(uid) = text("uid") {
        let old = now.value();
        let old = old["metadata"]["uid"].as_str().unwrap_or_default();
        if uid != old {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {uid}, UID in object meta: {old}",
                kind.plural, now.key
            );
            return Err(Status::conflict(kind, now.name(), &why));
        }
    }
    match text("resourceVersion") {
        Some(version) if version != now.version.to_string() => {
            Err(Status::modified(kind, now.name()))
        }
        None if !kind.rules.unconditional_update => {
            let cause = Cause::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            Err(Status::invalid_as(
                &kind.group,
                &kind.plural,
                now.name(),
                &[cause],
            ))
        }
        _ => Ok(()),
    }
}

/// Takes from the old object what this change cannot touch.
fn keep(kind: &Kind, part: &str, old: &Value, new: &mut Value) {
    let status = new.get("status").cloned();
    if part == "status" {
        let metadata = if kind.custom {
            old["metadata"].clone()
        } else {
            new["metadata"].take()
        };
        *new = old.clone();
        new["metadata"] = metadata;
        set(new, "status", status);
        if kind.is("Pod") && new["status"]["qosClass"].is_null() {
            new["status"]["qosClass"] = old["status"]["qosClass"].clone();
        }
    } else if kind.status {
        set(new, "status", old.get("status").cloned());
    }
    for field in ["kind", "apiVersion"] {
        new[field] = old[field].clone();
    }
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "namespace",
        "name",
    ] {
        set(
            &mut new["metadata"],
            field,
            old["metadata"].get(field).cloned(),
        );
    }
    without_empty(new);
}

/// What is empty is left out, as the types of the real server do.
pub(super) fn without_empty(value: &mut Value) {
    for (at, fields) in [
        (
            "metadata",
            &["annotations", "finalizers", "labels", "ownerReferences"][..],
        ),
        ("spec", &["finalizers"]),
    ] {
        let Some(map) = value.get_mut(at).and_then(Value::as_object_mut) else {
            continue;
        };
        map.retain(|name, value| {
            let empty = value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty);
            !(empty || value.is_null()) || !fields.contains(&&**name)
        });
    }
}

pub(super) fn other_name(name: &str, url: &str) -> Status {
    Status::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({url})"
    ))
}

fn causes(kind: &Kind, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = names::causes(kind, new);
    if !old["metadata"]["deletionTimestamp"].is_null() {
        let before = finalizers(old);
        let added: Vec<_> = finalizers(new)
            .into_iter()
            .filter(|one| !before.contains(one))
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added
                    .iter()
                    .map(|one| format!("{one:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    causes
}

/// Nothing holds an object any more that was to be deleted.
fn is_over(new: &Value) -> bool {
    let metadata = &new["metadata"];
    !metadata["deletionTimestamp"].is_null()
        && finalizers(new).is_empty()
        && metadata["deletionGracePeriodSeconds"]
            .as_u64()
            .unwrap_or_default()
            == 0
        && new["spec"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
}

/// It grows when anything changes that is neither metadata nor status.
pub(super) fn next_generation(kind: &Kind, old: &Value, new: &Value) -> u64 {
    let meant = |value: &Value| {
        let mut value = value.clone();
        remove(&mut value, &["metadata", "kind", "apiVersion"]);
        if kind.status {
            remove(&mut value, &["status"]);
        }
        value
    };
    let generation = old["metadata"]["generation"].as_u64().unwrap_or(1);
    if meant(old) == meant(new) {
        generation
    } else {
        generation + 1
    }
}

pub(super) fn finalizers(value: &Value) -> Vec<String> {
    let all = value["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

fn set(value: &mut Value, field: &str, to: Option<Value>) {
    match to {
        Some(to) => value[field] = to,
        None => remove(value, &[field]),
    }
}

pub(super) fn remove(value: &mut Value, fields: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        for field in fields {
            map.remove(*field);
        }
    }
}

/// With the kind and the version that a client may have left out.
pub(super) fn named(kind: &Kind, mut value: Value) -> Value {
    value["kind"] = kind.kind().into();
    value["apiVersion"] = kind.api_version().into();
    value
}

/// It must be an object with metadata, of the kind of its path.
pub(super) fn check_shape(kind: &Kind, value: &Value) -> Result<(), Status> {
    let field = |field: &str| {
        value
            .get(field)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let metadata = value
        .get("metadata")
        .is_none_or(|metadata| metadata.is_object() || metadata.is_null());
    if !value.is_object() || !metadata {
        return Err(Status::bad_request("the body is no object with metadata"));
    }
    if kind.custom && field("kind").is_none() {
        return Err(Status::kind_missing(kind, value));
    }
    let expected = kind.api_version();
    let (version, name) = (
        field("apiVersion").unwrap_or(&expected),
        field("kind").unwrap_or(&kind.name),
    );
    if version == expected && name == kind.name {
        return Ok(());
    }
    let why = if version == expected {
        let package = kind
            .group
            .split('.')
            .next()
            .filter(|group| !group.is_empty())
            .unwrap_or("core");
        format!(
            "converting ({}.{name}) to ({package}.{}): unknown conversion",
            kind.version, kind.name
        )
    } else {
        format!(
            "no kind {name:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )
    };
    Err(Status::bad_request(format!(
        "{name} in version {version:?} cannot be handled as a {}: {why}",
        kind.name
    )))
}

/// Sets the namespace of the path, unless the object names another one.
pub(super) fn check_namespace(
    kind: &Kind,
    value: &mut Value,
    namespace: &str,
) -> Result<(), Status> {
    if value["metadata"].is_null() {
        value["metadata"] = Map::new().into();
    }
    let metadata = &mut value["metadata"];
    let named = metadata["namespace"].as_str().unwrap_or_default();
    if !named.is_empty() && named != namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    if kind.namespaced {
        metadata["namespace"] = namespace.into();
    } else {
        remove(metadata, &["namespace"]);
    }
    Ok(())
}
