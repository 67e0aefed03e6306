//! When what failed is tried again: full jitter below a ceiling that doubles, so that clusters that failed together do not come
//! back together (rule 15). The randomness is passed in, so that a run with a given seed repeats (rule 16).

use std::time::Duration;

use crate::options::RetryOptions;

/// Full jitter below a ceiling that doubles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure, and says how long to wait: at random between zero and the ceiling; at least `at_least`, of which no more
    /// than the highest ceiling counts.
    pub(crate) fn failed(
        &mut self,
        options: &RetryOptions,
        rng: &mut fastrand::Rng,
        at_least: Option<Duration>,
    ) -> Duration {
        let ceiling = ceiling(options, self.failures);
        self.failures = self.failures.saturating_add(1);
        let wait = Duration::from_nanos(rng.u64(0..=nanos(ceiling)));
        // A cluster's hint is another party's data: it cannot put us off for longer than we would ourselves (rule 18).
        wait.max(at_least.unwrap_or_default().min(options.most))
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

fn ceiling(options: &RetryOptions, failures: u32) -> Duration {
    let times = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
    Duration::from_nanos(nanos(options.first).saturating_mul(times)).min(options.most)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_options() -> impl Strategy<Value = RetryOptions> {
        let time = || {
            prop_oneof![
                (1_u64..1_000_000_000_000).prop_map(Duration::from_nanos),
                Just(Duration::MAX),
            ]
        };
        (time(), time()).prop_map(|(a, b)| RetryOptions {
            first: a.min(b),
            most: a.max(b),
            ..RetryOptions::default()
        })
    }

    #[test]
    fn the_ceiling_doubles_from_half_a_second_to_a_minute() {
        let options = RetryOptions::default();
        let ceilings: Vec<_> = (0..9)
            .map(|n| ceiling(&options, n).as_secs_f32().to_string())
            .collect();
        assert_eq!(
            ceilings.join(" "),
            "0.5 1 2 4 8 16 32 60 60",
            "first * 2^n, at most 60 s"
        );
        assert_eq!(ceiling(&options, u32::MAX), options.most);
    }

    #[test]
    fn the_jitter_is_full() {
        let options = RetryOptions::default();
        let mut rng = fastrand::Rng::with_seed(7);
        let mut waits: Vec<_> = (0..1_000)
            .map(|_| Backoff::default().failed(&options, &mut rng, None))
            .collect();
        waits.sort();
        for tenth in 0..10_u32 {
            let middle = waits[tenth as usize * 100 + 50];
            let even = options.first * (2 * tenth + 1) / 20;
            assert!(
                middle.abs_diff(even) < options.first / 10,
                "{middle:?} for {even:?}"
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let waits = || {
            let mut rng = fastrand::Rng::with_seed(1);
            let mut backoff = Backoff::default();
            [0; 20].map(|_| backoff.failed(&RetryOptions::default(), &mut rng, None))
        };
        assert_eq!(waits(), waits());
    }

    #[test]
    fn a_reset_begins_again_at_the_first_ceiling() {
        let options = RetryOptions::default();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.failed(&options, &mut rng, None);
        }
        backoff.reset();
        assert_eq!(backoff.failures(), 0);
        assert!(backoff.failed(&options, &mut rng, None) <= options.first);
        assert_eq!(backoff.failures(), 1);
    }

    proptest! {
        #[test]
        fn a_wait_is_within_its_ceiling_or_the_capped_hint(
            options in any_options(),
            seed in any::<u64>(),
            failures in prop_oneof![0_u32..80, Just(u32::MAX)],
            hint in proptest::option::of((0_u64..u64::MAX).prop_map(Duration::from_nanos)),
        ) {
            let mut backoff = Backoff { failures };
            let wait = backoff.failed(&options, &mut fastrand::Rng::with_seed(seed), hint);
            let hint = hint.unwrap_or_default().min(options.most);
            prop_assert!(wait >= hint);
            prop_assert!(wait <= ceiling(&options, failures).max(hint));
            prop_assert!(wait <= options.most);
            prop_assert_eq!(backoff.failures(), failures.saturating_add(1));
        }

        #[test]
        fn a_ceiling_is_twice_the_one_before_or_the_highest(options in any_options(), failures in 1_u32..80) {
            let (before, now) = (ceiling(&options, failures - 1), ceiling(&options, failures));
            // 64 bits of nanoseconds are five centuries; beyond that nothing doubles.
            let counts = nanos(before) < u64::MAX / 2;
            prop_assert!(now == options.most || now == before * 2 || !counts);
        }
    }
}
