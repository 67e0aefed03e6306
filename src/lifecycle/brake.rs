//! The fleet brake: when most of what was up a minute ago fails together it is our own network, and tearing all of it down makes it
//! worse. Keeps "Two brakes" of ARCHITECTURE.md.
//!
//! Which clusters count: those that were *up* (a published connection, healthy or suspect) [`up_since`](BrakeOptions::up_since) ago.
//! So one that has just connected does not count yet, and one that went down does until that time has gone by. Of those that count
//! *bad* are the ones whose last verdict was suspect or down; losing the connection (`Unknown`) makes nobody bad who was healthy,
//! and nobody good who was down. The frozen set is what counted when the brake engaged; only those are held, also when they fail
//! later. Younger clusters are not: they never showed that they can be up. Members count as long as they are held, and from then on
//! as if they had been up at the release.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use crate::{ClusterKey, Verdict, options::BrakeOptions};

#[cfg(test)]
mod tests;

/// Holds teardowns by verdict when most of a fleet fails together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brake {
    /// What is up, was up not long ago, or is held.
    clusters: BTreeMap<ClusterKey, Cluster>,
    /// What came up or went; it begins to matter `up_since` later.
    changes: VecDeque<Change>,
    /// Of all clusters: kept at every change, so that an evaluation looks at none.
    tally: Tally,
    engaged_at: Option<Instant>,
    /// Released: it is not to engage again before the share of what counts was low.
    spent: bool,
    /// Told apart from an earlier cluster of the same name.
    next_id: u64,
}

/// What an evaluation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrakeChange {
    /// `bad` of `counted` clusters are suspect or down.
    Engaged { bad: usize, counted: usize },
    /// These are held no more; sorted.
    Released { clusters: Vec<ClusterKey> },
}

#[derive(Clone, Debug)]
struct Cluster {
    id: u64,
    standing: Standing,
    up: bool,
    /// Changes that are still queued.
    queued: usize,
    /// Its last release: what came before says no more whether it counts.
    released_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    bad: bool,
    counts: bool,
    held: bool,
}

#[derive(Clone, Debug)]
struct Change {
    at: Instant,
    key: ClusterKey,
    id: u64,
    up: bool,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    bad: usize,
    counted: Share,
    held: Share,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bad: usize,
    of: usize,
}

impl Brake {
    /// The verdict on a cluster's published connection changed; `Unknown` when it has none any more, by whatever cause but removal.
    pub(crate) fn verdict(&mut self, key: &ClusterKey, verdict: Verdict, now: Instant) {
        let up = matches!(verdict, Verdict::Healthy | Verdict::Suspect);
        if up && !self.clusters.contains_key(key) {
            let cluster = Cluster {
                id: self.next_id,
                standing: Standing::default(),
                up: false,
                queued: 0,
                released_at: None,
            };
            self.next_id += 1;
            self.clusters.insert(key.clone(), cluster);
        }
        let Some(cluster) = self.clusters.get_mut(key) else {
            return;
        };
        self.tally.change(&mut cluster.standing, |standing| {
            standing.bad = match verdict {
                Verdict::Healthy => false,
                Verdict::Suspect | Verdict::Down => true,
                Verdict::Unknown => standing.bad,
            };
        });
        if cluster.up != up {
            cluster.up = up;
            cluster.queue(key, now, &mut self.changes);
        }
    }

    /// The cluster is gone.
    pub(crate) fn removed(&mut self, key: &ClusterKey) {
        if let Some(mut cluster) = self.clusters.remove(key) {
            let standing = &mut cluster.standing;
            self.tally.change(standing, |s| *s = Standing::default());
        }
    }

