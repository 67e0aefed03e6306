//! The only writer. One future holds every cluster's lifecycle, feeds it with what sources, tasks and users say, and does what comes out:
//! it publishes snapshots and spawns the tasks in which everybody else's code runs. It waits for none of them (rules 7 and 11), and an
//! idle cluster costs it neither a task nor a timer: there is one queue of deadlines for the fleet.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::TaskTracker;

use crate::{
    ClusterKey, EngineStatus, Generation,
    connection::IdentityState,
    hook,
    inbox::{Command, Letters},
    lifecycle::{
        brake::{Brake, BrakeChange},
        claims::{Claims, Word},
        cluster::{Action, Cluster, Cx},
        detector::ProbeResult,
        resources::Outcome,
    },
    shared::Shared,
};

mod apply;
mod hooks;
mod publish;
mod report;
mod sources;

pub use report::{Abandoned, HookKind, ShutdownReport};
pub(crate) use sources::{Filter, RegisteredSource};

use apply::Line;

/// How often the engine looks whether the process runs at all.
const TICK: Duration = Duration::from_millis(250);

/// What is handled in one turn, so that a flood of one kind delays no other.
const TURN: usize = 256;

/// The engine, not yet running. [`run`](Self::run) makes everything move; without it every read says that the cache is not running.
#[must_use = "without an engine that runs, every read says that the cache is not running"]
pub struct Engine(Option<Unstarted>);

struct Unstarted {
    shared: Arc<Shared>,
    sources: Vec<RegisteredSource>,
    reports: mpsc::Receiver<Report>,
}

/// What a task tells the engine.
pub(crate) struct Report {
    pub(crate) key: ClusterKey,
    pub(crate) generation: Generation,
    pub(crate) news: News,
}

pub(crate) enum News {
    Finished {
        slot: usize,
        incarnation: u32,
        outcome: Outcome,
    },
    Ended {
        slots: BTreeSet<usize>,
    },
    Retired,
    Refreshed {
        rebuild: Option<usize>,
    },
    Probed {
        number: u64,
        result: ProbeResult,
    },
}

impl Engine {
    pub(crate) fn new(
        shared: Arc<Shared>,
        sources: Vec<RegisteredSource>,
        reports: mpsc::Receiver<Report>,
    ) -> Self {
        Self(Some(Unstarted {
            shared,
            sources,
            reports,
        }))
    }

    /// Runs until [`shutdown`](crate::ClusterCache::shutdown). Dropping the future drops all values, the newest first, without their
    /// teardown; every read then says so.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn run(mut self) {
        if let Some(Unstarted {
            shared,
            sources,
            reports,
        }) = self.0.take()
        {
            Running::new(shared, sources).run(reports).await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(Unstarted { shared, .. }) = self.0.take() {
            shared.close(EngineStatus::Ended);
        }
    }
}

/// The engine while it runs.
struct Running {
    shared: Arc<Shared>,
    /// Boxed: a table of them would be half empty, and moves each at every input.
    clusters: HashMap<ClusterKey, Box<Record>, foldhash::fast::RandomState>,
    claims: Claims,
    brake: Brake,
    sources: sources::Sources,
    deadlines: BTreeSet<(Instant, ClusterKey)>,
    /// Published connections that the verdict wants down, for the brake to judge.
    judged: BTreeSet<ClusterKey>,
    /// Clusters that the start-up barrier still waits for; `None` until all sources are synced.
    unstarted: Option<BTreeSet<ClusterKey>>,
    unhealthy_times: Vec<Duration>,
    rng: fastrand::Rng,
    generations: u64,
    tasks: TaskTracker,
    awake: Instant,
    ending: Option<Ending>,
}

/// A shutdown under way.
#[derive(Clone, Copy)]
struct Ending {
    /// Most of the time is for teardowns; what is left when it has passed is abandoned.
    abandon_at: Option<Instant>,
    /// Then it ends, also if a hook blocks its thread and cannot be cancelled.
    end_at: Instant,
}

/// A cluster, and what the shell keeps of it.
struct Record {
    cluster: Cluster,
    identity: Arc<IdentityState>,
    lines: Vec<Line>,
    deadline: Option<Instant>,
    /// Boxed: few have one.
    outage: Option<Box<Outage>>,
}

/// An outage that goes on, and which of the times that subscribers asked about have passed.
struct Outage {
    since: Instant,
    told: Vec<Duration>,
}

