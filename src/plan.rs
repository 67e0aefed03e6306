//! Pure: the order in which resources come up.

use std::{any::TypeId, collections::HashMap};

use crate::Requires;

/// A provider as it was registered.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) type_id: TypeId,
    pub(crate) type_name: &'static str,
    pub(crate) essential: bool,
    pub(crate) requires: Requires,
}

/// The registered providers in the order in which they come up: each after all that it requires or wants.
#[derive(Debug)]
pub(crate) struct Plan {
    slots: Vec<Slot>,
    health: usize,
    by_type: HashMap<TypeId, usize>,
}

/// A provider's place in the plan; its index there is what `slot: usize` means everywhere.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: &'static str,
    /// Its index in what was registered.
    pub(crate) spec: usize,
    pub(crate) essential: bool,
    pub(crate) access: bool,
    /// Slots that must be up before (direct ones).
    pub(crate) requires: Vec<usize>,
    /// Slots that it is only ordered after; those that are not registered are left out.
    pub(crate) wants: Vec<usize>,
    /// Slots that require it, directly or through others, in the order of the plan.
    pub(crate) dependents: Vec<usize>,
}

/// A mistake in what was registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {}

impl Plan {
    pub(crate) fn new(specs: &[Spec], health: Option<TypeId>) -> Result<Self, Vec<PlanError>> {
        let _ = (specs, health);
        todo!()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slot(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots.iter().enumerate()
    }

    pub(crate) fn name(&self, slot: usize) -> &'static str {
        self.slots[slot].name
    }

    /// The slot of the health provider.
    pub(crate) fn health(&self) -> usize {
        self.health
    }

    pub(crate) fn index_of(&self, type_id: TypeId) -> Option<usize> {
        self.by_type.get(&type_id).copied()
    }
}
