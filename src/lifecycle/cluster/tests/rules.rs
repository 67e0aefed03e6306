//! The rules of ARCHITECTURE.md, by name: the three kinds of change, removal, and what goes wrong in connecting and after. The plan is a health
//! provider that reads the access, and two that are built on it: an essential one and an optional one.

use super::*;
use crate::lifecycle::shell::failure;

const HEALTH: usize = 0;
const ESSENTIAL: usize = 1;
const OPTIONAL: usize = 2;

fn world() -> World {
    let built_on_health = || Planned {
        requires: vec![HEALTH],
        ..Planned::default()
    };
    let health = Planned {
        access: true,
        ..Planned::default()
    };
    let optional = Planned {
        optional: true,
        ..built_on_health()
    };
    World::new(&[health, built_on_health(), optional], HEALTH)
}

/// One that is connected by `access(0, 0, "t")`, and its generation.
fn connected() -> (World, Generation) {
    let mut world = world();
    let generation = world.connects(access(0, 0, "t"));
    (world, generation)
}

fn refused() -> Claim {
    claim(SourcedAccess::Refused("no".into()))
}

fn with_uid(mut claim: Claim, uid: &str) -> Claim {
    claim.upsert.identity = Identity::Uid(uid.into());
    claim
}

impl World {
    fn ready(&mut self, access: ClusterAccess) {
        self.word(Some(claim(SourcedAccess::Ready(access))));
    }

    fn connects(&mut self, access: ClusterAccess) -> Generation {
        self.ready(access);
        self.works_until("connected", World::is_settled);
        self.seen.clear();
        self.published().unwrap()
    }

    fn published(&self) -> Option<Generation> {
        self.cluster()?
            .published
            .as_ref()
            .map(|life| life.generation)
    }

    fn building(&self) -> Option<Generation> {
        self.cluster()?
            .building
            .as_ref()
            .map(|life| life.generation)
    }

    fn phase(&self) -> Phase {
        self.cluster().unwrap().phase()
    }

    /// An init ends, and that is noticed.
    fn ends(&mut self, generation: Generation, slot: usize, outcome: Outcome) {
        let shell = &mut self.lines.get_mut(&generation).unwrap().shell;
        let at = shell.running.iter().position(|made| made.slot == slot);
        shell.finish(at.expect("its init runs"), outcome);
        let mail = shell.mail.pop().unwrap();
        self.deliver(generation, mail);
    }

    fn comes_up(&mut self, generation: Generation) {
        for slot in [HEALTH, ESSENTIAL, OPTIONAL] {
            self.ends(generation, slot, Outcome::Up);
        }
    }

    /// The refresh of a connection is answered, and that is noticed.
    fn is_answered(&mut self, generation: Generation, refuses: bool) {
        let shell = &mut self.lines.get_mut(&generation).unwrap().shell;
        shell.answer(|_| refuses);
        let mail = shell.mail.pop().expect("it was asked");
        self.deliver(generation, mail);
    }

    fn fails(&mut self, generation: Generation, slot: usize, incarnation: u32) {
        let text = "bad".into();
        self.input(|cluster, cx| cluster.failed(generation, slot, incarnation, &text, cx));
    }

    /// Probes of this connection fail, of others they do not, until it is so.
    fn black_hole(&mut self, hole: Generation, done: impl Fn(&Self) -> bool) {
        for _ in 0..200 {
            for probe in std::mem::take(&mut self.probes) {
                let failed = ProbeResult::Failed {
                    kind: FailureKind::TimedOut,
                    text: "no answer".into(),
                };
                let alive = ProbeResult::Alive { not_ready: None };
                let result = if probe.0 == hole { failed } else { alive };
                self.answer(probe, result);
            }
            if done(self) {
                return;
            }
            if self.probes.is_empty() {
                self.wait(self.deadline().unwrap().max(self.now));
            }
        }
        panic!("it never happens: {:#?}", self.cluster);
    }

