//! The life of one cluster: which connection is published, which is being made beside or before it, which are on their way out, and when the
//! next one is tried (rules 5, 9 and 15). What is wanted follows from what is known: every input changes what is known, then
//! [`Cluster::settle`] compares.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

use super::{
    backoff::Backoff,
    claims::Claim,
    detector::Detector,
    resources::{Failure, Outcome, Resources, Rules, Step, carries_health},
};
use crate::{
    AccessChange, Changes, ClusterAccess, FailureKind, Generation, Phase, Route, SourcedAccess,
    Stage, TeardownReason, Verdict, clock::Clock, options::Options, plan::Plan, resource::Then,
    vitals::Vitals,
};

mod change;
mod health;
#[cfg(test)]
mod tests;
mod view;

/// One cluster. It stays while a source names its key, lingers after, and ends when its last connection has.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// What counts for the key; while it lingers, the claim that was removed.
    claim: Claim,
    /// Counts the identities that have had this key; one that is removed and comes back counts again.
    identity: u64,
    /// The newest access that was ever ready, of this identity.
    access: Option<ClusterAccess>,
    published: Option<Life>,
    building: Option<Life>,
    /// Connections on their way out, the oldest first.
    retiring: VecDeque<Generation>,
    removal: Removal,
    backoff: Backoff,
    /// When the next connection is tried, if not at once.
    next_build: Option<Instant>,
    /// How it came to have no connection.
    was_down: bool,
    /// Attempts to connect since it was last connected, and when the first of them failed.
    attempts: u32,
    first_failure: Option<Instant>,
    last_success: Option<Instant>,
    last_probe: Option<Instant>,
    last_error: Option<(Stage, FailureKind, Arc<str>, Instant)>,
    /// The phase as it was last noticed, and since when it is that.
    seen: Option<Phase>,
    phase_since: Instant,
}

/// Whether the key is still named.
#[derive(Debug)]
enum Removal {
    /// It is.
    No,
    /// Not since a moment ago: still served and probed until then, not dialled. Then what a lower source says takes over.
    Lingers { until: Instant, then: Option<Claim> },
    /// It is gone; its connections are on their way out.
    Gone,
    /// The cache shuts down.
    Shutdown,
}

impl Removal {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

/// One connection that is published or being made.
#[derive(Debug)]
struct Life {
    generation: Generation,
    access: ClusterAccess,
    vitals: Arc<Vitals>,
    resources: Resources,
    /// From when its health provider is up.
    detector: Option<Detector>,
    /// Its teardown is withheld by the fleet brake.
    held: bool,
    /// An essential resource is missing.
    degraded: bool,
    because: Because,
    begun: Instant,
    /// A replacement that has waited long enough for optional resources.
    waited: bool,
    published: Option<Instant>,
    /// It is to be replaced, though its access is as it should be.
    replace: Option<Because>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Because {
    /// There was no connection.
    First,
    /// Endpoint or CA changed.
    Access,
    /// A provider could not take a credential in place.
    Rebuild,
    /// A user asked.
    Asked,
}

/// What the shell must do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Make what the tasks of a connection share.
    Open {
        generation: Generation,
        access: ClusterAccess,
        vitals: Arc<Vitals>,
        predecessor: Option<Generation>,
    },
    Step {
        generation: Generation,
        step: Step,
    },
    /// The connection has new access.
    SetAccess {
        generation: Generation,
        access: ClusterAccess,
    },
    Probe {
        generation: Generation,
        number: u64,
        route: Route,
    },
    ReplacePooled {
        generation: Generation,
    },
    /// The source is to read the access again.
    Reread {
        source: usize,
    },
    /// The replacement of this connection is over: nothing refers to the old one.
    Swapped {
        generation: Generation,
    },
    /// Readers see nothing of it any more: tear it all down.
    Retire {
        generation: Generation,
        reason: TeardownReason,
    },
    /// It takes too long: cancel its running hook, drop the rest.
    Abandon {
        generation: Generation,
    },
    /// Identity state and warm state are another's.
    NewIdentity,
    /// What readers see changed.
    Publish,
    Tell(Changes),
    /// For the fleet brake.
    Verdict(Verdict),
    /// A provider could not take a credential in place.
    CountRebuild {
        slot: usize,
    },
    Log(Log),
}

/// A line of the log: one a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Connected,
    Replaced,
    Down,
    Held,
}

