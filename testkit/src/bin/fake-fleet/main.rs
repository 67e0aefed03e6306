//! A fake fleet in a process of its own: for benches whose figures must not contain the servers, and for any client.
//!
//! It prints the path of a kubeconfig of all clusters, the URL of its control endpoint (`control.rs`), then `ready`. It takes
//! commands on standard input (`commands.rs`), one a line, and answers each with one line of JSON. It ends when its input
//! closes, by Ctrl-C or by SIGTERM. The testkit's README has all of it.

mod commands;
mod control;
mod files;
mod load;
mod options;
mod orders;

use std::{
    io::{BufRead, Write},
    sync::Arc,
};

use anyhow::Context;
use clustercache_testkit::fleet::Fleet;
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use self::{commands::obey, control::Control, files::Files, options::Options};

/// What commands and the control endpoint act on.
struct Running {
    fleet: Fleet,
    files: Files,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let fleet = Fleet::builder()
        .clusters(options.clusters)
        .first(options.first)
        .http2(options.http2)
        .one_ca(options.one_ca)
        .port_each(options.port_each)
        .start()
        .await?;
    load::fill(&fleet, options.pods)?;
    let files = Files::new(options.kubeconfig, options.folder)?;
    files.save(&fleet)?;
    let running = Arc::new(Running { fleet, files });
    let control = Control::start(running.clone(), options.control).await?;
    say(&running.files.of_all().display())?;
    say(&control.url())?;
    say(&"ready")?;

    let changing = load::change(&running.fleet, options.pods, options.changes_per_second);
    tokio::select! {
        ended = changing => ended?,
        ended = listen(&running, options.input) => ended?,
        ended = told_to_end() => ended?,
    }
    control.end().await;
    if let Some(running) = Arc::into_inner(running) {
        running.fleet.shutdown().await;
    }
    Ok(())
}

/// Obeys until the input closes; for ever if there is to be none.
async fn listen(running: &Running, input: bool) -> anyhow::Result<()> {
    if !input {
        return std::future::pending().await;
    }
    let mut commands = lines();
    while let Some(command) = commands.recv().await {
        if command.trim().is_empty() {
            continue;
        }
        let answer = obey(running, &command);
        say(&answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") })))?;
    }
    Ok(())
}

async fn told_to_end() -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("cannot take signals")?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
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
