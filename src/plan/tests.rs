//! The plan against a plain model, and each mistake by an example.

use proptest::prelude::*;

use super::*;
use crate::resource::Need;

struct N<const I: usize>;

const MOST: usize = 8;

/// Types to be registered: the ninth never is.
fn types() -> [(TypeId, &'static str); MOST + 1] {
    fn of<const I: usize>() -> (TypeId, &'static str) {
        (TypeId::of::<N<I>>(), std::any::type_name::<N<I>>())
    }
    [
        of::<0>(),
        of::<1>(),
        of::<2>(),
        of::<3>(),
        of::<4>(),
        of::<5>(),
        of::<6>(),
        of::<7>(),
        of::<8>(),
    ]
}

const NAMES: [&str; MOST] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn need(of: usize, required: bool) -> Need {
    let (type_id, type_name) = types()[of];
    Need {
        type_id,
        type_name,
        required,
    }
}

fn spec(of: usize, essential: bool, requires: &[usize], wants: &[usize]) -> Spec {
    let (type_id, type_name) = types()[of];
    let needs = requires.iter().map(|&of| need(of, true));
    Spec {
        name: NAMES[of],
        type_id,
        type_name,
        essential,
        requires: Requires {
            needs: needs
                .chain(wants.iter().map(|&of| need(of, false)))
                .collect(),
            access: false,
        },
    }
}

fn plan(specs: &[Spec]) -> Result<Plan, Vec<PlanError>> {
    Plan::new(specs, Some(types()[0]))
}

fn names(plan: &Plan) -> String {
    plan.slots().map(|(_, slot)| slot.name).collect()
}

#[track_caller]
fn mistakes(specs: &[Spec], expected: &[&str]) {
    let errors = plan(specs).expect_err("a mistake");
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.starts_with(expected), "{text} is not {expected}");
    }
}

#[test]
fn what_needs_nothing_comes_up_as_registered_and_the_rest_after_its_needs() {
    let specs = [
        spec(3, true, &[1], &[]),
        spec(2, true, &[], &[0]),
        spec(0, true, &[], &[]),
        spec(1, true, &[], &[]),
    ];
    assert_eq!(names(&plan(&specs).unwrap()), "acbd");
}

#[test]
fn dependents_are_those_through_others_too_but_not_those_that_only_want() {
    let specs = [
        spec(0, true, &[], &[]),
        spec(1, true, &[0], &[]),
        spec(2, false, &[1, 0, 1], &[0]),
        spec(3, true, &[], &[1]),
    ];
    let plan = plan(&specs).unwrap();
    assert_eq!(plan.slot(0).dependents, [1, 2]);
    assert_eq!(plan.slot(1).dependents, [2]);
    assert_eq!(plan.slot(2).requires, [0, 1]);
    assert_eq!(plan.slot(2).wants, [0; 0]);
    assert_eq!(plan.slot(3).wants, [1]);
    assert_eq!(plan.index_of(types()[2].0), Some(2));
    assert_eq!(plan.index_of(types()[8].0), None);
}

#[test]
fn what_is_wanted_and_not_registered_is_left_out() {
    let plan = plan(&[spec(0, true, &[], &[8])]).unwrap();
    assert_eq!((plan.len(), plan.health()), (1, 0));
    assert_eq!(plan.slot(0).wants, [0; 0]);
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_path() {
    let mut namesake = spec(5, true, &[], &[]);
    namesake.name = "a";
    let specs = [
        spec(0, false, &[], &[]),
        spec(1, true, &[8], &[2]),
        spec(2, true, &[3], &[]),
        spec(3, true, &[1], &[]),
        spec(4, true, &[0, 4], &[]),
        spec(4, true, &[0], &[]),
        namesake,
    ];
    let n = "clustercache::plan::tests::N";
    mistakes(
        &specs,
        &[
            &format!("b requires {n}<8>, which is not registered; register that too"),
            "e is essential and requires a, which is optional; register a by .resource(), or e",
            &format!("{n}<4> is registered more than once; register it once"),
            &format!("{n}<0> and {n}<5> are both named \"a\"; give one"),
            "resources wait for each other: b -> c -> d -> b; take",
            "resources wait for each other: e -> e; take",
            "a is the health check and is registered as optional; register it",
        ],
    );
}

#[test]
fn the_health_check_is_given_and_registered() {
    let specs = [spec(0, true, &[], &[])];
    let error = |health| Plan::new(&specs, health).unwrap_err()[0].to_string();
    assert!(error(None).contains("name one by .health_from::<R>()"));
    assert!(error(Some(types()[8])).contains("N<8> is given to .health_from() and is not"));
}

/// Who needs whom, as a matrix: 0 nothing, 1 wants, 2 requires; and who is essential.
fn any_graph() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<bool>, Vec<usize>, bool)> {
    let registered = Just((0..MOST).collect::<Vec<_>>()).prop_shuffle();
    (registered, 1..=MOST, any::<bool>()).prop_flat_map(|(mut order, len, acyclic)| {
        order.truncate(len);
        let weight = prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
        let matrix = proptest::collection::vec(proptest::collection::vec(weight, MOST + 1), MOST);
        let essential = proptest::collection::vec(any::<bool>(), MOST);
        (matrix, essential, Just(order), Just(acyclic))
    })
}

