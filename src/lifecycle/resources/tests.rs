//! Resources of arbitrary plans under arbitrary inputs, with a plain model of the shell; and what that has found, by name.

use std::time::Duration;

use proptest::{prelude::*, sample::Index};

use super::*;
use crate::{
    lifecycle::shell::{Mail, Planned, Shell, any_outcome, any_plan, assert_ahead, failure, plan},
    options::Options,
};

/// The resources of a connection, and what the engine would do for them.
struct World {
    plan: Plan,
    options: Options,
    rng: fastrand::Rng,
    now: Instant,
    resources: Resources,
    shell: Shell,
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Happens {
    Finishes(Index, Outcome),
    /// A value goes bad; one that is gone, if so.
    Fails(Index, bool),
    TornDown {
        in_spite: bool,
    },
    Answers {
        refuses: Option<Index>,
    },
    Delivered(Index),
    NewAccess,
    RetryNow,
    Reconsider(Index),
    Waits(Duration),
}

fn anything() -> impl Strategy<Value = Happens> {
    let index = any::<Index>;
    let time = (0..40_000_u64).prop_map(Duration::from_millis);
    prop_oneof![
        6 => (index(), any_outcome()).prop_map(|(index, outcome)| Happens::Finishes(index, outcome)),
        2 => (index(), any::<bool>()).prop_map(|(index, gone)| Happens::Fails(index, gone)),
        3 => any::<bool>().prop_map(|in_spite| Happens::TornDown { in_spite }),
        3 => proptest::option::of(index()).prop_map(|refuses| Happens::Answers { refuses }),
        9 => index().prop_map(Happens::Delivered),
        2 => Just(Happens::NewAccess),
        1 => Just(Happens::RetryNow),
        1 => index().prop_map(Happens::Reconsider),
        3 => time.prop_map(Happens::Waits),
    ]
}

impl World {
    fn new(resources: &[Planned], health: usize) -> Self {
        let plan = plan(resources, health);
        let mut world = Self {
            options: Options::default(),
            rng: fastrand::Rng::with_seed(7),
            now: Instant::now(),
            resources: Resources::new(&plan),
            shell: Shell::new(&plan),
            plan,
        };
        world.input(|resources, rules, out| resources.begin(rules, out));
        world
    }

    fn input<T>(
        &mut self,
        input: impl FnOnce(&mut Resources, &mut Rules<'_>, &mut Vec<Step>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let mut rules = Rules {
            plan: &self.plan,
            retry: &self.options.retry,
            health: &self.options.health,
            rng: &mut self.rng,
            now: self.now,
        };
        let result = input(&mut self.resources, &mut rules, &mut out);
        for step in out {
            self.shell.take(&self.plan, step);
        }
        self.shell.check(&self.plan, &self.resources);
        result
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Finishes(index, outcome) => {
                if !self.shell.running.is_empty() {
                    self.shell
                        .finish(index.index(self.shell.running.len()), outcome);
                }
            }
            Happens::Fails(index, gone) => {
                if !self.shell.values.is_empty() {
                    let value = index.get(&self.shell.values).clone();
                    self.fails(value.slot, value.incarnation - u32::from(gone));
                }
            }
            Happens::TornDown { in_spite } => self.shell.tear_down(in_spite),
            Happens::Answers { refuses } => {
                let slot = refuses.map(|index| index.index(self.plan.len()));
                self.shell.answer(|asked| Some(asked) == slot);
            }
            Happens::Delivered(index) => {
                if !self.shell.mail.is_empty() {
                    let at = index.index(self.shell.mail.len());
                    let mail = self.shell.mail.swap_remove(at);
                    self.deliver(mail);
                }
            }
            Happens::NewAccess => self.new_access(),
            Happens::RetryNow => {
                self.input(|resources, rules, out| resources.retry_now(rules, out));
            }
            Happens::Reconsider(index) => {
                let slot = index.index(self.plan.len());
                self.input(|resources, rules, out| resources.reconsider(slot, rules, out));
            }
            Happens::Waits(time) => self.wait(self.now + time),
        }
    }

    fn fails(&mut self, slot: usize, incarnation: u32) {
        let text = "bad".into();
        self.input(|resources, rules, out| {
            resources.failed(slot, incarnation, &text, rules, out);
        });
    }

    fn new_access(&mut self) {
        self.shell.new_access();
        self.input(|resources, rules, out| resources.new_access(rules, out));
    }

    fn deliver(&mut self, mail: Mail) {
        self.input(|resources, rules, out| match mail {
            Mail::Finished {
                slot,
                incarnation,
                outcome,
            } => {
                resources.finished(slot, incarnation, outcome, rules, out);
            }
            Mail::Ended(slots) => resources.ended(&slots, rules, out),
            Mail::Refreshed { rebuild } => {
                // As a connection that readers do not have yet does it.
                if let Some(slot) = resources.refreshed(rebuild, rules, out) {
                    resources.redo(slot, rules, out);
                }
            }
            Mail::Retired => {}
        });
    }

