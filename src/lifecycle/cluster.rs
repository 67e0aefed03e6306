//! The life of one cluster: which connection is published, which is being made beside or before it, which are on their way out, and when the
//! next one is tried (rules 5, 9 and 15). What is wanted follows from what is known: every input changes what is known, then
//! [`Cluster::settle`] compares.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{backoff::Backoff, claims::Claim, resources::Rules};
use crate::{
    AccessChange, Changes, ClusterAccess, FailureKind, Generation, Phase, SourcedAccess, Stage,
    TeardownReason, clock::Clock, options::Options, plan::Plan, vitals::Probes,
};

mod action;
mod change;
mod health;
mod life;
mod news;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use action::{Action, Log};
use life::Life;

/// One cluster. It stays while a source names its key, lingers after, and ends when its last connection has.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// What counts for the key; while it lingers, the claim that was removed.
    claim: Claim,
    /// Counts the identities that have had this key; one that is removed and comes back counts again.
    identity: u64,
    /// The newest access that was ever ready, of this identity.
    access: Option<ClusterAccess>,
    published: Option<Box<Life>>,
    building: Option<Box<Life>>,
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
    /// When the process last ran again that did not, and for how long that was since the last success.
    stalled: Option<(Instant, Duration)>,
    probes: Arc<Probes>,
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
    Lingers {
        until: Instant,
        then: Option<Box<Claim>>,
    },
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

    /// A time that may be given as "never" (`Duration::MAX`) overflows nothing.
    fn later(&self, time: Duration) -> Instant {
        const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);
        self.now + time.min(NEVER)
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
            stalled: None,
            probes: Arc::default(),
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
            life.replace = true;
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

    /// When [`timer`](Self::timer) is to be called. Probes of healthy connections are due together with others'.
    pub(crate) fn deadline(&self, clock: &Clock) -> Option<Instant> {
        let lives = || self.published.iter().chain(&self.building);
        let retries = lives().filter_map(|life| life.resources.deadline());
        let detectors = lives().filter_map(|life| life.detector.as_ref());
        let probes = detectors.map(|probe| clock.together(probe.soonest(), probe.deadline()));
        let linger = match &self.removal {
            Removal::Lingers { until, .. } => Some(*until),
            _ => None,
        };
        let build = self.next_build.filter(|_| self.wanted().is_some());
        retries
            .chain(probes)
            .chain(linger)
            .chain(build)
            .chain(self.swap_deadline())
            .min()
    }

    pub(crate) fn timer(&mut self, cx: &mut Cx<'_>) {
        if let Removal::Lingers { until, then } = &mut self.removal
            && *until <= cx.now
        {
            match then.take() {
                None => self.remove(cx),
                Some(claim) => self.take_claim(*claim, cx),
            }
        }
        if self.swap_deadline().is_some_and(|at| at <= cx.now)
            && let Some(building) = &mut self.building
        {
            building.waits_until = None;
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
            && let Some(access) = self.wanted()
        {
            self.open(access.clone(), cx);
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

    /// The access of a connection that is not there and should be.
    fn wanted(&self) -> Option<&ClusterAccess> {
        let access = self.may_dial().filter(|_| self.building.is_none())?;
        let is_right =
            |life: &Life| life.access.change_to(access) != AccessChange::Endpoint && !life.replace;
        let has_it = self.published.as_deref().is_some_and(is_right);
        Some(access).filter(|_| !has_it)
    }

    /// The access to dial with, if dialling is allowed at all.
    fn may_dial(&self) -> Option<&ClusterAccess> {
        let wanted = matches!(self.removal, Removal::No) && self.claim.owned;
        match &self.claim.upsert.access {
            SourcedAccess::Ready(access) if wanted => Some(access),
            _ => None,
        }
    }
}