/// What every input comes with.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) options: &'a Options,
    pub(crate) plan: &'a Plan,
    pub(crate) clock: Clock,
    pub(crate) rng: &'a mut fastrand::Rng,
    /// The last generation given out.
    pub(crate) generations: &'a mut u64,
    pub(crate) out: &'a mut Vec<Action>,
}

impl Cx<'_> {
    fn rules(&mut self) -> Rules<'_> {
        let Options { retry, health, .. } = self.options;
        Rules {
            plan: self.plan,
            retry,
            health,
            rng: self.rng,
            now: self.now,
        }
    }

    fn tell(&mut self, changes: Changes) {
        self.out.push(Action::Tell(changes));
    }
}

impl Cluster {
    /// A cluster that has just been named.
    pub(crate) fn new(claim: Claim, cx: &mut Cx<'_>) -> Self {
        let mut cluster = Self {
            identity: 0,
            access: None,
            published: None,
            building: None,
            retiring: VecDeque::new(),
            removal: Removal::No,
            backoff: Backoff::default(),
            next_build: None,
            was_down: false,
            attempts: 0,
            first_failure: None,
            last_success: None,
            last_probe: None,
            last_error: None,
            seen: None,
            phase_since: cx.now,
            claim: claim.clone(),
        };
        cluster.take_claim(claim, cx);
        cx.tell(Changes::KNOWN);
        cluster.settle(cx);
        cluster
    }

    /// An init of a connection ended.
    pub(crate) fn finished(
        &mut self,
        generation: Generation,
        slot: usize,
        incarnation: u32,
        outcome: Outcome,
        cx: &mut Cx<'_>,
    ) {
        let failure = match &outcome {
            Outcome::Failed(failure)
                if failure.then != Then::NotApplicable || carries_health(cx.plan, slot) =>
            {
                Some(failure.clone())
            }
            _ => None,
        };
        let counted = self.step(generation, cx, |resources, rules, steps| {
            resources.finished(slot, incarnation, outcome, rules, steps)
        });
        if counted != Some(true) {
            return;
        }
        if let Some(failure) = failure {
            self.init_failed(generation, slot, &failure, cx);
        }
        self.settle(cx);
    }

    fn init_failed(
        &mut self,
        generation: Generation,
        slot: usize,
        failure: &Failure,
        cx: &mut Cx<'_>,
    ) {
        self.error(
            Stage::Init(cx.plan.name(slot)),
            failure.kind,
            &failure.text,
            cx,
        );
        if failure.kind == FailureKind::Unauthorized {
            cx.out.push(Action::Reread {
                source: self.claim.source,
            });
        }
        let building = self
            .building
            .as_ref()
            .is_some_and(|life| life.generation == generation);
        if building && cx.plan.slot(slot).essential {
            self.attempt_failed(slot == cx.plan.health(), cx);
        }
    }

    /// Something without which there is no connection failed, while there is none.
    fn attempt_failed(&mut self, counts: bool, cx: &Cx<'_>) {
        if self.published.is_none() {
            self.first_failure.get_or_insert(cx.now);
            self.attempts += u32::from(counts);
        }
    }

    /// A value that was up has gone bad.
    pub(crate) fn failed(
        &mut self,
        generation: Generation,
        slot: usize,
        incarnation: u32,
        text: &Arc<str>,
        cx: &mut Cx<'_>,
    ) {
        let is_health = |life: &Life| {
            life.resources.has(slot, incarnation)
                && life.resources.is_up(cx.plan.health())
                && carries_health(cx.plan, slot)
        };
        let stage = Stage::Resource(cx.plan.name(slot));
        if self.life(generation).is_some_and(is_health) {
            // The health provider's failing, or that of what it was built on, is the whole connection's.
            self.error(stage, FailureKind::Other, text, cx);
            self.end(generation, TeardownReason::Down, cx);
        } else {
            let counted = self.step(generation, cx, |resources, rules, steps| {
                resources.failed(slot, incarnation, text, rules, steps)
            });
            if counted == Some(true) {
                self.error(stage, FailureKind::Other, text, cx);
            }
        }
        self.settle(cx);
    }