    fn goes_down(&mut self, generation: Generation) {
        self.black_hole(generation, |world| world.published() != Some(generation));
    }

    fn passes(&mut self, seconds: u64) {
        self.wait(self.now + Duration::from_secs(seconds));
    }

    fn saw(&self, what: impl Fn(&Action) -> bool) -> bool {
        self.seen.iter().any(what)
    }

    fn was_told(&self, changes: Changes) -> bool {
        self.saw(|action| matches!(action, Action::Tell(told) if *told == changes))
    }

    fn opened(&self) -> bool {
        self.saw(|action| matches!(action, Action::Open { .. }))
    }

    fn began(&self) -> bool {
        self.saw(|action| {
            matches!(
                action,
                Action::Step {
                    step: Step::Init { .. },
                    ..
                }
            )
        })
    }
}

#[test]
fn kind_1_a_token_is_taken_by_the_same_connection_and_nothing_is_initialised_again() {
    let (mut world, old) = connected();
    world.ready(access(0, 0, "u"));
    world.works_until("taken", World::is_settled);
    assert_eq!(world.published(), Some(old));
    assert!(world.was_told(Changes::ACCESS) && !world.opened() && !world.began());
    assert_eq!(world.lines[&old].access, access(0, 0, "u"));
    world.lines[&old].shell.check_access(&world.plan);
}

#[test]
fn kind_1_an_init_that_runs_goes_on_and_is_asked_before_it_is_published() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    world.ready(access(0, 0, "u"));
    world.ends(new, HEALTH, Outcome::Up);
    assert!(
        !world
            .cluster()
            .unwrap()
            .building
            .as_ref()
            .unwrap()
            .resources
            .is_up(HEALTH)
    );
    world.is_answered(new, false);
    world.ends(new, ESSENTIAL, Outcome::Up);
    assert_eq!(world.published(), Some(new));
    // And it is judged, though its health provider came up by an answer.
    world.goes_down(new);
}

#[test]
fn kind_1_a_provider_that_cannot_makes_it_kind_2_counted_by_its_name() {
    let (mut world, old) = connected();
    world.ready(access(0, 0, "u"));
    world.is_answered(old, true);
    assert!(world.saw(|action| matches!(action, Action::CountRebuild { slot: HEALTH })));
    assert!(world.building().is_some() && world.published() == Some(old));
    world.works_until("rebuilt", World::is_settled);
    assert_ne!(world.published(), Some(old));
}

#[test]
fn kind_1_a_provider_that_readers_do_not_have_yet_is_only_made_again() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, Outcome::Up);
    world.ready(access(0, 0, "u"));
    world.is_answered(new, true);
    world.works_until("connected", World::is_settled);
    assert_eq!(world.published(), Some(new));
}

#[test]
fn an_access_that_only_ends_later_shows_that_and_asks_nobody() {
    let ends = |at| {
        let end = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        let access = ClusterAccess::builder("https://server-0").token("t");
        access.ca_pem(CAS[0].as_str()).expires(end).build().unwrap()
    };
    let mut world = world();
    let old = world.connects(ends(1));
    world.ready(ends(2));
    assert!(world.was_told(Changes::ACCESS) && world.saw(|it| matches!(it, Action::Publish)));
    assert!(!world.saw(|it| matches!(it, Action::Step { .. } | Action::Open { .. })));
    let shown = |access: &ClusterAccess| access.credential().expires();
    assert_eq!(
        shown(world.cluster().unwrap().access().unwrap()),
        shown(&ends(2))
    );
    assert_eq!(shown(&world.lines[&old].access), shown(&ends(2)));
    world.seen.clear();
    world.ready(ends(2));
    assert!(!world.was_told(Changes::ACCESS));
}

