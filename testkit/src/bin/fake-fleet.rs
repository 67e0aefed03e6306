//! A fake fleet in a process of its own: for benches whose figures must not contain the servers, and for any client.
//!
//! `fake-fleet --clusters N [--kubeconfig-out PATH] [--http1]` prints the path of a kubeconfig of all clusters, then
//! `ready`. It then takes commands on stdin, one a line, and answers each with one line of JSON; it ends when stdin closes
//! or by Ctrl-C. NAMES is a cluster's name, `all`, or `K..L`: the clusters from number K on, before number L.
//!
//! ```text
//! black-hole NAMES     unplug NAMES        silence-new NAMES    refuse NAMES         pause NAMES
//! heal NAMES           resume NAMES        close NAMES          reset NAMES          normal NAMES
//! hang NAMES PREFIX    forbid NAMES PREFIX answer NAMES PREFIX STATUS                latency NAMES MILLISECONDS
//! stats [NAMES]        version NAMES
//! rotate-token NAMES   add-token NAMES     move NAMES           renew-ca NAMES       replace NAMES
//! ```
//! What they do is told at the methods of `FakeCluster`; `normal` is `answer_normally`. The commands of the last line
//! change the access: they write the kubeconfig anew, by an atomic rename, before they answer.

use std::{
    io::{BufRead, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clustercache_testkit::fleet::{FakeCluster, Fleet, OldEndpoint};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

const USAGE: &str = "usage: fake-fleet --clusters N [--kubeconfig-out PATH] [--http1]";

struct Options {
    clusters: usize,
    kubeconfig: Option<PathBuf>,
    http2: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self {
            clusters: 0,
            kubeconfig: None,
            http2: true,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--clusters" => {
                    let number = arguments.next().context(USAGE)?;
                    options.clusters = number.parse().context("--clusters takes a number")?;
                }
                "--kubeconfig-out" => {
                    options.kubeconfig = Some(arguments.next().context(USAGE)?.into());
                }
                "--http1" => options.http2 = false,
                other => bail!("`{other}` is unknown; {USAGE}"),
            }
        }
        if options.clusters == 0 {
            bail!("how many clusters? {USAGE}");
        }
        Ok(options)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let fleet = Fleet::builder()
        .clusters(options.clusters)
        .http2(options.http2)
        .start()
        .await?;
    // Removed at the end, unless the caller named a place.
    let folder = tempfile::tempdir()?;
    let path = options
        .kubeconfig
        .unwrap_or_else(|| folder.path().join("kubeconfig"));
    save(&fleet, &path)?;
    say(&path.display())?;
    say(&"ready")?;

    let mut commands = lines();
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(command) = command else { break };
        if command.trim().is_empty() {
            continue;
        }
        let answer = obey(&fleet, &path, &command);
        say(&answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") })))?;
    }
    fleet.shutdown().await;
    Ok(())
}

/// The lines of stdin, until it closes. On a thread of its own, so that a read that never ends holds nothing up.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn say(line: &impl std::fmt::Display) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn obey(fleet: &Fleet, kubeconfig: &Path, line: &str) -> anyhow::Result<Value> {
    let mut words = line.split_whitespace();
    let command = words.next().unwrap_or_default();
    let names = words
        .next()
        .unwrap_or(if command == "stats" { "all" } else { "" });
    let arguments: Vec<_> = words.collect();
    let clusters = chosen(fleet, names)?;
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
        save(fleet, kubeconfig)?;
    }
    if command == "stats" {
        return Ok(json!({ "clusters": clusters.len(), "counters": sum(answer.into_values()) }));
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
        ("stats", []) => return Ok(serde_json::to_value(cluster.counters())?),
        _ => bail!("`{command}` with {arguments:?} is no command"),
    }
    Ok(Value::Null)
}

fn chosen<'a>(fleet: &'a Fleet, names: &str) -> anyhow::Result<&'a [FakeCluster]> {
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
        .with_context(|| format!("`{names}` is neither a cluster's name, nor `all`, nor `K..L`"))?;
    all.get(from..to)
        .with_context(|| format!("`{names}` is not within the {} clusters", all.len()))
}

/// Adds up documents of the same shape.
fn sum(documents: impl Iterator<Item = Value>) -> Value {
    documents.fold(Value::Null, |sum, next| match (sum, next) {
        (Value::Object(sum), Value::Object(next)) => {
            let add = |(name, value): (String, Value)| {
                let other = next.get(&name).cloned().unwrap_or_default();
                (name, self::sum([value, other].into_iter()))
            };
            sum.into_iter().map(add).collect::<Map<_, _>>().into()
        }
        (Value::Number(sum), Value::Number(next)) => {
            (sum.as_u64().unwrap_or_default() + next.as_u64().unwrap_or_default()).into()
        }
        (_, next) => next,
    })
}

fn save(fleet: &Fleet, path: &Path) -> anyhow::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(fleet.kubeconfig_of_all().as_bytes())?;
    file.persist(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
