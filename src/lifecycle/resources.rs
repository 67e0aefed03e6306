//! The resources of one connection: which `init` may begin, what is retried, what falls with what (rules 2 and 6). A value that is up
//! stays so until it or something that it was built on fails; its siblings never notice.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::{
    FailureKind, ResourcePhase,
    options::{HealthOptions, RetryOptions},
    plan::Plan,
    resource::Then,
};

#[derive(Debug)]
pub(crate) struct Resources {
    slots: Vec<Slot>,
    /// Number of the newest access, and of the one that a refresh under way is about.
    access: u64,
    refreshing: Option<u64>,
}

#[derive(Debug)]
struct Slot {
    phase: SlotPhase,
    backoff: Backoff,
    /// Inits begun so far.
    incarnation: u32,
    up_since: Option<Instant>,
    message: Option<Arc<str>>,
    /// Refusals of the credential in a row: they have a schedule of their own.
    unauthorized: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotPhase {
    Waiting,
    Retry {
        at: Instant,
    },
    NeedsAccess,
    Running {
        access: u64,
    },
    /// Its init succeeded on an access that is no more the newest: it is asked whether it takes the newest.
    Refreshing,
    Up,
    NotApplicable,
    /// Its teardown runs; then it is tried at this time.
    Ending {
        then: Instant,
    },
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
    /// Ask these, in order, whether they take the newest access.
    Refresh { slots: Vec<usize>, access: u64 },
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
            up_since: None,
            message: None,
            unauthorized: 0,
        };
        Self {
            slots: (0..plan.len()).map(slot).collect(),
            access: 0,
            refreshing: None,
        }
    }

    /// All essential resources are up or not applicable.
    pub(crate) fn complete(&self, plan: &Plan) -> bool {
        plan.slots()
            .all(|(slot, planned)| !planned.essential || self.settled(slot))
    }

    /// What subscribers are told of: each resource's phase and failures.
    pub(crate) fn told(&self) -> Vec<(ResourcePhase, u32)> {
        (0..self.slots.len())
            .map(|slot| (self.phase(slot), self.failures(slot)))
            .collect()
    }

    /// Readers may have it.
    pub(crate) fn is_up(&self, slot: usize) -> bool {
        self.slots[slot].phase == SlotPhase::Up
    }

    /// Up, not applicable, or failed at least once: there is no more reason to wait for it.
    pub(crate) fn tried(&self, slot: usize) -> bool {
        self.settled(slot)
            || self.slots[slot].backoff.failures() > 0
            || self.slots[slot].phase == SlotPhase::NeedsAccess
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

    /// Failed inits in a row.
    pub(crate) fn failures(&self, slot: usize) -> u32 {
        if self.settled(slot) {
            0
        } else {
            self.slots[slot].backoff.failures()
        }
    }

    pub(crate) fn message(&self, slot: usize) -> Option<&Arc<str>> {
        self.slots[slot].message.as_ref()
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
                self.slots[slot].phase = SlotPhase::NotApplicable;
                self.slots[slot].message = Some(message.into());
                continue;
            }
            let may = planned.requires.iter().all(|need| self.is_up(*need))
                && planned.wants.iter().all(|want| self.tried(*want));
            if may {
                let access = self.access;
                let this = &mut self.slots[slot];
                this.incarnation += 1;
                this.phase = SlotPhase::Running { access };
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
        let newest = self.access;
        let this = &mut self.slots[slot];
        let SlotPhase::Running { access } = this.phase else {
            return false;
        };
        if this.incarnation != incarnation {
            return false;
        }
        match outcome {
            Outcome::Up if rules.plan.slot(slot).access && access != newest => {
                this.phase = SlotPhase::Refreshing;
                self.refresh(rules.plan, out);
            }
            Outcome::Up => this.up(rules.now),
            Outcome::Failed(failure) => {
                this.message = Some(Arc::clone(&failure.text));
                this.phase = match failure.then {
                    // What was said of an older access is asked again of the newest.
                    Then::NotApplicable | Then::NeedsAccess if access != newest => {
                        SlotPhase::Retry { at: rules.now }
                    }
                    Then::NotApplicable => SlotPhase::NotApplicable,
                    Then::NeedsAccess => SlotPhase::NeedsAccess,
                    Then::Retry => SlotPhase::Retry {
                        at: this.next_attempt(&failure, rules),
                    },
                };
            }
        }
        self.begin(rules, out);
        true
    }

    /// A value that was up has gone bad: it is torn down with what was built on it, and made again. Says whether it still counted.
    pub(crate) fn failed(
        &mut self,
        slot: usize,
        incarnation: u32,
        text: &Arc<str>,
        rules: &mut Rules<'_>,
        out: &mut Vec<Step>,
    ) -> bool {
        let this = &mut self.slots[slot];
        if this.incarnation != incarnation
            || !matches!(this.phase, SlotPhase::Up | SlotPhase::Refreshing)
        {
            return false;
        }
        let lived = this
            .up_since
            .map(|since| rules.now.saturating_duration_since(since));
        if lived.is_some_and(|lived| lived >= rules.retry.forget_after) {
            this.backoff.reset();
        }
        this.message = Some(Arc::clone(text));
        let wait = this.backoff.failed(rules.retry, rules.rng, None);
        self.take_down(slot, rules.now + wait, rules, out);
        true
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
                SlotPhase::Up | SlotPhase::Refreshing | SlotPhase::Running { .. } => {
                    slots.insert(*dependent);
                    self.slots[*dependent].phase = SlotPhase::Ending { then: rules.now };
                }
                SlotPhase::NotApplicable | SlotPhase::Retry { .. } | SlotPhase::NeedsAccess => {
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
            match slot.phase {
                SlotPhase::NeedsAccess | SlotPhase::NotApplicable | SlotPhase::Retry { .. } => {
                    slot.phase = SlotPhase::Waiting;
                }
                _ => {}
            }
        }
        self.refresh(rules.plan, out);
        self.begin(rules, out);
    }

    /// One refresh at a time: two could end in the wrong order.
    fn refresh(&mut self, plan: &Plan, out: &mut Vec<Step>) {
        if self.refreshing.is_some() {
            return;
        }
        let reads = |slot: &usize| {
            plan.slot(*slot).access
                && matches!(
                    self.slots[*slot].phase,
                    SlotPhase::Up | SlotPhase::Refreshing
                )
        };
        let slots: Vec<usize> = (0..self.slots.len()).filter(reads).collect();
        if !slots.is_empty() {
            self.refreshing = Some(self.access);
            out.push(Step::Refresh {
                slots,
                access: self.access,
            });
        }
    }

    /// A refresh ended; `rebuild` is the first slot that cannot take the access, if there is one. Returns it if the whole connection must
    /// be made anew for it; one that readers do not have yet is only initialised again.
    pub(crate) fn refreshed(
        &mut self,
        rebuild: Option<usize>,
        rules: &Rules<'_>,
        out: &mut Vec<Step>,
    ) -> Option<usize> {
        let done = self.refreshing.take();
        if let Some(slot) = rebuild {
            if self.slots[slot].phase == SlotPhase::Refreshing {
                self.take_down(slot, rules.now, rules, out);
            } else if self.is_up(slot) {
                return Some(slot);
            }
        }
        let waiting: Vec<usize> = (0..self.slots.len())
            .filter(|slot| self.slots[*slot].phase == SlotPhase::Refreshing)
            .collect();
        if done != Some(self.access) || (rebuild.is_some() && !waiting.is_empty()) {
            self.refresh(rules.plan, out);
        } else {
            for slot in waiting {
                self.slots[slot].up(rules.now);
            }
        }
        self.begin(rules, out);
        None
    }

    /// Tries at once what failed, and asks again what was not applicable if `slot` names it.
    pub(crate) fn retry_now(
        &mut self,
        slot: Option<usize>,
        rules: &Rules<'_>,
        out: &mut Vec<Step>,
    ) {
        for (index, this) in self.slots.iter_mut().enumerate() {
            match this.phase {
                SlotPhase::NotApplicable if slot == Some(index) => this.phase = SlotPhase::Waiting,
                SlotPhase::Retry { .. } | SlotPhase::NeedsAccess
                    if slot.is_none() || slot == Some(index) =>
                {
                    this.phase = SlotPhase::Waiting;
                }
                _ => {}
            }
        }
        if let Some(slot) = slot {
            for dependent in &rules.plan.slot(slot).dependents {
                if self.is_not_applicable(*dependent) {
                    self.slots[*dependent].phase = SlotPhase::Waiting;
                }
            }
        }
        self.begin(rules, out);
    }

    fn is_not_applicable(&self, slot: usize) -> bool {
        self.slots[slot].phase == SlotPhase::NotApplicable
    }
}

impl Slot {
    fn up(&mut self, now: Instant) {
        self.phase = SlotPhase::Up;
        self.up_since = Some(now);
        self.message = None;
        self.unauthorized = 0;
    }

    fn next_attempt(&mut self, failure: &Failure, rules: &mut Rules<'_>) -> Instant {
        let wait = self
            .backoff
            .failed(rules.retry, rules.rng, failure.retry_after);
        if failure.kind != FailureKind::Unauthorized {
            self.unauthorized = 0;
            return rules.now + wait;
        }
        let schedule = &rules.health.unauthorized_retries;
        let wait = schedule[self.unauthorized.min(schedule.len() - 1)];
        self.unauthorized += 1;
        rules.now + wait
    }
}
