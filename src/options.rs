//! Every time, limit and policy, with its default. They are checked at `start()`, all at once.

use std::time::Duration;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// All options of a cache. Change them with [`Builder::configure`](crate::Builder::configure).
///
/// ```
/// use std::time::Duration;
/// use clustercache::ClusterCache;
///
/// let builder = ClusterCache::builder().configure(|options| {
///     options.health.probe_after = Duration::from_secs(10);
///     options.brake.share_percent = 80;
/// });
/// # let _ = builder;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// When a connection is alive, suspect and down.
    pub health: HealthOptions,
    /// When a fleet that fails together is not torn down.
    pub brake: BrakeOptions,
    /// When what failed is tried again.
    pub retry: RetryOptions,
    /// How many connections are dialled at once.
    pub dial: DialOptions,
    /// How connections, resources and the engine end.
    pub end: EndOptions,
    /// What sources say, and when it counts.
    pub source: SourceOptions,
    /// What subscribers may cost.
    pub events: EventOptions,
    /// The seed of all randomness; `None` takes one from the system. A given seed makes a simulated run repeatable.
    pub seed: Option<u64>,
}

/// When a connection is alive, suspect and down.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthOptions {
    /// Without a sign of life for this long a probe is sent. Default 5 s.
    pub probe_after: Duration,
    /// How long a probe may take, all of it. Default 3 s.
    pub probe_timeout: Duration,
    /// Between probes of a suspect connection. Default 1 s.
    pub suspect_interval: Duration,
    /// Between probes of a connection that is down and held by the fleet brake. Default 5 s.
    pub held_interval: Duration,
    /// At least this often one request proves the credential, whatever bytes come on watches. Default 60 s.
    pub authenticate_every: Duration,
    /// Down takes this many failures in a row. Default 3.
    pub down_failures: u32,
    /// And this long from the first of them to the last. Default 6 s.
    pub down_after: Duration,
    /// After a 401, when it is tried again, each from the one before; the last repeats. Default 1, 2, 4, 8, 15 s.
    pub unauthorized_retries: Vec<Duration>,
    /// The process did not run if the engine wakes this much too late; nobody is judged by that time. Default 1 s.
    pub stall_after: Duration,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            probe_after: secs(5),
            probe_timeout: secs(3),
            suspect_interval: secs(1),
            held_interval: secs(5),
            authenticate_every: secs(60),
            down_failures: 3,
            down_after: secs(6),
            unauthorized_retries: [1, 2, 4, 8, 15].map(secs).to_vec(),
            stall_after: secs(1),
        }
    }
}

/// When a fleet that fails together is not torn down: then it is our network that is gone, and tearing down makes it worse.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrakeOptions {
    /// Whether there is a fleet brake. Default true.
    pub enabled: bool,
    /// The brake needs this many clusters that were up [`up_since`](Self::up_since) ago. Default 10.
    pub at_least: usize,
    /// How long ago a cluster must have been up to count. Default 60 s.
    pub up_since: Duration,
    /// The share of those, suspect or down, at which teardowns by verdict are withheld. Default 55 %.
    pub share_percent: u32,
    /// The share below which they are no more. Default 45 %.
    pub release_percent: u32,
    /// After this long it lets go in any case. Default 10 min.
    pub release_after: Duration,
}

impl Default for BrakeOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            at_least: 10,
            up_since: secs(60),
            share_percent: 55,
            release_percent: 45,
            release_after: secs(600),
        }
    }
}

/// When what failed is tried again: full jitter below a ceiling that doubles.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetryOptions {
    /// The first ceiling. Default 0.5 s.
    pub first: Duration,
    /// The highest ceiling. Default 60 s.
    pub most: Duration,
    /// After this long up, a connection's or a resource's failures are forgotten. Default 60 s.
    pub forget_after: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            first: millis(500),
            most: secs(60),
            forget_after: secs(60),
        }
    }
}

