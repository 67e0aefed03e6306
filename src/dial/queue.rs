//! Pure: who dials next, whom to evict, and until when to wait. It is told the time, and says who goes on; the shell around it wakes them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{ClusterKey, options::DialOptions};

/// A dial's number; it grows.
pub(super) type Ticket = u64;

/// Of so many turns, one goes to those that failed, if one of them waits.
const TURNS: u32 = 4;

pub(super) struct Queue {
    limits: DialOptions,
    pace: Pace,
    dials: BTreeMap<Ticket, Dial>,
    next: Ticket,
    /// For their first place.
    waiting: Line,
    /// Silent ones, those included that are evicted and not gone yet.
    silent: usize,
    evicted: usize,
    victims: Victims,
    /// They have received bytes, and wait for a handshake's place.
    shaking: Line,
    handshakes: usize,
}

struct Dial {
    key: ClusterKey,
    failures: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Silent,
    Evicted,
    /// Has given back its silent place, and waits.
    Received,
    Handshake,
}

/// What follows from what the queue was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// These may dial.
    pub(super) granted: Vec<Ticket>,
    /// These may go on with their handshakes.
    pub(super) handshakes: Vec<Ticket>,
    /// These must give up.
    pub(super) evicted: Vec<Ticket>,
    /// A place is free, and its time has not come: ask again then.
    pub(super) again: Option<Duration>,
}

impl Queue {
    pub(super) fn new(limits: &DialOptions) -> Self {
        Self {
            limits: limits.clone(),
            pace: Pace::new(limits.per_second),
            dials: BTreeMap::new(),
            next: 0,
            waiting: Line::default(),
            silent: 0,
            evicted: 0,
            victims: Victims::default(),
            shaking: Line::default(),
            handshakes: 0,
        }
    }

    /// One more wants to dial. [`turn`](Self::turn) says when it may.
    pub(super) fn ask(&mut self, key: &ClusterKey, failures: u32) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.dials.insert(
            ticket,
            Dial {
                key: key.clone(),
                failures,
                place: Place::Waiting,
            },
        );
        self.waiting.join(key, failures, ticket);
        ticket
    }

    /// Its first byte has come: its silent place is free, and it waits for a handshake's. Only the first call counts.
    pub(super) fn received(&mut self, ticket: Ticket) {
        let Some(dial) = self.dials.get_mut(&ticket) else {
            return;
        };
        match dial.place {
            Place::Silent => {
                self.silent -= 1;
                self.victims.remove(&dial.key, ticket);
            }
            Place::Evicted => {
                self.silent -= 1;
                self.evicted -= 1;
            }
            Place::Waiting | Place::Received | Place::Handshake => return,
        }
        dial.place = Place::Received;
        self.shaking.join(&dial.key, dial.failures, ticket);
    }

    /// It is over, or was given up, wherever it was.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        let Some(Dial {
            key,
            failures,
            place,
        }) = self.dials.remove(&ticket)
        else {
            return;
        };
        match place {
            Place::Waiting => self.waiting.leave(&key, failures, ticket),
            Place::Silent => {
                self.silent -= 1;
                self.victims.remove(&key, ticket);
            }
            Place::Evicted => {
                self.silent -= 1;
                self.evicted -= 1;
            }
            Place::Received => self.shaking.leave(&key, failures, ticket),
            Place::Handshake => self.handshakes -= 1,
        }
    }

    /// Gives out all places that can be given out at `now`. To be called after everything else here.
    pub(super) fn turn(&mut self, now: Duration) -> Turn {
        let mut turn = Turn::default();
        while self.handshakes < self.limits.handshakes
            && let Some(ticket) = self.shaking.next()
        {
            self.handshakes += 1;
            self.place(ticket, Place::Handshake);
            turn.handshakes.push(ticket);
        }
        while self.silent < self.limits.silent && !self.waiting.is_empty() {
            if let Some(at) = self.pace.closed_until(now) {
                turn.again = Some(at);
                break;
            }
            let Some(ticket) = self.waiting.next() else {
                break;
            };
            self.pace.pass(now);
            self.silent += 1;
            let dial = self.place(ticket, Place::Silent);
            let (key, failures) = (dial.key.clone(), dial.failures);
            self.victims.add(key, failures, ticket);
            turn.granted.push(ticket);
        }
        // As many as wait and have not failed, and no more: those that were evicted for them, and have not gone yet, count.
        while self.silent >= self.limits.silent
            && self.evicted < self.waiting.fresh.len()
            && let Some(ticket) = self.victims.next()
        {
            self.evicted += 1;
            self.place(ticket, Place::Evicted);
            turn.evicted.push(ticket);
        }
        turn
    }

    fn place(&mut self, ticket: Ticket, place: Place) -> &Dial {
        let dial = self.dials.get_mut(&ticket);
        let dial = dial.expect("whoever stands in a line has a dial");
        dial.place = place;
        dial
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.fresh.len() + self.waiting.failed.len()
    }

    pub(super) fn silent(&self) -> usize {
        self.silent
    }

    pub(super) fn handshakes(&self) -> usize {
        self.handshakes
    }
}

