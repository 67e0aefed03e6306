//! Series of single clusters: of those that are ours, the first by key, and no more than was asked for. What is left out is counted.

use clustercache::{Census, ClusterCache, ClusterState, Phase, ResourceState, Verdict};

use crate::{
    collector::Series,
    fleet::word,
    label,
    names::{self, Metric},
    page::{Page, count, number, timestamp},
};

/// A cluster that has series, and the values of its labels.
struct Shown {
    labels: [String; 2],
    state: ClusterState,
}

pub(crate) fn gather(cache: &ClusterCache, census: &Census, series: &Series, page: &mut Page) {
    if !series.any() {
        return;
    }
    // Without an engine no cluster is known.
    let mut keys = cache.keys().unwrap_or_default();
    keys.sort_unstable();
    let shown = keys.iter().filter_map(|key| {
        // Whatever is not ours costs no more than a look, however much of it there is.
        let phase = cache.phase(key).ok()?;
        if matches!(phase, Phase::NotOwned | Phase::Removed) {
            return None;
        }
        let labels = label::of_cluster(key)?;
        let state = cache.state(key).ok().filter(|state| state.owned)?;
        Some(Shown { labels, state })
    });
    let shown: Vec<_> = shown.take(series.at_most).collect();
    let not_ours = census.in_phase(Phase::NotOwned) + census.in_phase(Phase::Removed);
    let ours = census.clusters() - not_ours;
    page.one(
        &names::WITHOUT_SERIES,
        number(ours.saturating_sub(shown.len())),
    );
    if series.per_cluster {
        per_cluster(&shown, page);
    }
    if series.cluster_api {
        cluster_api(&shown, page);
    }
}

fn per_cluster(shown: &[Shown], page: &mut Page) {
    let connected = |state: &ClusterState| Some(flag(state.phase.is_connected()));
    each(&names::CONNECTED, shown, connected, page);
    let failures = |state: &ClusterState| Some(f64::from(state.consecutive_failures));
    each(&names::FAILURES, shown, failures, page);
    let last_success = |state: &ClusterState| state.last_success.map(timestamp);
    each(&names::LAST_SUCCESS, shown, last_success, page);
    let expiry = |state: &ClusterState| state.credential_expires.map(timestamp);
    each(&names::CLUSTER_EXPIRY, shown, expiry, page);
    let expiry = |of: &ResourceState| of.expires.map(timestamp);
    each_resource(&names::CLUSTER_RESOURCE_EXPIRY, shown, expiry, page);
    let failures = |of: &ResourceState| Some(f64::from(of.failures));
    each_resource(&names::CLUSTER_RESOURCE_FAILURES, shown, failures, page);
    let phases = shown.iter().map(|Shown { labels, state }| {
        let [namespace, name] = labels.clone();
        ([namespace, name, word(state.phase)], 1.0)
    });
    page.many(&names::PHASE, phases);
}

fn cluster_api(shown: &[Shown], page: &mut Page) {
    let up = |state: &ClusterState| Some(flag(state.phase.is_connected()));
    each(&names::CONNECTION_UP, shown, up, page);
    each(&names::HEALTHCHECK, shown, healthy, page);
    let checks = shown.iter().flat_map(|Shown { labels, state }| {
        let (success, error) = (state.probes_succeeded, state.probes_failed);
        [("success", success), ("error", error)].map(|(status, times)| {
            let [namespace, name] = labels.clone();
            ([namespace, name, status.to_owned()], count(times))
        })
    });
    page.many(&names::HEALTHCHECKS, checks);
}

/// A health check is made of what is connected, or was.
fn healthy(state: &ClusterState) -> Option<f64> {
    match (state.phase, state.health) {
        (phase, Verdict::Healthy) if phase.is_connected() => Some(1.0),
        (phase, _) if phase.is_connected() || phase == Phase::Down => Some(0.0),
        _ => None,
    }
}

/// A gauge of the labels of a cluster alone, of each that has one.
fn each(
    metric: &Metric,
    shown: &[Shown],
    value: impl Fn(&ClusterState) -> Option<f64>,
    page: &mut Page,
) {
    let values = shown.iter();
    let values = values.filter_map(|Shown { labels, state }| Some((labels.clone(), value(state)?)));
    page.many(metric, values);
}

/// The same of each resource that has one.
fn each_resource(
    metric: &Metric,
    shown: &[Shown],
    value: impl Fn(&ResourceState) -> Option<f64>,
    page: &mut Page,
) {
    let value = &value;
    let values = shown.iter().flat_map(|Shown { labels, state }| {
        state.resources.iter().filter_map(move |resource| {
            let [namespace, name] = labels.clone();
            let resource_name = label::escaped(resource.name);
            Some(([namespace, name, resource_name], value(resource)?))
        })
    });
    page.many(metric, values);
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}