proptest! {
    #[test]
    fn a_plan_is_as_the_plain_model_says((mut matrix, mut essential, order, acyclic) in any_graph()) {
        if acyclic {
            // Needs only of lower numbers that are registered, and everything essential: a plan without mistake.
            for (of, row) in matrix.iter_mut().enumerate() {
                for (need, weight) in row.iter_mut().enumerate() {
                    *weight *= u8::from(need < of && order.contains(&need));
                }
            }
            essential = vec![true; MOST];
        }
        let list = |of: usize, weight| {
            let row: &Vec<u8> = &matrix[of];
            (0..=MOST).filter(|&need| row[need] == weight).collect::<Vec<_>>()
        };
        let specs: Vec<_> = order
            .iter()
            .map(|&of| spec(of, essential[of], &list(of, 2), &list(of, 1)))
            .collect();
        let needs = |a: usize, b: usize, least: u8| {
            order.contains(&a) && order.contains(&b) && matrix[a][b] >= least
        };
        let closure = |least: u8| {
            let mut reach = [[false; MOST]; MOST];
            for (a, row) in reach.iter_mut().enumerate() {
                for (b, cell) in row.iter_mut().enumerate() {
                    *cell = needs(a, b, least);
                }
            }
            for via in 0..MOST {
                for a in 0..MOST {
                    for b in 0..MOST {
                        reach[a][b] |= reach[a][via] && reach[via][b];
                    }
                }
            }
            reach
        };
        let any_need = closure(1);
        let circular = (0..MOST).any(|of| any_need[of][of]);
        let pairs = || order.iter().flat_map(|&a| (0..=MOST).map(move |b| (a, b)));
        let missing = pairs().filter(|&(a, b)| matrix[a][b] == 2 && !order.contains(&b)).count();
        let optional = pairs()
            .filter(|&(a, b)| b < MOST && needs(a, b, 2) && essential[a] && !essential[b])
            .count();
        let health = order[0];
        match Plan::new(&specs, Some(types()[health])) {
            Ok(plan) => {
                prop_assert!(!circular && missing == 0 && optional == 0 && essential[health]);
                prop_assert_eq!(plan.name(plan.health()), NAMES[health]);
                let of = |slot: usize| order[plan.slot(slot).spec];
                let mut placed = Vec::new();
                let requires = closure(2);
                for (at, slot) in plan.slots() {
                    let ready = |of: &usize| {
                        !placed.contains(of)
                            && (0..MOST).all(|need| !needs(*of, need, 1) || placed.contains(&need))
                    };
                    prop_assert_eq!(order.iter().copied().find(ready), Some(of(at)));
                    placed.push(of(at));
                    for (other, _) in plan.slots() {
                        let weight = matrix[of(at)][of(other)];
                        prop_assert_eq!(slot.requires.contains(&other), weight == 2);
                        prop_assert_eq!(slot.wants.contains(&other), weight == 1);
                        prop_assert_eq!(slot.dependents.contains(&other), requires[of(other)][of(at)]);
                    }
                    prop_assert!(slot.dependents.is_sorted());
                }
                prop_assert_eq!(placed.len(), order.len());
            }
            Err(errors) => {
                let count = |is: fn(&PlanError) -> bool| errors.iter().filter(|e| is(e)).count();
                prop_assert_eq!(count(|e| matches!(e, PlanError::Missing { .. })), missing);
                prop_assert_eq!(
                    count(|e| matches!(e, PlanError::EssentialRequiresOptional { .. })),
                    optional
                );
                prop_assert_eq!(count(|e| matches!(e, PlanError::Cycle { .. })) > 0, circular);
                prop_assert_eq!(
                    count(|e| matches!(e, PlanError::HealthOptional { .. })),
                    usize::from(!essential[health])
                );
                let index = |name: &str| NAMES.iter().position(|n| *n == name).unwrap();
                for error in &errors {
                    if let PlanError::Cycle { path } = error {
                        prop_assert_eq!(path.first(), path.last());
                        for pair in path.windows(2) {
                            prop_assert!(needs(index(pair[0]), index(pair[1]), 1));
                        }
                    }
                }
            }
        }
    }
}
