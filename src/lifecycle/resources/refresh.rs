//! What is up, or is to be, is asked whether it takes a new access in place.

use super::{Resources, Rules, SlotPhase, Step};
use crate::plan::Plan;

/// A refresh under way: the access that it is about, and the slots with the incarnations that are asked, in order.
#[derive(Debug)]
pub(super) struct Refresh {
    pub(super) access: u64,
    pub(super) asked: Vec<(usize, u32)>,
}

impl Resources {
    /// One refresh at a time: two could end in the wrong order.
    pub(super) fn refresh(&mut self, plan: &Plan, out: &mut Vec<Step>) {
        if self.refresh.is_some() {
            return;
        }
        let all = self.slots.iter().map(|slot| slot.incarnation).enumerate();
        let asked: Vec<_> = all
            .filter(|(slot, now)| self.has(*slot, *now) && self.is_behind(*slot, plan))
            .collect();
        if !asked.is_empty() {
            let slots = asked.iter().map(|(slot, _)| *slot).collect();
            let access = self.access;
            self.refresh = Some(Refresh { access, asked });
            out.push(Step::Refresh { slots });
        }
    }

    /// A refresh ended; `rebuild` is the first slot that cannot take the access, if there is one: those after it were not asked. Returns
    /// it if the whole connection must be made anew for it; one that readers never had is only initialised again.
    pub(crate) fn refreshed(
        &mut self,
        rebuild: Option<usize>,
        rules: &Rules<'_>,
        out: &mut Vec<Step>,
    ) -> Option<usize> {
        let Refresh { access, asked } = self.refresh.take()?;
        let mut whole = None;
        for (slot, incarnation) in asked {
            // Another value than the one that was asked knows better.
            if self.slots[slot].incarnation == incarnation {
                self.slots[slot].access = access;
                match self.slots[slot].phase {
                    SlotPhase::Refreshing if rebuild == Some(slot) => {
                        self.take_down(slot, rules.now, rules, out);
                    }
                    SlotPhase::Refreshing if access == self.access => {
                        self.slots[slot].up(rules.now);
                    }
                    SlotPhase::Up => whole = rebuild.filter(|rebuild| *rebuild == slot),
                    _ => {}
                }
            }
            if rebuild == Some(slot) {
                break;
            }
        }
        self.refresh(rules.plan, out);
        self.begin(rules, out);
        whole
    }

    /// Its value has not been asked about the newest access.
    pub(super) fn is_behind(&self, slot: usize, plan: &Plan) -> bool {
        plan.slot(slot).access && self.slots[slot].access != self.access
    }
}
