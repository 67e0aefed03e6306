//! Commands, one a line. NAMES is a cluster's name, `all`, or `K..L`: the clusters from place K on, before place L.
//!
//! ```text
//! black-hole NAMES     unplug NAMES        silence-new NAMES    refuse NAMES         pause NAMES
//! heal NAMES           resume NAMES        close NAMES          reset NAMES          normal NAMES
//! hang NAMES PREFIX    forbid NAMES PREFIX answer NAMES PREFIX STATUS                latency NAMES MILLISECONDS
//! stats [NAMES]        version NAMES
//! rotate-token NAMES   add-token NAMES     move NAMES           renew-ca NAMES       replace NAMES
//! ```
//! What they do is told at the methods of `FakeCluster`; `normal` is `answer_normally`. The commands of the last line
//! change the access: they write the kubeconfigs anew, by an atomic rename, before they answer.

use std::time::Duration;

use anyhow::{Context, bail};
use clustercache_testkit::fleet::{Counters, FakeCluster, Fleet, OldEndpoint};
use serde_json::{Map, Value, json};

use crate::Running;

pub(crate) fn obey(running: &Running, line: &str) -> anyhow::Result<Value> {
    let fleet = &running.fleet;
    let mut words = line.split_whitespace();
    let command = words.next().unwrap_or_default();
    let names = words
        .next()
        .unwrap_or(if command == "stats" { "all" } else { "" });
    let arguments: Vec<_> = words.collect();
    let clusters = chosen(fleet, names)?;
    if command == "stats" {
        let counters: Counters = clusters.iter().map(FakeCluster::counters).sum();
        return Ok(json!({ "clusters": clusters.len(), "counters": counters }));
    }
    let mut answer = Map::new();
    for cluster in clusters {
        let said = act(cluster, command, &arguments)?;
        if !said.is_null() {
            answer.insert(cluster.name().to_owned(), said);
        }
    }
    if matches!(
        command,
        "rotate-token" | "add-token" | "move" | "renew-ca" | "replace"
    ) {
        running.files.save_of(fleet, clusters)?;
    }
    Ok(json!({ "ok": true, "clusters": clusters.len(), "answers": answer }))
}

fn act(cluster: &FakeCluster, command: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    match (command, arguments) {
        ("black-hole", []) => cluster.black_hole(),
        ("unplug", []) => cluster.unplug(),
        ("silence-new", []) => cluster.silence_new_connections(),
        ("refuse", []) => cluster.refuse(),
        ("pause", []) => cluster.pause(),
        ("resume", []) => cluster.resume(),
        ("heal", []) => cluster.heal(),
        ("close", []) => cluster.close_connections(),
        ("reset", []) => cluster.reset_connections(),
        ("normal", []) => cluster.answer_normally(),
        ("hang", [prefix]) => cluster.hang(prefix),
        ("forbid", [prefix]) => cluster.forbid(prefix),
        ("answer", [prefix, status]) => {
            let status = status
                .parse()
                .ok()
                .filter(|status| (100..1000).contains(status));
            cluster.answer(
                prefix,
                status.context("a status is a number from 100 to 999")?,
                "",
            );
        }
        ("latency", [milliseconds]) => {
            cluster.latency(Duration::from_millis(milliseconds.parse()?));
        }
        ("add-token", []) => return Ok(cluster.add_token().into()),
        ("renew-ca", []) => cluster.renew_ca()?,
        ("replace", []) => cluster.replace()?,
        ("rotate-token", []) => return Ok(cluster.rotate_token().into()),
        ("move", []) => {
            return Ok(cluster
                .move_endpoint(OldEndpoint::Refuse)?
                .to_string()
                .into());
        }
        ("version", []) => return Ok(cluster.version().into()),
        _ => bail!("`{command}` with {arguments:?} is no command"),
    }
    Ok(Value::Null)
}

/// The clusters with these names.
pub(crate) fn chosen<'a>(fleet: &'a Fleet, names: &str) -> anyhow::Result<&'a [FakeCluster]> {
    let all = fleet.clusters();
    if names == "all" {
        return Ok(all);
    }
    if let Some(place) = all.iter().position(|cluster| cluster.name() == names) {
        return Ok(&all[place..=place]);
    }
    let range = names
        .split_once("..")
        .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to): (usize, usize) = range
        .with_context(|| format!("{names:?} is neither a cluster's name, nor `all`, nor `K..L`"))?;
    all.get(from..to)
        .with_context(|| format!("{names:?} is not within the {} clusters", all.len()))
}