    /// Engages or releases.
    pub(crate) fn evaluate(&mut self, options: &BrakeOptions, now: Instant) -> Option<BrakeChange> {
        self.catch_up(options, now);
        if let Some(since) = self.engaged_at {
            let low = self.tally.held.of == 0 || self.tally.held.below(options.release_percent);
            let over = now.saturating_duration_since(since) >= options.release_after;
            let released = (low || over || !options.enabled).then(|| self.release(now));
            self.spent &= !self.tally.counted.below(options.release_percent);
            return released.flatten();
        }
        let counted = self.tally.counted;
        self.spent &= !counted.below(options.release_percent);
        let high = counted.of >= options.at_least.max(1) && !counted.below(options.share_percent);
        if !options.enabled || self.spent || !high {
            return None;
        }
        self.engaged_at = Some(now);
        for cluster in self.clusters.values_mut() {
            let hold = |standing: &mut Standing| standing.held = standing.counts;
            self.tally.change(&mut cluster.standing, hold);
        }
        let Share { bad, of } = counted;
        Some(BrakeChange::Engaged { bad, counted: of })
    }

    /// Whether a teardown of this cluster by verdict is withheld.
    pub(crate) fn holds(&self, key: &ClusterKey) -> bool {
        let cluster = self.clusters.get(key);
        cluster.is_some_and(|cluster| cluster.standing.held)
    }

    /// Released, by call too.
    pub(crate) fn release(&mut self, now: Instant) -> Option<BrakeChange> {
        self.engaged_at.take()?;
        self.spent = true;
        let held = self.clusters.iter_mut().filter(|(_, c)| c.standing.held);
        let mut clusters = Vec::new();
        for (key, cluster) in held {
            self.tally.change(&mut cluster.standing, |s| s.held = false);
            cluster.released_at = Some(now);
            if !cluster.up {
                cluster.queue(key, now, &mut self.changes);
            }
            clusters.push(key.clone());
        }
        Some(BrakeChange::Released { clusters })
    }

    /// When [`evaluate`](Self::evaluate) is to be called if nothing happens before.
    pub(crate) fn deadline(&self, options: &BrakeOptions) -> Option<Instant> {
        if let Some(since) = self.engaged_at {
            return since.checked_add(options.release_after);
        }
        // Where nothing is bad, nothing can engage: a healthy fleet has no timer.
        let matters = options.enabled && (self.tally.bad > 0 || self.spent);
        let next = self.changes.front().filter(|_| matters)?;
        next.at.checked_add(options.up_since)
    }

    /// Takes what changed `up_since` ago into account.
    fn catch_up(&mut self, options: &BrakeOptions, now: Instant) {
        let due = |change: &Change| now.saturating_duration_since(change.at) >= options.up_since;
        while self.changes.front().is_some_and(due) {
            let Some(change) = self.changes.pop_front() else {
                return;
            };
            let same = |cluster: &&mut Cluster| cluster.id == change.id;
            let Some(cluster) = self.clusters.get_mut(&change.key).filter(same) else {
                continue;
            };
            cluster.queued -= 1;
            let stale = cluster.released_at.is_some_and(|at| change.at < at);
            if !stale && !cluster.standing.held {
                let count = |standing: &mut Standing| standing.counts = change.up;
                self.tally.change(&mut cluster.standing, count);
            }
            if cluster.is_past() {
                self.removed(&change.key);
            }
        }
    }
}

impl Cluster {
    fn queue(&mut self, key: &ClusterKey, at: Instant, changes: &mut VecDeque<Change>) {
        self.queued += 1;
        changes.push_back(Change {
            at,
            key: key.clone(),
            id: self.id,
            up: self.up,
        });
    }

    /// Whether nothing need be known of it any more.
    fn is_past(&self) -> bool {
        !self.up && self.queued == 0 && !self.standing.counts && !self.standing.held
    }
}

impl Tally {
    fn change(&mut self, standing: &mut Standing, change: impl FnOnce(&mut Standing)) {
        self.count(*standing, |count, by| count - by);
        change(standing);
        self.count(*standing, |count, by| count + by);
    }

    fn count(&mut self, standing: Standing, apply: impl Fn(usize, usize) -> usize) {
        let one = usize::from;
        let Standing { bad, counts, held } = standing;
        self.bad = apply(self.bad, one(bad));
        for (share, within) in [(&mut self.counted, counts), (&mut self.held, held)] {
            share.of = apply(share.of, one(within));
            share.bad = apply(share.bad, one(within && bad));
        }
    }
}

impl Share {
    /// Of nothing, no share is below or above anything.
    fn below(self, percent: u32) -> bool {
        (self.bad as u128) * 100 < (self.of as u128) * u128::from(percent)
    }
}