/// At most so many a second, evenly, and a tenth of a second's worth at once. (GCRA: it remembers one time.)
struct Pace {
    interval: Duration,
    burst: Duration,
    /// When the next would be due, were there no burst.
    due: Duration,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let burst = (per_second / 10).max(1);
        Self {
            interval,
            burst: interval * (burst - 1),
            due: Duration::ZERO,
        }
    }

    fn closed_until(&self, now: Duration) -> Option<Duration> {
        let opens = self.due.saturating_sub(self.burst);
        (opens > now).then_some(opens)
    }

    fn pass(&mut self, now: Duration) {
        self.due = self.due.max(now) + self.interval;
    }
}

/// Those that wait for one kind of place. Those that have not failed go first, but no more than three of them while one that failed waits.
#[derive(Default)]
struct Line {
    fresh: Ring,
    failed: Ring,
    /// Turns since the last one of those that failed.
    since: u32,
}

impl Line {
    fn ring(&mut self, failures: u32) -> &mut Ring {
        if failures == 0 {
            &mut self.fresh
        } else {
            &mut self.failed
        }
    }

    fn join(&mut self, key: &ClusterKey, failures: u32, ticket: Ticket) {
        self.ring(failures).join(key, ticket);
    }

    fn leave(&mut self, key: &ClusterKey, failures: u32, ticket: Ticket) {
        self.ring(failures).leave(key, ticket);
    }

    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.failed.is_empty()
    }

    fn next(&mut self) -> Option<Ticket> {
        let failed = self.fresh.is_empty() || self.since + 1 >= TURNS;
        if failed && let Some(ticket) = self.failed.next() {
            self.since = 0;
            return Some(ticket);
        }
        // With nobody to pass over, this stays at its most: the first that failed is served at once.
        self.since = (self.since + 1).min(TURNS - 1);
        self.fresh.next()
    }
}

/// Clusters take turns, one dial each; a cluster's own dials go in their order. Whoever comes new stands last.
#[derive(Default)]
struct Ring {
    clusters: BTreeMap<ClusterKey, Member>,
    order: BTreeMap<u64, ClusterKey>,
    last: u64,
    len: usize,
}

struct Member {
    place: u64,
    tickets: BTreeSet<Ticket>,
}

impl Ring {
    fn len(&self) -> usize {
        self.len
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn join(&mut self, key: &ClusterKey, ticket: Ticket) {
        self.len += 1;
        if let Some(member) = self.clusters.get_mut(key) {
            member.tickets.insert(ticket);
            return;
        }
        self.stand_last(key.clone(), BTreeSet::from([ticket]));
    }

    fn stand_last(&mut self, key: ClusterKey, tickets: BTreeSet<Ticket>) {
        let place = self.last;
        self.last += 1;
        self.order.insert(place, key.clone());
        self.clusters.insert(key, Member { place, tickets });
    }

    fn leave(&mut self, key: &ClusterKey, ticket: Ticket) {
        let Some(member) = self.clusters.get_mut(key) else {
            return;
        };
        self.len -= usize::from(member.tickets.remove(&ticket));
        if member.tickets.is_empty() {
            self.order.remove(&member.place);
            self.clusters.remove(key);
        }
    }

    fn next(&mut self) -> Option<Ticket> {
        let (_, key) = self.order.pop_first()?;
        let mut tickets = self.clusters.remove(&key)?.tickets;
        let ticket = tickets.pop_first();
        self.len -= 1;
        if !tickets.is_empty() {
            self.stand_last(key, tickets);
        }
        ticket
    }
}

/// Silent dials by cluster: the one that failed most first, of equals the one whose oldest is oldest.
#[derive(Default)]
struct Victims {
    clusters: BTreeMap<ClusterKey, Silent>,
    rank: BTreeSet<(u32, Reverse<u64>, ClusterKey)>,
    granted: u64,
}

/// A cluster's silent dials.
#[derive(Default)]
struct Silent {
    /// As its newest dial says.
    failures: u32,
    /// In the order in which they were granted.
    by_age: BTreeMap<u64, Ticket>,
}

impl Silent {
    fn rank(&self, key: &ClusterKey) -> Option<(u32, Reverse<u64>, ClusterKey)> {
        let (oldest, _) = self.by_age.first_key_value()?;
        Some((self.failures, Reverse(*oldest), key.clone()))
    }
}

impl Victims {
    fn add(&mut self, key: ClusterKey, failures: u32, ticket: Ticket) {
        let granted = self.granted;
        self.granted += 1;
        self.change(key, |silent| {
            silent.failures = failures;
            silent.by_age.insert(granted, ticket);
        });
    }

    fn remove(&mut self, key: &ClusterKey, ticket: Ticket) {
        self.change(key.clone(), |silent| {
            silent.by_age.retain(|_, other| *other != ticket);
        });
    }

    /// Takes out the oldest of the cluster that failed most. Nobody, if nobody failed.
    fn next(&mut self) -> Option<Ticket> {
        let (failures, Reverse(oldest), key) = self.rank.last()?.clone();
        if failures == 0 {
            return None;
        }
        let mut victim = None;
        self.change(key, |silent| victim = silent.by_age.remove(&oldest));
        victim
    }

    fn change(&mut self, key: ClusterKey, change: impl FnOnce(&mut Silent)) {
        let mut silent = self.clusters.remove(&key).unwrap_or_default();
        if let Some(rank) = silent.rank(&key) {
            self.rank.remove(&rank);
        }
        change(&mut silent);
        if let Some(rank) = silent.rank(&key) {
            self.rank.insert(rank);
            self.clusters.insert(key, silent);
        }
    }
}

#[cfg(test)]
mod tests;
