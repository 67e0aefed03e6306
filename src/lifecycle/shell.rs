//! For tests: arbitrary plans, and a plain model of what the engine does for one connection. It executes steps honestly (one teardown after the
//! other, values in the reverse of the order in which they came up, news delivered in any order), and checks what no step may break.

use std::{
    any::TypeId,
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::Instant;

use super::resources::{Failure, Outcome, Resources, Step};
use crate::{
    FailureKind, Requires,
    plan::{Plan, Spec},
    resource::{Need, Then},
};

pub(super) struct Shell {
    /// Inits that run.
    pub(super) running: Vec<Made>,
    /// Values, in the order in which they came up.
    pub(super) values: Vec<Made>,
    /// Teardowns, each waiting for the one before; the last is that of the whole connection, if that retires.
    pub(super) teardowns: VecDeque<BTreeSet<usize>>,
    pub(super) refresh: Option<Vec<usize>>,
    pub(super) mail: Vec<Mail>,
    pub(super) retires: bool,
    /// Number of the newest access.
    access: u64,
    /// Inits begun, by slot.
    begun: Vec<u32>,
    /// What was up when this was last looked at, by slot.
    seen_up: Vec<Option<u32>>,
}

/// What an init makes, or made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) slot: usize,
    pub(super) incarnation: u32,
    built_on: Vec<(usize, u32)>,
    /// The newest access that it began with, or was asked about.
    access: u64,
}

/// News on the way to the engine.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    Finished {
        slot: usize,
        incarnation: u32,
        outcome: Outcome,
    },
    Ended(BTreeSet<usize>),
    Refreshed {
        rebuild: Option<usize>,
    },
    Retired,
}

impl Shell {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            running: Vec::new(),
            values: Vec::new(),
            teardowns: VecDeque::new(),
            refresh: None,
            mail: Vec::new(),
            retires: false,
            access: 0,
            begun: vec![0; plan.len()],
            seen_up: vec![None; plan.len()],
        }
    }

    pub(super) fn new_access(&mut self) {
        self.access += 1;
    }

    pub(super) fn take(&mut self, plan: &Plan, step: Step) {
        assert!(!self.retires, "{step:?} of a connection that retires");
        match step {
            Step::Init {
                slot, incarnation, ..
            } => {
                let busy = self.running.iter().chain(&self.values);
                assert!(
                    busy.clone().all(|made| made.slot != slot),
                    "{slot} is there, and begins"
                );
                assert!(incarnation > self.begun[slot], "incarnations grow");
                self.begun[slot] = incarnation;
                let need = |need: &usize| {
                    let base = self.values.iter().find(|made| made.slot == *need);
                    let base = base.unwrap_or_else(|| panic!("{slot} begins without {need}"));
                    assert!(
                        self.seen_up[*need].is_none_or(|seen| seen <= base.incarnation),
                        "stale"
                    );
                    (base.slot, base.incarnation)
                };
                self.running.push(Made {
                    slot,
                    incarnation,
                    built_on: plan.slot(slot).requires.iter().map(need).collect(),
                    access: self.access,
                });
            }
            Step::TakeDown { slots } => {
                let root = slots.first().expect("something is taken down");
                let dependents = &plan.slot(*root).dependents;
                assert!(
                    slots
                        .iter()
                        .all(|slot| slot == root || dependents.contains(slot)),
                    "a sibling of {root} is disturbed: {slots:?}"
                );
                self.teardowns.push_back(slots);
            }
            Step::Refresh { slots } => {
                assert!(self.refresh.is_none(), "one refresh at a time");
                assert!(
                    slots.iter().all(|slot| plan.slot(*slot).access),
                    "{slots:?}"
                );
                self.refresh = Some(slots);
            }
        }
    }

    /// The whole connection goes.
    pub(super) fn retire(&mut self, plan: &Plan) {
        assert!(!self.retires, "retired twice");
        self.retires = true;
        self.teardowns.push_back((0..plan.len()).collect());
    }

    /// An init ends.
    pub(super) fn finish(&mut self, at: usize, outcome: Outcome) {
        let made = self.running.swap_remove(at);
        let (slot, incarnation) = (made.slot, made.incarnation);
        if let Outcome::Up = outcome {
            self.values.push(made);
        }
        self.mail.push(Mail::Finished {
            slot,
            incarnation,
            outcome,
        });
    }

    /// The refresh under way ends.
    pub(super) fn answer(&mut self, refuses: impl Fn(usize) -> bool) {
        let Some(slots) = self.refresh.take() else {
            return;
        };
        let mut rebuild = None;
        for slot in slots {
            if let Some(value) = self.values.iter_mut().find(|made| made.slot == slot) {
                value.access = self.access;
                if refuses(slot) {
                    rebuild = Some(slot);
                    break;
                }
            }
        }
        self.mail.push(Mail::Refreshed { rebuild });
    }

    /// The next teardown runs to its end; inits that it cancels make a value all the same, or do not.
    pub(super) fn tear_down(&mut self, in_spite: bool) {
        let Some(slots) = self.teardowns.pop_front() else {
            return;
        };
        while let Some(at) = self
            .running
            .iter()
            .position(|made| slots.contains(&made.slot))
        {
            let made = self.running.remove(at);
            let outcome = if in_spite {
                Outcome::Up
            } else {
                failure(Then::Retry)
            };
            self.mail.push(Mail::Finished {
                slot: made.slot,
                incarnation: made.incarnation,
                outcome,
            });
            if in_spite {
                self.values.push(made);
            }
        }
        while let Some(at) = self
            .values
            .iter()
            .rposition(|made| slots.contains(&made.slot))
        {
            let gone = self.values.remove(at);
            let mut left = self.values.iter().chain(&self.running);
            assert!(
                left.all(|made| !made.built_on.contains(&(gone.slot, gone.incarnation))),
                "{} goes before what was built on it",
                gone.slot
            );
        }
        let whole = self.retires && self.teardowns.is_empty();
        self.mail.push(if whole {
            Mail::Retired
        } else {
            Mail::Ended(slots)
        });
    }

    /// What must hold after every step.
    pub(super) fn check(&mut self, plan: &Plan, resources: &Resources) {
        for (slot, planned) in plan.slots() {
            if !resources.is_up(slot) {
                self.seen_up[slot] = None;
                continue;
            }
            let value = self.values.iter().find(|made| made.slot == slot);
            let value = value.unwrap_or_else(|| panic!("{slot} is up without a value"));
            let falls = self.teardowns.iter().any(|slots| slots.contains(&slot));
            assert!(!falls, "{slot} is read while it is torn down");
            for (base, incarnation) in &value.built_on {
                let of_base = self.values.iter().find(|made| made.slot == *base);
                let same = of_base.is_some_and(|made| made.incarnation == *incarnation);
                assert!(same && resources.is_up(*base), "{slot} without its {base}");
            }
            if self.seen_up[slot].replace(value.incarnation) != Some(value.incarnation) {
                assert!(
                    !planned.access || value.access == self.access,
                    "{slot} is published on an access that it was not asked about"
                );
            }
        }
    }

    /// Nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
            && self.teardowns.is_empty()
            && self.refresh.is_none()
            && self.mail.is_empty()
    }

    /// Everything that reads the access was asked about the newest.
    pub(super) fn check_access(&self, plan: &Plan) {
        let mut reads = self
            .values
            .iter()
            .filter(|made| plan.slot(made.slot).access);
        assert!(
            reads.all(|made| made.access == self.access),
            "not asked: {:?}",
            self.values
        );
    }
}