    /// The teardown of some slots is over.
    pub(crate) fn ended(
        &mut self,
        generation: Generation,
        slots: &BTreeSet<usize>,
        cx: &mut Cx<'_>,
    ) {
        self.step(generation, cx, |resources, rules, steps| {
            resources.ended(slots, rules, steps);
        });
        self.settle(cx);
    }

    /// A refresh ended; `rebuild` is the first provider that cannot take the new access.
    pub(crate) fn refreshed(
        &mut self,
        generation: Generation,
        rebuild: Option<usize>,
        cx: &mut Cx<'_>,
    ) {
        let whole = self.step(generation, cx, |resources, rules, steps| {
            resources.refreshed(rebuild, rules, steps)
        });
        if let Some(Some(slot)) = whole {
            cx.out.push(Action::CountRebuild { slot });
            match &mut self.published {
                Some(life) if life.generation == generation => {
                    life.replace = Some(Because::Rebuild);
                }
                _ => {
                    self.step(generation, cx, |resources, rules, steps| {
                        resources.redo(slot, rules, steps);
                    });
                }
            }
        }
        self.settle(cx);
    }

    /// A connection's teardown is over.
    pub(crate) fn retired(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        self.retiring.retain(|retiring| *retiring != generation);
        cx.out.push(Action::Publish);
    }

    /// Try at once whatever is waiting to be tried.
    pub(crate) fn retry_now(&mut self, cx: &mut Cx<'_>) {
        self.next_build = None;
        for generation in self.lives() {
            self.step(generation, cx, |resources, rules, steps| {
                resources.retry_now(rules, steps);
            });
        }
        self.settle(cx);
    }

    /// Ask a resource again that was not applicable or failed.
    pub(crate) fn reconsider(&mut self, slot: usize, cx: &mut Cx<'_>) {
        for generation in self.lives() {
            self.step(generation, cx, |resources, rules, steps| {
                resources.reconsider(slot, rules, steps);
            });
        }
        self.settle(cx);
    }

    /// Make a new connection: beside the living one, if there is one.
    pub(crate) fn reconnect(&mut self, cx: &mut Cx<'_>) {
        self.next_build = None;
        self.end_building(TeardownReason::Replaced, cx);
        if let Some(life) = &mut self.published {
            life.replace = Some(Because::Asked);
        }
        self.settle(cx);
    }

    pub(crate) fn shutdown(&mut self, cx: &mut Cx<'_>) {
        self.end_all(TeardownReason::Shutdown, cx);
        self.removal = Removal::Shutdown;
        self.settle(cx);
    }

