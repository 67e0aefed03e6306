//! A fleet of fake API servers in a process of its own, which is this program started again: what it uses is not in a bench's figures.
#![allow(dead_code, unreachable_pub)] // each bench uses its part of it

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::Context;
use clustercache::{ClusterAccess, ClusterKey, MemorySource, Upsert};
use clustercache_kubeconfig::{Kubeconfig, Policy};
use clustercache_testkit::fleet::Fleet;

/// Ends what a child says of its clusters.
const END: &str = "...";

/// The fleet, for as long as this is held.
pub struct Served {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    clusters: Vec<(ClusterKey, ClusterAccess)>,
}

impl Served {
    /// Starts so many clusters, the last ones of which are black holes: they accept, and say nothing.
    pub fn start(clusters: usize, black_holes: usize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", &clusters.to_string(), &black_holes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut answers = BufReader::new(child.stdout.take().context("it was piped")?);
        let mut text = String::new();
        for line in answers.by_ref().lines() {
            let line = line?;
            if line == END {
                break;
            }
            text.extend([&line, "\n"]);
        }
        let policy = Policy::operator().max_bytes(usize::MAX);
        let kubeconfig = Kubeconfig::parse(text.as_bytes(), &policy)?;
        let clusters = kubeconfig.contexts();
        let clusters = clusters.map(|(name, access)| Ok((ClusterKey::named(name), access?)));
        let mut clusters = clusters.collect::<anyhow::Result<Vec<_>>>()?;
        // By their numbers.
        clusters.sort_by_key(|(key, _)| (key.name().len(), key.clone()));
        Ok(Self {
            commands: child.stdin.take(),
            clusters,
            child,
            answers,
        })
    }

    /// The clusters, by name.
    pub fn clusters(&self) -> &[(ClusterKey, ClusterAccess)] {
        &self.clusters
    }

    /// A source of them.
    pub fn source(&self) -> MemorySource {
        let source = MemorySource::new("served");
        for (key, access) in &self.clusters {
            source.upsert(Upsert::ready(key.clone(), access.clone()));
        }
        source
    }

    /// Requests answered so far.
    pub fn requests(&mut self) -> anyhow::Result<u64> {
        let commands = self.commands.as_mut().context("it is open")?;
        writeln!(commands, "requests")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It ends when nobody can command it any more.
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}

/// Is the fleet, if this program was started to be it. To be called first of all.
pub fn served() -> anyhow::Result<bool> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [what, clusters, black_holes] = &arguments[..] else {
        return Ok(false);
    };
    if what != "serve" {
        return Ok(false);
    }
    serve(clusters.parse()?, black_holes.parse()?)?;
    Ok(true)
}

#[tokio::main]
async fn serve(clusters: usize, black_holes: usize) -> anyhow::Result<()> {
    let fleet = Fleet::start(clusters).await?;
    for cluster in &fleet.clusters()[clusters - black_holes..] {
        cluster.black_hole();
    }
    println!("{}\n{END}", fleet.kubeconfig_of_all());
    for line in std::io::stdin().lines() {
        line?;
        let requests = fleet.clusters().iter().map(|c| c.counters().requests);
        println!("{}", requests.map(|of| of.total()).sum::<u64>());
    }
    fleet.shutdown().await;
    Ok(())
}
