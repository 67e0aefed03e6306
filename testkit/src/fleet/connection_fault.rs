//! What can be wrong with a cluster's connections, as values that are injected and undone.
//!
//! Faults of answers, by verb and resource, are [`api::Fault`](crate::api::Fault)s.

use std::{num::NonZeroU64, time::Duration};

use super::{counters::PathClass, tls::BadCertificate};
use crate::hostile::{Behaviour, Then};

/// Something that is wrong with connections, until it is undone.
///
/// Of several that meet a connection, the worst counts for whether bytes flow; of pace, certificate and behaviour the one that
/// was injected last. Bytes that were swallowed cannot come back: a connection that lost some is reset when its fault is undone.
///
/// ```
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use clustercache_testkit::fleet::{BadCertificate, ConnectionFault, Fleet, Latency, Then};
///
/// let fleet = Fleet::start(3).await?;
/// // One cluster's open connections turn silent; new ones work.
/// let silent = fleet[0].inject(ConnectionFault::black_hole().old_connections());
/// // The whole fleet is slow: half of what is sent within 20 ms, all of it within 2 s.
/// let spread = Latency::quantiles(&[(0.5, Duration::from_millis(20)), (1.0, Duration::from_secs(2))]);
/// let slow = fleet.inject(ConnectionFault::latency(spread).seed(7));
/// // Lists break after 10,000 bytes.
/// let broken = fleet[1].inject(ConnectionFault::stop_in_body(10_000, Then::Reset).path_prefix("/api/v1/pods"));
/// let expired = fleet[2].inject(ConnectionFault::certificate(BadCertificate::Expired));
/// for fault in [silent, slow, broken, expired] {
///     fault.undo();
/// }
/// # anyhow::Ok(())
/// # })?;
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ConnectionFault {
    age: Age,
    pub(super) path: String,
    pub(super) seed: u64,
    pub(super) effect: Effect,
}

/// Which connections meet a fault, by when they were accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    All,
    /// Those that were open when it was injected.
    Old,
    /// Those that were accepted later.
    New,
}

#[derive(Clone, Debug)]
pub(super) enum Effect {
    BlackHole,
    Unplug,
    Pause,
    Refuse,
    Stop(Stop),
    StopAnswer(Part, Stop),
    Latency(Latency),
    Bandwidth(NonZeroU64),
    Certificate(BadCertificate),
    Hostile(Behaviour),
}

/// Where a connection stops, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) after: u64,
    pub(super) then: Then,
}

/// The part of an answer in which its connection stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Head,
    Body,
    Watch,
}

/// What becomes of bytes.
impl ConnectionFault {
    fn new(effect: Effect) -> Self {
        Self {
            age: Age::All,
            path: String::new(),
            seed: 0,
            effect,
        }
    }

    /// Connections are accepted, what comes in is swallowed, nothing goes out, no FIN, no RST.
    pub fn black_hole() -> Self {
        Self::new(Effect::BlackHole)
    }

    /// As if the cable were pulled: new connections are never established, open ones are swallowed.
    pub fn unplug() -> Self {
        Self::new(Effect::Unplug)
    }

    /// As if the process were stopped: nothing is answered, nothing is lost.
    pub fn pause() -> Self {
        Self::new(Effect::Pause)
    }

    /// Open connections are reset, and no new one is let in: the port is closed (`ECONNREFUSED`). Where clusters share a
    /// listener, new ones are reset at once.
    pub fn refuse() -> Self {
        Self::new(Effect::Refuse)
    }

    /// Only the first `bytes` of what the server sends leave, counted on TCP, so below TLS: from the connection's first byte, or
    /// of one that is open, from this moment on. Then it stops as `then` says.
    pub fn stop_after(bytes: u64, then: Then) -> Self {
        Self::new(Effect::Stop(Stop { after: bytes, then }))
    }

    /// Connections stop when so many bytes of an answer's head have left, counted within TLS. Over HTTP/2 that head can be
    /// another request's, if there are several at a time.
    pub fn stop_in_head(bytes: u64, then: Then) -> Self {
        Self::new(Effect::StopAnswer(Part::Head, Stop { after: bytes, then }))
    }

    /// Connections stop when so many bytes of an answer's body have left; watches go on. With [`Then::Silence`] only that
    /// answer stops, and goes on when this is undone.
    pub fn stop_in_body(bytes: u64, then: Then) -> Self {
        Self::new(Effect::StopAnswer(Part::Body, Stop { after: bytes, then }))
    }

    /// As [`stop_in_body`](Self::stop_in_body), of watches alone. Of those that are open already, none stops.
    pub fn stop_in_watch(bytes: u64, then: Then) -> Self {
        Self::new(Effect::StopAnswer(Part::Watch, Stop { after: bytes, then }))
    }

    /// What the server sends leaves that much later, in its order.
    pub fn latency(latency: Latency) -> Self {
        Self::new(Effect::Latency(latency))
    }

    /// Each connection gets so many bytes a second out, and at least one.
    pub fn bandwidth(bytes_per_second: u64) -> Self {
        let rate = NonZeroU64::new(bytes_per_second).unwrap_or(NonZeroU64::MIN);
        Self::new(Effect::Bandwidth(rate))
    }

