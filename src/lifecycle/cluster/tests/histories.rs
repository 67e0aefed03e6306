//! Arbitrary histories of one cluster.

use proptest::{prelude::*, sample::Index};

use super::*;
use crate::{
    lifecycle::shell::{any_outcome, any_plan},
    options::GatePolicy,
};

/// Something that happens.
#[derive(Clone, Debug)]
enum Happens {
    Said(Option<Word>),
    /// To one of the connections.
    To(Index, Event),
    /// A probe is answered.
    Answered(Index, ProbeResult),
    Brake(bool),
    Stalled(Duration),
    RetryNow,
    Reconnect,
    Reconsider(Index),
    Shutdown,
    Waits(Duration),
    /// What is under way works.
    Works,
}

#[derive(Clone, Debug)]
enum Event {
    Finishes(Index, Outcome),
    Fails(Index, bool),
    TornDown { in_spite: bool },
    Answers { refuses: Option<Index> },
    Delivered(Index),
    Bytes,
    Called,
    Doubt,
}

#[derive(Clone, Debug)]
struct Word {
    source: usize,
    uid: Option<bool>,
    owned: bool,
    access: Option<(usize, usize, usize)>,
    gated: bool,
}

/// Three endpoints with four CAs and three tokens.
static ACCESSES: LazyLock<Vec<ClusterAccess>> = LazyLock::new(|| {
    let one = |at: usize| access(at / 12, at / 3 % 4, ["t", "u", "v"][at % 3]);
    (0..36).map(one).collect()
});

impl Word {
    fn claim(&self) -> Claim {
        let access = match self.access {
            Some((endpoint, ca, token)) => {
                SourcedAccess::Ready(ACCESSES[endpoint * 12 + ca * 3 + token].clone())
            }
            None if self.gated => SourcedAccess::Gated("not yet".into()),
            None => SourcedAccess::Refused("no".into()),
        };
        let mut claim = claim(access);
        claim.source = self.source;
        claim.owned = self.owned;
        claim.upsert.identity = match self.uid {
            None => Identity::ByCa,
            Some(one) => Identity::Uid(if one { "one" } else { "other" }.into()),
        };
        claim
    }
}