/// How many connections are dialled at once. A dial is *silent* until its first byte from the other side, and costs a
/// descriptor; after it, it is a handshake, and costs CPU.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DialOptions {
    /// New dials a second. Default 2,000.
    pub per_second: u32,
    /// Silent dials at once: a bound on descriptors. Default 4,096.
    pub silent: usize,
    /// Handshakes that have received bytes, at once. Default 64.
    pub handshakes: usize,
}

impl Default for DialOptions {
    fn default() -> Self {
        Self {
            per_second: 2_000,
            silent: 4_096,
            handshakes: 64,
        }
    }
}

/// How connections, resources and the engine end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndOptions {
    /// The longest that `shutdown()` takes. Default 5 s.
    pub shutdown: Duration,
    /// Connections of a cluster that may still be on their way out; one more abandons the oldest. Default 2.
    pub retiring: usize,
    /// In a replacement, how long optional resources that were up are waited for. Default 30 s.
    pub replace_wait: Duration,
    /// Warm state of one cluster: its size at most. Default 64 MiB.
    pub warm_bytes: usize,
    /// Warm state: its age at most. Default 10 min.
    pub warm_age: Duration,
}

impl Default for EndOptions {
    fn default() -> Self {
        Self {
            shutdown: secs(5),
            retiring: 2,
            replace_wait: secs(30),
            warm_bytes: 64 << 20,
            warm_age: secs(600),
        }
    }
}

/// What sources say, and when it counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceOptions {
    /// How long a removed cluster is still served and probed. Default 5 s.
    pub linger: Duration,
    /// How long what a lower source says waits for a higher one's first `Synced`. Default 10 s.
    pub higher_first: Duration,
    /// What happens to a living connection when its gate is lost.
    pub gate: GatePolicy,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            linger: secs(5),
            higher_first: secs(10),
            gate: GatePolicy::Keep,
        }
    }
}

/// What happens to a living connection when its source says [`Gated`](crate::SourcedAccess::Gated).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatePolicy {
    /// It stays, still probed. The default.
    #[default]
    Keep,
    /// It is closed.
    Close,
}

/// What subscribers may cost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EventOptions {
    /// A subscriber with more clusters than this waiting to be read is told [`Resync`](crate::Event::Resync) instead. Default 16,384.
    pub pending: usize,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { pending: 16_384 }
    }
}

/// A wait that is longer is a mistake, and could not be added to the time.
const LONGEST: Duration = secs(365 * 86_400);

