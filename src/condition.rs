//! The Kubernetes condition `RemoteConnectionProbe`, from a cluster's state (rule 14), as plain data: the core knows no Kubernetes object. Whoever
//! has one copies the condition in and out.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use crate::{ClusterState, error::Wall};

/// Says whether a cluster has answered lately, in the words of Cluster API's condition of the same name.
///
/// - Before there is a verdict, the existing condition as it is: a controller that starts anew takes back nothing that was said before it.
///   If there is none, `False`. A cluster that never answered has its verdict a grace period after its first failed attempt.
/// - Then `True`, within the grace period of the last success,
/// - else `False`, with the time of the last success.
///
/// It changes with time alone: also reconcile on
/// [`unhealthy_for`](crate::Subscription::unhealthy_for)`(probe.grace())`.
///
/// ```
/// use std::time::SystemTime;
/// use clustercache::{Condition, ConditionStatus, RemoteConnectionProbe};
///
/// let probe = RemoteConnectionProbe::default();
/// // `None`: the cache does not know the cluster (yet). Else what `ClusterCache::state` gives.
/// let first = probe.condition(None, None, SystemTime::now());
/// assert_eq!(first.type_, "RemoteConnectionProbe");
/// assert_eq!(first.status, ConditionStatus::False);
/// assert_eq!(first.message, "Remote connection not established yet");
///
/// let existing = Condition { status: "True".into(), ..first };
/// assert_eq!(probe.condition(Some(existing.clone()), None, SystemTime::now()), existing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteConnectionProbe {
    grace: Duration,
}

/// A Kubernetes condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which.
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: SystemTime,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// That cannot be said.
    Unknown,
}

impl RemoteConnectionProbe {
    /// The condition's type.
    pub const TYPE: &str = "RemoteConnectionProbe";
    /// The reason when it is `True`.
    pub const SUCCEEDED: &str = "ProbeSucceeded";
    /// The reason when it is `False`.
    pub const FAILED: &str = "ProbeFailed";

    /// How long after its last success a cluster still counts as connected. The [default](Self::default) is 50 s.
    pub const fn new(grace: Duration) -> Self {
        Self { grace }
    }

    /// How long after its last success a cluster still counts as connected.
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// The condition as it is at `now`. `existing` is what the object has; `state` is `None` if the cache does not know the cluster.
    #[must_use]
    pub fn condition(
        &self,
        existing: Option<Condition>,
        state: Option<&ClusterState>,
        now: SystemTime,
    ) -> Condition {
        use ConditionStatus::{False, True};

        let success = state.and_then(|state| state.last_success);
        let since = success.or_else(|| state.and_then(|state| state.first_failure));
        // By the time in which the process itself did not run nobody is judged.
        let stalled = state.and_then(|state| state.stalled);
        let stalled = stalled.filter(|stall| since < Some(stall.until));
        let not_judged = stalled.map_or(Duration::ZERO, |stall| stall.time);
        let lately = since.is_none_or(|since| {
            // What lies ahead of a clock that was set back is not long ago. At its very end the period is over: `unhealthy_for` comes then, and
            // nobody would look again.
            now.duration_since(since).unwrap_or_default() < self.grace.saturating_add(not_judged)
        });
        let (status, message) = match (success, lately) {
            (Some(_), true) => (True, String::new()),
            (Some(at), false) => (
                False,
                format!(
                    "Remote connection probe failed, probe last succeeded at {}",
                    Wall(at)
                ),
            ),
            (None, false) => (False, "Remote connection probe failed".into()),
            (None, true) => match existing {
                Some(existing) => return existing,
                None => (False, "Remote connection not established yet".into()),
            },
        };
        Condition {
            type_: Self::TYPE.into(),
            status,
            reason: if status == True {
                Self::SUCCEEDED.into()
            } else {
                Self::FAILED.into()
            },
            message,
            last_transition_time: existing
                .filter(|existing| existing.status == status)
                .map_or(now, |existing| existing.last_transition_time),
        }
    }
}

impl Default for RemoteConnectionProbe {
    fn default() -> Self {
        Self::new(Duration::from_secs(50))
    }
}

impl ConditionStatus {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// From Kubernetes' text; what is neither true nor false is unknown.
impl From<&str> for ConditionStatus {
    fn from(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ConditionStatus::{False, True, Unknown},
        *,
    };
    use crate::{ClusterKey, Phase, Stall, events::tests::state};

