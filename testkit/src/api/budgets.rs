//! Budgets of disruptions: their status as the disruption controller would write it, and what they allow.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    builtin, clock::written, object::Object, selector::LabelSelector, status::Status, store::State,
};

/// The budgets of a namespace whose status is no longer true: their keys, and what they should be.
pub(super) fn statuses(state: &State, namespace: &str) -> Vec<(String, Value)> {
    let prefix = format!("{namespace}/");
    let budgets = state.all(builtin::named("policy", "poddisruptionbudgets"), &prefix);
    budgets
        .filter_map(|budget| {
            let mut value = budget.value();
            let status = status(state, &prefix, &value);
            (value.get("status") != Some(&status)).then(|| {
                value["status"] = status;
                (budget.key.to_string(), value)
            })
        })
        .collect()
}

fn status(state: &State, prefix: &str, budget: &Value) -> Value {
    let (spec, old) = (
        &budget["spec"],
        budget.get("status").cloned().unwrap_or_default(),
    );
    let pods: Vec<_> = matching(state, prefix, spec);
    let expected = pods.len() as u64;
    let mut disrupted = old["disruptedPods"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    disrupted.retain(|name, _| {
        let pod = pods.iter().find(|pod| pod.name() == name);
        pod.is_some_and(|pod| pod.value()["metadata"]["deletionTimestamp"].is_null())
    });
    let healthy = pods
        .iter()
        .filter(|pod| {
            let value = pod.value();
            let ends = !value["metadata"]["deletionTimestamp"].is_null();
            is_ready(&value) && !ends && !disrupted.contains_key(pod.name())
        })
        .count() as u64;
    let desired = if spec["minAvailable"].is_null() {
        expected.saturating_sub(scaled(&spec["maxUnavailable"], expected))
    } else {
        scaled(&spec["minAvailable"], expected)
    };
    let allowed = if expected == 0 {
        0
    } else {
        healthy.saturating_sub(desired)
    };
    let mut status = json!({
        "observedGeneration": budget["metadata"]["generation"],
        "expectedPods": expected, "currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": allowed,
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = disrupted.into();
    }
    if let Some(conditions) = old.get("conditions") {
        status["conditions"] = conditions.clone();
    }
    say_allowed(&mut status, state.now());
    status
}

/// The condition that goes with the number.
fn say_allowed(status: &mut Value, now: Timestamp) {
    let allowed = status["disruptionsAllowed"].as_u64().unwrap_or_default() > 0;
    let (value, reason) = if allowed {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let old = conditions
        .iter()
        .position(|one| one["type"] == "DisruptionAllowed");
    let old = old.map(|place| conditions.remove(place));
    let since = match old {
        Some(old) if old["status"] == value => old["lastTransitionTime"].clone(),
        _ => written(now).into(),
    };
    conditions.push(json!({
        "type": "DisruptionAllowed", "status": value, "reason": reason, "message": "", "lastTransitionTime": since,
        "observedGeneration": status["observedGeneration"],
    }));
    status["conditions"] = conditions.into();
}

fn matching<'a>(
    state: &'a State,
    prefix: &'a str,
    spec: &Value,
) -> Vec<&'a std::sync::Arc<Object>> {
    let Some(selector) = LabelSelector::of(&spec["selector"]) else {
        return Vec::new();
    };
    let pods = state.all(builtin::named("", "pods"), prefix);
    let runs = |pod: &Object| {
        !matches!(
            pod.value()["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        )
    };
    pods.filter(|pod| selector.matches(pod.labels()) && runs(pod))
        .collect()
}

/// A number, or a percentage of `whole`, rounded up.
fn scaled(amount: &Value, whole: u64) -> u64 {
    let percentage = || amount.as_str()?.strip_suffix('%')?.parse::<u64>().ok();
    amount
        .as_u64()
        .or_else(|| percentage().map(|percent| (whole * percent).div_ceil(100)))
        .unwrap_or_default()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

/// How an eviction stands with the budgets of its pod: what to store before the pod goes, if anything.
pub(super) fn charge(
    state: &State,
    pod: &Object,
    several_are_an_error: bool,
    now: Timestamp,
) -> Result<Vec<(String, Value)>, Status> {
    let value = pod.value();
    let exempt = matches!(
        value["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    if exempt || !value["metadata"]["deletionTimestamp"].is_null() {
        return Ok(Vec::new());
    }
    let prefix = format!("{}/", pod.namespace());
    let budgets = state.all(builtin::named("policy", "poddisruptionbudgets"), &prefix);
    let mine: Vec<_> = budgets
        .filter(|budget| {
            LabelSelector::of(&budget.value()["spec"]["selector"])
                .is_some_and(|selector| selector.matches(pod.labels()))
        })
        .collect();
    if mine.len() > 1 && several_are_an_error {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::new(500, "", message));
    }
    let mut charged = Vec::new();
    for budget in mine {
        let mut value = budget.value();
        if may_go_unhealthy(&value) && !is_ready(&pod.value()) {
            continue;
        }
        allow(budget.name(), &mut value, pod.name(), now)?;
        charged.push((budget.key.to_string(), value));
    }
    Ok(charged)
}

/// Whether pods that are not ready may be evicted without being counted.
fn may_go_unhealthy(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_u64().unwrap_or_default();
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}

/// Takes one disruption off a budget, or says why there is none.
fn allow(name: &str, budget: &mut Value, pod: &str, now: Timestamp) -> Result<(), Status> {
    let generation = budget["metadata"]["generation"]
        .as_u64()
        .unwrap_or_default();
    let status = &mut budget["status"];
    let number = |field: &str| status[field].as_u64().unwrap_or_default();
    if number("observedGeneration") < generation {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Status::over_budget(&cause, Some(10)));
    }
    let allowed = number("disruptionsAllowed");
    if allowed == 0 {
        let (needed, healthy) = (number("desiredHealthy"), number("currentHealthy"));
        let cause = format!(
            "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        );
        return Err(Status::over_budget(&cause, None));
    }
    status["disruptionsAllowed"] = (allowed - 1).into();
    status["disruptedPods"][pod] = written(now).into();
    say_allowed(status, now);
    Ok(())
}
