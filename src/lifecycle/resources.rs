//! The resources of one connection: which `init` may begin, what is retried, what falls with what (rules 2 and 6). A value that is up
//! stays so until it or something that it was built on fails; its siblings never notice.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::{
    FailureKind, ResourcePhase,
    options::{HealthOptions, RetryOptions},
    plan::Plan,
    resource::{Standing, Then},
};

mod refresh;
mod slot;
#[cfg(test)]
mod tests;

use refresh::Refresh;
use slot::{Slot, SlotPhase};

#[derive(Debug)]
pub(crate) struct Resources {
    slots: Vec<Slot>,
    /// Number of the newest access.
    access: u64,
    refresh: Option<Refresh>,
}

/// What the shell must do for the resources of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Init {
        slot: usize,
        incarnation: u32,
        attempt: u32,
    },
    /// Cancel the inits and tear down the values of these slots, in the reverse of the order in which they came up.
    TakeDown { slots: BTreeSet<usize> },
    /// Ask these, in order, whether they take the newest access, up to the first that does not.
    Refresh { slots: Vec<usize> },
}

/// How an init ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Up,
    Failed(Failure),
}

/// A failed init.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) then: Then,
    pub(crate) kind: FailureKind,
    pub(crate) text: Arc<str>,
    pub(crate) retry_after: Option<Duration>,
}

/// What every input needs.
pub(crate) struct Rules<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) retry: &'a RetryOptions,
    pub(crate) health: &'a HealthOptions,
    pub(crate) rng: &'a mut fastrand::Rng,
    pub(crate) now: Instant,
}

impl Resources {
    pub(crate) fn new(plan: &Plan) -> Self {
        let slot = |_| Slot {
            phase: SlotPhase::Waiting,
            backoff: Backoff::default(),
            incarnation: 0,
            access: 0,
            up_since: None,
            excused: false,
            message: None,
            standing: None,
            bad: None,
            unauthorized: 0,
        };
        Self {
            slots: (0..plan.len()).map(slot).collect(),
            access: 0,
            refresh: None,
        }
    }

    /// All essential resources are up or not applicable.
    pub(crate) fn complete(&self, plan: &Plan) -> bool {
        plan.slots()
            .all(|(slot, planned)| !planned.essential || self.settled(slot))
    }

    /// An essential resource is missing. One that was not applicable counts as essential once it is up.
    pub(crate) fn degraded(&self, plan: &Plan) -> bool {
        plan.slots().any(|(slot, planned)| {
            planned.essential && !self.settled(slot) && !self.slots[slot].excused
        })
    }

    /// Readers may have it.
    pub(crate) fn is_up(&self, slot: usize) -> bool {
        self.slots[slot].phase == SlotPhase::Up
    }

    /// There is a value of this incarnation.
    pub(crate) fn has(&self, slot: usize, incarnation: u32) -> bool {
        let Slot {
            phase,
            incarnation: newest,
            ..
        } = &self.slots[slot];
        *newest == incarnation && matches!(phase, SlotPhase::Up | SlotPhase::Refreshing)
    }

    /// Up, not applicable, or failed at least once, itself or something that it requires: there is no more reason to wait for it.
    pub(crate) fn tried(&self, plan: &Plan, slot: usize) -> bool {
        let requires = |base: usize| plan.slot(base).dependents.contains(&slot);
        let failed = |base: usize| {
            let Slot { backoff, phase, .. } = &self.slots[base];
            !self.settled(base) && (backoff.failures() > 0 || *phase == SlotPhase::NeedsAccess)
        };
        self.settled(slot)
            || (0..self.slots.len()).any(|base| failed(base) && (base == slot || requires(base)))
    }

    fn settled(&self, slot: usize) -> bool {
        matches!(
            self.slots[slot].phase,
            SlotPhase::Up | SlotPhase::NotApplicable
        )
    }

    pub(crate) fn phase(&self, slot: usize) -> ResourcePhase {
        match self.slots[slot].phase {
            SlotPhase::Waiting => ResourcePhase::Waiting,
            SlotPhase::Retry { .. } => ResourcePhase::Retrying,
            SlotPhase::NeedsAccess => ResourcePhase::NeedsAccess,
            SlotPhase::Running { .. } | SlotPhase::Refreshing => ResourcePhase::Initialising,
            SlotPhase::Up => ResourcePhase::Up,
            SlotPhase::NotApplicable => ResourcePhase::NotApplicable,
            SlotPhase::Ending { .. } => ResourcePhase::Ending,
        }
    }

