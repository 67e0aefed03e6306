//! The rules of the loop, in simulated time, and the loop with a store against a server that does whatever servers do.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod server;

use server::{Fault, Server, Sim, Step};

const SECOND: Duration = Duration::from_secs(1);

struct Rig {
    machine: Machine,
    now: Instant,
}

impl Rig {
    fn new(way: Way) -> Self {
        Self::from(way, None)
    }

    fn from(way: Way, version: Option<u64>) -> Self {
        let now = Instant::now();
        let version = version.map(Version::Number);
        let rng = fastrand::Rng::with_seed(7);
        let machine = Machine::new(LoopOptions::default(), way, version, now, rng);
        Self { machine, now }
    }

    /// A kind that is watched, all of it being known up to this version.
    fn watching(version: u64) -> Self {
        let mut rig = Self::from(Way::Pages, Some(version));
        assert!(matches!(rig.ask(), Request::Watch { .. }));
        let _ = rig.hear(Heard::Opened);
        rig
    }

    /// The next request; waits for its time.
    fn ask(&mut self) -> Request {
        let at = self.machine.deadline().expect("something is next");
        self.now = self.now.max(at);
        self.machine.request(self.now).expect("it is time")
    }

    fn hear(&mut self, heard: Heard) -> Then {
        self.machine.hear(self.now, heard)
    }

    fn fail(&mut self, failure: Failure) -> Then {
        self.hear(Heard::Failed(failure))
    }

    fn bookmark(&mut self, version: u64) -> Then {
        self.hear(bookmark(version, false))
    }

    /// How long the next request waits.
    fn wait(&self) -> Duration {
        self.machine.deadline().expect("something is next") - self.now
    }

    /// Waits for the deadline, and lets it pass.
    fn pass(&mut self) -> Then {
        self.now = self.machine.deadline().expect("there is one");
        self.machine.tick(self.now)
    }
}

fn bookmark(version: u64, ends_initial: bool) -> Heard {
    let version = Version::Number(version);
    Heard::Bookmark {
        version,
        ends_initial,
    }
}

fn object(version: u64) -> Heard {
    Heard::Object(Version::Number(version))
}

fn page(version: u64, next: Option<&str>) -> Heard {
    Heard::Page {
        version: Version::Number(version),
        next: next.map(Into::into),
    }
}

fn is_list(request: &Request) -> bool {
    matches!(
        request,
        Request::Stream { .. } | Request::Page { next: None, .. }
    )
}

fn from(request: &Request) -> Option<u64> {
    match request {
        Request::Watch {
            version: Version::Number(version),
            ..
        } => Some(*version),
        _ => None,
    }
}

#[test]
fn what_there_is_comes_as_a_stream_that_goes_on_as_a_watch() {
    let mut rig = Rig::new(Way::Stream);
    assert!(matches!(rig.ask(), Request::Stream { .. }));
    assert_eq!(rig.hear(Heard::Opened), Then::Nothing);
    // In no order.
    assert_eq!(rig.hear(object(9)), Then::Stage);
    assert_eq!(rig.hear(object(3)), Then::Stage);
    assert_eq!(rig.hear(bookmark(10, true)), Then::Commit);
    assert_eq!(rig.hear(object(11)), Then::Apply);
    assert_eq!(rig.hear(Heard::Ended), Then::Close(Why::Ended));
    assert_eq!(from(&rig.ask()), Some(11));
}

#[test]
fn a_server_that_knows_no_streams_is_asked_for_pages_at_once_and_for_ever() {
    type Say = fn(&mut Rig) -> Then;
    let says: [Say; 4] = [
        |rig| rig.fail(Failure::Invalid),
        // As a server before 1.27, to which it is a watch without a version.
        |rig| rig.bookmark(7),
        |rig| rig.hear(Heard::Ended),
        |rig| rig.pass(),
    ];
    for say in says {
        let mut rig = Rig::new(Way::Stream);
        rig.ask();
        let _ = rig.hear(object(3));
        assert_eq!(say(&mut rig), Then::Close(Why::NoStream));
        assert_eq!(rig.wait(), Duration::ZERO);
        let first = Request::Page {
            limit: 500,
            next: None,
        };
        assert_eq!(rig.ask(), first);
        let _ = rig.fail(Failure::Other);
        assert_eq!(rig.ask(), first);
        assert_eq!(rig.machine.way(), Way::Pages);
    }
}

