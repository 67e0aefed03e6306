//! The tasks behind a transport. Each ends when its connections are killed, and can be waited for: nothing survives a connection.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// Runs the tasks of some connections, which end together.
#[derive(Clone)]
pub(crate) struct Tasks {
    /// All of the transport.
    all: TaskTracker,
    /// Those of these connections.
    own: TaskTracker,
    pub(crate) killed: CancellationToken,
    /// Whoever drops an answer may be on none, and that may have a task begin.
    runtime: Handle,
}

impl Tasks {
    /// On the runtime of the caller.
    pub(crate) fn new(all: &TaskTracker, killed: CancellationToken) -> Self {
        Self {
            all: all.clone(),
            own: TaskTracker::new(),
            killed,
            runtime: Handle::current(),
        }
    }

    pub(crate) fn spawn<F>(&self, task: F)
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let killed = self.killed.clone().cancelled_owned();
        let task = Until { killed, task };
        self.all
            .spawn_on(self.own.track_future(task), &self.runtime);
    }

    /// And runs `then` when the task has ended by itself.
    pub(crate) fn spawn_then<F>(&self, task: F, then: impl FnOnce() + Send + 'static)
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        self.spawn(Then {
            task,
            then: Some(then),
        });
    }

    /// Counts as a task until it is dropped.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.own.token()
    }

    /// Returns when there are none.
    pub(crate) async fn gone(&self) {
        self.own.close();
        self.own.wait().await;
    }
}

pin_project! {
    // Both by hand: an async block would hold what it is given twice, and the task of an HTTP/2 connection is large.
    struct Then<F, T> {
        #[pin]
        task: F,
        then: Option<T>,
    }
}

impl<F: Future, T: FnOnce()> Future for Then<F, T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let done = this.task.poll(cx).map(|_| ());
        if done.is_ready()
            && let Some(then) = this.then.take()
        {
            then();
        }
        done
    }
}

pin_project! {
    struct Until<F> {
        #[pin]
        killed: WaitForCancellationFutureOwned,
        #[pin]
        task: F,
    }
}

impl<F: Future> Future for Until<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.killed.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        this.task.poll(cx).map(|_| ())
    }
}
