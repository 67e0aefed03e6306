//! What was registered, as a graph: its order, and the mistakes in it.

use std::{any::TypeId, collections::HashMap};

use super::{PlanError, Spec};

/// What was registered, with needs resolved to indexes of it.
pub(super) struct Graph<'a> {
    pub(super) specs: &'a [Spec],
    pub(super) by_type: HashMap<TypeId, usize>,
    pub(super) requires: Vec<Vec<usize>>,
    pub(super) wants: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(specs: &'a [Spec]) -> Self {
        let mut by_type = HashMap::new();
        for (index, spec) in specs.iter().enumerate() {
            by_type.entry(spec.type_id).or_insert(index);
        }
        let needs = |spec: &Spec, required| {
            let needs = spec.requires.needs.iter();
            let of_kind = needs.filter(|need| need.required == required);
            let mut found: Vec<usize> = of_kind
                .filter_map(|need| by_type.get(&need.type_id).copied())
                .collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let requires: Vec<_> = specs.iter().map(|spec| needs(spec, true)).collect();
        let mut wants: Vec<_> = specs.iter().map(|spec| needs(spec, false)).collect();
        for (wants, requires) in wants.iter_mut().zip(&requires) {
            wants.retain(|want| !requires.contains(want));
        }
        Self {
            specs,
            by_type,
            requires,
            wants,
        }
    }

    fn needs(&self, spec: usize) -> impl Iterator<Item = usize> {
        let wants = self.wants[spec].iter();
        self.requires[spec].iter().chain(wants).copied()
    }

    pub(super) fn errors(&self) -> Vec<PlanError> {
        let mut errors = Vec::new();
        for (index, spec) in self.specs.iter().enumerate() {
            self.errors_of(index, spec, &mut errors);
        }
        let mut seen = vec![Seen::Not; self.specs.len()];
        for index in 0..self.specs.len() {
            self.cycles(index, &mut seen, &mut Vec::new(), &mut errors);
        }
        errors
    }

    fn errors_of(&self, index: usize, spec: &Spec, errors: &mut Vec<PlanError>) {
        // A type that is registered twice has the same mistakes twice.
        let mut push = |error| {
            if !errors.contains(&error) {
                errors.push(error);
            }
        };
        let type_name = spec.type_name;
        if self.by_type[&spec.type_id] != index {
            push(PlanError::DuplicateType { type_name });
        }
        let before = self.specs[..index].iter();
        let namesake = before.clone().find(|other| other.name == spec.name);
        if let Some(first) = namesake.filter(|_| !before.clone().any(|b| b.type_id == spec.type_id))
        {
            push(PlanError::DuplicateName {
                name: spec.name,
                first: first.type_name,
                second: type_name,
            });
        }
        for need in spec.requires.needs.iter().filter(|need| need.required) {
            match self.by_type.get(&need.type_id).map(|&at| &self.specs[at]) {
                None => push(PlanError::Missing {
                    resource: spec.name,
                    requires: need.type_name,
                }),
                Some(other) if spec.essential && !other.essential => {
                    push(PlanError::EssentialRequiresOptional {
                        resource: spec.name,
                        requires: other.name,
                    });
                }
                Some(_) => {}
            }
        }
    }

    /// One error for each need that closes a circle: without those needs there is none left.
    fn cycles(
        &self,
        at: usize,
        seen: &mut [Seen],
        path: &mut Vec<usize>,
        errors: &mut Vec<PlanError>,
    ) {
        match seen[at] {
            Seen::Done => {}
            Seen::OnPath => {
                let start = path.iter().position(|&on| on == at).unwrap_or_default();
                let circle = path[start..].iter().chain([&at]);
                errors.push(PlanError::Cycle {
                    path: circle.map(|&spec| self.specs[spec].name).collect(),
                });
            }
            Seen::Not => {
                seen[at] = Seen::OnPath;
                path.push(at);
                for need in self.needs(at) {
                    self.cycles(need, seen, path, errors);
                }
                path.pop();
                seen[at] = Seen::Done;
            }
        }
    }

    /// Always the first registered of those whose needs are all there. Asked only of a graph without circles.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::with_capacity(self.specs.len());
        let ready = |order: &[usize], spec: usize| {
            !order.contains(&spec) && self.needs(spec).all(|need| order.contains(&need))
        };
        while let Some(next) = (0..self.specs.len()).find(|&spec| ready(&order, spec)) {
            order.push(next);
        }
        order
    }

    pub(super) fn health(
        &self,
        health: Option<(TypeId, &'static str)>,
    ) -> Result<usize, PlanError> {
        let (type_id, type_name) = health.ok_or(PlanError::NoHealth)?;
        let registered = self.by_type.get(&type_id).copied();
        let index = registered.ok_or(PlanError::HealthNotRegistered { type_name })?;
        let Spec {
            name: resource,
            essential,
            ..
        } = self.specs[index];
        if essential {
            Ok(index)
        } else {
            Err(PlanError::HealthOptional { resource })
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    OnPath,
    Done,
}