    /// What the state shows of each slot.
    pub(crate) fn shown(&self) -> Vec<(ResourcePhase, u32)> {
        let slots = 0..self.slots.len();
        slots
            .map(|slot| (self.phase(slot), self.failures(slot)))
            .collect()
    }

    /// Takes what a resource says of itself. Says whether it is an init or a value that still counts.
    pub(crate) fn stands(&mut self, slot: usize, incarnation: u32, standing: Standing) -> bool {
        let this = &mut self.slots[slot];
        let counts = this.incarnation == incarnation
            && matches!(
                this.phase,
                SlotPhase::Running { .. } | SlotPhase::Refreshing | SlotPhase::Up
            );
        if counts {
            this.standing = (standing != Standing::WELL).then(|| Box::new(standing));
        }
        counts
    }

    /// How a resource that is up says that it stands.
    pub(crate) fn standing(&self, slot: usize) -> Option<&Standing> {
        self.is_up(slot).then(|| self.slots[slot].standing())
    }

    /// Failed inits in a row; of one that is up, what it says itself.
    pub(crate) fn failures(&self, slot: usize) -> u32 {
        if let Some(standing) = self.standing(slot) {
            standing.failures
        } else if self.settled(slot) {
            0
        } else {
            self.slots[slot].backoff.failures()
        }
    }

    pub(crate) fn message(&self, slot: usize) -> Option<&Arc<str>> {
        match self.standing(slot) {
            Some(standing) => standing.trouble.as_ref(),
            None => self.slots[slot].message.as_ref(),
        }
    }

    /// When a slot is tried again.
    pub(crate) fn next_try(&self, slot: usize) -> Option<Instant> {
        match self.slots[slot].phase {
            SlotPhase::Retry { at } | SlotPhase::Ending { then: at } => Some(at),
            _ => None,
        }
    }

