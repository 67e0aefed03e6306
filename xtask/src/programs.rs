//! The test programs of the workspace: built by cargo, run several at a time, since most of them wait for deadlines and
//! not for a processor. What one says is printed when it has ended, so that two never mix.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::step::{self, Ended};
use crate::{tools, workspace};

/// One of them.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its crate's folder and its target.
    name: String,
    executable: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// Builds all of them.
pub(crate) fn build() -> Result<Vec<Program>> {
    let mut command = tools::cargo();
    command
        .args(["test", "--workspace", "--all-features", "--no-run"])
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    eprintln!("$ {}", step::words(&command));
    let built = command.output().context("run cargo test --no-run")?;
    ensure!(built.status.success(), "cargo test: {}", built.status);
    let mut programs: Vec<_> = built
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| Program::of(&serde_json::from_slice(line).ok()?))
        .collect();
    // In an order that is the same every time, and the core's last: those of the plug-ins have the most to wait for.
    programs.sort_by_key(|program| (!program.name.contains('/'), program.name.clone()));
    Ok(programs)
}

/// Runs all of them, whatever fails, each with what `prepare` adds.
pub(crate) fn run(programs: &[Program], prepare: impl Fn(&mut Command) + Sync) -> Result<Ended> {
    let at_a_time = thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let left = Mutex::new(programs.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || {
        std::iter::from_fn(next)
            .map(|program| program.run(&prepare))
            .collect::<Vec<_>>()
    };
    let all: Vec<_> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..at_a_time).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().filter_map(|lane| lane.join().ok());
        ended.flatten().collect()
    });
    ensure!(all.len() == programs.len(), "a test program was not run");
    all.into_iter()
        .reduce(|sum, ended| Ok(sum?.join(ended?)))
        .context("there is no test program")?
}

impl Program {
    /// What cargo says of one that it built.
    fn of(message: &Value) -> Option<Self> {
        if !message["profile"]["test"].as_bool()? {
            return None;
        }
        let executable = message["executable"].as_str()?.into();
        let folder = PathBuf::from(message["manifest_path"].as_str()?);
        let folder = folder.parent()?.to_path_buf();
        let krate = folder.strip_prefix(workspace::root()).unwrap_or(&folder);
        let target = message["target"]["name"].as_str()?;
        Some(Self {
            name: krate.join(target).display().to_string(),
            executable,
            folder,
        })
    }

    fn run(&self, prepare: &impl Fn(&mut Command)) -> Result<Ended> {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null());
        prepare(&mut command);
        let start = Instant::now();
        let output = command
            .output()
            .with_context(|| format!("run {}", self.executable.display()))?;
        let (seconds, status) = (start.elapsed().as_secs_f32(), output.status);
        let mut out = io::stdout().lock();
        // A reader of ours that went away must not stop the tests.
        let _ = writeln!(out, "\n--- {}: {status}, {seconds:.1} s", self.name)
            .and_then(|()| out.write_all(&output.stdout))
            .and_then(|()| out.write_all(&output.stderr));
        Ok(Ended::of(&output))
    }
}