pub(super) fn failure(then: Then) -> Outcome {
    Outcome::Failed(Failure {
        then,
        kind: FailureKind::Other,
        text: "the test says so".into(),
        retry_after: None,
    })
}

pub(super) fn any_outcome() -> impl Strategy<Value = Outcome> {
    let failed = |then| {
        let kind = prop_oneof![Just(FailureKind::Other), Just(FailureKind::Unauthorized)];
        let hint = proptest::option::of((0..100_u64).prop_map(Duration::from_secs));
        (kind, hint).prop_map(move |(kind, retry_after)| {
            Outcome::Failed(Failure {
                then,
                kind,
                text: "the test says so".into(),
                retry_after,
            })
        })
    };
    prop_oneof![
        4 => Just(Outcome::Up),
        2 => failed(Then::Retry),
        1 => failed(Then::NeedsAccess),
        1 => failed(Then::NotApplicable),
    ]
}

/// A resource of a plan: needs are resources before it, so that there is no circle.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned {
    pub(super) optional: bool,
    pub(super) requires: Vec<usize>,
    pub(super) wants: Vec<usize>,
    pub(super) access: bool,
}

struct N<const I: usize>;

const MOST: usize = 6;

/// Makes a plan; what essential ones require is made essential, and so is the health provider.
pub(super) fn plan(resources: &[Planned], health: usize) -> Plan {
    let types: [TypeId; MOST] = [
        TypeId::of::<N<0>>(),
        TypeId::of::<N<1>>(),
        TypeId::of::<N<2>>(),
        TypeId::of::<N<3>>(),
        TypeId::of::<N<4>>(),
        TypeId::of::<N<5>>(),
    ];
    let mut essential: Vec<bool> = resources.iter().map(|planned| !planned.optional).collect();
    essential[health] = true;
    for (index, planned) in resources.iter().enumerate().rev() {
        if essential[index] {
            planned
                .requires
                .iter()
                .for_each(|need| essential[*need] = true);
        }
    }
    let need = |of: &usize, required| Need {
        type_id: types[*of],
        type_name: "a resource",
        required,
    };
    let specs = resources.iter().enumerate().map(|(index, planned)| {
        let requires = planned.requires.iter().map(|of| need(of, true));
        let wants = planned.wants.iter().map(|of| need(of, false));
        Spec {
            name: ["a", "b", "c", "d", "e", "f"][index],
            type_id: types[index],
            type_name: "a resource",
            essential: essential[index],
            requires: Requires {
                needs: requires.chain(wants).collect(),
                access: planned.access,
            },
        }
    });
    let specs: Vec<Spec> = specs.collect();
    Plan::new(&specs, Some((types[health], "a resource"))).expect("a plan without mistakes")
}

pub(super) fn any_plan() -> impl Strategy<Value = (Vec<Planned>, usize)> {
    (1..=MOST).prop_flat_map(|count| {
        let planned = (0..count).map(|index| {
            let needs = proptest::collection::vec(0..6_u8, index);
            let flags = (any::<bool>(), any::<bool>());
            (needs, flags).prop_map(|(needs, (optional, access))| {
                let of = |wanted: u8| {
                    let needs = needs.iter().enumerate();
                    let found = needs.filter(|(_, need)| **need == wanted);
                    found.map(|(index, _)| index).collect()
                };
                Planned {
                    optional,
                    access,
                    requires: of(0),
                    wants: of(1),
                }
            })
        });
        (planned.collect::<Vec<_>>(), 0..count)
    })
}

/// Calls `begin` at its deadline, and sees that something comes of it.
pub(super) fn assert_ahead(deadline: Option<Instant>, now: Instant) {
    assert!(
        deadline.is_none_or(|at| at > now),
        "a deadline that stays in the past"
    );
}