impl Options {
    /// Every mistake, as text that says which option, what was wrong and what to give instead.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self {
            health,
            brake,
            retry,
            dial,
            end,
            source,
            events,
            ..
        } = self;
        let positive = [
            ("health.probe_after", health.probe_after),
            ("health.probe_timeout", health.probe_timeout),
            ("health.suspect_interval", health.suspect_interval),
            ("health.held_interval", health.held_interval),
            ("health.authenticate_every", health.authenticate_every),
            ("health.stall_after", health.stall_after),
            ("brake.up_since", brake.up_since),
            ("brake.release_after", brake.release_after),
            ("retry.first", retry.first),
            ("retry.most", retry.most),
            ("retry.forget_after", retry.forget_after),
            ("end.shutdown", end.shutdown),
            ("source.higher_first", source.higher_first),
        ];
        let zero = positive.iter().filter(|(_, time)| time.is_zero());
        let mut mistakes: Vec<String> = zero
            .map(|(name, _)| format!("{name} is zero; give a longer time"))
            .collect();
        let mut require = |holds: bool, mistake: &str| {
            if !holds {
                mistakes.push(mistake.into());
            }
        };
        require(
            health.down_failures > 0,
            "health.down_failures is zero; give at least 1",
        );
        require(
            !health.unauthorized_retries.is_empty()
                && health
                    .unauthorized_retries
                    .iter()
                    .all(|wait| !wait.is_zero()),
            "health.unauthorized_retries is empty or has a zero; give at least one time, each above zero",
        );
        require(
            brake.release_percent <= brake.share_percent
                && (1..=100).contains(&brake.share_percent),
            "brake.release_percent is above brake.share_percent, or that is not within 1 and 100",
        );
        require(
            retry.most <= LONGEST
                && health
                    .unauthorized_retries
                    .iter()
                    .all(|wait| *wait <= LONGEST),
            "retry.most or one of health.unauthorized_retries is longer than a year; give a shorter time",
        );
        require(
            end.shutdown <= LONGEST,
            "end.shutdown is longer than a year; give a shorter time: a shutdown is bounded",
        );
        require(retry.first <= retry.most, "retry.first is above retry.most");
        require(
            dial.per_second > 0,
            "dial.per_second is zero; nothing could be dialled",
        );
        require(
            dial.silent > 0,
            "dial.silent is zero; nothing could be dialled",
        );
        require(
            dial.handshakes > 0,
            "dial.handshakes is zero; nothing could be dialled",
        );
        require(
            events.pending > 0,
            "events.pending is zero; give at least 1",
        );
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_have_no_mistake() {
        assert_eq!(Options::default().mistakes(), Vec::<String>::new());
    }

    /// A change, and how the mistake that it makes begins.
    type Row = (fn(&mut Options), &'static str);

    const MISTAKES: [Row; 25] = [
        (
            |o| o.health.probe_after = ZERO,
            "health.probe_after is zero",
        ),
        (
            |o| o.health.probe_timeout = ZERO,
            "health.probe_timeout is zero",
        ),
        (
            |o| o.health.suspect_interval = ZERO,
            "health.suspect_interval is zero",
        ),
        (
            |o| o.health.held_interval = ZERO,
            "health.held_interval is zero",
        ),
        (
            |o| o.health.authenticate_every = ZERO,
            "health.authenticate_every is zero",
        ),
        (
            |o| o.health.stall_after = ZERO,
            "health.stall_after is zero",
        ),
        (
            |o| o.health.down_failures = 0,
            "health.down_failures is zero",
        ),
        (
            |o| o.health.unauthorized_retries = vec![],
            "health.unauthorized_retries is empty",
        ),
        (
            |o| o.health.unauthorized_retries[0] = ZERO,
            "health.unauthorized_retries is empty",
        ),
        (
            |o| o.health.unauthorized_retries[0] = LONGEST * 2,
            "retry.most or one of",
        ),
        (|o| o.brake.up_since = ZERO, "brake.up_since is zero"),
        (
            |o| o.brake.release_after = ZERO,
            "brake.release_after is zero",
        ),
        (
            |o| o.brake.share_percent = 101,
            "brake.release_percent is above",
        ),
        (
            |o| o.brake.release_percent = 99,
            "brake.release_percent is above",
        ),
        (|o| o.retry.first = ZERO, "retry.first is zero"),
        (|o| o.retry.first = secs(3_600), "retry.first is above"),
        (|o| o.retry.most = LONGEST * 2, "retry.most or one of"),
        (
            |o| o.retry.forget_after = ZERO,
            "retry.forget_after is zero",
        ),
        (|o| o.dial.per_second = 0, "dial.per_second is zero"),
        (|o| o.dial.silent = 0, "dial.silent is zero"),
        (|o| o.dial.handshakes = 0, "dial.handshakes is zero"),
        (|o| o.end.shutdown = ZERO, "end.shutdown is zero"),
        (|o| o.end.shutdown = LONGEST * 2, "end.shutdown is longer"),
        (
            |o| o.source.higher_first = ZERO,
            "source.higher_first is zero",
        ),
        (|o| o.events.pending = 0, "events.pending is zero"),
    ];

    const ZERO: Duration = Duration::ZERO;

    #[test]
    fn each_mistake_is_named_with_its_option() {
        for (change, begins) in MISTAKES {
            let mut options = Options::default();
            change(&mut options);
            let mistakes = options.mistakes();
            assert_eq!(mistakes.len(), 1, "{begins}: {mistakes:?}");
            assert!(mistakes[0].starts_with(begins), "{begins}: {mistakes:?}");
        }
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let mut options = Options::default();
        options.health.probe_after = Duration::ZERO;
        options.dial.silent = 0;
        options.events.pending = 0;
        assert_eq!(options.mistakes().len(), 3);
    }
}