    /// Time passes, with the calls that were asked for.
    fn wait(&mut self, until: Instant) {
        while let Some(at) = self.resources.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.input(|resources, rules, out| resources.begin(rules, out));
            assert_ahead(self.resources.deadline(), self.now);
        }
        self.now = until;
    }

    /// From here on everything works, and nothing is asked for.
    fn everything_works(&mut self) {
        for _ in 0..1_000 {
            while !self.shell.running.is_empty() {
                self.shell.finish(0, Outcome::Up);
            }
            self.shell.answer(|_| false);
            self.shell.tear_down(false);
            if let Some(mail) = self.shell.mail.pop() {
                self.deliver(mail);
            } else if self.shell.is_idle() {
                match self.resources.deadline() {
                    None => return,
                    Some(at) => self.wait(at),
                }
            }
        }
        panic!("it does not come to rest");
    }

    fn phases(&self) -> Vec<ResourcePhase> {
        (0..self.plan.len())
            .map(|slot| self.resources.phase(slot))
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_happens_no_value_outlives_its_base_and_nothing_is_stuck(
        (resources, health) in any_plan(),
        history in proptest::collection::vec(anything(), 0..120),
    ) {
        let mut world = World::new(&resources, health);
        for what in history {
            world.happens(what);
        }
        let begun = world.now;
        world.everything_works();
        prop_assert!(world.now - begun <= world.options.retry.most, "the backoff has a ceiling");
        for (slot, planned) in world.plan.slots() {
            let has = |phase| world.resources.phase(slot) == phase;
            let waits = |need: &usize| {
                matches!(world.resources.phase(*need), ResourcePhase::NeedsAccess | ResourcePhase::Waiting)
            };
            let held_up = has(ResourcePhase::Waiting) && planned.requires.iter().any(waits);
            prop_assert!(
                has(ResourcePhase::Up) || has(ResourcePhase::NotApplicable) || has(ResourcePhase::NeedsAccess) || held_up,
                "{} is stuck: {:?}", slot, world.phases()
            );
        }
        world.shell.check_access(&world.plan);
        // New access mends all of it, at once.
        let begun = world.now;
        world.new_access();
        world.everything_works();
        prop_assert_eq!(world.now, begun);
        prop_assert!(world.phases().iter().all(|phase| *phase == ResourcePhase::Up), "{:?}", world.phases());
        world.shell.check_access(&world.plan);
    }
}

/// Which requires which, as `"b: a"`; a name with a `?` is optional, one with a `*` reads the access, `~a` wants a. The first is the health
/// provider.
fn world(resources: &[&str]) -> World {
    let names: Vec<char> = resources
        .iter()
        .filter_map(|line| line.chars().next())
        .collect();
    let planned = resources.iter().map(|line| {
        let (name, needs) = line.split_once(':').unwrap_or((line, ""));
        let of = |wanted: bool| {
            let needs = needs
                .split_whitespace()
                .filter(|need| need.starts_with('~') == wanted);
            let place = |need: &str| names.iter().position(|name| need.ends_with(*name)).unwrap();
            needs.map(place).collect()
        };
        Planned {
            optional: name.contains('?'),
            access: name.contains('*'),
            requires: of(false),
            wants: of(true),
        }
    });
    World::new(&planned.collect::<Vec<_>>(), 0)
}

impl World {
    /// The init of a slot ends, and that is noticed.
    fn ends(&mut self, slot: usize, outcome: Outcome) {
        let at = self.shell.running.iter().position(|made| made.slot == slot);
        self.shell.finish(at.expect("its init runs"), outcome);
        let mail = self.shell.mail.pop().unwrap();
        self.deliver(mail);
    }

    fn comes_up(&mut self, slot: usize) {
        self.ends(slot, Outcome::Up);
    }

    fn runs(&self, slot: usize) -> bool {
        self.shell.running.iter().any(|made| made.slot == slot)
    }

    /// The refresh under way is answered, and that is noticed; says who was asked.
    fn is_answered(&mut self, refuses: &[usize]) -> Vec<usize> {
        let asked = self.shell.refresh.clone().expect("a refresh is under way");
        self.shell.answer(|slot| refuses.contains(&slot));
        let mail = self.shell.mail.pop().unwrap();
        self.deliver(mail);
        asked
    }

    fn is_torn_down(&mut self) {
        self.shell.tear_down(false);
        let mail = self.shell.mail.pop().unwrap();
        self.deliver(mail);
    }

    fn passes(&mut self, seconds: u64) {
        self.wait(self.now + Duration::from_secs(seconds));
    }
}

fn refused() -> Outcome {
    match failure(Then::Retry) {
        Outcome::Failed(failure) => Outcome::Failed(Failure {
            kind: FailureKind::Unauthorized,
            ..failure
        }),
        up @ Outcome::Up => up,
    }
}

#[test]
fn what_came_up_while_others_were_asked_is_asked_itself_before_it_is_published() {
    let mut world = world(&["a*", "b*"]);
    world.comes_up(0);
    world.new_access();
    world.comes_up(1);
    assert_eq!(world.is_answered(&[]), [0]);
    assert!(!world.resources.is_up(1));
    assert_eq!(world.is_answered(&[]), [1]);
    assert!(world.resources.is_up(1));
}

