//! The main job: a fleet of clusters from a kubeconfig, connected, watched over, lost, changed and removed, while everybody reads.
//!
//! `cargo run --release --example fleet`: 50 fake API servers over real TLS in this process, and half a minute of their lives.
//! `cargo run --release --example fleet -- --kubeconfig PATH`: the contexts of a real file, until Ctrl-C. It only reads `/readyz` and
//! `/version`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clustercache::ClusterCache;
use clustercache_client::KubeClient;
use clustercache_kubeconfig::{Kubeconfig, KubeconfigFile, Policy};

use crate::{screen::Screen, table::Rows};

mod screen;
mod story;
mod table;

const USAGE: &str = "usage: fleet [--kubeconfig PATH]";

#[tokio::main]
async fn main() -> ExitCode {
    let job = match path(std::env::args().skip(1)) {
        Ok(None) => story::run().await,
        Ok(Some(path)) => show(path).await,
        Err(error) => Err(error),
    };
    match job {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The path after `--kubeconfig`, if it is there.
fn path(mut args: impl Iterator<Item = String>) -> anyhow::Result<Option<PathBuf>> {
    match (args.next().as_deref(), args.next(), args.next()) {
        (None, ..) => Ok(None),
        (Some("--kubeconfig"), Some(path), None) => Ok(Some(path.into())),
        (Some("--kubeconfig"), None, _) => bail!("--kubeconfig needs a path; {USAGE}"),
        (Some(other), ..) => bail!("{other:?} is not known here; {USAGE}"),
    }
}

/// This is all that a program needs.
fn start(source: KubeconfigFile) -> anyhow::Result<ClusterCache> {
    let cache = ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new().user_agent("fleet-example/1.0"))
        .health_from::<KubeClient>()
        .start()?;
    Ok(cache)
}

/// Shows the contexts of a file until Ctrl-C.
async fn show(path: PathBuf) -> anyhow::Result<()> {
    // A source waits for a file to be mended; whoever has mistyped a path should be told.
    let bytes = std::fs::read(&path)
        .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    let kubeconfig = Kubeconfig::parse(&bytes, &Policy::operator())
        .with_context(|| format!("{} is no kubeconfig", path.display()))?;
    if kubeconfig.contexts().next().is_none() {
        bail!("{} has no contexts", path.display());
    }
    let screen = Screen::new();
    screen.say(&format!(
        "the contexts of {}; Ctrl-C ends this",
        path.display()
    ));
    let source = KubeconfigFile::at(path);
    let cache = start(source.clone())?;
    let rows = Rows::follow(&cache, &screen);
    let mut problems = Vec::new();
    let mut look = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            ended = tokio::signal::ctrl_c() => break ended?,
            _ = look.tick() => {
                let now = source.problems();
                for problem in now.iter().filter(|problem| !problems.contains(*problem)) {
                    screen.say(&problem.to_string());
                }
                problems = now;
            }
        }
    }
    rows.abort();
    cache.shutdown().await?;
    Ok(())
}