    /// Whether nothing is left of it: it is gone, and so are its connections.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.removal, Removal::Gone | Removal::Shutdown) && self.retiring.is_empty()
    }

    /// Whether it is gone, so that readers must not see it.
    pub(crate) fn is_gone(&self) -> bool {
        self.removal.is_gone()
    }

    /// When [`timer`](Self::timer) is to be called.
    pub(crate) fn deadline(&self, options: &Options) -> Option<Instant> {
        let lives = || self.published.iter().chain(&self.building);
        let retries = lives().filter_map(|life| life.resources.deadline());
        let probes = lives().filter_map(|life| life.detector.as_ref().map(Detector::deadline));
        let linger = match &self.removal {
            Removal::Lingers { until, .. } => Some(*until),
            _ => None,
        };
        let build = self.next_build.filter(|_| self.wanted().is_some());
        retries
            .chain(probes)
            .chain(linger)
            .chain(build)
            .chain(self.swap_deadline(options))
            .min()
    }

    pub(crate) fn timer(&mut self, cx: &mut Cx<'_>) {
        if let Removal::Lingers { until, then } = &mut self.removal
            && *until <= cx.now
        {
            match then.take() {
                None => self.remove(cx),
                Some(claim) => self.take_claim(claim, cx),
            }
        }
        if self
            .swap_deadline(cx.options)
            .is_some_and(|at| at <= cx.now)
            && let Some(building) = &mut self.building
        {
            building.waited = true;
        }
        for generation in self.lives() {
            self.begin_due(generation, cx);
            self.probe_timer(generation, cx);
        }
        self.settle(cx);
    }

    fn begin_due(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        let due = self
            .life(generation)
            .and_then(|life| life.resources.deadline());
        if due.is_some_and(|due| due <= cx.now) {
            self.step(generation, cx, |resources, rules, steps| {
                resources.begin(rules, steps);
            });
        }
    }

    /// Compares what is with what is wanted. Every input ends here.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        if let Some(building) = self.building.as_ref().filter(|life| life.is_down()) {
            self.end(building.generation, TeardownReason::Down, cx);
        }
        if self.next_build.is_none_or(|at| at <= cx.now)
            && let Some((because, access)) = self.wanted()
        {
            self.open(because, access, cx);
        }
        if self
            .building
            .as_ref()
            .is_some_and(|building| self.may_swap(building, cx))
        {
            self.swap(cx);
        }
        self.notice(cx);
    }

    /// Why a connection is wanted that is not there, and to what.
    fn wanted(&self) -> Option<(Because, ClusterAccess)> {
        if self.building.is_some() {
            return None;
        }
        let access = self.may_dial()?;
        let because = match &self.published {
            None => Because::First,
            Some(life) if life.access.change_to(access) == AccessChange::Endpoint => {
                Because::Access
            }
            Some(life) => life.replace?,
        };
        Some((because, access.clone()))
    }

    /// The access to dial with, if dialling is allowed at all.
    fn may_dial(&self) -> Option<&ClusterAccess> {
        let wanted = matches!(self.removal, Removal::No) && self.claim.owned;
        match &self.claim.upsert.access {
            SourcedAccess::Ready(access) if wanted => Some(access),
            _ => None,
        }
    }

    /// Begins a connection.
    fn open(&mut self, because: Because, access: ClusterAccess, cx: &mut Cx<'_>) {
        *cx.generations += 1;
        let generation = Generation(*cx.generations);
        let vitals = Arc::new(Vitals::new(cx.clock));
        cx.out.push(Action::Open {
            generation,
            access: access.clone(),
            vitals: Arc::clone(&vitals),
            predecessor: self.published.as_ref().map(|life| life.generation),
        });
        let resources = Resources::new(cx.plan);
        self.next_build = None;
        self.building = Some(Life {
            generation,
            access,
            vitals,
            resources,
            detector: None,
            held: false,
            degraded: false,
            because,
            begun: cx.now,
            waited: false,
            published: None,
            replace: None,
        });
        self.step(generation, cx, |resources, rules, steps| {
            resources.begin(rules, steps);
        });
    }

    /// A replacement waits for the optional resources that were up, until they are, failed once, or it has waited long enough.
    fn may_swap(&self, building: &Life, cx: &Cx<'_>) -> bool {
        if !building.resources.complete(cx.plan) {
            return false;
        }
        let Some(published) = &self.published else {
            return true;
        };
        let waits = (0..cx.plan.len()).any(|slot| {
            published.resources.is_up(slot) && !building.resources.tried(cx.plan, slot)
        });
        !waits || building.waited
    }

    fn swap_deadline(&self, options: &Options) -> Option<Instant> {
        let building = self
            .building
            .as_ref()
            .filter(|life| self.published.is_some() && !life.waited)?;
        Some(building.begun + options.end.replace_wait)
    }

    fn swap(&mut self, cx: &mut Cx<'_>) {
        let Some(mut life) = self.building.take() else {
            return;
        };
        life.published = Some(cx.now);
        let (generation, replaces) = (life.generation, self.published.is_some());
        if let Some(old) = self.published.replace(life) {
            self.retire(&old, TeardownReason::Replaced, cx);
            cx.out.push(Action::Swapped { generation });
        }
        self.forget_attempts();
        self.last_success = Some(cx.now);
        cx.tell(Changes::CONNECTED);
        cx.out.push(Action::Log(if replaces {
            Log::Replaced
        } else {
            Log::Connected
        }));
        self.tell_verdict(cx);
    }

    /// What led here counts no more.
    fn forget_attempts(&mut self) {
        self.was_down = false;
        self.attempts = 0;
        self.first_failure = None;
        self.next_build = None;
    }

    /// Ends a connection, published or not.
    fn end(&mut self, generation: Generation, reason: TeardownReason, cx: &mut Cx<'_>) {
        let is = |life: &mut Life| life.generation == generation;
        if let Some(life) = self.building.take_if(is) {
            if reason == TeardownReason::Down {
                self.attempt_failed(true, cx);
                self.schedule_build(cx);
            }
            self.retire(&life, reason, cx);
        } else if let Some(life) = self.published.take_if(is) {
            let lived = life
                .published
                .map(|since| cx.now.saturating_duration_since(since));
            if lived.is_some_and(|lived| lived >= cx.options.retry.forget_after) {
                self.backoff.reset();
            }
            if reason == TeardownReason::Down {
                // Also where the health provider failed before its verdict: the brake counts it.
                cx.out.push(Action::Verdict(Verdict::Down));
                self.was_down = true;
                self.schedule_build(cx);
                cx.out.push(Action::Log(Log::Down));
            }
            self.retire(&life, reason, cx);
            cx.tell(Changes::DISCONNECTED);
            self.tell_verdict(cx);
        }
    }

    fn schedule_build(&mut self, cx: &mut Cx<'_>) {
        let unauthorized = matches!(self.last_error, Some((_, FailureKind::Unauthorized, ..)));
        let wait = self.backoff.failed(&cx.options.retry, cx.rng, None);
        let schedule = &cx.options.health.unauthorized_retries;
        let wait = if unauthorized {
            schedule[schedule.len() - 1]
        } else {
            wait
        };
        self.next_build = Some(cx.now + wait);
    }

    fn end_all(&mut self, reason: TeardownReason, cx: &mut Cx<'_>) {
        for generation in self.lives() {
            self.end(generation, reason, cx);
        }
    }

    fn retire(&mut self, life: &Life, reason: TeardownReason, cx: &mut Cx<'_>) {
        let signs = life.vitals.read();
        self.last_success = self.last_success.max(signs.any);
        self.last_probe = self.last_probe.max(signs.probe);
        self.retiring.push_back(life.generation);
        // Readers lose it before its teardown begins: the shell publishes first, whatever the order here.
        cx.out.push(Action::Publish);
        cx.out.push(Action::Retire {
            generation: life.generation,
            reason,
        });
        while self.retiring.len() > cx.options.end.retiring {
            if let Some(generation) = self.retiring.pop_front() {
                cx.out.push(Action::Abandon { generation });
            }
        }
    }

    /// Runs a step of a connection's resources.
    fn step<T>(
        &mut self,
        generation: Generation,
        cx: &mut Cx<'_>,
        step: impl FnOnce(&mut Resources, &mut Rules<'_>, &mut Vec<Step>) -> T,
    ) -> Option<T> {
        let lives = self.published.iter_mut().chain(&mut self.building);
        let life = lives
            .into_iter()
            .find(|life| life.generation == generation)?;
        let mut steps = Vec::new();
        let before = life.resources.shown();
        let result = step(&mut life.resources, &mut cx.rules(), &mut steps);
        life.watch(cx);
        if life.resources.shown() != before {
            cx.tell(Changes::STATE);
        }
        cx.out.push(Action::Publish);
        cx.out.extend(
            steps
                .into_iter()
                .map(|step| Action::Step { generation, step }),
        );
        Some(result)
    }

    fn life(&self, generation: Generation) -> Option<&Life> {
        self.published
            .iter()
            .chain(&self.building)
            .find(|life| life.generation == generation)
    }

    fn lives(&self) -> Vec<Generation> {
        self.published
            .iter()
            .chain(&self.building)
            .map(|life| life.generation)
            .collect()
    }

    fn error(&mut self, stage: Stage, kind: FailureKind, text: &Arc<str>, cx: &Cx<'_>) {
        self.last_error = Some((stage, kind, Arc::clone(text), cx.now));
    }
}
