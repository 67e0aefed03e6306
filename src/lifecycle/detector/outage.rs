//! From the first failure of a connection to its next success: what was counted, and what that makes of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::{options::HealthOptions, vitals::Signs};

#[derive(Debug)]
pub(super) struct Outage {
    /// The first failed probe; a sign of life newer than this ends the outage.
    since: Instant,
    /// The first failed round, less the time in which the process did not run.
    pub(super) first: Option<Instant>,
    /// Failed rounds.
    pub(super) failures: u32,
    /// A 401 was among the failures: bytes prove reach, not the credential.
    pub(super) by_answer: bool,
    pub(super) refusal: Option<Refusal>,
    pub(super) fate: Fate,
    /// When signs of life are looked for, however far off the next round is.
    pub(super) look: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Suspect,
    /// The connection is to go; nothing is probed any more.
    Down,
    /// Down, and kept by the brake.
    Held,
}

/// The credential was refused: then it is tried by a schedule of its own.
#[derive(Debug)]
pub(super) struct Refusal {
    tries: usize,
    /// The newest failure was a 401.
    active: bool,
    /// The first number of what was sent since: older rounds that fail otherwise say nothing of what came after them.
    from: u64,
}

impl Outage {
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            since: now,
            first: None,
            failures: 0,
            by_answer: false,
            refusal: None,
            fate: Fate::Suspect,
            look: now,
        }
    }

    /// Forgets what was counted; a credential that was refused is to be proven all the same.
    pub(super) fn begin_again(&mut self, now: Instant) {
        *self = Self {
            by_answer: self.by_answer,
            ..Self::begin(now)
        };
    }

    pub(super) fn ended_by(&self, signs: Signs) -> bool {
        let sign = if self.by_answer {
            signs.answer
        } else {
            signs.any
        };
        self.fate != Fate::Down && sign.is_some_and(|at| at > self.since)
    }

    /// Counts a failed round.
    pub(super) fn failed(&mut self, now: Instant, options: &HealthOptions) {
        self.failures = self.failures.saturating_add(1);
        let first = *self.first.get_or_insert(now);
        let span = now.saturating_duration_since(first);
        if self.fate == Fate::Suspect
            && self.failures >= options.down_failures
            && span >= options.down_after
        {
            self.fate = Fate::Down;
        }
    }

    /// Between rounds of two probes.
    pub(super) fn interval(&self, options: &HealthOptions) -> Duration {
        match self.fate {
            Fate::Suspect => options.suspect_interval,
            Fate::Down | Fate::Held => options.held_interval,
        }
    }

    /// Whether the schedule of a 401 is followed.
    pub(super) fn refused(&self) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| refusal.active)
    }

    /// Whether new access is to be tried after a 401: it has a connection of its own, so that one request tells.
    pub(super) fn unproven(&self) -> bool {
        self.by_answer && self.refusal.is_none() && self.failures == 0
    }

    /// A 401; how long to wait, unless its schedule is followed already. `number` is that of the next probe.
    pub(super) fn enter_refusal(
        &mut self,
        number: u64,
        options: &HealthOptions,
    ) -> Option<Duration> {
        self.by_answer = true;
        let refusal = self.refusal.get_or_insert(Refusal {
            tries: 0,
            active: false,
            from: number,
        });
        if refusal.active {
            return None;
        }
        refusal.active = true;
        refusal.from = number;
        Some(refusal.next(options))
    }

    /// How long to wait after the try that is made now, if the schedule of a 401 is followed.
    pub(super) fn next_try(&mut self, options: &HealthOptions) -> Option<Duration> {
        let refusal = self.refusal.as_mut().filter(|refusal| refusal.active)?;
        Some(refusal.next(options))
    }

    /// A round failed, and not by 401; whether that ends the schedule.
    pub(super) fn leave_refusal(&mut self, number: u64) -> bool {
        let active = self.refusal.as_mut().filter(|refusal| refusal.active);
        let Some(refusal) = active.filter(|refusal| number >= refusal.from) else {
            return false;
        };
        refusal.active = false;
        true
    }
}

impl Refusal {
    fn next(&mut self, options: &HealthOptions) -> Duration {
        let waits = &options.unauthorized_retries;
        let wait = waits.get(self.tries).or(waits.last());
        self.tries = self.tries.saturating_add(1);
        // Without any it is as often as a suspect one is probed; the options are checked, so this is not met.
        wait.copied().unwrap_or(options.suspect_interval)
    }
}
