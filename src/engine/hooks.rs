//! The tasks in which code of providers runs. Each ends by itself, in bounded time, and tells the engine what came of it; the engine waits for
//! none of them. Values are dropped here too, never on the engine's own task.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{HookKind, News, Report};
use crate::{
    Answer, CheckContext, ClusterAccess, EngineStatus, FailureKind, Refresh, Route,
    TeardownContext, TeardownReason,
    connection::{Connection, NoValue, Up},
    context::{Attempt, InitContext},
    hook::{self, Ended},
    inbox::Signal,
    latch::{Latch, Moment},
    lifecycle::{
        detector::ProbeResult,
        resources::{Failure, Outcome},
    },
    resource::{Then, Value, escaped},
    shared::Shared,
};

#[cfg(all(test, clustercache_shuttle))]
mod model;

/// How long the tasks of a resource may take to notice that they were dropped: longer only if one blocks its thread.
const KILL: Duration = Duration::from_secs(1);

/// How long an init may take to notice that it was cancelled when its connection is abandoned: longer only if one blocks its thread.
const GRACE: Duration = Duration::from_millis(100);

impl Connection {
    async fn report(&self, news: News) {
        let report = Report {
            key: self.key.clone(),
            generation: self.generation,
            news,
        };
        // Without an engine there is nobody to tell: it has dropped all values, or they are on their way.
        let _ = self.shared.reports.send(report).await;
    }
}

/// Runs one `init`.
pub(super) async fn init(cx: InitContext) {
    let attempt = Arc::clone(&cx.0);
    let connection = Arc::clone(&attempt.connection);
    let shared = Arc::clone(&connection.shared);
    let registered = &shared.providers[attempt.slot];
    let who = shared.plan.name(attempt.slot);
    let stop = async {
        tokio::select! {
            () = attempt.life.moments.wait(Moment::Stop) => {}
            () = attempt.timeout(registered.init_timeout) => {}
        }
    };
    // What an earlier one left, that was not applicable.
    if let Some(before) = connection.pop_none(attempt.slot) {
        end_tasks(&before, Duration::ZERO).await;
    }
    let hook = Box::pin(async {
        registered
            .provider
            .init(&cx, Arc::clone(&attempt.life))
            .await
    });
    let begun = Instant::now();
    let ended = hook::run(&shared.counters, who, hook, stop).await;
    let took = begun.elapsed();
    let failed = |then, kind, text| Failure {
        then,
        kind,
        text,
        retry_after: None,
    };
    let (value, failure) = match ended {
        Ended::Done(Ok(value)) => (Some(value), None),
        Ended::Done(Err(error)) => {
            let retry_after = error.retry_after;
            (
                None,
                Some(Failure {
                    retry_after,
                    ..failed(error.then, error.failure, error.text)
                }),
            )
        }
        Ended::Panicked(panic) => (
            None,
            Some(failed(Then::Retry, FailureKind::Panicked, escaped(&panic))),
        ),
        Ended::Stopped => {
            let text = format!("no end within {:?}", registered.init_timeout);
            (
                None,
                Some(failed(Then::Retry, FailureKind::TimedOut, text.into())),
            )
        }
    };
    // The tasks of one that is not applicable live on: they may see when it is.
    let none = |failure: &Failure| failure.then == Then::NotApplicable;
    if !attempt.life.moments.is_set(Moment::Stop) {
        let paused = attempt.paused.get();
        let paused = paused.map_or(Duration::ZERO, |paused| paused.so_far().0);
        let well = failure.as_ref().is_none_or(none);
        let took = took.saturating_sub(paused);
        shared.counters.initialised(attempt.slot, took, well);
    }
    let value = match &failure {
        Some(failure) if none(failure) => Some(Arc::new(NoValue) as Value),
        _ => value,
    };
    if let Some(failure) = &failure {
        if !none(failure) {
            end_tasks(&attempt, Duration::ZERO).await;
        }
        tracing::debug!(cluster = %connection.key.shown(), resource = who, error = %failure.text, "init failed");
    }
    if let Some(late) = connection.finished(&attempt, value) {
        let _ = hook::call(&shared.counters, who, || drop(late));
        end_tasks(&attempt, Duration::ZERO).await;
    }
    let outcome = failure.map_or(Outcome::Up, Outcome::Failed);
    let (slot, incarnation) = (attempt.slot, attempt.life.incarnation);
    let news = News::Finished {
        slot,
        incarnation,
        outcome,
    };
    connection.report(news).await;
}

/// Ends the tasks that a resource spawned: first politely, for as long as `grace`.
async fn end_tasks(attempt: &Attempt, grace: Duration) {
    for (moment, limit) in [(Moment::Ending, grace), (Moment::Killed, KILL)] {
        attempt.life.moments.set(moment);
        // One that is spawned from now on finds itself killed.
        if let Some(tasks) = attempt.tasks.get() {
            tasks.close();
            let _ = tokio::time::timeout(limit, tasks.wait()).await;
        }
    }
}

