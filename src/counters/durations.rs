//! How long something took, over and over: a fixed histogram of atomics. Observing takes no lock and allocates nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets, in milliseconds: from a call on a fast network to the longest that anybody waits for a cluster.
const BOUNDS: [u64; 14] = [
    1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000,
];

/// How long something took, each time: a histogram from 1 ms to 60 s.
#[derive(Debug, Default)]
pub struct Durations {
    /// The last is for what took longer than all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Durations {
    pub(crate) fn observe(&self, took: Duration) {
        let bucket = BOUNDS.partition_point(|most| Duration::from_millis(*most) < took);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// For each bound, ascending, how often it took no longer than that.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut so_far = 0;
        BOUNDS.iter().zip(&self.buckets).map(move |(most, bucket)| {
            so_far += bucket.load(Ordering::Relaxed);
            (Duration::from_millis(*most), so_far)
        })
    }

    /// How often, however long.
    pub fn count(&self) -> u64 {
        let buckets = self.buckets.iter();
        buckets.map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// All of it together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_each_bucket_that_is_not_below_it() {
        let durations = Durations::default();
        for milliseconds in [0, 1, 2, 60_000, 60_001] {
            durations.observe(Duration::from_millis(milliseconds));
        }
        let buckets: Vec<_> = durations.buckets().collect();
        let ms = Duration::from_millis;
        assert_eq!(buckets[..2], [(ms(1), 2), (ms(5), 3)]);
        assert_eq!(buckets[12..], [(ms(30_000), 3), (ms(60_000), 4)]);
        assert_eq!((durations.count(), durations.sum()), (5, ms(120_004)));
    }
}
