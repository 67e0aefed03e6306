//! One server process: started into the group, watched until it is ready, stopped, continued, killed, and never left
//! behind.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::RealError;

/// How long a server may take: most need two seconds, but machines that run many tests are slow.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How often a process of another's making is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long `Drop` waits for a process that was killed to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const LOG_TAIL_BYTES: u64 = 6 * 1024;

/// What to run, as often as it is restarted.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) log: PathBuf,
    /// The process group to join; 0 for a new one.
    pub(super) group: u32,
}

/// A process of a [`Spec`], running or not.
#[derive(Debug)]
pub(super) struct Process {
    spec: Spec,
    child: Option<Child>,
}

impl Process {
    pub(super) fn start(spec: Spec) -> Result<Self, RealError> {
        let mut process = Self { spec, child: None };
        process.spawn()?;
        Ok(process)
    }

    /// Starts it again, after `kill`.
    pub(super) fn spawn(&mut self) -> Result<(), RealError> {
        let Spec {
            name,
            program,
            arguments,
            log,
            group,
        } = &self.spec;
        let to_log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .and_then(|out| Ok((out.try_clone()?, out)))
            .map_err(RealError::io(format!("open {}", log.display())))?;
        let child = Command::new(program)
            .args(arguments)
            // etcd reads ETCD_…, both read proxies: nothing of the machine's shall change them.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(to_log.0)
            .stderr(to_log.1)
            .process_group(i32::try_from(*group).unwrap_or(0))
            .kill_on_drop(true)
            .spawn()
            .map_err(RealError::io(format!(
                "start {name} ({})",
                program.display()
            )))?;
        self.child = Some(child);
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Asks until it says yes, it ends, or the limit has passed.
    pub(super) async fn ready<F>(&mut self, ask: impl Fn() -> F) -> Result<(), RealError>
    where
        F: Future<Output = Result<(), RealError>>,
    {
        let deadline = Instant::now() + READY_WITHIN;
        let mut last = String::from("none");
        let answers = async {
            while let Err(error) = ask().await {
                last = error.to_string();
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let child = self.child.as_mut().ok_or_else(|| RealError::NotRunning {
            name: self.spec.name.clone(),
        })?;
        tokio::select! {
            biased;
            status = child.wait() => {
                let status = status.map_err(RealError::io(format!("wait for {}", self.spec.name)))?;
                self.child = None;
                Err(RealError::DiedEarly { name: self.spec.name.clone(), status, log: self.log_tail() })
            }
            () = answers => Ok(()),
            () = tokio::time::sleep_until(deadline) => Err(RealError::NotReady {
                name: self.spec.name.clone(),
                limit: READY_WITHIN,
                last,
                log: self.log_tail(),
            }),
        }
    }

    /// `kill -STOP`: it keeps its sockets and answers nothing.
    pub(super) fn stop(&self) -> Result<(), RealError> {
        self.signal(Signal::STOP)
    }

    /// `kill -CONT`.
    pub(super) fn cont(&self) -> Result<(), RealError> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), RealError> {
        let pid = self
            .pid()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| RealError::NotRunning {
                name: self.spec.name.clone(),
            })?;
        kill_process(pid, signal).map_err(|error| RealError::Io {
            what: format!("send {signal:?} to {}", self.spec.name),
            source: error.into(),
        })
    }

    /// `kill -9`; returns when it is gone. Not an error where it is gone already.
    pub(super) async fn kill(&mut self) -> Result<(), RealError> {
        if let Some(child) = &mut self.child {
            child
                .kill()
                .await
                .map_err(RealError::io(format!("kill {}", self.spec.name)))?;
        }
        self.child = None;
        Ok(())
    }

    /// The end of what it wrote, over all its lives.
    pub(super) fn log_tail(&self) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.spec.log)?;
            let start = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
            file.seek(SeekFrom::Start(start))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            Ok(tail)
        };
        match read() {
            Ok(tail) => String::from_utf8_lossy(&tail).into_owned(),
            Err(error) => format!("(no log: {error})"),
        }
    }
}

impl Drop for Process {
    #[expect(
        clippy::disallowed_methods,
        reason = "a drop cannot await, and what was killed is gone in milliseconds"
    )]
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        let _ = child.start_kill();
        // Its folder is removed next, and must not be written to any more.
        let deadline = Instant::now() + GONE_WITHIN;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Arguments as `--flag=value`.
pub(super) fn flags<const N: usize>(pairs: [(&str, OsString); N]) -> Vec<OsString> {
    pairs
        .into_iter()
        .map(|(flag, value)| {
            let mut argument = OsString::from(flag);
            argument.push("=");
            argument.push(value);
            argument
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(folder: &tempfile::TempDir, script: &str) -> Spec {
        Spec {
            name: "a shell".to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            log: folder.path().join("log"),
            group: 0,
        }
    }

    async fn never_ready() -> Result<(), RealError> {
        Err(RealError::NotRunning {
            name: "nothing".to_owned(),
        })
    }

    #[tokio::test]
    async fn a_process_that_ends_before_it_is_ready_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(shell(&folder, "echo no such port >&2; exit 3")).unwrap();
        match process.ready(never_ready).await {
            Err(RealError::DiedEarly { status, log, .. }) => {
                assert_eq!(status.code(), Some(3));
                assert_eq!(log, "no such port\n");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(process.stop(), Err(RealError::NotRunning { .. })));
    }

    #[tokio::test]
    async fn a_stopped_process_dies_with_its_handle() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(shell(&folder, "exec sleep 600")).unwrap();
        let pid = Pid::from_raw(process.pid().unwrap().try_into().unwrap()).unwrap();
        process.stop().unwrap();
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