#[test]
fn a_stream_that_fails_otherwise_is_tried_again_as_one() {
    for failure in [
        Failure::Other,
        Failure::Busy(None),
        Failure::Forbidden,
        Failure::Missing,
    ] {
        let mut rig = Rig::new(Way::Stream);
        rig.ask();
        assert_eq!(rig.fail(failure), Then::Close(Why::Failed(failure)));
        assert!(matches!(rig.ask(), Request::Stream { .. }), "{failure:?}");
    }
}

#[test]
fn initial_events_without_end_have_a_deadline() {
    let mut rig = Rig::new(Way::Stream);
    rig.ask();
    let begun = rig.now;
    loop {
        let _ = rig.hear(object(3));
        rig.now += SECOND;
        match rig.machine.tick(rig.now) {
            Then::Nothing => (),
            then => break assert_eq!(then, Then::Close(Why::Failed(Failure::Other))),
        }
    }
    assert_eq!(rig.now - begun, LoopOptions::default().initial_within);
    assert!(is_list(&rig.ask()));
}

#[test]
fn pages_are_asked_for_one_after_the_other_and_count_when_they_are_all_there() {
    let mut rig = Rig::new(Way::Pages);
    assert_eq!(
        rig.ask(),
        Request::Page {
            limit: 500,
            next: None
        }
    );
    assert_eq!(rig.hear(page(9, Some("x"))), Then::Stage);
    let next = Some("x".into());
    assert_eq!(rig.ask(), Request::Page { limit: 500, next });
    assert_eq!(rig.hear(page(9, None)), Then::Commit);
    assert_eq!(from(&rig.ask()), Some(9));
}

#[test]
fn a_page_that_is_too_large_is_followed_by_a_list_in_smaller_ones() {
    let mut rig = Rig::new(Way::Pages);
    for expected in [500, 250, 125, 62, 31, 15, 7, 3, 1, 1] {
        let limit = expected;
        assert_eq!(rig.ask(), Request::Page { limit, next: None });
        let _ = rig.fail(Failure::PageTooLarge);
    }
}

#[test]
fn what_there_is_no_room_for_is_listed_anew_and_never_watched_from_where_it_was() {
    let mut rig = Rig::watching(7);
    let _ = rig.fail(Failure::OverBudget);
    assert!(rig.wait() >= SECOND * 60);
    assert!(is_list(&rig.ask()));
    // Also if that is found when nothing is in flight.
    let mut rig = Rig::watching(7);
    let _ = rig.hear(Heard::Ended);
    let _ = rig.fail(Failure::OverBudget);
    assert!(is_list(&rig.ask()));
}

#[test]
fn a_kind_without_versions_is_listed_with_backoff_and_never_watched_from_nothing() {
    let mut rig = Rig::new(Way::Pages);
    for nothing in ["", "0"] {
        assert!(is_list(&rig.ask()));
        let version = Version::of(nothing);
        let then = rig.hear(Heard::Page {
            version,
            next: None,
        });
        assert_eq!(then, Then::Close(Why::Failed(Failure::Other)));
    }
    assert!(is_list(&rig.ask()));
}

#[test]
fn too_old_and_too_large_are_one_new_list_with_backoff() {
    for failure in [Failure::Expired, Failure::TooLarge] {
        let mut rig = Rig::watching(7);
        assert_eq!(rig.fail(failure), Then::Close(Why::Failed(failure)));
        assert!(rig.wait() > Duration::ZERO && rig.wait() <= Duration::from_millis(800));
        assert_eq!(
            rig.ask(),
            Request::Page {
                limit: 500,
                next: None
            }
        );
        assert!(rig.machine.request(rig.now).is_none(), "one, and no other");
        // Also on a page: the list begins anew.
        let _ = rig.hear(page(9, Some("x")));
        rig.ask();
        assert_eq!(rig.fail(failure), Then::Close(Why::Failed(failure)));
        assert_eq!(
            rig.ask(),
            Request::Page {
                limit: 500,
                next: None
            }
        );
        assert_eq!(rig.hear(page(9, None)), Then::Commit);
        assert_eq!(from(&rig.ask()), Some(9));
    }
}

#[test]
fn versions_that_go_back_are_listed_anew() {
    for heard in [object(6), bookmark(6, false)] {
        let mut rig = Rig::watching(7);
        assert_eq!(rig.hear(heard), Then::Close(Why::WentBack));
        assert!(is_list(&rig.ask()));
        // And what the list says holds, though it is older.
        assert_eq!(rig.hear(page(2, None)), Then::Commit);
        assert_eq!(from(&rig.ask()), Some(2));
    }
    // The same version once more is none: a watch that goes on from an event may repeat it.
    let mut rig = Rig::watching(7);
    assert_eq!(rig.hear(object(7)), Then::Apply);
    // What has no version takes nobody back.
    assert_eq!(rig.hear(Heard::Object(Version::of(""))), Then::Apply);
    let _ = rig.hear(Heard::Ended);
    assert_eq!(from(&rig.ask()), Some(7));
}

