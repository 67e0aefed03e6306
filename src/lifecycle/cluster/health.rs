//! How the health detector's verdict acts on a cluster.

use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Cluster, Cx, Life, Log};
use crate::{
    Changes, FailureKind, Generation, Stage, TeardownReason, Verdict,
    lifecycle::detector::{Detector, Order, ProbeResult},
    options::HealthOptions,
    vitals::Signs,
};

/// What a detector is called with besides its input.
pub(super) struct Now<'a> {
    pub(super) at: Instant,
    signs: Signs,
    options: &'a HealthOptions,
}

impl Life {
    /// There is a detector for as long as the health provider is up: its init included the first good answer.
    pub(super) fn watch(&mut self, cx: &Cx<'_>) {
        match (&self.detector, self.resources.is_up(cx.plan.health())) {
            (None, true) => {
                self.vitals.answered(cx.now);
                self.detector = Some(Detector::new(cx.now));
            }
            (Some(_), false) => self.detector = None,
            _ => {}
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.detector
            .as_ref()
            .is_some_and(|detector| detector.verdict() == Verdict::Down)
    }
}

impl Cluster {
    /// A probe's result. It counts only for the connection and the access that it was sent with.
    pub(crate) fn probed(
        &mut self,
        generation: Generation,
        number: u64,
        result: ProbeResult,
        cx: &mut Cx<'_>,
    ) {
        let life = self.life(generation);
        let counts = life.and_then(|life| Some((life, life.detector.as_ref()?)));
        match (
            &result,
            counts.filter(|(_, detector)| detector.awaits(number)),
        ) {
            (ProbeResult::Alive { .. }, Some((life, _))) => {
                life.vitals.answered(cx.now);
                self.probes.succeed();
            }
            (ProbeResult::Failed { kind, text }, Some(_)) if *kind != FailureKind::Busy => {
                self.probes.fail();
                self.error(Stage::Probe, *kind, text, cx);
            }
            _ => {}
        }
        self.detect(generation, cx, |detector, now, orders| {
            detector.probed(now.at, number, result, now.signs, now.options, orders);
        });
        self.settle(cx);
    }

    /// A good answer to a probe that was sent while all was well, at a time that may be a moment ago.
    pub(crate) fn answered(
        &mut self,
        generation: Generation,
        number: u64,
        at: Instant,
        cx: &mut Cx<'_>,
    ) {
        let life = self.life(generation);
        let awaits = |life: &&Life| life.detector.as_ref().is_some_and(|d| d.awaits(number));
        let Some(life) = life.filter(awaits) else {
            return;
        };
        life.vitals.answered(at);
        self.probes.succeed();
        let result = ProbeResult::Alive { not_ready: None };
        self.detect(generation, cx, |detector, now, orders| {
            detector.probed(at, number, result, now.signs, now.options, orders);
        });
        self.settle(cx);
    }

    /// Something that should have come over a connection did not.
    pub(crate) fn doubt(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        if let Some(life) = self.life(generation) {
            life.vitals.doubt_taken();
        }
        self.detect(generation, cx, |detector, now, _| detector.doubt(now.at));
        self.settle(cx);
    }

    /// The process did not run for `time`.
    pub(crate) fn stalled(&mut self, time: Duration, cx: &mut Cx<'_>) {
        let signs = self
            .published
            .as_ref()
            .and_then(|life| life.vitals.read().any);
        let success = self.last_success.max(signs);
        let before = self.stalled.filter(|(until, _)| success < Some(*until));
        let before = before.map_or(Duration::ZERO, |(_, time)| time);
        self.stalled = Some((cx.now, before + time));
        cx.out.push(Action::Publish);
        for generation in self.lives() {
            self.detect(generation, cx, |detector, now, _| {
                detector.stalled(now.at, time);
            });
        }
        self.settle(cx);
    }

