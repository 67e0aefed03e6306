//! How the health detector's verdict acts on a cluster.

use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Cluster, Cx, Log};
use crate::{
    Changes, FailureKind, Generation, Stage, TeardownReason, Verdict,
    lifecycle::detector::{Detector, Order, ProbeResult},
    options::HealthOptions,
    vitals::Signs,
};

/// What a detector is called with besides its input.
struct Now<'a> {
    at: Instant,
    signs: Signs,
    options: &'a HealthOptions,
}

impl Cluster {
    /// The health provider is up: its init included the first good answer.
    pub(super) fn health_up(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        let lives = self.published.iter_mut().chain(&mut self.building);
        if let Some(life) = lives.into_iter().find(|life| life.generation == generation)
            && life.resources.is_up(cx.plan.health())
            && life.detector.is_none()
        {
            life.vitals.answered(cx.now);
            life.detector = Some(Detector::new(cx.now));
        }
    }

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
            (ProbeResult::Alive { .. }, Some((life, _))) => life.vitals.answered(cx.now),
            (ProbeResult::Failed { kind, text }, Some(_)) if *kind != FailureKind::Busy => {
                self.error(Stage::Probe, *kind, text, cx);
            }
            _ => {}
        }
        self.detect(generation, cx, |detector, now, orders| {
            detector.probed(now.at, number, result, now.signs, now.options, orders);
        });
        self.settle(cx);
    }

    /// Something that should have come over a connection did not.
    pub(crate) fn doubt(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        self.detect(generation, cx, |detector, now, _| detector.doubt(now.at));
        self.settle(cx);
    }

    /// The process did not run for `time`.
    pub(crate) fn stalled(&mut self, time: Duration, cx: &mut Cx<'_>) {
        for generation in self.lives() {
            self.detect(generation, cx, |detector, now, _| {
                detector.stalled(now.at, time)
            });
        }
        self.settle(cx);
    }

    pub(super) fn probe_timer(&mut self, generation: Generation, cx: &mut Cx<'_>) {
        let detector = self
            .life(generation)
            .and_then(|life| life.detector.as_ref());
        if detector.is_some_and(|detector| detector.deadline() <= cx.now) {
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
        if let Some(published) = &self.published {
            self.end(published.generation, TeardownReason::Down, cx);
        }
        self.settle(cx);
    }

    /// The brake withholds it.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>) {
        if let Some(published) = &mut self.published
            && !published.held
        {
            published.held = true;
            if let Some(detector) = &mut published.detector {
                detector.held(cx.now, &cx.options.health);
            }
            cx.out.push(Action::Log(Log::Held));
            cx.out.push(Action::Publish);
            cx.tell(Changes::STATE);
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

    /// When an outage that goes on began to count: the last success, or, where there never was one, the first failed attempt.
    pub(crate) fn outage(&self) -> Option<Instant> {
        match &self.published {
            Some(life) => {
                let failing = matches!(self.published_verdict(), Verdict::Suspect | Verdict::Down);
                if failing {
                    self.last_success.max(life.vitals.read().any)
                } else {
                    None
                }
            }
            None if self.was_down => self.last_success.or(self.first_failure),
            None => self.first_failure,
        }
    }

    fn detect(
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
        let told = |detector: &Detector| {
            (
                detector.verdict(),
                detector.failures(),
                detector.not_ready().cloned(),
            )
        };
        let before = told(detector);
        let now = Now {
            at: cx.now,
            signs: life.vitals.read(),
            options: &cx.options.health,
        };
        let mut orders = Vec::new();
        input(detector, &now, &mut orders);
        let after = told(detector);
        if after.0 == Verdict::Healthy {
            life.held = false;
        }
        for order in orders {
            cx.out.push(match order {
                Order::Probe { number, route } => Action::Probe {
                    generation,
                    number,
                    route,
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
        let published = self
            .published
            .as_ref()
            .is_some_and(|life| life.generation == generation);
        if published && before.0 != after.0 {
            self.tell_verdict(cx);
            cx.tell(Changes::STATE);
        } else if !published && after.0 == Verdict::Down {
            if self.published.is_none() {
                self.first_failure.get_or_insert(cx.now);
            }
            self.end(generation, TeardownReason::Down, cx);
        }
    }
}