#[test]
fn after_versions_went_back_none_is_trusted_until_all_is_listed() {
    for failure in [Failure::TooLarge, Failure::Expired] {
        let mut rig = Rig::watching(7);
        let _ = rig.fail(failure);
        rig.ask();
        assert_eq!(rig.machine.trusts_versions(), failure == Failure::Expired);
        let _ = rig.hear(page(9, None));
        assert!(rig.machine.trusts_versions());
    }
}

#[test]
fn a_watch_goes_on_from_the_last_version_however_it_ended() {
    for failure in [
        Failure::Other,
        Failure::Busy(None),
        Failure::Forbidden,
        Failure::Invalid,
    ] {
        let mut rig = Rig::watching(7);
        let _ = rig.hear(object(8));
        let _ = rig.bookmark(9);
        let _ = rig.fail(failure);
        assert_eq!(from(&rig.ask()), Some(9), "{failure:?}");
    }
    // Of a kind that was gone, nothing is as it was.
    let mut rig = Rig::watching(7);
    let _ = rig.fail(Failure::Missing);
    assert!(is_list(&rig.ask()));
}

#[test]
fn a_watch_that_ends_in_its_time_is_followed_by_the_next_at_once() {
    let mut rig = Rig::watching(7);
    rig.now += SECOND * 400;
    assert_eq!(rig.hear(Heard::Ended), Then::Close(Why::Ended));
    assert_eq!((rig.wait(), rig.machine.failures()), (Duration::ZERO, 0));
}

#[test]
fn watches_that_end_at_once_for_ever_are_few_and_no_list_comes_of_them() {
    let mut rig = Rig::watching(7);
    let begun = rig.now;
    let mut watches = 0;
    while rig.now < begun + SECOND * 3_600 {
        let _ = rig.hear(Heard::Opened);
        let _ = rig.hear(Heard::Ended);
        assert_eq!(from(&rig.ask()), Some(7));
        watches += 1;
    }
    // Half of 30 s on average.
    assert!((150..400).contains(&watches), "{watches}");
    assert!(rig.machine.failures() > 100);
}

#[test]
fn a_watch_that_lived_half_a_minute_ends_the_doubling_even_if_it_was_quiet() {
    let mut rig = Rig::watching(7);
    for _ in 0..20 {
        let _ = rig.fail(Failure::Other);
        rig.ask();
    }
    assert!(rig.machine.failures() >= 20);
    let _ = rig.hear(Heard::Opened);
    rig.now += SECOND * 30;
    let _ = rig.fail(Failure::Other);
    assert_eq!(rig.machine.failures(), 1);
    assert!(rig.wait() <= Duration::from_millis(800));
}

#[test]
fn waits_are_anything_up_to_twice_as_much_each_time_and_thirty_seconds() {
    let waits = (0..500).map(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut backoff = Backoff::new(Duration::from_millis(800), SECOND * 30);
        (0..9).map(|_| backoff.next(&mut rng)).collect::<Vec<_>>()
    });
    let waits: Vec<_> = waits.collect();
    for (nth, ceiling) in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
        .iter()
        .enumerate()
    {
        let nth = waits.iter().map(|waits| waits[nth].as_secs_f64());
        let (least, most) = nth.fold((f64::MAX, 0_f64), |(least, most), wait| {
            (least.min(wait), most.max(wait))
        });
        assert!(
            least < ceiling * 0.05 && most > ceiling * 0.95 && most <= *ceiling,
            "{least} to {most} of {ceiling}"
        );
    }
}

#[test]
fn silence_is_found_by_its_bookmarks() {
    let mut rig = Rig::watching(7);
    rig.now += SECOND * 20;
    let _ = rig.bookmark(8);
    let heard = rig.now;
    assert_eq!(rig.pass(), Then::Close(Why::Silent));
    assert_eq!(rig.now - heard, SECOND * 120);
    assert_eq!(rig.wait(), Duration::ZERO);
    assert_eq!(rig.ask(), Request::Check);
    assert_eq!(rig.hear(page(8, None)), Then::Nothing);
    assert_eq!((rig.wait(), from(&rig.ask())), (Duration::ZERO, Some(8)));
    // From a server that is known to send them, one without any is silent too.
    let begun = rig.now;
    assert_eq!(rig.pass(), Then::Close(Why::Silent));
    assert_eq!(rig.now - begun, SECOND * 120);
}