    pub(super) fn probe_timer(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        let detector = self
            .life(generation)
            .and_then(|life| life.detector.as_ref());
        if detector.is_some_and(|detector| detector.soonest() <= cx.now) {
            self.detect(generation, cx, |detector, now, orders| {
                detector.timer(now.at, now.signs, now.options, orders);
            });
        }
    }

    /// Whether the verdict asks for the teardown of the published connection; the fleet brake is asked before.
    pub(crate) fn wants_down(&self) -> bool {
        self.published_verdict() == Verdict::Down
    }

    /// The brake does not withhold it: the connection goes.
    pub(crate) fn fall(&mut self, cx: &mut Cx<'_>) {
        if let Some(published) = self.published.as_ref().filter(|_| self.wants_down()) {
            self.end(published.generation, TeardownReason::Down, cx);
        }
        self.settle(cx);
    }

    /// The brake withholds it.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>) {
        let wants_down = self.wants_down();
        if let Some(published) = self.published.as_mut().filter(|_| wants_down) {
            if let Some(detector) = &mut published.detector {
                detector.held(cx.now, &cx.options.health);
            }
            if !std::mem::replace(&mut published.held, true) {
                cx.out.push(Action::Log(Log::Held));
                cx.out.push(Action::Publish);
                cx.tell(Changes::STATE);
            }
        }
        self.settle(cx);
    }

    /// The verdict on the published connection.
    pub(super) fn published_verdict(&self) -> Verdict {
        let published = self.published.as_ref();
        published
            .and_then(|life| life.detector.as_ref())
            .map_or(Verdict::Unknown, Detector::verdict)
    }

    pub(super) fn tell_verdict(&self, cx: &mut Cx<'_>) {
        cx.out.push(Action::Verdict(self.published_verdict()));
    }

    /// When an outage that goes on began to count: the last success, or, where there never was one, the first failed attempt. There is
    /// none of a cluster that is not to be connected.
    pub(crate) fn outage(&self) -> Option<Instant> {
        match &self.published {
            Some(life) => {
                let failing = matches!(self.published_verdict(), Verdict::Suspect | Verdict::Down);
                let success = || self.last_success.max(life.vitals.read().any);
                failing.then(success).flatten()
            }
            None if self.was_down => self.last_success.or(self.first_failure),
            None => self.first_failure,
        }
    }

    /// Hands an input to the detector of a connection.
    pub(super) fn detect(
        &mut self,
        generation: Generation,
        cx: &mut Cx<'_>,
        input: impl FnOnce(&mut Detector, &Now<'_>, &mut Vec<Order>),
    ) {
        let lives = self.published.iter_mut().chain(&mut self.building);
        let Some(life) = lives.into_iter().find(|life| life.generation == generation) else {
            return;
        };
        let Some(detector) = &mut life.detector else {
            return;
        };
        let known = |detector: &Detector| {
            let not_ready = detector.not_ready().cloned();
            (detector.verdict(), detector.failures(), not_ready)
        };
        let before = known(detector);
        let now = Now {
            at: cx.now,
            signs: life.vitals.read(),
            options: &cx.options.health,
        };
        let mut orders = Vec::new();
        input(detector, &now, &mut orders);
        let after = known(detector);
        life.held &= after.0 == Verdict::Down;
        let calm = after == (Verdict::Healthy, 0, None);
        for order in orders {
            cx.out.push(match order {
                Order::Probe { number, route } => Action::Probe {
                    generation,
                    number,
                    route,
                    calm,
                },
                Order::ReplacePooled => Action::ReplacePooled { generation },
                Order::Reread => Action::Reread {
                    source: self.claim.source,
                },
            });
        }
        if before == after {
            return;
        }
        cx.out.push(Action::Publish);
        let published = self.published.as_ref();
        if published.is_some_and(|life| life.generation == generation) {
            if before.0 != after.0 {
                self.tell_verdict(cx);
            }
            // That it failed once more is not worth waking anybody.
            if (before.0, before.2) != (after.0, after.2) {
                cx.tell(Changes::STATE);
            }
        }
    }
}
