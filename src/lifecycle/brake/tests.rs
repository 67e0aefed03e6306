//! The rules of the fleet brake by examples.

use std::time::Duration;

use super::*;

mod model;

fn key(n: usize) -> ClusterKey {
    ClusterKey::named(&n.to_string())
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A fleet that came up at the start, and time.
struct Fleet {
    brake: Brake,
    options: BrakeOptions,
    start: Instant,
    now: Instant,
}

impl Fleet {
    /// Of so many clusters, up for two minutes.
    fn up(clusters: usize) -> Self {
        let now = Instant::now();
        let mut fleet = Self {
            brake: Brake::default(),
            options: BrakeOptions::default(),
            start: now,
            now,
        };
        fleet.say(0..clusters, Verdict::Healthy);
        fleet.at(120);
        assert_eq!(fleet.evaluate(), None);
        fleet
    }

    fn at(&mut self, seconds: u64) {
        self.now = self.start + secs(seconds);
    }

    fn say(&mut self, clusters: impl IntoIterator<Item = usize>, verdict: Verdict) {
        for cluster in clusters {
            self.brake.verdict(&key(cluster), verdict, self.now);
        }
    }

    fn evaluate(&mut self) -> Option<BrakeChange> {
        self.brake.evaluate(&self.options, self.now)
    }

    fn held(&self) -> usize {
        (0..200).filter(|n| self.brake.holds(&key(*n))).count()
    }
}

fn released(change: Option<&BrakeChange>) -> Option<usize> {
    match change {
        Some(BrakeChange::Released { clusters }) => Some(clusters.len()),
        _ => None,
    }
}

#[test]
fn sixty_percent_within_a_second_are_held_from_fifty_five_on() {
    let mut fleet = Fleet::up(100);
    fleet.say(0..54, Verdict::Suspect);
    assert_eq!(fleet.evaluate(), None);
    fleet.say([54], Verdict::Suspect);
    let engaged = BrakeChange::Engaged {
        bad: 55,
        counted: 100,
    };
    assert_eq!(fleet.evaluate(), Some(engaged));
    fleet.say(55..60, Verdict::Suspect);
    assert_eq!(fleet.evaluate(), None, "one alarm");
    assert_eq!(fleet.held(), 100, "also those that fail later");
    fleet.say(0..60, Verdict::Down);
    fleet.at(500);
    assert_eq!(fleet.evaluate(), None, "for as long as it is so");
    fleet.say(0..15, Verdict::Healthy);
    assert_eq!(fleet.evaluate(), None, "45 % is not below 45 %");
    fleet.say(15..16, Verdict::Healthy);
    assert_eq!(released(fleet.evaluate().as_ref()), Some(100));
    assert_eq!(fleet.held(), 0);
}

#[test]
fn half_of_the_fleet_is_not_held() {
    let mut fleet = Fleet::up(200);
    fleet.say(0..100, Verdict::Suspect);
    fleet.say(0..100, Verdict::Down);
    for second in 120..300 {
        fleet.at(second);
        assert_eq!(fleet.evaluate(), None);
    }
}

#[test]
fn those_that_were_torn_down_before_still_count_as_bad_for_a_minute() {
    let mut fleet = Fleet::up(100);
    fleet.say(0..30, Verdict::Down);
    fleet.say(0..30, Verdict::Unknown);
    fleet.at(125);
    fleet.say(30..55, Verdict::Suspect);
    let engaged = BrakeChange::Engaged {
        bad: 55,
        counted: 100,
    };
    assert_eq!(fleet.evaluate(), Some(engaged));

    let mut fleet = Fleet::up(100);
    fleet.say(0..30, Verdict::Down);
    fleet.say(0..30, Verdict::Unknown);
    fleet.at(180);
    fleet.say(30..55, Verdict::Suspect);
    assert_eq!(fleet.evaluate(), None, "25 of 70");
}

#[test]
fn after_ten_minutes_it_lets_go_and_engages_again_only_after_the_share_was_low() {
    let mut fleet = Fleet::up(100);
    fleet.say(0..60, Verdict::Suspect);
    assert!(fleet.evaluate().is_some());
    fleet.say(0..60, Verdict::Down);
    assert_eq!(
        fleet.brake.deadline(&fleet.options),
        Some(fleet.now + secs(600))
    );
    fleet.at(720);
    assert_eq!(released(fleet.evaluate().as_ref()), Some(100));
    assert_eq!(fleet.evaluate(), None);
    fleet.at(730);
    fleet.say(0..14, Verdict::Healthy);
    assert_eq!(fleet.evaluate(), None);
    fleet.say(0..14, Verdict::Suspect);
    fleet.say(60..100, Verdict::Suspect);
    assert_eq!(fleet.evaluate(), None, "it was never below 45 %");
    fleet.say(0..60, Verdict::Healthy);
    assert_eq!(fleet.evaluate(), None);
    fleet.say(0..60, Verdict::Suspect);
    assert!(matches!(
        fleet.evaluate(),
        Some(BrakeChange::Engaged { .. })
    ));
}

#[test]
fn released_by_call_it_stays_so_until_the_share_was_low() {
    let mut fleet = Fleet::up(10);
    assert_eq!(fleet.brake.release(fleet.now), None);
    fleet.say(0..6, Verdict::Suspect);
    assert!(fleet.evaluate().is_some());
    assert_eq!(released(fleet.brake.release(fleet.now).as_ref()), Some(10));
    assert_eq!((fleet.evaluate(), fleet.held()), (None, 0));
    fleet.say(0..6, Verdict::Healthy);
    fleet.evaluate();
    fleet.say(0..6, Verdict::Suspect);
    assert!(fleet.evaluate().is_some());
}

#[test]
fn few_clusters_or_young_ones_are_not_held() {
    let mut fleet = Fleet::up(9);
    fleet.say(9..100, Verdict::Healthy);
    fleet.say(0..100, Verdict::Down);
    assert_eq!(fleet.evaluate(), None);
    assert_eq!(fleet.held(), 0);
}

#[test]
fn a_removed_cluster_leaves_the_frozen_set() {
    let mut fleet = Fleet::up(10);
    fleet.say(0..6, Verdict::Suspect);
    fleet.evaluate();
    fleet.brake.removed(&key(0));
    fleet.say([0], Verdict::Suspect);
    assert!(
        !fleet.brake.holds(&key(0)),
        "another one by that name is young"
    );
    for bad in 1..3 {
        fleet.brake.removed(&key(bad));
    }
    assert_eq!(released(fleet.evaluate().as_ref()), Some(7), "3 of 7");
}

#[test]
fn what_is_switched_off_holds_nobody() {
    let mut fleet = Fleet::up(100);
    fleet.options.enabled = false;
    fleet.say(0..100, Verdict::Suspect);
    assert_eq!((fleet.evaluate(), fleet.held()), (None, 0));
    assert_eq!(fleet.brake.deadline(&fleet.options), None);
}

#[test]
fn a_healthy_fleet_has_no_timer_and_what_is_gone_leaves_nothing() {
    let mut fleet = Fleet::up(100);
    assert_eq!(fleet.brake.deadline(&fleet.options), None);
    fleet.say(0..50, Verdict::Unknown);
    for cluster in 50..100 {
        fleet.brake.removed(&key(cluster));
    }
    fleet.at(200);
    fleet.evaluate();
    assert_eq!(
        (fleet.brake.clusters.len(), fleet.brake.changes.len()),
        (0, 0)
    );
}
