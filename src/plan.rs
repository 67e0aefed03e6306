//! Pure: the order in which resources come up, and every mistake in what was registered (reported all at once, each with its path).
//! Keeps "what it requires is up before" and "essential requiring optional is a build error"; rule 6's reverse order starts here.

use std::any::TypeId;

use crate::Requires;

mod graph;
#[cfg(test)]
mod tests;

use graph::Graph;

/// A provider as it was registered.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) type_id: TypeId,
    pub(crate) type_name: &'static str,
    pub(crate) essential: bool,
    pub(crate) requires: Requires,
}

/// The registered providers in the order in which they come up: each after all that it requires or wants, and otherwise as registered.
#[derive(Debug)]
pub(crate) struct Plan {
    slots: Vec<Slot>,
    health: usize,
    /// The types of the slots: few, and looked through by every read, which is faster than hashing.
    types: Vec<TypeId>,
}

/// A provider's place in the plan; its index there is what `slot: usize` means everywhere.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: &'static str,
    /// Its index in what was registered.
    pub(crate) spec: usize,
    pub(crate) essential: bool,
    pub(crate) access: bool,
    /// Slots that must be up before (direct ones), in the order of the plan.
    pub(crate) requires: Vec<usize>,
    /// Slots that it is only ordered after, in the order of the plan; those that are not registered, or required too, are left out.
    pub(crate) wants: Vec<usize>,
    /// Slots that require it, directly or through others, in the order of the plan.
    pub(crate) dependents: Vec<usize>,
}

/// A mistake in what was registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A type of provider was registered more than once.
    #[error(
        "{type_name} is registered more than once; register it once (give one of the two a newtype if both are meant)"
    )]
    DuplicateType {
        /// The provider's type.
        type_name: &'static str,
    },
    /// Two providers of different types have the same name.
    #[error("{first} and {second} are both named {name:?}; give one of them another name")]
    DuplicateName {
        /// The name.
        name: &'static str,
        /// The type that was registered with it first.
        first: &'static str,
        /// The type that came later.
        second: &'static str,
    },
    /// A provider requires one that is not registered.
    #[error(
        "{resource} requires {requires}, which is not registered; register that too, or make it .wants() if {resource} can do without"
    )]
    Missing {
        /// The provider's name.
        resource: &'static str,
        /// The type that it requires.
        requires: &'static str,
    },
    /// An essential provider requires an optional one.
    #[error(
        "{resource} is essential and requires {requires}, which is optional; register {requires} by .resource(), or {resource} by .optional()"
    )]
    EssentialRequiresOptional {
        /// The essential provider's name.
        resource: &'static str,
        /// The optional provider's name.
        requires: &'static str,
    },
    /// Providers wait for each other, by what they require or want.
    #[error("resources wait for each other: {}; take one of these out of its requires()", path.join(" -> "))]
    Cycle {
        /// Their names: each requires or wants the next, and the last is the first again.
        path: Vec<&'static str>,
    },
    /// Nothing was said of where the health check comes from.
    #[error("no resource is the health check; name one by .health_from::<R>()")]
    NoHealth,
    /// The health provider is not registered.
    #[error(
        "{type_name} is given to .health_from() and is not registered; register it by .resource()"
    )]
    HealthNotRegistered {
        /// The provider's type.
        type_name: &'static str,
    },
    /// The health provider is optional.
    #[error(
        "{resource} is the health check and is registered as optional; register it by .resource()"
    )]
    HealthOptional {
        /// The provider's name.
        resource: &'static str,
    },
}

impl Plan {
    /// `health` is the type given to `health_from`, and its name.
    pub(crate) fn new(
        specs: &[Spec],
        health: Option<(TypeId, &'static str)>,
    ) -> Result<Self, Vec<PlanError>> {
        let graph = Graph::new(specs);
        let mut errors = graph.errors();
        let health = graph.health(health).map_err(|error| errors.push(error));
        match health {
            Ok(health) if errors.is_empty() => Ok(Self::of(&graph, health)),
            _ => Err(errors),
        }
    }

    fn of(graph: &Graph<'_>, health: usize) -> Self {
        let order = graph.order();
        let mut place = vec![0; order.len()];
        for (slot, &spec) in order.iter().enumerate() {
            place[spec] = slot;
        }
        let slots_of = |specs: &[usize]| {
            let mut slots: Vec<_> = specs.iter().map(|&spec| place[spec]).collect();
            slots.sort_unstable();
            slots
        };
        let slots = order.iter().map(|&spec| Slot {
            name: graph.specs[spec].name,
            spec,
            essential: graph.specs[spec].essential,
            access: graph.specs[spec].requires.access,
            requires: slots_of(&graph.requires[spec]),
            wants: slots_of(&graph.wants[spec]),
            dependents: Vec::new(),
        });
        let mut slots: Vec<_> = slots.collect();
        add_dependents(&mut slots);
        Self {
            health: place[health],
            types: slots
                .iter()
                .map(|slot| graph.specs[slot.spec].type_id)
                .collect(),
            slots,
        }
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

    #[inline]
    pub(crate) fn index_of(&self, type_id: TypeId) -> Option<usize> {
        self.types.iter().position(|known| *known == type_id)
    }
}

/// Slots are in order, so those that one requires are complete when it is reached.
fn add_dependents(slots: &mut [Slot]) {
    for slot in 0..slots.len() {
        let (before, rest) = slots.split_at_mut(slot);
        for (index, other) in before.iter_mut().enumerate() {
            let requires = &rest[0].requires;
            if requires.contains(&index) || other.dependents.iter().any(|d| requires.contains(d)) {
                other.dependents.push(slot);
            }
        }
    }
}
