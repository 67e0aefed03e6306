//! One work for all who want its result: whoever comes while it runs waits for the same, and none who leaves ends it.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::IssueError;

type Landed = Option<Result<(), IssueError>>;

/// The work that runs, if any.
#[derive(Default)]
pub(crate) struct Flight(Mutex<Option<watch::Receiver<Landed>>>);

/// A place on it.
pub(crate) struct Seat {
    /// Whether it began with this.
    pub(crate) began: bool,
    landed: watch::Receiver<Landed>,
}

impl Flight {
    /// Joins the work that runs, or begins it on a task of its own. A panic of it is its result.
    pub(crate) fn join<F>(self: &Arc<Self>, begin: impl FnOnce() -> F) -> Seat
    where
        F: Future<Output = Result<(), IssueError>> + Send + 'static,
    {
        let mut running = self.lock();
        // One whose task was dropped with its runtime never lands.
        let flies = running
            .as_ref()
            .filter(|flight| flight.has_changed().is_ok());
        if let Some(landed) = flies.cloned() {
            return Seat {
                began: false,
                landed,
            };
        }
        let (land, landed) = watch::channel(None);
        *running = Some(landed.clone());
        drop(running);
        let (flight, work) = (Arc::clone(self), AssertUnwindSafe(begin()).catch_unwind());
        tokio::spawn(async move {
            let result = work.await.unwrap_or(Err(IssueError::Panicked));
            // In this order: whoever hears of the end may begin the next.
            *flight.lock() = None;
            land.send_replace(Some(result));
        });
        Seat {
            began: true,
            landed,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<watch::Receiver<Landed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// How it ends.
    pub(crate) async fn landed(mut self) -> Result<(), IssueError> {
        let landed = self.landed.wait_for(Option::is_some).await;
        let landed = landed.ok().and_then(|landed| landed.clone());
        landed.unwrap_or(Err(IssueError::Retired))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn a_thousand_who_come_at_once_cause_one_work_and_the_next_one_another() {
        let (flight, works) = (Arc::<Flight>::default(), Arc::<AtomicU32>::default());
        let seat = || {
            let works = Arc::clone(&works);
            flight.join(|| async move {
                works.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(())
            })
        };
        let all = join_all((0..1_000).map(|_| seat().landed())).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(works.load(Ordering::Relaxed), 1);
        seat().landed().await.unwrap();
        assert_eq!(works.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn work_goes_on_when_who_began_it_leaves_and_a_panic_is_its_result() {
        let flight = Arc::<Flight>::default();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let first = flight.join(|| async move {
            gone.await.ok();
            panic!("as it must")
        });
        assert!(first.began);
        drop(first);
        let second = flight.join(|| async { Ok(()) });
        assert!(!second.began);
        go.send(()).unwrap();
        assert_eq!(second.landed().await, Err(IssueError::Panicked));
        assert!(flight.join(|| async { Ok(()) }).began);
    }
}