#[test]
fn a_suspect_cluster_dials_as_one_that_failed_until_it_answers() {
    let (mut world, old) = connected();
    let failures = |world: &World| world.cluster().unwrap().dial_failures(old);
    assert_eq!(failures(&world), 0);
    let suspect = |world: &World| world.cluster().unwrap().published_verdict() == Verdict::Suspect;
    world.black_hole(old, suspect);
    assert!(failures(&world) > 0);
    world.black_hole(Generation(0), |world| !suspect(world));
    assert_eq!(failures(&world), 0);
}

#[test]
fn kind_2_an_endpoint_is_made_before_the_old_one_is_broken() {
    let (mut world, old) = connected();
    world.ready(access(1, 0, "u"));
    let new = world.building().unwrap();
    assert!(world.saw(
        |action| matches!(action, Action::Open { predecessor, .. } if *predecessor == Some(old))
    ));
    world.ends(new, HEALTH, Outcome::Up);
    world.ends(new, ESSENTIAL, Outcome::Up);
    assert_eq!(
        world.published(),
        Some(old),
        "an optional one that was up is waited for"
    );
    world.ends(new, OPTIONAL, failure(Then::Retry));
    assert_eq!(world.published(), Some(new), "until it has failed once");
    assert!(world.was_told(Changes::CONNECTED) && !world.was_told(Changes::DISCONNECTED));
    let replaced = TeardownReason::Replaced;
    assert!(world.saw(
        |action| matches!(action, Action::Retire { generation, reason } if *generation == old && *reason == replaced)
    ));
}