    /// New handshakes see a certificate with something wrong with it; connections that are open go on.
    pub fn certificate(bad: BadCertificate) -> Self {
        Self::new(Effect::Certificate(bad)).new_connections()
    }

    /// New connections are served by this, under the cluster's certificate, and end when it is undone. Its bytes and requests
    /// are not the cluster's.
    pub fn hostile(behaviour: Behaviour) -> Self {
        Self::new(Effect::Hostile(behaviour)).new_connections()
    }
}

/// Which connections meet it: by default all.
impl ConnectionFault {
    /// Only those that are accepted after it was injected.
    pub fn new_connections(mut self) -> Self {
        self.age = Age::New;
        self
    }

    /// Only those that are open when it is injected.
    pub fn old_connections(mut self) -> Self {
        self.age = Age::Old;
        self
    }

    /// Only answers to requests whose path begins so. It means something for those that stop within answers.
    pub fn path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.path = prefix.into();
        self
    }

    /// Where the randomness of a latency comes from: each connection has its own, of this and its number.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether a connection meets it that was open before it was injected, or was not.
    pub(super) fn meets(&self, old: bool) -> bool {
        match self.age {
            Age::All => true,
            Age::Old => old,
            Age::New => !old,
        }
    }

    /// Whether it is of the same kind, for connections of the same age.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let kind = |fault: &Self| std::mem::discriminant(&fault.effect);
        (self.age, kind(self)) == (other.age, kind(other))
    }

    /// Whether the answer to a request of this class at this path is one that stops.
    pub(super) fn stops(&self, class: PathClass, path: &str) -> Option<(Part, Stop)> {
        let Effect::StopAnswer(part, stop) = &self.effect else {
            return None;
        };
        let its = match part {
            Part::Head => true,
            Part::Body => class != PathClass::Watch,
            Part::Watch => class == PathClass::Watch,
        };
        (its && path.starts_with(&self.path)).then_some((*part, *stop))
    }
}

/// How long something takes, by chance: between quantiles all times are equally likely.
///
/// ```
/// use std::time::Duration;
/// use clustercache_testkit::fleet::Latency;
///
/// let ms = Duration::from_millis;
/// // Half within 20 ms, one in a hundred between 300 ms and 2 s.
/// let wide = Latency::quantiles(&[(0.0, ms(5)), (0.5, ms(20)), (0.99, ms(300)), (1.0, ms(2000))]);
/// # let _ = (wide, Latency::fixed(ms(5)), Latency::between(ms(1), ms(9)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Vec<(f64, Duration)>);

impl Latency {
    /// Always the same.
    pub fn fixed(time: Duration) -> Self {
        Self(vec![(0.0, time)])
    }

    /// Any time of a range.
    pub fn between(least: Duration, most: Duration) -> Self {
        Self(vec![(0.0, least), (1.0, most)])
    }

    /// By quantiles, each a share from 0 to 1 and the time within which that share is, both growing. Below the first one there
    /// is its time, above the last one too.
    pub fn quantiles(quantiles: &[(f64, Duration)]) -> Self {
        let mut all = quantiles.to_vec();
        all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Self(all)
    }

    /// The time of which a share of `luck`, from 0 to 1, is shorter.
    pub(super) fn at(&self, luck: f64) -> Duration {
        let after = self.0.partition_point(|(share, _)| *share <= luck);
        let next = self.0.get(after);
        let Some((from, least)) = after.checked_sub(1).and_then(|before| self.0.get(before)) else {
            return next.map_or(Duration::ZERO, |(_, time)| *time);
        };
        let Some((to, most)) = next else {
            return *least;
        };
        let within = (luck - from) / (to - from);
        *least + most.saturating_sub(*least).mul_f64(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn a_latency_goes_by_its_quantiles() {
        let wide = Latency::quantiles(&[(1.0, ms(1000)), (0.5, ms(20)), (0.0, ms(10))]);
        for (luck, time) in [(0.0, 10), (0.25, 15), (0.5, 20), (0.75, 510), (1.0, 1000)] {
            assert_eq!(wide.at(luck), ms(time), "at {luck}");
        }
        let late = Latency::quantiles(&[(0.5, ms(20)), (1.0, ms(40))]);
        assert_eq!((late.at(0.1), late.at(0.75)), (ms(20), ms(30)));
        assert_eq!(Latency::fixed(ms(3)).at(0.7), ms(3));
        assert_eq!(Latency::quantiles(&[]).at(0.7), Duration::ZERO);
        assert_eq!(Latency::between(ms(2), ms(4)).at(0.5), ms(3));
    }

    #[test]
    fn answers_stop_by_their_class_and_path() {
        let body = ConnectionFault::stop_in_body(3, Then::Reset).path_prefix("/api/v1/pods");
        assert!(body.stops(PathClass::List, "/api/v1/pods").is_some());
        assert!(body.stops(PathClass::Watch, "/api/v1/pods").is_none());
        assert!(body.stops(PathClass::List, "/api/v1/nodes").is_none());
        let watch = ConnectionFault::stop_in_watch(3, Then::Reset);
        assert!(watch.stops(PathClass::Watch, "/api/v1/pods").is_some());
        assert!(watch.stops(PathClass::Get, "/api/v1/pods").is_none());
    }
}