fn any_word() -> impl Strategy<Value = Word> {
    let rarely = || proptest::bool::weighted(0.1);
    let uid = proptest::option::weighted(0.8, proptest::bool::weighted(0.8));
    let access = proptest::option::weighted(0.8, (0..3_usize, 0..4_usize, 0..3_usize));
    (rarely(), uid, rarely(), access, any::<bool>()).prop_map(
        |(source, uid, not_owned, access, gated)| Word {
            source: source.into(),
            uid,
            owned: !not_owned,
            access,
            gated,
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let index = any::<Index>;
    prop_oneof![
        8 => (index(), any_outcome()).prop_map(|(index, outcome)| Event::Finishes(index, outcome)),
        2 => (index(), any::<bool>()).prop_map(|(index, gone)| Event::Fails(index, gone)),
        3 => any::<bool>().prop_map(|in_spite| Event::TornDown { in_spite }),
        3 => proptest::option::of(index()).prop_map(|refuses| Event::Answers { refuses }),
        12 => index().prop_map(Event::Delivered),
        1 => Just(Event::Bytes),
        1 => Just(Event::Called),
        1 => Just(Event::Doubt),
    ]
}

fn any_result() -> impl Strategy<Value = ProbeResult> {
    let failed = |kind| ProbeResult::Failed {
        kind,
        text: "the test says so".into(),
    };
    prop_oneof![
        1 => Just(ProbeResult::Alive { not_ready: None }),
        3 => Just(failed(FailureKind::TimedOut)),
        1 => Just(failed(FailureKind::Unauthorized)),
        1 => Just(failed(FailureKind::Busy)),
    ]
}

fn anything() -> impl Strategy<Value = Happens> {
    let index = any::<Index>;
    let time = || prop_oneof![0..3_000_u64, 0..40_000_u64].prop_map(Duration::from_millis);
    prop_oneof![
        10 => proptest::option::weighted(0.8, any_word()).prop_map(Happens::Said),
        40 => (index(), any_event()).prop_map(|(line, event)| Happens::To(line, event)),
        12 => (index(), any_result()).prop_map(|(probe, result)| Happens::Answered(probe, result)),
        1 => any::<bool>().prop_map(Happens::Brake),
        1 => time().prop_map(Happens::Stalled),
        1 => Just(Happens::RetryNow),
        2 => Just(Happens::Reconnect),
        1 => index().prop_map(Happens::Reconsider),
        8 => Just(Happens::Works),
        16 => time().prop_map(Happens::Waits),
    ]
}

impl World {
    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Said(word) => self.word(word.map(|word| word.claim())),
            Happens::To(line, event) => {
                if !self.lines.is_empty() {
                    let generation = self.lines.keys().nth(line.index(self.lines.len()));
                    self.happens_to(*generation.unwrap(), event);
                }
            }
            Happens::Answered(index, result) => {
                if !self.probes.is_empty() {
                    let probe = self.probes.swap_remove(index.index(self.probes.len()));
                    self.answer(probe, result);
                }
            }
            Happens::Brake(on) => {
                self.brake = on;
                // What was held is judged again.
                self.input(|_, _| {});
            }
            Happens::Stalled(time) => self.input(|cluster, cx| cluster.stalled(time, cx)),
            Happens::RetryNow => self.input(Cluster::retry_now),
            Happens::Reconnect => self.input(Cluster::reconnect),
            Happens::Reconsider(index) => {
                let slot = index.index(self.plan.len());
                self.input(|cluster, cx| cluster.reconsider(slot, cx));
            }
            Happens::Shutdown => {
                self.shut_down = true;
                self.input(Cluster::shutdown);
            }
            Happens::Waits(time) => self.wait(self.now + time),
            Happens::Works => {
                for _ in 0..self.plan.len() {
                    self.work();
                }
            }
        }
        self.turn();
    }

    fn happens_to(&mut self, generation: Generation, event: Event) {
        let count = self.plan.len();
        let Line { shell, vitals, .. } = self.lines.get_mut(&generation).unwrap();
        match event {
            Event::Finishes(index, outcome) => {
                if !shell.running.is_empty() {
                    shell.finish(index.index(shell.running.len()), outcome);
                }
            }
            Event::Fails(index, gone) => {
                if !shell.values.is_empty() {
                    let value = index.get(&shell.values);
                    let (slot, incarnation) = (value.slot, value.incarnation - u32::from(gone));
                    let text = "bad".into();
                    self.input(|cluster, cx| {
                        cluster.failed(generation, slot, incarnation, &text, cx);
                    });
                }
            }
            Event::TornDown { in_spite } => shell.tear_down(in_spite),
            Event::Answers { refuses } => {
                let slot = refuses.map(|index| index.index(count));
                shell.answer(|asked| Some(asked) == slot);
            }
            Event::Delivered(index) => {
                if !shell.mail.is_empty() {
                    let mail = shell.mail.swap_remove(index.index(shell.mail.len()));
                    self.deliver(generation, mail);
                }
            }
            Event::Bytes => vitals.bytes(self.now),
            Event::Called => vitals.answered(self.now),
            Event::Doubt => self.input(|cluster, cx| cluster.doubt(generation, cx)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_happens_every_rule_holds_and_it_ends_connected_then_gone(
        (resources, health) in any_plan(),
        gate in prop_oneof![Just(GatePolicy::Keep), Just(GatePolicy::Close)],
        history in proptest::collection::vec(anything(), 0..150),
    ) {
        let mut world = World::new(&resources, health);
        world.options.source.gate = gate;
        world.happens(Happens::Said(Some(Word {
            source: 0,
            uid: Some(true),
            owned: true,
            access: Some((0, 0, 0)),
            gated: false,
        })));
        for what in history {
            world.happens(what);
        }
        world.happens(Happens::Brake(false));
        let newest = access(0, 0, "newest");
        world.word(Some(claim(SourcedAccess::Ready(newest.clone()))));
        let took = world.works_until("connected", World::is_settled);
        prop_assert!(took <= Duration::from_secs(60), "new access is tried at once: {took:?}");
        let cluster = world.cluster().unwrap();
        let life = cluster.published.as_ref().unwrap();
        prop_assert_eq!(&life.access, &newest);
        prop_assert_eq!(cluster.phase(), Phase::Connected);
        prop_assert_eq!(cluster.outage(), None);
        prop_assert!((0..world.plan.len()).all(|slot| life.resources.is_up(slot)), "{:?}", life.resources);
        world.lines[&life.generation].shell.check_access(&world.plan);
        world.word(None);
        let took = world.works_until("gone", |world| world.cluster.is_none());
        prop_assert_eq!(took, world.options.source.linger);
        prop_assert!(world.lines.values().all(|line| line.abandoned));
    }

    #[test]
    fn a_shutdown_at_any_time_ends_everything_and_dials_nothing(
        (resources, health) in any_plan(),
        before in proptest::collection::vec(anything(), 0..60),
        after in proptest::collection::vec(anything(), 0..60),
    ) {
        let mut world = World::new(&resources, health);
        for what in before.into_iter().chain([Happens::Shutdown]).chain(after) {
            world.happens(what);
        }
        prop_assert_eq!(world.deadline(), None);
        while world.work() {}
        prop_assert!(world.cluster.is_none() && world.lines.is_empty());
    }
}
