//! One connection's way: opened, published or swapped in, and retired (rules 5 and 6).

use std::sync::Arc;

use tokio::time::Instant;

use super::{Action, Cluster, Cx, Log};
use crate::{
    Changes, ClusterAccess, FailureKind, Generation, TeardownReason, Verdict,
    lifecycle::{
        detector::Detector,
        resources::{Resources, Rules, Step},
    },
    vitals::Vitals,
};

/// One connection that is published or being made.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) generation: Generation,
    pub(super) access: ClusterAccess,
    pub(super) vitals: Arc<Vitals>,
    pub(super) resources: Resources,
    /// From when its health provider is up.
    pub(super) detector: Option<Detector>,
    /// Its teardown is withheld by the fleet brake.
    pub(super) held: bool,
    /// An essential resource is missing.
    pub(super) degraded: bool,
    /// How long a replacement waits for optional resources, if it does still.
    pub(super) waits_until: Option<Instant>,
    pub(super) published: Option<Instant>,
    /// It is to be replaced, though its access is as it should be.
    pub(super) replace: bool,
}

impl Cluster {
    /// Begins a connection.
    pub(super) fn open(&mut self, access: ClusterAccess, cx: &mut Cx<'_>) {
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
        self.building = Some(Box::new(Life {
            generation,
            access,
            vitals,
            resources,
            detector: None,
            held: false,
            degraded: false,
            waits_until: Some(cx.later(cx.options.end.replace_wait)),
            published: None,
            replace: false,
        }));
        self.step(generation, cx, |resources, rules, steps| {
            resources.begin(rules, steps);
        });
    }

    /// A replacement waits for the optional resources that were up, until they are, failed once, or it has waited long enough.
    pub(super) fn may_swap(&self, building: &Life, cx: &Cx<'_>) -> bool {
        if !building.resources.complete(cx.plan) {
            return false;
        }
        let Some(published) = &self.published else {
            return true;
        };
        let waits = (0..cx.plan.len()).any(|slot| {
            published.resources.is_up(slot) && !building.resources.tried(cx.plan, slot)
        });
        !waits || building.waits_until.is_none()
    }

    pub(super) fn swap_deadline(&self) -> Option<Instant> {
        self.published.as_ref()?;
        self.building.as_ref()?.waits_until
    }

    pub(super) fn swap(&mut self, cx: &mut Cx<'_>) {
        let Some(mut life) = self.building.take() else {
            return;
        };
        life.published = Some(cx.now);
        let (generation, replaces) = (life.generation, self.published.is_some());
        if let Some(old) = self.published.replace(life) {
            self.retire(&old, TeardownReason::Replaced, cx);
        }
        // Also where the one that was to be replaced went by itself meanwhile.
        cx.out.push(Action::Swapped { generation });
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
    pub(super) fn forget_attempts(&mut self) {
        self.was_down = false;
        self.attempts = 0;
        self.first_failure = None;
        self.next_build = None;
    }

    /// Ends a connection, published or not.
    pub(super) fn end(&mut self, generation: Generation, reason: TeardownReason, cx: &mut Cx<'_>) {
        let is = |life: &mut Box<Life>| life.generation == generation;
        if let Some(life) = self.building.take_if(is) {
            if reason == TeardownReason::Down {
                self.attempt_failed(true, cx);
                self.schedule_build(cx);
            }
            self.retire(&life, reason, cx);
            cx.tell(Changes::STATE);
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

    pub(super) fn schedule_build(&mut self, cx: &mut Cx<'_>) {
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

    pub(super) fn end_all(&mut self, reason: TeardownReason, cx: &mut Cx<'_>) {
        for generation in self.lives() {
            self.end(generation, reason, cx);
        }
    }

    pub(super) fn retire(&mut self, life: &Life, reason: TeardownReason, cx: &mut Cx<'_>) {
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
    pub(super) fn step<T>(
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

    pub(super) fn life(&self, generation: Generation) -> Option<&Life> {
        self.published
            .iter()
            .chain(&self.building)
            .map(Box::as_ref)
            .find(|life| life.generation == generation)
    }

    pub(super) fn lives(&self) -> Vec<Generation> {
        self.published
            .iter()
            .chain(&self.building)
            .map(|life| life.generation)
            .collect()
    }
}
