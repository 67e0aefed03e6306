//! What the engine is told from outside its own tasks: signals of connections, and calls of users. It keeps the newest of each, so it
//! is bounded by what there is to speak of, and nobody who speaks waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    ClusterKey, Generation,
    resource::Standing,
    sync::{Mutex, lock},
};

#[cfg(all(test, clustercache_shuttle))]
mod model;

#[derive(Default)]
pub(crate) struct Inbox {
    letters: Mutex<Letters>,
    arrived: Notify,
}

/// Everything since it was last taken.
#[derive(Default)]
pub(crate) struct Letters {
    pub(crate) signals: BTreeMap<Generation, Signals>,
    pub(crate) commands: BTreeSet<Command>,
}

/// The signals of one connection.
pub(crate) struct Signals {
    pub(crate) key: ClusterKey,
    pub(crate) doubt: bool,
    /// The probe that was answered as expected, and when.
    pub(crate) answered: Option<(u64, Instant)>,
    /// By slot: the incarnation that speaks of itself, and what it said last.
    pub(crate) standing: BTreeMap<usize, (u32, Standing)>,
    /// By slot: the incarnation that failed, and why.
    pub(crate) failed: BTreeMap<usize, (u32, Arc<str>)>,
}

/// Something that a connection's tasks say.
pub(crate) enum Signal {
    Doubt,
    /// A healthy cluster answered a probe. That changes nothing but when the next is due: the engine hears of it when it next wakes.
    Answered {
        number: u64,
        at: Instant,
    },
    Stands {
        slot: usize,
        incarnation: u32,
        standing: Standing,
    },
    Failed {
        slot: usize,
        incarnation: u32,
        error: Arc<str>,
    },
}

/// Something that a user asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Command {
    RetryNow(ClusterKey),
    Reconnect(ClusterKey),
    Reconsider(ClusterKey, usize),
    ReleaseBrake,
    /// A subscriber asked for another `unhealthy_for`.
    Durations,
    Shutdown,
}

impl Inbox {
    pub(crate) fn signal(&self, key: &ClusterKey, generation: Generation, signal: Signal) {
        let mut letters = lock(&self.letters);
        let signals = letters
            .signals
            .entry(generation)
            .or_insert_with(|| Signals {
                key: key.clone(),
                doubt: false,
                answered: None,
                standing: BTreeMap::new(),
                failed: BTreeMap::new(),
            });
        match signal {
            Signal::Doubt => signals.doubt = true,
            Signal::Answered { number, at } => {
                signals.answered = Some((number, at));
                return;
            }
            Signal::Stands {
                slot,
                incarnation,
                standing,
            } => {
                let newest = signals
                    .standing
                    .get(&slot)
                    .is_none_or(|(known, _)| *known <= incarnation);
                if newest {
                    signals.standing.insert(slot, (incarnation, standing));
                }
            }
            Signal::Failed {
                slot,
                incarnation,
                error,
            } => {
                let newest = signals
                    .failed
                    .get(&slot)
                    .is_none_or(|(known, _)| *known < incarnation);
                if newest {
                    signals.failed.insert(slot, (incarnation, error));
                }
            }
        }
        drop(letters);
        self.arrived.notify_one();
    }

    pub(crate) fn command(&self, command: Command) {
        lock(&self.letters).commands.insert(command);
        self.arrived.notify_one();
    }

    pub(crate) fn take(&self) -> Letters {
        std::mem::take(&mut *lock(&self.letters))
    }

    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}