    /// 2026-01-02T03:04:05Z, and so many seconds.
    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045 + seconds)
    }

    fn existing(status: ConditionStatus) -> Condition {
        Condition {
            type_: RemoteConnectionProbe::TYPE.into(),
            status,
            reason: "Before".into(),
            message: "as it was".into(),
            last_transition_time: at(0),
        }
    }

    /// At 100 s: what the object has, the last success, the first failure; status, message, and when it changed.
    type Row = (
        Option<ConditionStatus>,
        Option<u64>,
        Option<u64>,
        (ConditionStatus, &'static str, u64),
    );

    const YET: &str = "Remote connection not established yet";
    const NEVER: &str = "Remote connection probe failed";
    const LAST: &str =
        "Remote connection probe failed, probe last succeeded at 2026-01-02T03:04:55Z";
    const ROWS: [Row; 16] = [
        // Never tried, or known.
        (None, None, None, (False, YET, 100)),
        (Some(True), None, None, (True, "as it was", 0)),
        (Some(False), None, None, (False, "as it was", 0)),
        (Some(Unknown), None, None, (Unknown, "as it was", 0)),
        // Never connected, first failed within the grace period, and before it.
        (None, None, Some(51), (False, YET, 100)),
        (Some(True), None, Some(51), (True, "as it was", 0)),
        (Some(False), None, Some(51), (False, "as it was", 0)),
        (None, None, Some(50), (False, NEVER, 100)),
        (Some(True), None, Some(50), (False, NEVER, 100)),
        (Some(False), None, Some(50), (False, NEVER, 0)),
        // Answered lately, or not; whatever failed since.
        (None, Some(51), None, (True, "", 100)),
        (Some(True), Some(51), Some(60), (True, "", 0)),
        (Some(False), Some(51), Some(9), (True, "", 100)),
        (Some(Unknown), Some(200), None, (True, "", 100)),
        (Some(True), Some(50), Some(60), (False, LAST, 100)),
        (Some(False), Some(50), Some(60), (False, LAST, 0)),
    ];

    #[test]
    fn the_probe_succeeds_within_the_grace_period_and_says_nothing_new_before_a_verdict() {
        for (index, (before, success, failure, (status, message, changed))) in
            ROWS.into_iter().enumerate()
        {
            let mut state = state(&ClusterKey::named("a"), Phase::Connecting);
            state.last_success = success.map(at);
            state.first_failure = failure.map(at);
            let probe = RemoteConnectionProbe::default();
            let condition = probe.condition(before.map(existing), Some(&state), at(100));
            assert_eq!(
                (condition.status, &*condition.message),
                (status, message),
                "row {index}"
            );
            assert_eq!(condition.last_transition_time, at(changed), "row {index}");
            let reason = match (message, status) {
                ("as it was", _) => "Before",
                (_, True) => "ProbeSucceeded",
                _ => "ProbeFailed",
            };
            assert_eq!(condition.reason, reason, "row {index}");
        }
    }

    #[test]
    fn nobody_is_judged_by_the_time_in_which_the_process_did_not_run() {
        let probe = RemoteConnectionProbe::default();
        let mut state = state(&ClusterKey::named("a"), Phase::Connected);
        state.stalled = Some(Stall {
            until: at(70),
            time: Duration::from_secs(60),
        });
        let is = |state: &ClusterState, now| probe.condition(None, Some(state), at(now)).status;
        state.last_success = Some(at(9));
        assert_eq!((is(&state, 118), is(&state, 119)), (True, False));
        state.last_success = Some(at(71));
        assert_eq!((is(&state, 120), is(&state, 121)), (True, False));
        state.last_success = None;
        state.first_failure = Some(at(9));
        let existing = || Some(existing(True));
        let is = |now| probe.condition(existing(), Some(&state), at(now)).status;
        assert_eq!((is(118), is(119)), (True, False));
    }

    #[test]
    fn a_cluster_that_is_not_known_leaves_the_condition_as_it_is() {
        let probe = RemoteConnectionProbe::new(Duration::ZERO);
        let before = existing(True);
        assert_eq!(probe.condition(Some(before.clone()), None, at(100)), before);
        assert_eq!(probe.condition(None, None, at(100)).message, YET);
    }

    #[test]
    fn a_status_reads_back_as_it_prints() {
        for status in [True, False, Unknown] {
            assert_eq!(ConditionStatus::from(&*status.to_string()), status);
        }
    }
}
