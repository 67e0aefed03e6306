//! How code of the user's is run (rules 7 and 12): a panic becomes an answer, a poll that blocks is counted and named, and what
//! would wait for a cluster is told that it would deadlock.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tokio::time::Instant;

use crate::counters::Counters;

/// A poll that takes longer than this blocks its worker thread, and is counted.
const SLOW_POLL: Duration = Duration::from_millis(100);

tokio::task_local! {
    static INSIDE: ();
}

/// Something that waits was called inside `init` or `teardown`, where waiting can only end in a deadlock: return
/// [`InitError::retry`](crate::InitError::retry) instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wait} inside init or teardown would deadlock; return a retry instead, or wait in a task spawned by the context"
)]
pub struct WouldDeadlock {
    pub(crate) wait: &'static str,
}

pub(crate) fn may_wait(wait: &'static str) -> Result<(), WouldDeadlock> {
    match INSIDE.try_with(|()| ()) {
        Ok(()) => Err(WouldDeadlock { wait }),
        Err(_) => Ok(()),
    }
}

/// How a hook ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<T> {
    Done(T),
    /// With the panic's message.
    Panicked(String),
    /// It was dropped because `stop` came first.
    Stopped,
}

/// Runs an asynchronous hook until it ends or `stop` does. The hook is dropped before this returns, and a panic of its drop
/// is caught too.
pub(crate) async fn run<T>(
    counters: &Counters,
    who: &str,
    hook: Pin<Box<dyn Future<Output = T> + Send + '_>>,
    stop: impl Future<Output = ()>,
) -> Ended<T> {
    watch(counters, who, Box::pin(INSIDE.scope((), hook)), stop).await
}

async fn watch<T>(
    counters: &Counters,
    who: &str,
    hook: Pin<Box<dyn Future<Output = T> + Send + '_>>,
    stop: impl Future<Output = ()>,
) -> Ended<T> {
    let mut hook = Some(hook);
    let ended = {
        let watched = Watched {
            hook: hook.as_mut(),
            counters,
            who,
        };
        tokio::select! {
            biased;
            ended = watched => ended,
            () = stop => Ended::Stopped,
        }
    };
    match (call(counters, who, || drop(hook.take())), ended) {
        (Err(panic), Ended::Done(_) | Ended::Stopped) => Ended::Panicked(panic),
        (_, ended) => ended,
    }
}

/// The same for a task that a hook spawned: it may wait.
pub(crate) async fn run_task<T>(
    counters: &Counters,
    who: &str,
    task: Pin<Box<dyn Future<Output = T> + Send + '_>>,
    stop: impl Future<Output = ()>,
) -> Ended<T> {
    watch(counters, who, task, stop).await
}

/// A wait that a user polls, for something that others of ours set: the waker is foreign code, and one that panics (or does so in its
/// drop) is its owner's loss alone, not that of whoever wakes it.
pub(crate) async fn guarded<T>(wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    poll_fn(|cx| {
        let waker = Waker::from(Arc::new(Guarded(Some(cx.waker().clone()))));
        wait.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// `None` only while it is dropped.
struct Guarded(Option<Waker>);

impl Wake for Guarded {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        caught(|| self.0.as_ref().map_or((), Waker::wake_by_ref));
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        caught(|| drop(self.0.take()));
    }
}

fn caught(of_users: impl FnOnce()) {
    if catch(of_users).is_err() {
        tracing::warn!("the waker of one who waits panicked");
    }
}

/// Calls a plain hook.
pub(crate) fn call<T>(
    counters: &Counters,
    who: &str,
    hook: impl FnOnce() -> T,
) -> Result<T, String> {
    let begun = Instant::now();
    let result = catch(hook);
    counters.polled(who, begun.elapsed(), SLOW_POLL);
    result.inspect_err(|panic| counters.panicked(who, panic))
}

/// Calls foreign code; an error is the message of its panic. What it panicked with is foreign too: if that panics in its drop, what is
/// left of it is leaked.
pub(crate) fn catch<T>(of_users: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(of_users)).map_err(|panic| {
        let text = message(&*panic);
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text
    })
}

struct Watched<'a, F> {
    hook: Option<&'a mut F>,
    counters: &'a Counters,
    who: &'a str,
}

impl<T, F: Future<Output = T> + Unpin> Future for Watched<'_, F> {
    type Output = Ended<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended<T>> {
        let (counters, who) = (self.counters, self.who);
        let Some(hook) = self.hook.as_mut() else {
            return Poll::Pending;
        };
        match call(counters, who, || Pin::new(&mut **hook).poll(cx)) {
            Ok(poll) => poll.map(Ended::Done),
            Err(panic) => Poll::Ready(Ended::Panicked(panic)),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "panicked: {}",
        text.unwrap_or("with a value that is no text")
    )
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_also_in_the_drop_of_a_cancelled_hook() {
        let counters = Counters::default();
        let panics = run(
            &counters,
            "test",
            Box::pin(async { panic!("in poll") }),
            pending(),
        )
        .await;
        assert_eq!(panics, Ended::<()>::Panicked("panicked: in poll".into()));
        let held = Box::pin(async {
            let _held = PanicsOnDrop;
            pending::<()>().await;
        });
        assert_eq!(
            run(&counters, "test", held, ready(())).await,
            Ended::Panicked("panicked: in drop".into())
        );
        assert_eq!(counters.panics(), [("test".into(), 2)].into());
    }

    #[tokio::test]
    async fn waiting_inside_is_a_deadlock_and_outside_is_not() {
        let counters = Counters::default();
        let inside = run(
            &counters,
            "test",
            Box::pin(async { may_wait("wait_for") }),
            pending(),
        )
        .await;
        assert_eq!(inside, Ended::Done(Err(WouldDeadlock { wait: "wait_for" })));
        assert_eq!(may_wait("wait_for"), Ok(()));
    }
}
