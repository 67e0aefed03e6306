//! Doing what a cluster's lifecycle asks for. Readers lose a value before its teardown begins, whatever the order of the actions.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::TaskTracker;

use super::{HookKind, Running, hooks};
use crate::{
    ClusterAccess, ClusterKey, Generation, TeardownReason,
    connection::{Connection, IdentityState, NoValue},
    context::{Attempt, InitContext},
    latch::{Latch, Moment, Moments},
    lifecycle::{
        cluster::{Action, Log},
        resources::Step,
    },
    resource::Life,
    vitals::Vitals,
};

/// What the engine keeps of one connection until its teardown is over.
pub(super) struct Line {
    pub(super) connection: Arc<Connection>,
    /// The end of the last teardown in it: the next one waits for that, so that values go in reverse order.
    tail: Option<Arc<Latch>>,
    /// Gives up on its teardown.
    pub(super) abandon: Arc<Latch>,
}

impl Line {
    /// Ends everything without teardown, the newest value first: the engine itself is gone. What is left is named at once; it goes on a task of
    /// its own, after the teardown that runs, if there is a runtime that can still run one.
    pub(super) fn drop_all(self, tasks: &TaskTracker) {
        self.abandon.set();
        self.connection.mark_retired(|_| true);
        self.name_all();
        let down = hooks::TakeDown {
            connection: self.connection,
            slots: None,
            reason: TeardownReason::Shutdown,
            before: self.tail,
            done: Arc::default(),
            abandon: self.abandon,
        };
        if Handle::try_current().is_ok() {
            tasks.spawn(down.run());
        }
    }

    fn name_all(&self) {
        let (connection, shared) = (&self.connection, &self.connection.shared);
        let abandoned = |slot, hook| shared.abandoned(&connection.key, slot, hook);
        for attempt in connection.running() {
            // One that was to be cancelled before, and did not notice, was named then.
            if !attempt.life.moments.is_set(Moment::Stop) {
                abandoned(attempt.slot, HookKind::Init);
            }
            attempt.life.moments.set(Moment::Stop);
        }
        let ending = connection.tearing_down();
        let up = connection.all_up().into_iter().rev();
        let up = up
            .filter(|up| !up.value.is::<NoValue>())
            .map(|up| up.slot());
        for slot in ending.into_iter().chain(up) {
            abandoned(slot, HookKind::Teardown);
        }
    }
}

impl Running {
    pub(super) fn apply(&mut self, key: &ClusterKey, actions: Vec<Action>, now: Instant) {
        let publish = actions
            .iter()
            .any(|action| matches!(action, Action::Publish));
        let mut later = Vec::with_capacity(actions.len());
        for action in actions {
            match action {
                Action::Publish => {}
                Action::NewIdentity => {
                    if let Some(record) = self.clusters.get_mut(key) {
                        let new = IdentityState::new(record.cluster.named().clone());
                        let old = std::mem::replace(&mut record.identity, Arc::new(new));
                        old.end();
                        self.discard(old);
                    }
                }
                Action::Open {
                    generation,
                    access,
                    vitals,
                    predecessor,
                } => {
                    self.open(key, generation, access, vitals, predecessor);
                }
                action => later.push(action),
            }
        }
        if publish {
            self.publish(key);
        }
        for action in later {
            self.act(key, action, now);
        }
        let Some(record) = self.clusters.get(key) else {
            return;
        };
        if record.cluster.wants_down() {
            self.judged.insert(key.clone());
        }
        if let Some(unstarted) = &mut self.unstarted
            && (record.cluster.has_been_tried() || record.cluster.is_over())
        {
            unstarted.remove(key);
        }
        if record.cluster.is_over() {
            if let Some(at) = record.deadline {
                self.deadlines.remove(&(at, key.clone()));
            }
            let record = self.clusters.remove(key);
            if let Some(record) = &record {
                record.identity.end();
            }
            self.discard(record);
        } else {
            self.rearm(key, now);
        }
    }

    fn act(&mut self, key: &ClusterKey, action: Action, now: Instant) {
        match action {
            Action::Step { generation, step } => self.step(key, generation, step),
            Action::SetAccess { generation, access } => {
                if let Some(line) = self.line(key, generation) {
                    line.connection.set_access(access);
                }
            }
            Action::Swapped { generation } => {
                if let Some(line) = self.line(key, generation) {
                    line.connection.forget_predecessor();
                }
            }
            Action::Probe {
                generation,
                number,
                route,
                calm,
            } => {
                self.rank(key, generation);
                if let Some(line) = self.line(key, generation) {
                    line.connection.vitals.probed(now);
                    let connection = Arc::clone(&line.connection);
                    self.tasks
                        .spawn(hooks::probe(connection, number, route, calm));
                }
            }
            Action::ReplacePooled { generation } => {
                if let Some(line) = self.line(key, generation) {
                    let connection = Arc::clone(&line.connection);
                    self.tasks
                        .spawn(async move { hooks::replace_pooled(&connection) });
                }
            }
            Action::Reread { source } => self.sources.reread(source, key),
            Action::Retire { generation, reason } => self.retire(key, generation, None, reason),
            Action::Abandon { generation } => {
                if let Some(line) = self.line(key, generation) {
                    line.abandon.set();
                }
            }
            Action::Tell(changes) => {
                // Another cluster of the name was never up, and is not held for what the old one was.
                if changes.contains(crate::Changes::REPLACED) {
                    self.brake.removed(key);
                }
                if changes.contains(crate::Changes::REMOVED) && !self.shared.registry.contains(key)
                {
                    self.brake.removed(key);
                }
                self.shared.events.tell(key, changes);
            }
            Action::Verdict(verdict) => {
                let record = self.clusters.get(key);
                if let Some((generation, _)) = record.and_then(|record| record.cluster.published())
                {
                    self.rank(key, generation);
                }
                self.brake.verdict(key, verdict, now);
            }
            Action::CountRebuild { slot } => {
                self.shared.counters.rebuilt(self.shared.plan.name(slot));
            }
            Action::Log(line) => self.log(key, line),
            Action::Publish | Action::NewIdentity | Action::Open { .. } => {}
        }
    }