#[test]
fn kind_2_optional_ones_are_waited_for_no_longer_than_thirty_seconds() {
    let (mut world, old) = connected();
    world.ready(access(1, 0, "u"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, Outcome::Up);
    world.ends(new, ESSENTIAL, Outcome::Up);
    let begun = world.now;
    world.black_hole(Generation(0), |world| world.published() != Some(old));
    assert_eq!(world.now - begun, world.options.end.replace_wait);
    assert_eq!(world.published(), Some(new));
}

#[test]
fn a_time_may_be_given_as_never() {
    let mut world = world();
    world.options.end.replace_wait = Duration::MAX;
    world.options.source.linger = Duration::MAX;
    let old = world.connects(access(0, 0, "t"));
    world.ready(access(1, 0, "u"));
    world.word(None);
    let minute = world.now + Duration::from_secs(60);
    world.works_until("a minute", |world| world.now >= minute);
    assert_eq!(world.published(), Some(old));
}

#[test]
fn kind_2_a_ca_that_shares_a_key_is_the_same_cluster_and_any_other_is_a_new_one() {
    let by_ca = |ca| {
        let mut claim = claim(SourcedAccess::Ready(access(0, ca, "t")));
        claim.upsert.identity = Identity::ByCa;
        Some(claim)
    };
    for (ca, same) in [(1, true), (3, true), (2, false)] {
        let mut world = world();
        world.word(by_ca(0));
        world.works_until("connected", World::is_settled);
        let old = world.published();
        world.seen.clear();
        world.word(by_ca(ca));
        assert_eq!(world.published(), old.filter(|_| same), "{ca}");
        assert_eq!(world.was_told(Changes::REPLACED), !same);
        assert!(world.building().is_some());
    }
    // A source with UIDs is trusted on identity.
    let (mut world, old) = connected();
    world.ready(access(0, 2, "t"));
    assert!(world.published() == Some(old) && world.building().is_some());
}

#[test]
fn kind_3_shows_where_a_cluster_that_is_not_ready_leads() {
    let by_ca = |claim: Claim, place: Option<ClusterAccess>| {
        let identity = place.map_or(Identity::ByCa, Identity::ByCaOf);
        let upsert = Upsert {
            identity,
            ..claim.upsert
        };
        Some(Claim { upsert, ..claim })
    };
    let ready = |ca| by_ca(claim(SourcedAccess::Ready(access(0, ca, "t"))), None);
    let gated = claim(SourcedAccess::Gated("not yet".into()));
    for not_ready in [gated, refused()] {
        for (ca, same) in [(1, true), (2, false)] {
            let mut world = world();
            world.word(ready(0));
            world.works_until("connected", World::is_settled);
            let old = world.published();
            world.seen.clear();
            world.word(by_ca(not_ready.clone(), Some(access(1, ca, "none"))));
            assert_eq!(world.published(), old.filter(|_| same), "{ca}");
            assert_eq!(world.was_told(Changes::REPLACED), !same, "{ca}");
            assert_eq!(world.building(), None, "nobody is dialled");
            world.seen.clear();
            world.word(ready(ca));
            assert!(!world.was_told(Changes::REPLACED), "it was already");
            assert!(world.building().is_some());
        }
    }
}

#[test]
fn kind_2_access_that_the_published_one_can_take_ends_the_build() {
    for token in ["t", "u"] {
        let (mut world, old) = connected();
        world.ready(access(1, 0, "x"));
        world.ready(access(0, 0, token));
        assert_eq!((world.published(), world.building()), (Some(old), None));
        assert_eq!(world.lines[&old].access, access(0, 0, token));
        world.works_until("settled", World::is_settled);
        assert_eq!(world.published(), Some(old));
    }
}

#[test]
fn kind_2_a_third_endpoint_ends_the_build_of_the_second() {
    let (mut world, old) = connected();
    world.ready(access(1, 0, "u"));
    let second = world.building().unwrap();
    world.ready(access(2, 0, "v"));
    assert!(world.lines[&second].retiring && world.building() > Some(second));
    assert_eq!(world.published(), Some(old));
    world.works_until("connected", World::is_settled);
    assert_eq!(
        world.lines[&world.published().unwrap()].access,
        access(2, 0, "v")
    );
}

#[test]
fn kind_2_a_new_credential_is_taken_by_the_build_too() {
    let (mut world, _old) = connected();
    world.ready(access(1, 0, "u"));
    let new = world.building();
    world.ready(access(1, 0, "v"));
    assert_eq!(world.building(), new);
    assert_eq!(world.lines[&new.unwrap()].access, access(1, 0, "v"));
}

#[test]
fn kind_2_a_build_that_was_interrupted_is_made_when_it_may_be_again() {
    let gated = claim(SourcedAccess::Gated("not yet".into()));
    for interruption in [Some(refused()), Some(gated), None] {
        for asked in [false, true] {
            let (mut world, old) = connected();
            let newest = access(usize::from(!asked), 0, "t");
            if asked {
                world.input(Cluster::reconnect);
            } else {
                world.ready(newest.clone());
            }
            assert!(world.building().is_some());
            world.word(interruption.clone());
            assert_eq!((world.published(), world.building()), (Some(old), None));
            world.passes(1);
            world.ready(newest);
            assert!(
                world.building().is_some(),
                "{interruption:?}, then the same again"
            );
            world.works_until("connected", World::is_settled);
            assert_ne!(world.published(), Some(old));
        }
    }
}

#[test]
fn kind_2_a_build_ends_when_its_own_health_provider_goes_down_and_is_tried_again() {
    let (mut world, old) = connected();
    world.ready(access(1, 0, "u"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, Outcome::Up);
    world.black_hole(new, |world| world.building().is_none());
    assert_eq!(
        (world.published(), world.phase()),
        (Some(old), Phase::Connected)
    );
    world.works_until("tried again", |world| {
        world.is_settled() && world.published() > Some(new)
    });
}

#[test]
fn kind_2_if_the_old_one_goes_down_meanwhile_it_alone_goes() {
    let (mut world, old) = connected();
    world.ready(access(1, 0, "u"));
    let new = world.building().unwrap();
    world.goes_down(old);
    assert_eq!((world.building(), world.phase()), (Some(new), Phase::Down));
    world.ends(new, HEALTH, Outcome::Up);
    world.ends(new, ESSENTIAL, Outcome::Up);
    assert_eq!(
        (world.published(), world.phase()),
        (Some(new), Phase::Connected)
    );
}

#[test]
fn kind_3_nothing_of_the_old_is_served_once_the_new_is_known() {
    let (mut world, old) = connected();
    let ready = claim(SourcedAccess::Ready(access(0, 0, "t")));
    world.word(Some(with_uid(ready, "two")));
    assert!(world.published().is_none() && world.lines[&old].retiring);
    assert!(world.was_told(Changes::REPLACED));
    assert!(world.saw(|action| matches!(action, Action::NewIdentity)));
    assert!(world.saw(|action| matches!(
        action,
        Action::Open {
            predecessor: None,
            ..
        }
    )));
    // Also where it cannot be reached yet.
    let (mut world, _old) = connected();
    world.word(Some(with_uid(refused(), "two")));
    assert_eq!((world.published(), world.phase()), (None, Phase::Refused));
}

#[test]
fn kind_3_three_times_while_teardowns_are_slow_abandons_the_oldest_and_the_newest_is_up_at_once() {
    let (mut world, first) = connected();
    for uid in ["two", "three", "four"] {
        let ready = claim(SourcedAccess::Ready(access(0, 0, "t")));
        world.word(Some(with_uid(ready, uid)));
        let new = world.building().unwrap();
        world.comes_up(new);
        assert_eq!(world.published(), Some(new));
    }
    assert!(world.lines[&first].abandoned);
    assert_eq!(world.retiring.len(), world.options.end.retiring);
}

#[test]
fn a_removal_lingers_served_and_probed_and_a_return_is_an_update() {
    let (mut world, old) = connected();
    world.word(None);
    world.probes.clear();
    world.passes(4);
    assert_eq!(world.published(), Some(old));
    assert!(!world.was_told(Changes::REMOVED));
    world.ready(access(0, 0, "u"));
    world.works_until("taken", World::is_settled);
    assert!(world.published() == Some(old) && !world.opened());
}

#[test]
fn a_removal_that_lingers_is_probed_and_not_dialled_anew() {
    let (mut world, old) = connected();
    world.options.source.linger = Duration::from_secs(100);
    world.word(None);
    world.goes_down(old);
    assert!(world.saw(|action| matches!(action, Action::Probe { .. })));
    world.passes(70);
    assert!(world.building().is_none() && !world.opened());
    world.passes(30);
    assert!(world.was_told(Changes::REMOVED));
}

#[test]
fn another_identity_of_the_same_source_ends_the_lingering_at_once() {
    let (mut world, _old) = connected();
    world.word(None);
    let ready = claim(SourcedAccess::Ready(access(1, 0, "u")));
    world.word(Some(with_uid(ready, "two")));
    assert!(world.published().is_none() && world.building().is_some());
}

#[test]
fn a_lower_source_takes_over_when_the_lingering_is_over() {
    for (uid, same) in [("one", true), ("two", false)] {
        let (mut world, old) = connected();
        let mut lower = with_uid(claim(SourcedAccess::Ready(access(0, 0, "u"))), uid);
        lower.source = 1;
        world.word(Some(lower));
        assert_eq!(world.published(), Some(old));
        assert!(!world.was_told(Changes::ACCESS) && !world.was_told(Changes::REPLACED));
        world.works_until("taken over", |world| {
            world.lingers.is_none() && world.is_settled()
        });
        assert_eq!(
            world.published() == Some(old),
            same,
            "kind 3 unless identities are equal"
        );
        assert_eq!(world.was_told(Changes::REPLACED), !same);
    }
}

#[test]
fn a_name_that_returns_while_its_last_connection_still_goes_is_known_anew() {
    let (mut world, old) = connected();
    let identity = world.cluster().unwrap().identity();
    world.word(None);
    world.passes(5);
    assert!(world.was_told(Changes::REMOVED) && world.cluster().unwrap().is_gone());
    assert_eq!(
        world.cluster().unwrap().identity(),
        identity,
        "who has a handle reads that it is removed, not replaced"
    );
    world.seen.clear();
    let ready = claim(SourcedAccess::Ready(access(1, 0, "u")));
    world.word(Some(with_uid(ready, "two")));
    assert!(world.was_told(Changes::KNOWN) && !world.was_told(Changes::REPLACED));
    assert_eq!(world.phase(), Phase::Connecting);
    assert!(world.lines[&old].retiring && world.cluster().unwrap().identity() > identity);
}

#[test]
fn what_is_refused_keeps_its_connection_and_is_not_dialled_until_it_is_mended() {
    let (mut world, old) = connected();
    world.word(Some(refused()));
    assert_eq!(
        (world.published(), world.phase()),
        (Some(old), Phase::Connected)
    );
    world.goes_down(old);
    world.passes(100);
    assert!(!world.opened() && world.phase() == Phase::Refused);
    world.ready(access(0, 0, "t"));
    assert!(world.building().is_some(), "at once");
}

#[test]
fn what_is_filtered_out_is_closed_and_has_no_outage() {
    let (mut world, old) = connected();
    world.goes_down(old);
    assert!(world.cluster().unwrap().outage().is_some());
    let mut out = claim(SourcedAccess::Ready(access(0, 0, "t")));
    out.owned = false;
    world.word(Some(out));
    assert_eq!(
        (world.cluster().unwrap().outage(), world.phase()),
        (None, Phase::NotOwned)
    );
    world.ready(access(0, 0, "t"));
    assert!(world.building().is_some() && world.phase() == Phase::Connecting);
    let (mut world, _old) = connected();
    let mut out = claim(SourcedAccess::Ready(access(0, 0, "t")));
    out.owned = false;
    world.word(Some(out));
    assert!(world.published().is_none() && world.was_told(Changes::REMOVED));
}

#[test]
fn a_failed_essential_one_is_degraded_and_a_failed_optional_one_is_not() {
    let (mut world, old) = connected();
    world.fails(old, OPTIONAL, 1);
    assert_eq!(world.phase(), Phase::Connected);
    world.fails(old, ESSENTIAL, 1);
    assert_eq!(
        (world.published(), world.phase()),
        (Some(old), Phase::Degraded)
    );
    assert!(world.cluster().unwrap().is_readable(HEALTH));
    world.works_until("mended", World::is_settled);
    assert_eq!(
        (world.published(), world.phase()),
        (Some(old), Phase::Connected)
    );
    assert!(!world.was_told(Changes::DISCONNECTED));
}

#[test]
fn a_health_provider_that_fails_is_down_and_so_is_what_it_was_built_on() {
    let (mut world, old) = connected();
    world.fails(old, HEALTH, 1);
    assert_eq!((world.published(), world.phase()), (None, Phase::Down));
    let above = Planned {
        requires: vec![0],
        ..Planned::default()
    };
    let mut world = World::new(&[Planned::default(), above], 1);
    let old = world.connects(access(0, 0, "t"));
    world.fails(old, 0, 1);
    assert_eq!((world.published(), world.phase()), (None, Phase::Down));
}

#[test]
fn the_late_word_of_an_init_that_failed_takes_nothing_down() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, failure(Then::Retry));
    world.works_until("connected", World::is_settled);
    world.fails(new, HEALTH, 1);
    assert_eq!(
        (world.published(), world.phase()),
        (Some(new), Phase::Connected)
    );
}

