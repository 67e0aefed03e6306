//! Faults of the answers: requests that get a wrong answer, a late one or none. (Those of the network are in
//! `endpoint.rs` and `wire.rs`.)

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::watch;

/// What is wrong with the answers of a cluster now. Replaced as one value at each change.
#[derive(Clone, Default)]
pub(super) struct Faults {
    rules: Vec<(String, Fault)>,
    pub(super) latency: Duration,
    /// Of each request over HTTP/2, from 0 to 1.
    pub(super) goaway_chance: f64,
}

/// What a matching request gets in place of its answer.
#[derive(Clone)]
pub(super) enum Fault {
    /// This status and body.
    Answer(http::StatusCode, Bytes),
    /// 403 with a `Status` body.
    Forbid,
    /// Nothing, until the fault is lifted.
    Hang,
}

impl Faults {
    /// The rule that was added last and matches.
    fn of(&self, path: &str) -> Option<&Fault> {
        let matching = self
            .rules
            .iter()
            .rev()
            .find(|(prefix, _)| path.starts_with(prefix.as_str()));
        matching.map(|(_, fault)| fault)
    }
}

/// The faults of one cluster, and their changes.
pub(super) struct FaultSwitch(watch::Sender<Arc<Faults>>);

impl FaultSwitch {
    pub(super) fn new() -> Self {
        Self(watch::Sender::default())
    }

    /// Adds a rule. It wins over older ones, and replaces one of the same prefix.
    pub(super) fn add(&self, prefix: &str, fault: Fault) {
        self.change(|faults| {
            faults.rules.retain(|(other, _)| other != prefix);
            faults.rules.push((prefix.to_owned(), fault));
        });
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.0.send_modify(|faults| change(Arc::make_mut(faults)));
    }

    pub(super) fn latency(&self) -> Duration {
        self.0.borrow().latency
    }

    pub(super) fn goaway_chance(&self) -> f64 {
        self.0.borrow().goaway_chance
    }

    /// The fault of a request, after it hung for as long as a rule says so.
    pub(super) async fn met(&self, path: &str) -> Option<Fault> {
        let mut changes = self.0.subscribe();
        let faults = changes
            .wait_for(|faults| !matches!(faults.of(path), Some(Fault::Hang)))
            .await;
        faults.ok()?.of(path).cloned()
    }
}