impl Running {
    fn new(shared: Arc<Shared>, sources: Vec<RegisteredSource>) -> Self {
        let now = Instant::now();
        shared.registry.set_status(EngineStatus::Running);
        let seed = shared.options.seed;
        let tasks = TaskTracker::new();
        Self {
            clusters: HashMap::default(),
            claims: Claims::new(sources.len(), now, &shared.options.source),
            brake: Brake::default(),
            sources: sources::Sources::spawn(sources, &shared, &tasks, seed),
            deadlines: BTreeSet::new(),
            judged: BTreeSet::new(),
            unstarted: None,
            unhealthy_times: Vec::new(),
            rng: seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            generations: 0,
            tasks,
            awake: now,
            ending: None,
            shared,
        }
    }

    async fn run(&mut self, mut reports: mpsc::Receiver<Report>) {
        let shared = Arc::clone(&self.shared);
        let mut told = Vec::with_capacity(TURN);
        let mut words = Vec::with_capacity(TURN);
        loop {
            let deadline = self.deadline();
            // In a fixed order, so that a seed repeats a run; then some of each, so that none starves another.
            tokio::select! {
                biased;
                () = shared.inbox.arrived() => {}
                _ = reports.recv_many(&mut told, TURN) => {}
                _ = self.sources.words.recv_many(&mut words, TURN) => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
            fill(&mut told, &mut reports);
            fill(&mut words, &mut self.sources.words);
            let letters = shared.inbox.take();
            let now = Instant::now();
            // First of all: what was late because we did not run must not be held against anybody.
            self.notice_stall(now);
            for report in told.drain(..) {
                self.take_report(report, now);
            }
            for (source, word) in words.drain(..) {
                self.take_word(source, word, now);
            }
            self.take_letters(letters, now);
            self.run_deadlines(now);
            self.judge(now);
            self.notice_start();
            if self.has_ended(now) {
                break;
            }
        }
        self.sources.stop();
        reports.close();
    }

    fn deadline(&self) -> Instant {
        let tick = self.awake + TICK;
        let first = self.deadlines.first().map(|(at, _)| *at);
        let brake = self.brake.deadline(&self.shared.options.brake);
        let end = self
            .ending
            .map(|ending| ending.abandon_at.unwrap_or(ending.end_at));
        [first, brake, end, self.claims.deadline()]
            .into_iter()
            .flatten()
            .fold(tick, Instant::min)
    }

    /// The engine wakes at least every tick: if it wakes much later, the process did not run, and nobody is judged by that time.
    fn notice_stall(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.awake + TICK);
        self.awake = now;
        if late < self.shared.options.health.stall_after {
            return;
        }
        self.shared.counters.stalls.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            ?late,
            "the process did not run; no cluster is judged by that time"
        );
        for key in self.keys() {
            if let Some(record) = self.clusters.get_mut(&key)
                && let Some(outage) = &mut record.outage
            {
                outage.since = (outage.since + late).min(now);
            }
            self.with(&key, now, |cluster, cx| cluster.stalled(late, cx));
        }
    }

    fn take_report(&mut self, report: Report, now: Instant) {
        let Report {
            key,
            generation,
            news,
        } = report;
        match news {
            News::Retired => {
                if let Some(record) = self.clusters.get_mut(&key) {
                    let is = |line: &mut Line| line.connection.generation == generation;
                    let line: Vec<Line> = record.lines.extract_if(.., is).collect();
                    self.discard(line);
                }
                self.with(&key, now, |cluster, cx| cluster.retired(generation, cx));
            }
            News::Finished {
                slot,
                incarnation,
                outcome,
            } => {
                self.with(&key, now, |cluster, cx| {
                    cluster.finished(generation, slot, incarnation, outcome, cx);
                });
            }
            News::Ended { slots } => self.with(&key, now, |cluster, cx| {
                cluster.ended(generation, &slots, cx);
            }),
            News::Refreshed { rebuild } => {
                self.with(&key, now, |cluster, cx| {
                    cluster.refreshed(generation, rebuild, cx);
                });
            }
            News::Probed { number, result } => {
                self.with(&key, now, |cluster, cx| {
                    cluster.probed(generation, number, result, cx);
                });
            }
        }
    }

    fn take_word(&mut self, source: usize, word: Word, now: Instant) {
        for key in self.claims.say(source, word) {
            self.claim(&key, now);
        }
    }

    /// What counts for a key changed.
    fn claim(&mut self, key: &ClusterKey, now: Instant) {
        let claim = self.claims.get(key);
        if self.clusters.contains_key(key) {
            return self.with(key, now, |cluster, cx| cluster.claim(claim, cx));
        }
        let Some(claim) = claim.filter(|_| self.ending.is_none()) else {
            return;
        };
        let mut actions = Vec::new();
        let numbers = (&mut self.rng, &mut self.generations);
        let cluster = Cluster::new(claim, &mut cx(&self.shared, numbers, now, &mut actions));
        let identity = IdentityState::new(cluster.named().clone());
        let record = Record {
            cluster,
            identity: Arc::new(identity),
            lines: Vec::new(),
            deadline: None,
            outage: None,
        };
        self.clusters.insert(key.clone(), Box::new(record));
        self.apply(key, actions, now);
    }

    fn take_letters(&mut self, letters: Letters, now: Instant) {
        for (generation, signals) in letters.signals {
            if let Some((number, at)) = signals.answered {
                self.with(&signals.key, now, |cluster, cx| {
                    cluster.answered(generation, number, at, cx);
                });
            }
            if signals.doubt {
                self.with(&signals.key, now, |cluster, cx| {
                    cluster.doubt(generation, cx);
                });
            }
            for (slot, (incarnation, standing)) in signals.standing {
                self.with(&signals.key, now, |cluster, cx| {
                    cluster.stands(generation, slot, incarnation, standing, cx);
                });
            }
            for (slot, (incarnation, text)) in signals.failed {
                self.with(&signals.key, now, |cluster, cx| {
                    cluster.failed(generation, slot, incarnation, &text, cx);
                });
            }
        }
        for command in letters.commands {
            self.obey(command, now);
        }
    }

    fn obey(&mut self, command: Command, now: Instant) {
        match command {
            Command::RetryNow(key) => self.with(&key, now, Cluster::retry_now),
            Command::Reconnect(key) => self.with(&key, now, Cluster::reconnect),
            Command::Reconsider(key, slot) => {
                self.with(&key, now, |cluster, cx| cluster.reconsider(slot, cx));
            }
            Command::ReleaseBrake => {
                let change = self.brake.release(now);
                self.brake_changed(change);
            }
            Command::Durations => {
                let newcomers = self.shared.events.newcomers();
                self.unhealthy_times = self.shared.events.unhealthy_times();
                for key in self.keys() {
                    let outage = self
                        .clusters
                        .get(&key)
                        .and_then(|record| record.outage.as_ref());
                    if let Some(outage) = outage {
                        newcomers.tell(&key, &outage.told);
                    }
                    self.rearm(&key, now);
                }
            }
            Command::Shutdown if self.ending.is_none() => self.shut_down(now),
            Command::Shutdown => {}
        }
    }

    fn run_deadlines(&mut self, now: Instant) {
        while let Some((at, key)) = self.deadlines.first().cloned() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            if let Some(record) = self.clusters.get_mut(&key) {
                record.deadline = None;
            }
            self.with(&key, now, Cluster::timer);
        }
        if self.claims.deadline().is_some_and(|at| at <= now) {
            for key in self.claims.timer(now) {
                self.claim(&key, now);
            }
        }
    }

    /// Lets the brake judge the verdicts of this turn, then lets fall what it does not hold.
    fn judge(&mut self, now: Instant) {
        let change = self.brake.evaluate(&self.shared.options.brake, now);
        self.brake_changed(change);
        for key in std::mem::take(&mut self.judged) {
            if self.brake.holds(&key) {
                self.with(&key, now, Cluster::hold);
            } else {
                self.with(&key, now, |cluster, cx| {
                    if cluster.wants_down() {
                        cluster.fall(cx);
                    }
                });
            }
        }
        // Those that are held want down still, and are judged again when the brake lets go.
        self.judged.clear();
    }

    fn brake_changed(&mut self, change: Option<BrakeChange>) {
        match change {
            None => {}
            Some(BrakeChange::Engaged { bad, counted }) => {
                self.shared.counters.brakes.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    bad,
                    counted,
                    "most of the fleet fails at once: nothing is torn down for its health until that changes"
                );
            }
            Some(BrakeChange::Released { clusters }) => {
                tracing::info!("the fleet brake is released");
                self.judged.extend(clusters);
            }
        }
    }

    /// Hands an input to a cluster, and does what comes out.
    fn with(
        &mut self,
        key: &ClusterKey,
        now: Instant,
        input: impl FnOnce(&mut Cluster, &mut Cx<'_>),
    ) {
        let Some(record) = self.clusters.get_mut(key) else {
            return;
        };
        let mut actions = Vec::new();
        let numbers = (&mut self.rng, &mut self.generations);
        input(
            &mut record.cluster,
            &mut cx(&self.shared, numbers, now, &mut actions),
        );
        self.apply(key, actions, now);
    }

    /// Sets the one deadline of a cluster in the fleet's queue, and tells of outages whose time has come.
    fn rearm(&mut self, key: &ClusterKey, now: Instant) {
        let Some(record) = self.clusters.get_mut(key) else {
            return;
        };
        let mut next = record.cluster.deadline(&self.shared.registry.clock);
        match record.cluster.outage() {
            None => record.outage = None,
            Some(since) => {
                let outage = record.outage.get_or_insert_with(|| {
                    let told = Vec::new();
                    Box::new(Outage { since, told })
                });
                for time in &self.unhealthy_times {
                    // One that is never (`Duration::MAX`) overflows, and is not waited for.
                    let Some(at) = outage.since.checked_add(*time) else {
                        continue;
                    };
                    if outage.told.contains(time) {
                        continue;
                    }
                    if at <= now {
                        outage.told.push(*time);
                        self.shared.events.unhealthy(key, *time);
                    } else {
                        next = Some(next.map_or(at, |other| other.min(at)));
                    }
                }
            }
        }
        if next == record.deadline {
            return;
        }
        if let Some(old) = record.deadline {
            self.deadlines.remove(&(old, key.clone()));
        }
        record.deadline = next;
        if let Some(at) = next {
            self.deadlines.insert((at, key.clone()));
        }
    }

    /// The start-up barrier: all sources are synced, and every cluster known then has been tried.
    fn notice_start(&mut self) {
        if self.shared.started.is_set() {
            return;
        }
        if self.unstarted.is_none() && self.claims.all_synced() {
            let clusters = self.clusters.iter();
            let untried = clusters.filter(|(_, record)| !record.cluster.has_been_tried());
            self.unstarted = Some(untried.map(|(key, _)| key.clone()).collect());
        }
        // Whoever has been tried since was taken out then: to look at all of them at each turn is too much for a large fleet.
        if self.unstarted.as_ref().is_some_and(BTreeSet::is_empty) {
            self.shared.started.set();
        }
    }

    fn shut_down(&mut self, now: Instant) {
        let limit = self.shared.options.end.shutdown;
        self.ending = Some(Ending {
            abandon_at: Some(now + limit.mul_f32(0.9)),
            end_at: now + limit,
        });
        self.shared.registry.set_status(EngineStatus::ShuttingDown);
        for key in self.keys() {
            self.with(&key, now, Cluster::shutdown);
        }
    }

    /// Whether a shutdown is over, or has taken as long as it may.
    fn has_ended(&mut self, now: Instant) -> bool {
        let Some(ending) = self.ending else {
            return false;
        };
        if ending.abandon_at.is_some_and(|at| at <= now) {
            // Before the end, so that the values left are dropped in order, and the report is whole.
            self.ending = Some(Ending {
                abandon_at: None,
                ..ending
            });
            for key in self.keys() {
                let lines = self.clusters.get(&key).map(|record| &record.lines);
                lines
                    .into_iter()
                    .flatten()
                    .for_each(|line| line.abandon.set());
            }
        }
        ending.end_at <= now || self.clusters.is_empty()
    }

    /// Drops on another task what may hold something of a user's.
    fn discard<T: Send + 'static>(&self, what: T) {
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let _ = hook::call(&shared.counters, "identity state", || drop(what));
        });
    }

    /// In order, so that a seed repeats a run.
    fn keys(&self) -> Vec<ClusterKey> {
        let mut keys: Vec<_> = self.clusters.keys().cloned().collect();
        keys.sort_unstable();
        keys
    }
}