#[test]
fn what_goes_bad_before_its_init_is_known_to_be_over_is_never_published() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, Outcome::Up);
    world.fails(new, ESSENTIAL, 1);
    world.ends(new, ESSENTIAL, Outcome::Up);
    assert!(world.published().is_none());
    world.works_until("connected", World::is_settled);
}

#[test]
fn every_change_of_a_resource_is_told() {
    let (mut world, old) = connected();
    world.fails(old, OPTIONAL, 1);
    assert!(world.was_told(Changes::STATE));
}

#[test]
fn an_attempt_has_failed_when_an_essential_one_has() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, Outcome::Up);
    world.ends(new, OPTIONAL, failure(Then::Retry));
    let tried = |world: &World| {
        let cluster = world.cluster().unwrap();
        (cluster.has_been_tried(), cluster.outage())
    };
    assert_eq!(tried(&world), (false, None));
    world.ends(new, ESSENTIAL, failure(Then::Retry));
    assert_eq!(tried(&world), (true, Some(world.now)));
}

#[test]
fn a_connection_that_goes_down_before_it_is_published_was_a_failed_attempt() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    world.ends(new, HEALTH, Outcome::Up);
    world.fails(new, HEALTH, 1);
    let cluster = world.cluster().unwrap();
    assert_eq!((cluster.attempts, cluster.outage()), (1, Some(world.now)));
    assert_eq!(cluster.phase(), Phase::Connecting);
}

