//! Strategic merge patch: a merge patch in which some lists are merged by a key of their items, or as sets.
//!
//! The real server takes the keys from its Go types. Here they go by the name of the field, which says the same for the kinds
//! that are built in: `conditions` of whatever are merged by `type`, `containers` by `name`.

use serde_json::{Map, Value};

use super::status::Status;

/// Lists that are merged, and the keys that tell their items apart: the first that the patch's items have.
const MERGED: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("hostIPs", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    ("ports", &["containerPort", "port"]),
    ("resourceClaims", &["name"]),
    ("secrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Lists of plain values that are merged as sets.
const SETS: &[&str] = &["finalizers"];

/// Merges a patch into an object.
pub(super) fn merge(object: &mut Value, patch: &Value) -> Result<(), Status> {
    let (Some(object), Some(patch)) = (object.as_object_mut(), patch.as_object()) else {
        return Err(Status::bad_request(
            "a strategic merge patch and what it is for are objects",
        ));
    };
    merge_map(object, patch)
}

fn merge_map(object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Status> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *object = without_directives(patch);
            return Ok(());
        }
        Some("delete") => {
            object.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        object.retain(|name, _| kept.iter().any(|one| one == name));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(Value::Array(values)) = object.get_mut(list) {
                values.retain(|one| !gone.contains(one));
            }
        } else if !name.starts_with('$') {
            merge_field(object, name, value)?;
        }
    }
    for (name, order) in patch {
        if let Some(list) = name.strip_prefix("$setElementOrder/")
            && let (Some(Value::Array(values)), Some(order)) =
                (object.get_mut(list), order.as_array())
        {
            let before = values.clone();
            sort(list, values, order, &before);
        }
    }
    Ok(())
}

