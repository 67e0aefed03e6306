//! One resource of a connection: what it is, how often it failed, and what hints do to it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Failure, Rules};
use crate::{FailureKind, lifecycle::backoff::Backoff, resource::Standing};

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) phase: SlotPhase,
    pub(super) backoff: Backoff,
    /// Inits begun so far.
    pub(super) incarnation: u32,
    /// The newest access that it began with, or was asked about.
    pub(super) access: u64,
    pub(super) up_since: Option<Instant>,
    /// It was not applicable, and was not up since: nobody misses it while it is asked again.
    pub(super) excused: bool,
    pub(super) message: Option<Arc<str>>,
    /// What it says of itself, if that is anything. Boxed: few say something.
    pub(super) standing: Option<Box<Standing>>,
    /// It was said to have gone bad before its init was known to be over.
    pub(super) bad: Option<Arc<str>>,
    /// Refusals of the credential in a row: they have a schedule of their own.
    pub(super) unauthorized: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPhase {
    Waiting,
    Retry {
        at: Instant,
    },
    NeedsAccess,
    Running {
        /// It was asked for again meanwhile: if it fails, it is tried again at once.
        again: bool,
    },
    /// Its init succeeded on an access that is no more the newest: it is asked whether it takes the newest.
    Refreshing,
    Up,
    NotApplicable,
    /// Its teardown runs; then it is tried at this time.
    Ending {
        then: Instant,
    },
}

impl Slot {
    pub(super) fn standing(&self) -> &Standing {
        self.standing.as_deref().unwrap_or(&Standing::WELL)
    }

    pub(super) fn up(&mut self, now: Instant) {
        self.phase = SlotPhase::Up;
        self.up_since = Some(now);
        self.excused = false;
        self.message = None;
        self.unauthorized = 0;
    }

    pub(super) fn not_applicable(&mut self) {
        self.phase = SlotPhase::NotApplicable;
        self.excused = true;
    }

    /// There is reason to think that it works now.
    pub(super) fn hint(&mut self, now: Instant) {
        match &mut self.phase {
            SlotPhase::NeedsAccess | SlotPhase::Retry { .. } => self.phase = SlotPhase::Waiting,
            SlotPhase::Running { again } => *again = true,
            SlotPhase::Ending { then } => *then = now,
            _ => {}
        }
    }

    pub(super) fn ask_again(&mut self) {
        if self.phase == SlotPhase::NotApplicable {
            self.phase = SlotPhase::Waiting;
        }
    }

    /// Its value goes: if that was up for long, what failed before is forgotten.
    pub(super) fn forget_failures(&mut self, rules: &Rules<'_>) {
        let lived = self
            .up_since
            .take()
            .map(|since| rules.now.saturating_duration_since(since));
        if lived.is_some_and(|lived| lived >= rules.retry.forget_after) {
            self.backoff.reset();
        }
    }

    pub(super) fn next_attempt(&mut self, failure: &Failure, rules: &mut Rules<'_>) -> Instant {
        let wait = self
            .backoff
            .failed(rules.retry, rules.rng, failure.retry_after);
        if failure.kind != FailureKind::Unauthorized {
            self.unauthorized = 0;
            return rules.now + wait;
        }
        let schedule = &rules.health.unauthorized_retries;
        let wait = schedule[(self.unauthorized as usize).min(schedule.len() - 1)];
        self.unauthorized = self.unauthorized.saturating_add(1);
        rules.now + wait
    }
}
