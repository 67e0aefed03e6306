//! Runs a program, within a deadline and a limit, and leaves nothing of it behind: also not what it started and left in the background.

use std::{
    collections::BTreeMap, ffi::OsString, io, path::PathBuf, process::Stdio, sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    sync::OwnedSemaphorePermit,
    task::spawn_blocking,
    time::timeout,
};
use zeroize::Zeroizing;

use super::{ExecFailure, Issued, Program, Spec};

/// Of what a program prints, and of its errors. A credential with a chain of certificates has a tenth of it.
const LIMIT: usize = 256 * 1024;

/// How programs are run.
pub(crate) struct Terms {
    pub(crate) deadline: Duration,
    /// What the operator gives to all of them.
    pub(crate) env: BTreeMap<String, Zeroizing<String>>,
}

/// Runs it once. Whoever drops the future kills it.
pub(crate) async fn run(
    spec: Arc<Spec>,
    terms: Arc<Terms>,
    permit: OwnedSemaphorePermit,
) -> Result<Issued, ExecFailure> {
    let (version, deadline) = (spec.version, terms.deadline);
    let output = async {
        // What a program is read from may be a file system that hangs.
        let starting = spawn_blocking(move || Running::start(&spec, &terms, permit));
        let running = starting.await.map_err(|_| ExecFailure::Panicked)?;
        running?.output().await
    };
    let output = timeout(deadline, output).await;
    Issued::read(
        &output.map_err(|_| ExecFailure::TimedOut(deadline))??,
        version,
    )
}

/// A program that runs. Killed, with all that it started, when this is dropped before it has ended.
struct Running {
    child: Child,
    _permit: OwnedSemaphorePermit,
}

impl Running {
    fn start(
        spec: &Spec,
        terms: &Terms,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, ExecFailure> {
        let not_found = || ExecFailure::NotFound {
            hint: spec.hint.clone(),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = found(&spec.program, &path).ok_or_else(not_found)?;
        let mut command = Command::new(program);
        command
            .args(spec.args.iter().map(|arg| arg.as_str()))
            .env_clear()
            .env("PATH", path)
            .envs(spec.env.iter().map(|(name, value)| (name, value.as_str())))
            .envs(terms.env.iter().map(|(name, value)| (name, value.as_str())))
            .env("KUBERNETES_EXEC_INFO", spec.info.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.arg0(&spec.command).process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_found(),
            kind => ExecFailure::NotStarted(kind),
        })?;
        Ok(Self {
            child,
            _permit: permit,
        })
    }

    /// What it prints, once it has ended well.
    async fn output(mut self) -> Result<Zeroizing<Vec<u8>>, ExecFailure> {
        let (mut out, mut err) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut chunk, mut noise) = (buffer(), buffer());
        // Never moved (and left behind) while it grows.
        let mut output = Zeroizing::new(Vec::with_capacity(LIMIT));
        let mut errors = 0;
        let ended = ended(self.child.id());
        tokio::pin!(ended);
        loop {
            tokio::select! {
                read = read(&mut out, &mut chunk) => {
                    if output.len() + read > LIMIT {
                        return Err(ExecFailure::TooMuch { limit: LIMIT });
                    }
                    output.extend_from_slice(&chunk[..read]);
                }
                read = read(&mut err, &mut noise) => {
                    errors += read;
                    if errors > LIMIT {
                        return Err(ExecFailure::TooMuch { limit: LIMIT });
                    }
                }
                () = &mut ended, if out.is_none() => break,
            }
        }
        // It has ended, and is still there to be waited for: until then its number is its own, and so is that of its group.
        self.kill();
        let status = self.child.wait().await;
        let status = status.map_err(|error| ExecFailure::NotStarted(error.kind()))?;
        if status.success() {
            return Ok(output);
        }
        Err(ExecFailure::Failed {
            status: status.to_string(),
        })
    }
}

impl Running {
    /// Kills it with all of its group, unless it has been waited for.
    fn kill(&self) {
        #[cfg(unix)]
        if let Some(group) = pid(self.child.id()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(unix)]
fn pid(id: Option<u32>) -> Option<rustix::process::Pid> {
    let id = id.and_then(|id| i32::try_from(id).ok());
    id.and_then(rustix::process::Pid::from_raw)
}

/// Until a child has ended. It is not waited for here: its number may not become another's yet.
#[cfg(unix)]
async fn ended(child: Option<u32>) {
    use rustix::process::{WaitId, WaitIdOptions as Options, waitid};
    use tokio::signal::unix::{SignalKind, signal};

    let Some(child) = pid(child) else { return };
    // Listened to before the first look, so that an end between two looks is told.
    let Ok(mut children) = signal(SignalKind::child()) else {
        // It goes at its deadline.
        return std::future::pending().await;
    };
    let looks = Options::EXITED | Options::NOWAIT | Options::NOHANG;
    while let Ok(None) = waitid(WaitId::Pid(child), looks) {
        children.recv().await;
    }
}

/// There are no groups to be killed.
#[cfg(not(unix))]
async fn ended(_: Option<u32>) {}

fn buffer() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(vec![0; 8 * 1024])
}

/// How many bytes came; at the end the pipe is closed, and then none ever come.
async fn read(pipe: &mut Option<impl AsyncRead + Unpin>, into: &mut [u8]) -> usize {
    let Some(open) = pipe else {
        return std::future::pending().await;
    };
    // A pipe that cannot be read has as good as ended.
    let read = open.read(into).await.unwrap_or(0);
    if read == 0 {
        *pipe = None;
    }
    read
}

/// Where the program is. Only absolute directories of `PATH` count: what they mean does not depend on where this process happens to be.
fn found(program: &Program, path: &OsString) -> Option<PathBuf> {
    match program {
        Program::At(path) => Some(path.clone()),
        Program::Named(name) => {
            let directories = std::env::split_paths(path).filter(|path| path.is_absolute());
            let directories = std::env::join_paths(directories).ok()?;
            which::which_in_global(name, Some(directories)).ok()?.next()
        }
    }
}
