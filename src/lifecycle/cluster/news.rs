//! What the tasks of a connection tell of its resources.

use std::{collections::BTreeSet, sync::Arc};

use super::{Action, Cluster, Cx, Life, Removal};
use crate::{
    Changes, FailureKind, Generation, Stage, TeardownReason,
    lifecycle::resources::{Failure, Outcome, carries_health},
    resource::{Standing, Then},
};

impl Cluster {
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
    pub(super) fn attempt_failed(&mut self, counts: bool, cx: &Cx<'_>) {
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

    /// A resource says how it stands, while it is up.
    pub(crate) fn stands(
        &mut self,
        generation: Generation,
        slot: usize,
        incarnation: u32,
        standing: Standing,
        cx: &mut Cx<'_>,
    ) {
        let trouble = standing.trouble.clone();
        let counted = self.step(generation, cx, |resources, _, _| {
            resources.stands(slot, incarnation, standing)
        });
        if counted != Some(true) {
            return;
        }
        cx.tell(Changes::STATE);
        if let Some(text) = trouble {
            let stage = Stage::Resource(cx.plan.name(slot));
            self.error(stage, FailureKind::Other, &text, cx);
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
                Some(life) if life.generation == generation => life.replace = true,
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
        if !matches!(self.removal, Removal::Gone | Removal::Shutdown) {
            cx.tell(Changes::STATE);
        }
    }

    pub(super) fn error(&mut self, stage: Stage, kind: FailureKind, text: &Arc<str>, cx: &Cx<'_>) {
        self.last_error = Some((stage, kind, Arc::clone(text), cx.now));
    }
}