#[test]
fn those_after_the_first_that_refuses_are_asked_after_it() {
    let mut world = world(&["a*", "b*", "c*"]);
    (0..3).for_each(|slot| world.comes_up(slot));
    world.new_access();
    assert_eq!(world.is_answered(&[1]), [0, 1, 2]);
    assert_eq!(world.is_answered(&[]), [2]);
    world.is_torn_down();
    assert!(world.runs(1) && world.shell.refresh.is_none());
}

#[test]
fn a_refusal_says_nothing_of_the_value_that_came_after() {
    let mut world = world(&["a", "b*"]);
    (0..2).for_each(|slot| world.comes_up(slot));
    world.new_access();
    world.shell.answer(|_| true);
    let late = world.shell.mail.pop().unwrap();
    world.fails(1, 1);
    world.is_torn_down();
    world.passes(1);
    world.comes_up(1);
    world.deliver(late);
    assert!(world.resources.is_up(1));
}

#[test]
fn nothing_waits_for_what_it_only_wants_once_that_cannot_begin_for_a_failure() {
    let mut world = world(&["a", "b?: a", "c?: b", "d: a ~c"]);
    world.comes_up(0);
    assert!(!world.runs(3), "it is ordered after c");
    world.ends(1, failure(Then::NeedsAccess));
    assert!(world.runs(3), "c has failed with b");
}

#[test]
fn what_was_not_applicable_is_missed_only_once_it_was_up() {
    let mut world = world(&["a", "b: a", "c: b"]);
    world.comes_up(0);
    world.ends(1, failure(Then::NotApplicable));
    assert!(world.resources.complete(&world.plan), "c cascades");
    world.new_access();
    assert!(world.runs(1) && !world.resources.complete(&world.plan));
    assert!(
        !world.resources.degraded(&world.plan),
        "it is asked again, and nobody misses it"
    );
    world.ends(1, failure(Then::Retry));
    assert!(!world.resources.degraded(&world.plan));
    world.passes(60);
    world.comes_up(1);
    world.comes_up(2);
    world.fails(1, 3);
    assert!(
        world.resources.degraded(&world.plan),
        "once up, it counts as essential"
    );
}

#[test]
fn neither_the_health_provider_nor_what_it_requires_is_ever_not_applicable() {
    let plan = |resources: &[Planned]| {
        let mut world = World::new(resources, resources.len() - 1);
        world.ends(0, failure(Then::NotApplicable));
        assert_eq!(world.resources.phase(0), ResourcePhase::Retrying);
    };
    let base = Planned::default();
    let above = Planned {
        requires: vec![0],
        ..Planned::default()
    };
    plan(std::slice::from_ref(&base));
    plan(&[base, above]);
}

#[test]
fn a_hint_that_comes_while_an_init_runs_is_not_lost() {
    for hint in [
        |world: &mut World| world.new_access(),
        |world: &mut World| world.input(|resources, rules, out| resources.retry_now(rules, out)),
        |world: &mut World| {
            world.input(|resources, rules, out| resources.reconsider(1, rules, out));
        },
    ] {
        for then in [Then::NotApplicable, Then::NeedsAccess, Then::Retry] {
            let mut world = world(&["a", "b: a"]);
            world.comes_up(0);
            hint(&mut world);
            world.ends(1, failure(then));
            assert!(world.runs(1), "{then:?}: tried again at once");
            world.ends(1, failure(then));
            assert!(!world.runs(1), "{then:?}: once a hint");
        }
    }
}

#[test]
fn a_hint_that_comes_while_a_teardown_runs_is_not_lost() {
    let mut world = world(&["a"]);
    for _ in 0..8 {
        world.comes_up(0);
        world.fails(0, world.resources.slots[0].incarnation);
        world.new_access();
        world.is_torn_down();
        assert!(world.runs(0), "no backoff");
    }
}

#[test]
fn a_minute_up_forgets_failures_also_of_what_falls_with_its_base() {
    let mut world = world(&["a", "b: a"]);
    world.comes_up(0);
    for _ in 0..9 {
        world.ends(1, failure(Then::Retry));
        world.passes(60);
    }
    world.comes_up(1);
    world.passes(60);
    world.fails(0, 1);
    assert_eq!(world.resources.failures(1), 0);
    // A value that is younger is as old as itself, not as the one before it.
    world.is_torn_down();
    world.passes(1);
    world.comes_up(0);
    world.fails(0, 2);
    assert_eq!(world.resources.failures(0), 2);
}

#[test]
fn a_credential_that_is_refused_is_tried_by_its_own_schedule_and_at_once_when_it_is_new() {
    let mut world = world(&["a"]);
    for wait in [1, 2, 4, 8, 15, 15] {
        world.ends(0, refused());
        assert_eq!(
            world.resources.next_try(0),
            Some(world.now + Duration::from_secs(wait))
        );
        world.passes(wait);
    }
    world.ends(0, refused());
    world.new_access();
    assert!(world.runs(0));
    world.ends(0, refused());
    assert_eq!(
        world.resources.next_try(0),
        Some(world.now + Duration::from_secs(1))
    );
}
