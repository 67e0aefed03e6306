//! Evictions: a deletion that the budgets of the pod must allow.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Shared, budgets, builtin,
    clock::written,
    create,
    delete::{self, DeleteOptions},
    query::Query,
    request::Place,
    status::Status,
};

/// Evicts a pod; the answer is a `Status` of success.
pub(super) fn evict(
    shared: &Shared,
    place: &Place,
    eviction: &Value,
    query: &Query<'_>,
) -> Result<Value, Status> {
    if !eviction.is_object()
        || eviction["kind"]
            .as_str()
            .is_some_and(|kind| kind != "Eviction")
    {
        return Err(Status::bad_request("the body is no Eviction of policy/v1"));
    }
    let named = eviction["metadata"]["name"].as_str().unwrap_or_default();
    if named != place.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let options = DeleteOptions::of(&eviction["deleteOptions"], query)?;
    let key = place.key();
    shared.store.with(|state| {
        // An eviction is created: nothing is, in a namespace that ends.
        create::check_home(state, &place.kind, &place.name, &place.namespace)?;
        let pod = state
            .get(&place.kind, &key)
            .cloned()
            .ok_or_else(|| Status::not_found(&place.kind, &place.name))?;
        let now = shared.clock.now();
        let charged = budgets::charge(state, &pod, shared.one_budget, now)?;
        if !options.dry_run {
            let mut evicted = pod.value();
            say_evicted(&mut evicted, now);
            state.put(&place.kind, &key, evicted);
            let kind = builtin::named("policy", "poddisruptionbudgets");
            for (key, budget) in charged {
                state.put(kind, &key, budget);
            }
        }
        delete::delete(shared, state, &place.kind, &key, &options)
    })?;
    Ok(
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }),
    )
}

/// Why the pod goes.
fn say_evicted(pod: &mut Value, now: Timestamp) {
    let mut conditions = pod["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions.retain(|one| one["type"] != "DisruptionTarget");
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": written(now),
    }));
    pod["status"]["conditions"] = conditions.into();
}