fn merge_field(object: &mut Map<String, Value>, name: &str, value: &Value) -> Result<(), Status> {
    match value {
        Value::Null => {
            object.remove(name);
        }
        Value::Object(patch) => {
            let field = object
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
            match field {
                Value::Object(field) => merge_map(field, patch)?,
                other => *other = without_directives(patch).into(),
            }
        }
        Value::Array(patch) if SETS.contains(&name) => {
            let field = object
                .entry(name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(values) = field {
                let new = patch
                    .iter()
                    .filter(|one| !values.contains(one))
                    .cloned()
                    .collect::<Vec<_>>();
                values.extend(new);
            }
        }
        Value::Array(patch) => match key(name, patch) {
            Some(key) => {
                let field = object
                    .entry(name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(values) = field {
                    let before = values.clone();
                    merge_list(values, patch, key)?;
                    sort(name, values, patch, &before);
                }
            }
            None => {
                object.insert(name.to_owned(), value.clone());
            }
        },
        plain => {
            object.insert(name.to_owned(), plain.clone());
        }
    }
    Ok(())
}

/// The key by which a list is merged; nothing for one that is replaced.
fn key(name: &str, items: &[Value]) -> Option<&'static str> {
    let (_, keys) = MERGED.iter().find(|(field, _)| *field == name)?;
    let has = |key: &&&str| {
        items
            .iter()
            .all(|item| item.get(**key).is_some() || item.get("$patch") == Some(&"replace".into()))
    };
    keys.iter().find(has).copied()
}

fn merge_list(values: &mut Vec<Value>, patch: &[Value], key: &str) -> Result<(), Status> {
    if patch.iter().any(|item| item["$patch"] == "replace") {
        values.clear();
    }
    for item in patch {
        let place = values
            .iter()
            .position(|value| value.get(key) == item.get(key));
        match (item["$patch"].as_str(), place) {
            (Some("replace"), _) => {}
            (Some("delete"), place) => {
                if let Some(place) = place {
                    values.remove(place);
                }
            }
            (_, Some(place)) => merge(&mut values[place], item)?,
            (_, None) => {
                let map = item.as_object();
                values.push(map.map_or_else(|| item.clone(), |map| without_directives(map).into()));
            }
        }
    }
    Ok(())
}

/// Those that the order names come in its order, among the others where they were before; new ones as early as can be.
fn sort(name: &str, values: &mut Vec<Value>, order: &[Value], before: &[Value]) {
    let place = |value: &Value, among: &[Value]| {
        let same = |one: &Value| match key(name, std::slice::from_ref(one)) {
            Some(key) => one.get(key) == value.get(key),
            None => one == value,
        };
        among.iter().position(same)
    };
    let (mut named, others): (Vec<_>, Vec<_>) = values
        .drain(..)
        .partition(|value| place(value, order).is_some());
    named.sort_by_key(|value| place(value, order));
    let mut others = others.into_iter().peekable();
    for value in named {
        if let Some(was) = place(&value, before) {
            while let Some(other) = others.next_if(|other| place(other, before) < Some(was)) {
                values.push(other);
            }
        }
        values.push(value);
    }
    values.extend(others);
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let plain = map
        .iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null());
    plain
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut object: Value, patch: &Value) -> Value {
        merge(&mut object, patch).unwrap();
        object
    }

    #[test]
    fn cordon_and_uncordon() {
        let node = json!({ "spec": { "podCIDR": "10.0.0.0/24" } });
        let cordoned = merged(node.clone(), &json!({ "spec": { "unschedulable": true } }));
        assert_eq!(
            cordoned["spec"],
            json!({ "podCIDR": "10.0.0.0/24", "unschedulable": true })
        );
        assert_eq!(
            merged(cordoned, &json!({ "spec": { "unschedulable": null } })),
            node
        );
    }

    #[test]
    fn items_are_merged_by_their_key_deleted_and_put_in_order() {
        let pod =
            json!({ "spec": { "containers": [{ "name": "a", "image": "1" }, { "name": "b" }] } });
        let patch = json!({ "spec": {
            "containers": [{ "name": "c" }, { "name": "a", "image": "2" }, { "name": "b", "$patch": "delete" }],
            "$setElementOrder/containers": [{ "name": "c" }, { "name": "a" }],
        } });
        assert_eq!(
            merged(pod, &patch),
            json!({ "spec": { "containers": [{ "name": "c" }, { "name": "a", "image": "2" }] } })
        );
    }

    #[test]
    fn new_items_come_first_and_others_stay_where_they_were() {
        let before = json!({ "status": { "conditions": [{ "type": "A" }, { "type": "B" }, { "type": "C" }] } });
        let patch =
            json!({ "status": { "conditions": [{ "type": "N" }, { "type": "B", "x": 1 }] } });
        assert_eq!(
            merged(before, &patch)["status"]["conditions"],
            json!([{ "type": "N" }, { "type": "A" }, { "type": "B", "x": 1 }, { "type": "C" }])
        );
    }

    #[test]
    fn sets_grow_and_shrink_other_lists_are_replaced() {
        let object = json!({ "metadata": { "finalizers": ["a", "b"] }, "spec": { "taints": [{ "key": "x" }] } });
        let patch = json!({
            "metadata": { "finalizers": ["c", "a"], "$deleteFromPrimitiveList/finalizers": ["b"] },
            "spec": { "taints": [{ "key": "y" }] },
        });
        assert_eq!(
            merged(object, &patch),
            json!({ "metadata": { "finalizers": ["a", "c"] }, "spec": { "taints": [{ "key": "y" }] } })
        );
    }

    #[test]
    fn directives_replace_and_retain() {
        let object = json!({ "a": { "x": 1 }, "strategy": { "type": "RollingUpdate", "rollingUpdate": {} } });
        let patch = json!({
            "a": { "$patch": "replace", "y": 2 },
            "strategy": { "$retainKeys": ["type"], "type": "Recreate" },
        });
        assert_eq!(
            merged(object, &patch),
            json!({ "a": { "y": 2 }, "strategy": { "type": "Recreate" } })
        );
    }
}