/// Tears values down, in the reverse of the order in which they came up.
pub(super) struct TakeDown {
    pub(super) connection: Arc<Connection>,
    /// `None`: the whole connection.
    pub(super) slots: Option<BTreeSet<usize>>,
    pub(super) reason: TeardownReason,
    pub(super) before: Option<Arc<Latch>>,
    pub(super) done: Arc<Latch>,
    pub(super) abandon: Arc<Latch>,
}

impl TakeDown {
    pub(super) async fn run(self) {
        if let Some(before) = &self.before {
            before.wait().await;
        }
        self.cancel_inits().await;
        let cx = TeardownContext {
            connection: Arc::clone(&self.connection),
            reason: self.reason,
        };
        while let Some(up) = self.connection.pop(|slot| self.takes(slot)) {
            self.connection.set_tearing_down(Some(up.slot()));
            self.tear_down(up, &cx).await;
            self.connection.set_tearing_down(None);
        }
        self.connection.forget_predecessor();
        self.done.set();
        let news = self
            .slots
            .clone()
            .map_or(News::Retired, |slots| News::Ended { slots });
        self.connection.report(news).await;
    }

    fn takes(&self, slot: usize) -> bool {
        self.slots
            .as_ref()
            .is_none_or(|slots| slots.contains(&slot))
    }

    /// What an init made in spite of being cancelled is up when this returns, and is torn down like the rest.
    async fn cancel_inits(&self) {
        let running = self.connection.running();
        let running: Vec<_> = running
            .into_iter()
            .filter(|attempt| self.takes(attempt.slot))
            .collect();
        for attempt in &running {
            attempt.life.moments.set(Moment::Stop);
            self.left(attempt.slot, HookKind::Init);
        }
        for attempt in running {
            // Dropping a future takes no time, unless one of its polls blocks.
            let limit = self.shared().providers[attempt.slot].teardown_timeout;
            tokio::select! {
                () = attempt.life.moments.wait(Moment::Done) => {}
                () = sleep(limit) => {}
                () = async { self.abandon.wait().await; sleep(GRACE).await } => {}
            }
            if self.connection.give_up(&attempt) {
                self.abandoned(attempt.slot);
            }
        }
    }

    async fn tear_down(&self, up: Up, cx: &TeardownContext) {
        let (slot, shared) = (up.slot(), self.shared());
        let who = shared.plan.name(slot);
        let Up { value, attempt } = up;
        attempt.life.moments.set(Moment::Ending);
        if value.is::<NoValue>() {
            return end_tasks(&attempt, Duration::ZERO).await;
        }
        // One that came up while its connection went was never published, and is not current either.
        attempt.life.moments.set(Moment::Retired);
        let registered = &shared.providers[slot];
        let stop = async {
            tokio::select! {
                () = self.abandon.wait() => {}
                () = sleep(registered.teardown_timeout) => {}
            }
        };
        let ended = if self.abandon.is_set() {
            Ended::Stopped
        } else {
            let value = value.clone();
            let hook = Box::pin(async { registered.provider.teardown(value, cx).await });
            let begun = Instant::now();
            let ended = hook::run(&shared.counters, who, hook, stop).await;
            let well = matches!(ended, Ended::Done(()));
            shared.counters.torn_down(slot, begun.elapsed(), well);
            ended
        };
        match ended {
            Ended::Done(()) => {}
            Ended::Panicked(panic) => {
                tracing::warn!(cluster = %self.connection.key.shown(), resource = who, panic = %escaped(&panic), "teardown panicked");
            }
            Ended::Stopped => {
                self.abandoned(slot);
                self.left(slot, HookKind::Teardown);
            }
        }
        end_tasks(&attempt, Duration::ZERO).await;
        let _ = hook::call(&shared.counters, who, || drop((value, attempt)));
    }

    fn abandoned(&self, slot: usize) {
        let shared = self.shared();
        // An engine that ended before has named what was left.
        if matches!(
            shared.registry.status(),
            EngineStatus::Ended | EngineStatus::Panicked
        ) {
            return;
        }
        shared.counters.abandon(slot);
        let resource = shared.plan.name(slot);
        tracing::warn!(cluster = %self.connection.key.shown(), resource, "abandoned: its hook did not end in time");
    }

    fn left(&self, slot: usize, hook: HookKind) {
        let shared = self.shared();
        // Also of a connection that was on its way out before.
        if shared.registry.status() == EngineStatus::ShuttingDown {
            shared.left(&self.connection.key, slot, hook);
        }
    }

    fn shared(&self) -> &Shared {
        &self.connection.shared
    }
}

/// A runtime that ends drops its tasks: then what is left goes at once, still the newest first. An init that blocks its thread meanwhile
/// finds that nobody waits for it, and drops what it made.
impl Drop for TakeDown {
    fn drop(&mut self) {
        if self.done.is_set() {
            return;
        }
        for attempt in self.connection.running() {
            if self.takes(attempt.slot) {
                attempt.life.moments.set(Moment::Stop);
                attempt.life.moments.set(Moment::Killed);
                self.connection.give_up(&attempt);
            }
        }
        while let Some(up) = self.connection.pop(|slot| self.takes(slot)) {
            up.attempt.life.moments.set(Moment::Retired);
            up.attempt.life.moments.set(Moment::Ending);
            up.attempt.life.moments.set(Moment::Killed);
            let who = self.shared().plan.name(up.slot());
            let _ = hook::call(&self.shared().counters, who, || drop(up));
        }
        self.done.set();
    }
}