#[test]
fn a_401_in_connecting_reads_the_access_again_and_a_new_one_is_tried_at_once() {
    let mut world = world();
    world.ready(access(0, 0, "t"));
    let new = world.building().unwrap();
    let Outcome::Failed(refused) = failure(Then::Retry) else {
        unreachable!()
    };
    let kind = FailureKind::Unauthorized;
    world.ends(new, HEALTH, Outcome::Failed(Failure { kind, ..refused }));
    assert!(world.saw(|action| matches!(action, Action::Reread { source: 0 })));
    world.seen.clear();
    world.ready(access(0, 0, "u"));
    assert!(world.began() && world.building() == Some(new));
}

#[test]
fn what_is_down_is_tried_again_by_itself_with_backoff() {
    let (mut world, old) = connected();
    world.goes_down(old);
    assert_eq!((world.building(), world.phase()), (None, Phase::Down));
    let took = world.works_until("connected", World::is_settled);
    assert!(!took.is_zero() && took <= world.options.retry.first);
}

#[test]
fn new_access_and_a_hint_are_tried_at_once_and_backoff_is_forgotten_after_a_minute_up() {
    let (mut world, mut generation) = connected();
    for round in 1..4 {
        world.goes_down(generation);
        assert_eq!(world.cluster().unwrap().backoff.failures(), round);
        match round {
            1 => world.input(Cluster::retry_now),
            2 => world.ready(access(1, 0, "t")),
            _ => world.input(Cluster::reconnect),
        }
        assert!(world.building().is_some());
        world.works_until("connected", World::is_settled);
        generation = world.published().unwrap();
    }
    let minute = world.now + world.options.retry.forget_after;
    world.works_until("a minute", |world| world.now >= minute);
    world.goes_down(generation);
    assert_eq!(world.cluster().unwrap().backoff.failures(), 1);
}

#[test]
fn what_the_brake_holds_is_held_again_after_new_access_and_probed_all_the_time() {
    let (mut world, old) = connected();
    world.brake = true;
    let is_held = |world: &World| world.cluster().unwrap().published.as_ref().unwrap().held;
    world.black_hole(old, is_held);
    world.ready(access(0, 0, "u"));
    assert!(!is_held(&world), "it has a chance");
    world.black_hole(old, is_held);
    world.seen.clear();
    world.passes(10);
    assert!(world.saw(|action| matches!(action, Action::Probe { .. })));
    world.works_until("healed", |world| !is_held(world));
    world.input(Cluster::hold);
    assert!(!is_held(&world), "a healthy one is not held");
}

#[test]
fn an_outage_counts_from_the_last_success() {
    let (mut world, old) = connected();
    let success = world.now;
    world.black_hole(old, |world| world.cluster().unwrap().outage().is_some());
    assert_eq!(world.cluster().unwrap().outage(), Some(success));
    world.goes_down(old);
    assert_eq!(world.cluster().unwrap().outage(), Some(success));
}