    /// When [`begin`](Self::begin) is to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let retries = self.slots.iter().filter_map(|slot| match slot.phase {
            SlotPhase::Retry { at } => Some(at),
            _ => None,
        });
        retries.min()
    }

    /// Begins every init that may begin now.
    pub(crate) fn begin(&mut self, rules: &Rules<'_>, out: &mut Vec<Step>) {
        // In the order of the plan, so that what one slot becomes is seen by those after it.
        for (slot, planned) in rules.plan.slots() {
            match self.slots[slot].phase {
                SlotPhase::Waiting => {}
                SlotPhase::Retry { at } if at <= rules.now => {}
                _ => continue,
            }
            if let Some(none) = planned
                .requires
                .iter()
                .find(|need| self.is_not_applicable(**need))
            {
                let message = format!("{} is not applicable", rules.plan.name(*none));
                self.slots[slot].not_applicable();
                self.slots[slot].message = Some(message.into());
                continue;
            }
            let may = planned.requires.iter().all(|need| self.is_up(*need))
                && planned
                    .wants
                    .iter()
                    .all(|want| self.tried(rules.plan, *want));
            if may {
                let this = &mut self.slots[slot];
                this.incarnation += 1;
                this.bad = None;
                this.standing = None;
                this.access = self.access;
                this.phase = SlotPhase::Running { again: false };
                out.push(Step::Init {
                    slot,
                    incarnation: this.incarnation,
                    attempt: this.backoff.failures() + 1,
                });
            } else {
                self.slots[slot].phase = SlotPhase::Waiting;
            }
        }
    }

    /// An init ended. Says whether it was one that still counted.
    pub(crate) fn finished(
        &mut self,
        slot: usize,
        incarnation: u32,
        outcome: Outcome,
        rules: &mut Rules<'_>,
        out: &mut Vec<Step>,
    ) -> bool {
        let behind = self.is_behind(slot, rules.plan);
        let this = &mut self.slots[slot];
        let SlotPhase::Running { again } = this.phase else {
            return false;
        };
        if this.incarnation != incarnation {
            return false;
        }
        match outcome {
            Outcome::Up if behind => {
                this.phase = SlotPhase::Refreshing;
                self.refresh(rules.plan, out);
            }
            Outcome::Up => this.up(rules.now),
            Outcome::Failed(failure) => {
                this.message = Some(Arc::clone(&failure.text));
                match failure.then {
                    Then::NotApplicable if !carries_health(rules.plan, slot) => {
                        this.not_applicable();
                    }
                    Then::NeedsAccess => this.phase = SlotPhase::NeedsAccess,
                    Then::Retry | Then::NotApplicable => {
                        let at = this.next_attempt(&failure, rules);
                        this.phase = SlotPhase::Retry { at };
                    }
                }
                if again {
                    this.phase = SlotPhase::Retry { at: rules.now };
                }
            }
        }
        if let Some(text) = self.slots[slot].bad.take() {
            self.failed(slot, incarnation, &text, rules, out);
        }
        self.begin(rules, out);
        true
    }

    /// A value has gone bad: it is torn down with what was built on it, and made again, as soon as its init is known to be over. Says whether
    /// it still counted.
    pub(crate) fn failed(
        &mut self,
        slot: usize,
        incarnation: u32,
        text: &Arc<str>,
        rules: &mut Rules<'_>,
        out: &mut Vec<Step>,
    ) -> bool {
        let has_value = self.has(slot, incarnation);
        let this = &mut self.slots[slot];
        if has_value {
            this.forget_failures(rules);
            this.message = Some(Arc::clone(text));
            let wait = this.backoff.failed(rules.retry, rules.rng, None);
            self.take_down(slot, rules.now + wait, rules, out);
            return true;
        }
        let runs = matches!(this.phase, SlotPhase::Running { .. });
        if runs && this.incarnation == incarnation {
            this.bad = Some(Arc::clone(text));
            return true;
        }
        false
    }

    /// Makes a slot anew that cannot take the newest access, while readers do not have it yet.
    pub(crate) fn redo(&mut self, slot: usize, rules: &Rules<'_>, out: &mut Vec<Step>) {
        if self.is_up(slot) {
            self.take_down(slot, rules.now, rules, out);
        }
    }

    /// Takes a slot down with what was built on it; the slot itself is tried again at `then`.
    fn take_down(&mut self, slot: usize, then: Instant, rules: &Rules<'_>, out: &mut Vec<Step>) {
        let mut slots = BTreeSet::from([slot]);
        for dependent in &rules.plan.slot(slot).dependents {
            match self.slots[*dependent].phase {
                // One that is not applicable has no value, but it may have tasks.
                SlotPhase::Up
                | SlotPhase::Refreshing
                | SlotPhase::Running { .. }
                | SlotPhase::NotApplicable => {
                    slots.insert(*dependent);
                    self.slots[*dependent].forget_failures(rules);
                    self.slots[*dependent].phase = SlotPhase::Ending { then: rules.now };
                }
                SlotPhase::Retry { .. } | SlotPhase::NeedsAccess => {
                    self.slots[*dependent].phase = SlotPhase::Waiting;
                }
                SlotPhase::Waiting | SlotPhase::Ending { .. } => {}
            }
        }
        self.slots[slot].phase = SlotPhase::Ending { then };
        out.push(Step::TakeDown { slots });
    }

    /// The teardown of these slots is over.
    pub(crate) fn ended(
        &mut self,
        slots: &BTreeSet<usize>,
        rules: &Rules<'_>,
        out: &mut Vec<Step>,
    ) {
        for slot in slots {
            if let SlotPhase::Ending { then } = self.slots[*slot].phase {
                self.slots[*slot].phase = SlotPhase::Retry { at: then };
            }
        }
        self.begin(rules, out);
    }

    /// There is a new credential: what waited for it is tried at once, what is up is asked to take it.
    pub(crate) fn new_access(&mut self, rules: &Rules<'_>, out: &mut Vec<Step>) {
        self.access += 1;
        for slot in &mut self.slots {
            slot.unauthorized = 0;
            slot.hint(rules.now);
            slot.ask_again();
        }
        self.refresh(rules.plan, out);
        self.begin(rules, out);
    }

    /// Tries at once what failed.
    pub(crate) fn retry_now(&mut self, rules: &Rules<'_>, out: &mut Vec<Step>) {
        for slot in &mut self.slots {
            slot.hint(rules.now);
        }
        self.begin(rules, out);
    }

    /// Tries a slot at once if it failed, and asks it again, with what requires it, if it was not applicable.
    pub(crate) fn reconsider(&mut self, slot: usize, rules: &Rules<'_>, out: &mut Vec<Step>) {
        self.slots[slot].hint(rules.now);
        if self.is_not_applicable(slot) {
            self.slots[slot].ask_again();
            for dependent in &rules.plan.slot(slot).dependents {
                self.slots[*dependent].ask_again();
            }
        }
        self.begin(rules, out);
    }

    fn is_not_applicable(&self, slot: usize) -> bool {
        self.slots[slot].phase == SlotPhase::NotApplicable
    }
}

/// The health provider is never not applicable, and so neither is what it requires.
pub(crate) fn carries_health(plan: &Plan, slot: usize) -> bool {
    slot == plan.health() || plan.slot(slot).dependents.contains(&plan.health())
}