/// Asks what is up, in order, whether it takes the newest access. One whose last answer is still to come, beyond its limit, is not asked: it
/// might take the older access after the newer one.
pub(super) async fn refresh(connection: Arc<Connection>, slots: Vec<usize>) {
    let access = connection.access();
    let mut rebuild = None;
    for slot in slots {
        let Some(up) = connection.value(slot) else {
            continue;
        };
        if up.attempt.asked.swap(true, Ordering::AcqRel) {
            let who = connection.shared.plan.name(slot);
            let _ = hook::call(&connection.shared.counters, who, || drop(up));
            rebuild = Some(slot);
            break;
        }
        let limit = connection.shared.providers[slot].init_timeout;
        let (shared, access) = (Arc::clone(&connection.shared), access.clone());
        let asked = async move { takes(&shared, up, &access) };
        // On a task of its own: one that blocks its thread is waited for no longer than that.
        let answer = tokio::time::timeout(limit, tokio::spawn(asked)).await;
        if !matches!(answer, Ok(Ok(true))) {
            rebuild = Some(slot);
            break;
        }
    }
    connection.report(News::Refreshed { rebuild }).await;
}

/// Whether a value takes the access.
fn takes(shared: &Shared, up: Up, access: &ClusterAccess) -> bool {
    let slot = up.slot();
    let (who, provider) = (shared.plan.name(slot), &shared.providers[slot].provider);
    // We may be the last who hold it: its drop is foreign code too, and must not cost the answer.
    let refresh = hook::call(&shared.counters, who, || {
        let asked = Asked(&up.attempt);
        let refresh = provider.refresh(&up.value, access);
        drop(asked);
        drop(up);
        refresh
    });
    matches!(refresh, Ok(Refresh::Unchanged | Refresh::InPlace))
}

/// A value that is asked to take an access, until it has answered or panicked.
struct Asked<'a>(&'a Attempt);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.asked.store(false, Ordering::Release);
    }
}

/// Sends one probe. While all is `calm`, an answer that changes nothing wakes nobody.
pub(super) async fn probe(connection: Arc<Connection>, number: u64, route: Route, calm: bool) {
    let shared = Arc::clone(&connection.shared);
    let result = match connection.value(shared.plan.health()) {
        Some(up) => check(&shared, up, route).await,
        None => ProbeResult::Failed {
            kind: FailureKind::Busy,
            text: "not up".into(),
        },
    };
    if calm && result == (ProbeResult::Alive { not_ready: None }) {
        let at = Instant::now();
        connection.signal(Signal::Answered { number, at });
    } else {
        connection.report(News::Probed { number, result }).await;
    }
}

async fn check(shared: &Shared, up: Up, route: Route) -> ProbeResult {
    let who = shared.plan.name(up.slot());
    let Up { value, attempt } = up;
    let limit = shared.options.health.probe_timeout;
    let stop = async {
        tokio::select! {
            () = sleep(limit) => {}
            () = attempt.life.moments.wait(Moment::Ending) => {}
        }
    };
    let cx = CheckContext {
        init: InitContext(Arc::clone(&attempt)),
        route,
        without_permit: AtomicBool::new(false),
    };
    let hook = Box::pin(async { shared.health.check(&value, &cx).await });
    let ended = hook::run(&shared.counters, who, hook, stop).await;
    let without_permit = cx.without_permit.load(Ordering::Relaxed);
    // Cut off by a teardown, it says nothing.
    let over = attempt.life.moments.is_set(Moment::Ending);
    // As in `refresh`.
    let _ = hook::call(&shared.counters, who, || drop((value, attempt, cx)));
    let result = match ended {
        Ended::Done(Ok(answer)) => {
            let not_ready = match answer {
                Answer::Ready => None,
                Answer::NotReady(why) => Some(escaped(&why)),
            };
            ProbeResult::Alive { not_ready }
        }
        Ended::Done(Err(error)) => ProbeResult::Failed {
            kind: error.kind,
            text: error.text,
        },
        Ended::Panicked(panic) => ProbeResult::Failed {
            kind: FailureKind::Panicked,
            text: escaped(&panic),
        },
        Ended::Stopped if without_permit => ProbeResult::Failed {
            kind: FailureKind::Busy,
            text: "no permit to dial".into(),
        },
        Ended::Stopped => {
            let text = format!("no answer within {limit:?}").into();
            ProbeResult::Failed {
                kind: FailureKind::TimedOut,
                text,
            }
        }
    };
    if !over {
        shared.counters.probed(&result);
    }
    result
}

/// The pooled connection is not to be used any more.
pub(super) fn replace_pooled(connection: &Connection) {
    let shared = &connection.shared;
    let slot = shared.plan.health();
    if let Some(up) = connection.value(slot) {
        let _ = hook::call(&shared.counters, shared.plan.name(slot), || {
            shared.health.replace_pooled(&up.value);
            drop(up);
        });
    }
}