    fn open(
        &mut self,
        key: &ClusterKey,
        generation: Generation,
        access: ClusterAccess,
        vitals: Arc<Vitals>,
        predecessor: Option<Generation>,
    ) {
        let Some(record) = self.clusters.get_mut(key) else {
            return;
        };
        let old = record
            .lines
            .iter()
            .find(|line| Some(line.connection.generation) == predecessor);
        let connection = Connection::new(
            Arc::clone(&self.shared),
            key.clone(),
            generation,
            access,
            Arc::clone(&record.identity),
            vitals,
            old.map(|line| Arc::clone(&line.connection)),
        );
        let connection = Arc::new(connection);
        record.lines.reserve_exact(1);
        record.lines.push(Line {
            connection,
            tail: None,
            abandon: Arc::default(),
        });
    }

    fn step(&mut self, key: &ClusterKey, generation: Generation, step: Step) {
        match step {
            Step::Init {
                slot,
                incarnation,
                attempt,
            } => self.init(key, generation, slot, incarnation, attempt),
            Step::TakeDown { slots } => {
                self.retire(key, generation, Some(slots), TeardownReason::Replaced);
            }
            Step::Refresh { slots } => {
                if let Some(line) = self.line(key, generation) {
                    let connection = Arc::clone(&line.connection);
                    self.tasks.spawn(hooks::refresh(connection, slots));
                }
            }
        }
    }

    fn init(
        &mut self,
        key: &ClusterKey,
        generation: Generation,
        slot: usize,
        incarnation: u32,
        attempt: u32,
    ) {
        self.rank(key, generation);
        let Some(record) = self.clusters.get(key) else {
            return;
        };
        let Some(line) = record
            .lines
            .iter()
            .find(|line| line.connection.generation == generation)
        else {
            return;
        };
        let connection = Arc::clone(&line.connection);
        let planned = self.shared.plan.slot(slot);
        let needs = planned.requires.iter().chain(&planned.wants);
        let its_life = Life {
            key: key.clone(),
            generation,
            incarnation,
            moments: Moments::default(),
        };
        let attempt = Attempt {
            slot,
            nth: attempt,
            life: Arc::new(its_life),
            tasks: OnceLock::new(),
            built_on: needs
                .filter_map(|need| Some(connection.current(*need)?.value))
                .collect(),
            paused: OnceLock::new(),
            asked: AtomicBool::new(false),
            connection: Arc::clone(&connection),
        };
        let cx = InitContext(Arc::new(attempt));
        connection.began(Arc::clone(&cx.0));
        self.tasks.spawn(hooks::init(cx));
    }

    /// Takes some of a connection's slots down, or (`None`) the whole connection.
    fn retire(
        &mut self,
        key: &ClusterKey,
        generation: Generation,
        slots: Option<BTreeSet<usize>>,
        reason: TeardownReason,
    ) {
        let Some(record) = self.clusters.get_mut(key) else {
            return;
        };
        let line = record
            .lines
            .iter_mut()
            .find(|line| line.connection.generation == generation);
        let Some(line) = line else { return };
        line.connection
            .mark_retired(|slot| slots.as_ref().is_none_or(|slots| slots.contains(&slot)));
        let done = Arc::new(Latch::default());
        let before = line.tail.replace(Arc::clone(&done));
        let down = hooks::TakeDown {
            connection: Arc::clone(&line.connection),
            slots,
            reason,
            before,
            done,
            abandon: Arc::clone(&line.abandon),
        };
        self.tasks.spawn(down.run());
    }

    /// Its dials are served by how often it failed.
    fn rank(&mut self, key: &ClusterKey, generation: Generation) {
        let record = self.clusters.get(key);
        let failures = record.map(|record| record.cluster.dial_failures(generation));
        if let Some(failures) = failures
            && let Some(line) = self.line(key, generation)
        {
            line.connection.set_failures(failures);
        }
    }

    fn line(&mut self, key: &ClusterKey, generation: Generation) -> Option<&mut Line> {
        let record = self.clusters.get_mut(key)?;
        record
            .lines
            .iter_mut()
            .find(|line| line.connection.generation == generation)
    }

    /// One line at info a transition; what repeats is at debug.
    fn log(&self, key: &ClusterKey, line: Log) {
        let error = self
            .shared
            .registry
            .state(key)
            .and_then(|state| state.last_error);
        match line {
            Log::Connected => {
                self.shared
                    .counters
                    .connects
                    .fetch_add(1, Ordering::Relaxed);
                tracing::info!(cluster = %key.shown(), "connected");
            }
            Log::Replaced => {
                self.shared
                    .counters
                    .connects
                    .fetch_add(1, Ordering::Relaxed);
                tracing::info!(cluster = %key.shown(), "connected anew");
            }
            Log::Down => {
                let (why, stage) = match &error {
                    Some(error) => (&*error.message, error.stage.to_string()),
                    None => ("", String::new()),
                };
                tracing::info!(cluster = %key.shown(), stage, why, "down");
            }
            Log::Held => {
                tracing::info!(cluster = %key.shown(), "down by its health check, and held by the fleet brake");
            }
        }
    }
}
