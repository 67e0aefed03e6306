//! Arbitrary verdicts at arbitrary times, against a naive model that keeps the whole past.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Everything that was ever said.
#[derive(Default)]
struct Model {
    /// Of each cluster since it was last removed: when which verdict.
    past: BTreeMap<usize, Vec<(Instant, Verdict)>>,
    released_at: BTreeMap<usize, Instant>,
    held: BTreeSet<usize>,
    since: Option<Instant>,
    spent: bool,
}

impl Model {
    fn bad(&self, cluster: usize) -> bool {
        let last = self.past[&cluster]
            .iter()
            .rev()
            .find(|(_, verdict)| *verdict != Verdict::Unknown);
        last.is_some_and(|(_, verdict)| *verdict != Verdict::Healthy)
    }

    fn counts(&self, cluster: usize, then: Instant) -> bool {
        let member = self.released_at.get(&cluster).is_some_and(|at| then < *at);
        let last = self.past[&cluster].iter().rev().find(|(at, _)| *at <= then);
        let up =
            last.is_some_and(|(_, verdict)| matches!(verdict, Verdict::Healthy | Verdict::Suspect));
        self.held.contains(&cluster) || member || up
    }

    fn percent(&self, of: &BTreeSet<usize>) -> f64 {
        let bad = of.iter().filter(|cluster| self.bad(**cluster)).count();
        100.0 * f64::from(u32::try_from(bad).unwrap()) / f64::from(u32::try_from(of.len()).unwrap())
    }

    fn release(&mut self, now: Instant) -> Option<BrakeChange> {
        self.since.take()?;
        self.spent = true;
        let mut clusters: Vec<_> = self.held.iter().map(|cluster| key(*cluster)).collect();
        clusters.sort();
        for cluster in std::mem::take(&mut self.held) {
            self.released_at.insert(cluster, now);
        }
        Some(BrakeChange::Released { clusters })
    }

    fn evaluate(
        &mut self,
        options: &BrakeOptions,
        start: Instant,
        now: Instant,
    ) -> Option<BrakeChange> {
        let then = now
            .checked_sub(options.up_since)
            .filter(|then| *then >= start);
        let counts = |cluster: &usize| match then {
            Some(then) => self.counts(*cluster, then),
            None => self.held.contains(cluster),
        };
        let counted: BTreeSet<_> = self.past.keys().copied().filter(counts).collect();
        let percent = self.percent(&counted);
        let high = counted.is_empty() || percent >= f64::from(options.release_percent);
        if let Some(since) = self.since {
            let share = self.percent(&self.held);
            let low = self.held.is_empty() || share < f64::from(options.release_percent);
            let over = now - since >= options.release_after;
            let released = (low || over).then(|| self.release(now)).flatten();
            self.spent &= high;
            return released;
        }
        self.spent &= high;
        if self.spent
            || counted.len() < options.at_least
            || percent < f64::from(options.share_percent)
        {
            return None;
        }
        let bad = counted.iter().filter(|cluster| self.bad(**cluster)).count();
        self.since = Some(now);
        self.held = counted;
        Some(BrakeChange::Engaged {
            bad,
            counted: self.held.len(),
        })
    }
}

const CLUSTERS: usize = 8;

fn any_verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        4 => Just(Verdict::Healthy),
        3 => Just(Verdict::Suspect),
        3 => Just(Verdict::Down),
        1 => Just(Verdict::Unknown),
    ]
}

#[derive(Clone, Debug)]
enum Input {
    Verdicts(Vec<usize>, Verdict),
    Removed(usize),
    Release,
}

proptest! {
    #[test]
    fn whatever_comes_it_is_as_the_naive_model_says(
        inputs in proptest::collection::vec(
            (
                prop_oneof![3 => 0..3_000_u64, 1 => 0..100_000_u64],
                prop_oneof![
                    12 => (proptest::sample::subsequence((0..CLUSTERS).collect::<Vec<_>>(), 1..=CLUSTERS), any_verdict())
                        .prop_map(|(clusters, verdict)| Input::Verdicts(clusters, verdict)),
                    1 => (0..CLUSTERS).prop_map(Input::Removed),
                    1 => Just(Input::Release),
                ],
            ),
            0..80,
        ),
    ) {
        let mut fleet = Fleet::up(0);
        fleet.options.at_least = 3;
        fleet.options.release_after = secs(200);
        let mut model = Model::default();
        for (wait, input) in inputs {
            let until = fleet.now + Duration::from_millis(wait);
            // Nothing changes before the deadline that it gives, and all that changes by time alone does at it.
            while let Some(at) = fleet.brake.deadline(&fleet.options).filter(|at| *at <= until) {
                fleet.now = at.max(fleet.now);
                let change = model.evaluate(&fleet.options, fleet.start, fleet.now);
                prop_assert_eq!(fleet.evaluate(), change);
            }
            let early = model.evaluate(&fleet.options, fleet.start, until);
            prop_assert_eq!(early, None);
            fleet.now = until;
            match input {
                Input::Verdicts(clusters, verdict) => {
                    let up = matches!(verdict, Verdict::Healthy | Verdict::Suspect);
                    for cluster in &clusters {
                        if up || model.past.contains_key(cluster) {
                            model.past.entry(*cluster).or_default().push((until, verdict));
                        }
                    }
                    fleet.say(clusters, verdict);
                }
                Input::Removed(cluster) => {
                    model.past.remove(&cluster);
                    model.released_at.remove(&cluster);
                    model.held.remove(&cluster);
                    fleet.brake.removed(&key(cluster));
                }
                Input::Release => {
                    let released = model.release(until);
                    prop_assert_eq!(fleet.brake.release(until), released);
                }
            }
            let change = model.evaluate(&fleet.options, fleet.start, until);
            prop_assert_eq!(fleet.evaluate(), change);
            let held: BTreeSet<_> = (0..CLUSTERS).filter(|n| fleet.brake.holds(&key(*n))).collect();
            prop_assert_eq!(&held, &model.held);
            prop_assert!(fleet.brake.clusters.len() <= CLUSTERS);
        }
    }
}
