//! The whole fleet in sums: one walk over the clusters that clones no state, and the counts that the cache keeps.

use std::collections::BTreeMap;

use clustercache::{
    Census, ClusterCache, Counters, Durations, EngineStatus, Phase, ResourceCounters,
};

use crate::{
    label::escaped,
    names::{self, Metric},
    page::{Page, count, number, timestamp},
};

pub(crate) fn gather(cache: &ClusterCache, census: &Census, page: &mut Page) {
    let running = cache.status() == EngineStatus::Running;
    page.one(&names::ENGINE, f64::from(u8::from(running)));
    clusters(census, page);
    let counters = cache.counters();
    page.one(&names::CONNECTS, count(counters.connects()));
    page.one(&names::BRAKES, count(counters.brakes()));
    page.one(&names::STALLS, count(counters.stalls()));
    let probes = counters.probes();
    page.many(
        &names::PROBES,
        probes.map(|(result, times)| ([result], count(times))),
    );
    hooks(counters, page);
    dials(cache, page);
    subscribers(cache, page);
}

fn clusters(census: &Census, page: &mut Page) {
    let phases = census
        .phases()
        .filter(|(phase, _)| *phase != Phase::Removed);
    page.many(
        &names::CLUSTERS,
        phases.map(|(phase, clusters)| ([word(phase)], number(clusters))),
    );
    let failing = census.failing();
    page.many(
        &names::FAILING,
        failing.map(|(reason, clusters)| ([reason], number(clusters))),
    );
    page.one(&names::SUSPECT, number(census.suspect));
    page.one(&names::NOT_READY, number(census.not_ready));
    page.one(&names::HELD, number(census.held_by_brake));
    page.one(&names::REFUSED, number(census.refused));
    page.one(&names::TROUBLED, number(census.troubled));
    if let Some(at) = census.nearest_resource_expiry {
        page.one(&names::RESOURCE_EXPIRY, timestamp(at));
    }
    if let Some(at) = census.nearest_expiry {
        page.one(&names::EXPIRY, timestamp(at));
    }
}

fn hooks(counters: &Counters, page: &mut Page) {
    let resources = counters.resources();
    let inits = [ResourceCounters::inits, ResourceCounters::failed_inits];
    page.durations(&names::INITS, by_result(resources, inits));
    let teardowns = [
        ResourceCounters::teardowns,
        ResourceCounters::failed_teardowns,
    ];
    page.durations(&names::TEARDOWNS, by_result(resources, teardowns));
    let abandoned = resources.iter();
    page.many(
        &names::ABANDONED,
        abandoned.map(|of| ([escaped(of.name())], count(of.abandoned()))),
    );
    by_name(&names::REBUILDS, counters.rebuilds(), resources, page);
    by_name(&names::PANICS, counters.panics(), resources, page);
    by_name(&names::SLOW_POLLS, counters.slow_polls(), resources, page);
}

fn by_result(
    resources: &[ResourceCounters],
    [success, error]: [fn(&ResourceCounters) -> &Durations; 2],
) -> impl Iterator<Item = ([String; 2], &Durations)> {
    resources.iter().flat_map(move |of| {
        let both = [("success", success(of)), ("error", error(of))];
        both.map(|(result, durations)| ([escaped(of.name()), result.to_owned()], durations))
    })
}

/// Each provider is there from the beginning: a first panic is an increase, and not a series that nobody knew.
fn by_name(
    metric: &Metric,
    mut counts: BTreeMap<Box<str>, u64>,
    resources: &[ResourceCounters],
    page: &mut Page,
) {
    for of in resources {
        counts.entry(of.name().into()).or_default();
    }
    let counts = counts.iter();
    page.many(
        metric,
        counts.map(|(name, times)| ([escaped(name)], count(*times))),
    );
}

fn dials(cache: &ClusterCache, page: &mut Page) {
    let dials = cache.dials();
    let stages = [
        (["waiting"], number(dials.waiting)),
        (["silent"], number(dials.silent)),
        (["handshake"], number(dials.handshakes)),
    ];
    page.many(&names::DIALS, stages);
    let waits = cache.counters().dial_waits();
    page.durations(&names::DIAL_WAITS, [([""; 0], waits)]);
}

fn subscribers(cache: &ClusterCache, page: &mut Page) {
    let subscribers = cache.subscribers();
    page.one(&names::SUBSCRIBERS, number(subscribers.subscribed));
    page.one(&names::BEHIND, number(subscribers.behind));
    page.one(&names::UNREAD, number(subscribers.most_unread));
    page.one(&names::RESYNCS, count(subscribers.resyncs));
}

/// A phase as the value of a label.
pub(crate) fn word(phase: Phase) -> String {
    phase.to_string().replace(' ', "_")
}
