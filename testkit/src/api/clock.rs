//! The time and the randomness of one server: both can be given, so that a simulation repeats byte for byte.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The calendar, driven by tokio's clock: it stands still and jumps where that does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    epoch: Timestamp,
    start: Instant,
}

impl Clock {
    /// It is `epoch` now.
    pub(super) fn starting_at(epoch: Timestamp) -> Self {
        Self {
            epoch,
            start: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// When tokio's clock will have reached a time of the calendar.
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        let ahead = at.duration_since(self.epoch).unsigned_abs();
        if at < self.epoch {
            self.start
        } else {
            self.start + ahead
        }
    }
}

/// A time as Kubernetes writes it: whole seconds.
pub(super) fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Where UIDs, generated names and shares of faults come from.
pub(super) struct Dice(Mutex<fastrand::Rng>);

impl Dice {
    pub(super) fn new(seed: Option<u64>) -> Self {
        let rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self(Mutex::new(rng))
    }

    /// A random UUID of version 4.
    pub(super) fn uid(&self) -> String {
        let mut rng = self.0.lock();
        let (high, low) = (rng.u64(..), rng.u64(..));
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff | 0x4000);
        format!(
            "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}",
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }

    /// What is put behind a `generateName`: five of the letters that Kubernetes takes, which spell no word.
    pub(super) fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rng = self.0.lock();
        (0..5)
            .map(|_| char::from(LETTERS[rng.usize(..LETTERS.len())]))
            .collect()
    }

    pub(super) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.lock().fill(&mut bytes);
        bytes
    }

    /// From 0 to 1.
    pub(super) fn luck(&self) -> f64 {
        self.0.lock().f64()
    }

    pub(super) fn within(&self, range: std::ops::Range<u64>) -> u64 {
        self.0.lock().u64(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_names() {
        let draw = |seed| {
            let dice = Dice::new(Some(seed));
            (dice.uid(), dice.suffix(), dice.bytes::<8>())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(draw(7).0.len(), 36);
    }
}
