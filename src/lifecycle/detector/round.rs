//! Probes that are judged together: one over the pooled connection, and one over a fresh one beside it.

use std::sync::Arc;

use tokio::time::Instant;

use super::ProbeResult;
use crate::FailureKind;

#[derive(Debug)]
pub(super) struct Round {
    /// The number of its first probe.
    pub(super) number: u64,
    pub(super) pooled: Probe,
    pub(super) fresh: Probe,
    /// A 401 was among the results.
    pub(super) refused: bool,
    /// When a result that has not come is taken for a failure.
    pub(super) lost_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    NotSent,
    Sent(u64),
    Busy,
    Failed,
    Alive,
}

/// What counts of a [`ProbeResult`].
pub(super) enum Outcome {
    Alive(Option<Arc<str>>),
    /// It could not be sent: says nothing.
    Busy,
    /// 401.
    Refused,
    Failed,
}

impl From<ProbeResult> for Outcome {
    fn from(result: ProbeResult) -> Self {
        match result {
            ProbeResult::Alive { not_ready } => Self::Alive(not_ready),
            ProbeResult::Failed { kind, .. } => match kind {
                FailureKind::Busy => Self::Busy,
                FailureKind::Unauthorized => Self::Refused,
                _ => Self::Failed,
            },
        }
    }
}

impl Round {
    pub(super) fn new(number: u64, lost_at: Instant) -> Self {
        Self {
            number,
            pooled: Probe::NotSent,
            fresh: Probe::NotSent,
            refused: false,
            lost_at,
        }
    }

    /// Whether the result of this one is waited for.
    pub(super) fn has(&self, number: u64) -> bool {
        [self.pooled, self.fresh].contains(&Probe::Sent(number))
    }

    /// The probe of a number that [`has`](Self::has) said yes to.
    pub(super) fn probe(&mut self, number: u64) -> &mut Probe {
        if self.pooled == Probe::Sent(number) {
            &mut self.pooled
        } else {
            &mut self.fresh
        }
    }

    /// One whose result is waited for.
    pub(super) fn pending(&self) -> Option<u64> {
        [self.pooled, self.fresh]
            .iter()
            .find_map(|probe| match probe {
                Probe::Sent(number) => Some(*number),
                _ => None,
            })
    }

    /// The same, if it was waited for too long.
    pub(super) fn lost(&self, now: Instant) -> Option<u64> {
        self.pending().filter(|_| now >= self.lost_at)
    }

    /// Whether anything of it really failed.
    pub(super) fn failed(&self) -> bool {
        [self.pooled, self.fresh].contains(&Probe::Failed)
    }
}
