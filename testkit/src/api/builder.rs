//! How a [`FakeApi`] is to be.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{
    FakeApi, Shared,
    clock::{Clock, Dice},
    faults::Faults,
    forward::Forwards,
    journal::Journal,
    store::Store,
    tokens::Tokens,
};

/// How a [`FakeApi`] is to be. By default it behaves as a server of a cluster with its controllers and kubelets does.
#[derive(Clone, Debug)]
#[must_use]
pub struct FakeApiBuilder {
    seed: Option<u64>,
    epoch: Option<Timestamp>,
    history: usize,
    pods_end: bool,
    budgets_kept: bool,
    one_budget: bool,
    shortest_token: Option<Duration>,
}

impl Default for FakeApiBuilder {
    fn default() -> Self {
        Self {
            seed: None,
            epoch: None,
            history: 1024,
            pods_end: true,
            budgets_kept: true,
            one_budget: true,
            shortest_token: None,
        }
    }
}

impl FakeApiBuilder {
    /// UIDs, generated names, tokens and shares of faults come from this seed. By default they differ each time.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// What time it is at the start; from there on it goes with tokio's clock. By default it is the real time.
    pub fn epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// How many events of each kind are kept for watches that resume. By default 1,024.
    pub fn history(mut self, events: usize) -> Self {
        self.history = events.max(1);
        self
    }

    /// Whether pods that are deleted end by themselves when their grace is over, as with a kubelet (the default), or only by
    /// [`FakeApi::finish_pod`].
    pub fn pods_end(mut self, end: bool) -> Self {
        self.pods_end = end;
        self
    }

    /// Whether the status of budgets follows their pods, as with the disruption controller (the default), or is only what is
    /// written into it.
    pub fn budgets_kept(mut self, kept: bool) -> Self {
        self.budgets_kept = kept;
        self
    }

    /// Whether the eviction of a pod with several budgets is 500, as the real server has it (the default), or must be allowed
    /// by all of them.
    pub fn one_budget(mut self, one: bool) -> Self {
        self.one_budget = one;
        self
    }

    /// The shortest life of a token, in whole seconds. By default 10 minutes, as the real server has it.
    pub fn shortest_token(mut self, life: Duration) -> Self {
        self.shortest_token = Some(life);
        self
    }

    /// Makes it, with the namespaces `default` and `kube-system`.
    pub fn build(self) -> FakeApi {
        let clock = Clock::starting_at(self.epoch.unwrap_or_else(Timestamp::now));
        let seconds = |life: Duration| i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        let shared = Shared {
            store: Store::new(clock, self.history, self.budgets_kept),
            clock,
            dice: Dice::new(self.seed),
            faults: Faults::default(),
            journal: Journal::default(),
            tokens: Tokens::default(),
            forwards: Forwards::default(),
            pods_end: self.pods_end,
            one_budget: self.one_budget,
            shortest_token: self.shortest_token.map(seconds),
        };
        let api = FakeApi {
            shared: Arc::new(shared),
        };
        api.found();
        api
    }
}