#[test]
fn a_watch_that_waits_for_a_version_that_was_taken_back_is_found() {
    let mut rig = Rig::watching(7);
    let _ = rig.bookmark(7);
    assert_eq!(rig.pass(), Then::Close(Why::Silent));
    assert_eq!(rig.ask(), Request::Check);
    assert_eq!(rig.hear(page(5, Some("x"))), Then::Close(Why::WentBack));
    assert!(is_list(&rig.ask()));
}

#[test]
fn who_may_not_list_goes_on_watching() {
    for failure in [
        Failure::Forbidden,
        Failure::Missing,
        Failure::Expired,
        Failure::Other,
    ] {
        let mut rig = Rig::watching(7);
        let _ = rig.bookmark(7);
        let _ = rig.pass();
        assert_eq!(rig.ask(), Request::Check);
        assert_eq!(rig.fail(failure), Then::Close(Why::Failed(failure)));
        assert_eq!(from(&rig.ask()), Some(7));
    }
}

#[test]
fn bookmarks_that_come_seldom_are_waited_for_longer() {
    let mut rig = Rig::watching(7);
    let _ = rig.bookmark(8);
    rig.now += SECOND * 110;
    let _ = rig.bookmark(9);
    let heard = rig.now;
    assert_eq!(rig.pass(), Then::Close(Why::Silent));
    assert_eq!(rig.now - heard, SECOND * 220);
}

#[test]
fn silence_without_bookmarks_is_found_when_it_should_be_over() {
    let mut rig = Rig::from(Way::Pages, Some(7));
    let Request::Watch { lives, .. } = rig.ask() else {
        panic!("a watch");
    };
    let _ = rig.hear(Heard::Opened);
    let begun = rig.now;
    assert_eq!(rig.pass(), Then::Close(Why::Silent));
    assert_eq!(rig.now - begun, lives + SECOND * 30);
}

#[test]
fn a_busy_server_is_waited_for_as_it_says_and_not_for_ever() {
    for (told, least, most) in [(5, 5, 6), (100_000, 60, 61)] {
        let mut rig = Rig::watching(7);
        let _ = rig.fail(Failure::Busy(Some(SECOND * told)));
        assert!(
            (SECOND * least..SECOND * most).contains(&rig.wait()),
            "{:?}",
            rig.wait()
        );
    }
}

#[test]
fn watches_live_five_to_ten_minutes_and_not_all_alike() {
    let mut lives = Vec::new();
    let mut rig = Rig::from(Way::Pages, Some(7));
    for _ in 0..200 {
        let Request::Watch { lives: one, .. } = rig.ask() else {
            panic!("a watch");
        };
        lives.push(one.as_secs());
        let _ = rig.fail(Failure::Other);
    }
    let (least, most) = (lives.iter().min().unwrap(), lives.iter().max().unwrap());
    assert!(
        (300..320).contains(least) && (580..=600).contains(most),
        "{least} to {most}"
    );
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..8_u8;
    prop_oneof![
        6 => name.clone().prop_map(Step::Put),
        4 => name.clone().prop_map(Step::Delete),
        2 => name.prop_map(Step::Recreate),
        6 => (0..60_u64).prop_map(Step::Pass),
        1 => Just(Step::Bookmarks),
        1 => Just(Step::Compact),
        1 => Just(Step::Backup),
        1 => Just(Step::Restore),
        1 => Just(Step::EndWatches),
        1 => Just(Step::Break),
        4 => fault().prop_map(Step::Fault),
        3 => Just(Step::Fault(Fault::None)),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Status(Failure::Other)),
        Just(Fault::Status(Failure::Busy(Some(SECOND)))),
        Just(Fault::Status(Failure::Expired)),
        Just(Fault::Status(Failure::TooLarge)),
        Just(Fault::Status(Failure::Forbidden)),
        Just(Fault::Status(Failure::Missing)),
        Just(Fault::NoStreams),
        Just(Fault::StreamsHaveNoEnd),
        Just(Fault::Silent),
        Just(Fault::EndsAtOnce),
        (1..4_usize).prop_map(Fault::CutAfter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    /// After whatever has happened: once the server behaves, the store is what the server has, and all that was told on the way adds up to it.
    #[test]
    fn the_store_comes_to_what_the_server_has_and_each_difference_is_told_once(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut sim = Sim::new(Server::default(), seed);
        for step in steps {
            sim.step(step);
        }
        sim.step(Step::Fault(Fault::None));
        sim.settle();
        let known: BTreeMap<_, _> = sim.known();
        prop_assert_eq!(&known, &sim.server.objects);
        prop_assert_eq!(&known, &sim.told, "what was told is what is there");
    }
}
