//! Where keys are made and certificates signed: on threads on which a call may block, so many at once that the workers that serve everything else
//! still run. Signatures do not wait behind keys, which may take seconds each: a CA's key is held no longer than its signature takes.

use std::{num::NonZero, sync::LazyLock, thread::available_parallelism};

use tokio::sync::Semaphore;

use crate::IssueError;

/// What takes how long.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Key,
    Signature,
}

static KEYS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(turns()));
static SIGNATURES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(turns()));

/// Half of the processors.
fn turns() -> usize {
    let processors = available_parallelism().map_or(1, NonZero::get);
    (processors / 2).max(1)
}

/// Runs `work` when it is its turn. What has begun is not cancelled; it takes seconds at most.
pub(crate) async fn run<T: Send + 'static>(
    kind: Kind,
    work: impl FnOnce() -> Result<T, IssueError> + Send + 'static,
) -> Result<T, IssueError> {
    let turns = match kind {
        Kind::Key => &KEYS,
        Kind::Signature => &SIGNATURES,
    };
    // It is never closed.
    let turn = turns.acquire().await.map_err(|_| IssueError::Retired)?;
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    match done.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => Err(IssueError::Panicked),
        // The runtime shuts down.
        Err(_) => Err(IssueError::Retired),
    }
}
