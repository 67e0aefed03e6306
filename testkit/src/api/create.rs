//! Creates: what a server adds to an object that it is given, and when it refuses one.

use serde_json::{Value, json};

use super::{
    Shared, builtin,
    clock::written,
    defaults,
    kind::Kind,
    names,
    request::Place,
    status::{Cause, Status},
    store::State,
    write::{self, Written},
};

/// How often another name is tried where a generated one is taken.
const TRIES: usize = 8;

/// Bytes of a `generateName` that are kept, so that the name with its suffix is a label still.
const LONGEST_BASE: usize = 58;

pub(super) fn create(
    shared: &Shared,
    place: &Place,
    mut value: Value,
    dry_run: bool,
) -> Result<Written, Status> {
    let kind = &place.kind;
    write::check_shape(kind, &value)?;
    write::check_namespace(kind, &mut value, &place.namespace)?;
    if value["metadata"]["resourceVersion"]
        .as_str()
        .is_some_and(|version| !version.is_empty())
    {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(Status::new(500, "", message));
    }
    let given = name(&value["metadata"]["name"]);
    let base = name(&value["metadata"]["generateName"]);
    shared.store.with(|state| {
        let shown = if given.is_empty() { &base } else { &given };
        check_home(state, kind, shown, &place.namespace)?;
        let mut value = value;
        let mut tried = 0;
        loop {
            let name = if given.is_empty() {
                generated(shared, &base)
            } else {
                given.clone()
            };
            if name.is_empty() {
                let cause = Cause::required("metadata.name", "name or generateName is required");
                return Err(Status::invalid(kind, "", &[cause]));
            }
            value["metadata"]["name"] = name.as_str().into();
            let key = kind.key(&place.namespace, &name);
            if state.get(kind, &key).is_none() {
                return make(shared, state, kind, &key, value, dry_run);
            }
            tried += 1;
            if !given.is_empty() || tried == TRIES {
                return Err(Status::already_exists(kind, &name));
            }
        }
    })
}

fn make(
    shared: &Shared,
    state: &mut State,
    kind: &std::sync::Arc<Kind>,
    key: &str,
    mut value: Value,
    dry_run: bool,
) -> Result<Written, Status> {
    let metadata = &mut value["metadata"];
    write::remove(
        metadata,
        &[
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
            "resourceVersion",
        ],
    );
    metadata["uid"] = shared.dice.uid().into();
    metadata["creationTimestamp"] = written(shared.clock.now()).into();
    if kind.rules.generation {
        metadata["generation"] = 1.into();
    }
    // Kubelets create their nodes with their status.
    if kind.status && !kind.is("Node") {
        write::remove(&mut value, &["status"]);
    }
    defaults::complete(kind, &mut value, shared.clock.now());
    write::without_empty(&mut value);
    let causes = names::causes(kind, &value);
    if !causes.is_empty() {
        return Err(Status::invalid(
            kind,
            &name(&value["metadata"]["name"]),
            &causes,
        ));
    }
    if dry_run {
        return Ok(Written::Dry(write::named(kind, value)));
    }
    Ok(Written::Stored(state.put(kind, key, value)))
}

/// The namespace of a new object must be there, and not end.
pub(super) fn check_home(
    state: &State,
    kind: &Kind,
    name: &str,
    namespace: &str,
) -> Result<(), Status> {
    if !kind.namespaced {
        return Ok(());
    }
    let namespaces = builtin::named("", "namespaces");
    let home = state
        .get(namespaces, namespace)
        .ok_or_else(|| Status::not_found(namespaces, namespace))?;
    if home.value()["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    Err(Status::terminating(kind, name, namespace))
}

fn name(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn generated(shared: &Shared, base: &str) -> String {
    if base.is_empty() {
        return String::new();
    }
    let mut end = base.len().min(LONGEST_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], shared.dice.suffix())
}

/// What a test hands in: created or replaced, whatever its version, with the status that it has.
pub(super) fn put(
    shared: &Shared,
    state: &mut State,
    kind: &std::sync::Arc<Kind>,
    key: &str,
    mut value: Value,
) -> u64 {
    let before = state.get(kind, key).map(|object| object.value());
    let kept = |field: &str| {
        before
            .as_ref()
            .map(|before| before["metadata"][field].clone())
    };
    let uid = kept("uid").unwrap_or_else(|| shared.dice.uid().into());
    let created = kept("creationTimestamp").unwrap_or_else(|| written(shared.clock.now()).into());
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let metadata = &mut value["metadata"];
    metadata["name"] = name.into();
    if kind.namespaced {
        metadata["namespace"] = namespace.into();
    }
    metadata["uid"] = uid;
    metadata["creationTimestamp"] = created;
    if kind.rules.generation {
        let generation = before
            .as_ref()
            .map_or(1, |before| write::next_generation(kind, before, &value));
        value["metadata"]["generation"] = json!(generation);
    }
    if kind.is("Namespace") {
        defaults::complete(kind, &mut value, shared.clock.now());
    }
    state.put(kind, key, value).version
}