/// What an input comes with; `numbers` are random ones, and the last generation.
fn cx<'a>(
    shared: &'a Shared,
    (rng, generations): (&'a mut fastrand::Rng, &'a mut u64),
    now: Instant,
    out: &'a mut Vec<Action>,
) -> Cx<'a> {
    Cx {
        now,
        options: &shared.options,
        plan: &shared.plan,
        clock: shared.registry.clock,
        rng,
        generations,
        out,
    }
}

/// Takes what is there, up to a turn's worth.
fn fill<T>(turn: &mut Vec<T>, channel: &mut mpsc::Receiver<T>) {
    while turn.len() < TURN
        && let Ok(next) = channel.try_recv()
    {
        turn.push(next);
    }
}

impl Drop for Running {
    /// The engine ends: by shutdown, dropped, or by a panic of its own. Nothing of it may be left.
    fn drop(&mut self) {
        self.sources.stop();
        let panics = std::thread::panicking();
        let status = if panics {
            EngineStatus::Panicked
        } else {
            EngineStatus::Ended
        };
        self.shared.registry.set_status(status);
        self.shared.registry.clear();
        let mut clusters: Vec<_> = std::mem::take(&mut self.clusters).into_iter().collect();
        clusters.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (_, record) in clusters {
            record.identity.end();
            for line in record.lines.into_iter().rev() {
                line.drop_all(&self.tasks);
            }
        }
        self.shared.close(status);
    }
}
