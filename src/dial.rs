//! Permits to dial: fair between clusters, bounded in descriptors, CPU and rate ("Dialling" in ARCHITECTURE.md). A permit
//! counts as a descriptor while it is silent, as CPU once it has received bytes, and never as both: it holds nothing while it waits. The
//! lock is held for the queue's own steps only; whoever they let go on is woken after it (rule 11).

use std::{collections::BTreeMap, fmt, sync::Arc};

use tokio::{runtime::Handle, time::Instant};

use self::queue::{Queue, Ticket, Turn};
use crate::{
    ClusterKey,
    context::Attempt,
    hook::guarded,
    latch::Latch,
    options::DialOptions,
    sync::{Mutex, MutexGuard, lock},
};

#[cfg(all(test, clustercache_shuttle))]
mod model;
mod queue;
#[cfg(test)]
mod tests;

/// Hands out permits.
pub(crate) struct DialPool(Arc<Inner>);

/// Leave to dial once. Dropping it gives it back.
///
/// It is *silent* at first, and costs a descriptor; after [`received`](Self::received) it is a handshake, and costs CPU.
/// While it is silent it may be [evicted](Self::evicted).
#[must_use = "dropping a permit gives it back"]
pub struct DialPermit {
    pool: Arc<Inner>,
    ticket: Ticket,
    wakes: Arc<Wakes>,
    received: bool,
    /// The init whose timeout does not run while a turn is waited for.
    attempt: Option<Arc<Attempt>>,
}

impl DialPool {
    pub(crate) fn new(options: &DialOptions) -> Self {
        Self(Arc::new(Inner {
            begun: Instant::now(),
            state: Mutex::new(State {
                queue: Queue::new(options),
                wakes: BTreeMap::new(),
                pacing: false,
                runtime: None,
            }),
        }))
    }

    /// Waits for a permit. `failures`: how often this cluster was dialled in vain, in a row. Dropping the future gives up the place.
    pub(crate) async fn permit(&self, key: &ClusterKey, failures: u32) -> DialPermit {
        let permit = self.0.ask(key, failures);
        guarded(permit.wakes.granted.wait()).await;
        permit
    }

    pub(crate) fn counts(&self) -> Dials {
        let state = self.0.lock();
        let queue = &state.queue;
        Dials {
            waiting: queue.waiting(),
            silent: queue.silent(),
            handshakes: queue.handshakes(),
        }
    }
}

/// What is being dialled, over all clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dials {
    /// Wait for a permit.
    pub waiting: usize,
    /// Have heard nothing from the other side yet.
    pub silent: usize,
    /// Are at their handshake.
    pub handshakes: usize,
}

impl DialPermit {
    pub(crate) fn of(mut self, attempt: Arc<Attempt>) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// The first byte from the other side has come: the dial is silent no more, and waits for its turn as a handshake. Its silent
    /// place is given back before it waits. Dropping the future changes nothing of that; it may be called again.
    pub async fn received(&mut self) {
        if !self.received {
            self.received = true;
            self.pool.step(|state| state.queue.received(self.ticket));
        }
        let paused = self
            .attempt
            .as_ref()
            .map(|attempt| attempt.paused.get_or_init(Box::default));
        let _paused = paused.map(|paused| paused.pause());
        guarded(self.wakes.handshake.wait()).await;
    }

    /// Returns when the dial must be given up, because it has been silent for long and a newer cluster needs the descriptor. Its place
    /// is free when the permit is dropped, so close the socket before. Never returns once bytes were [received](Self::received).
    pub async fn evicted(&self) {
        if self.received {
            std::future::pending::<()>().await;
        }
        guarded(self.wakes.evicted.wait()).await;
    }
}

struct Inner {
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    wakes: BTreeMap<Ticket, Arc<Wakes>>,
    /// A task waits for the time of the next dial. There is one only while somebody waits for nothing but that.
    pacing: bool,
    /// Of whoever asked last: a permit may be dropped where there is none.
    runtime: Option<Handle>,
}

/// What one dial waits for.
#[derive(Default)]
struct Wakes {
    granted: Latch,
    handshake: Latch,
    evicted: Latch,
}

// === impl DialPool ===

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn ask(self: &Arc<Self>, key: &ClusterKey, failures: u32) -> DialPermit {
        let wakes = Arc::new(Wakes::default());
        let ticket = self.step(|state| {
            let ticket = state.queue.ask(key, failures);
            state.runtime = Handle::try_current().ok();
            state.wakes.insert(ticket, Arc::clone(&wakes));
            ticket
        });
        // From here on, whatever is dropped gives the place back.
        DialPermit {
            pool: Arc::clone(self),
            ticket,
            wakes,
            received: false,
            attempt: None,
        }
    }

    /// Changes the queue, and gives out what that made free.
    fn step<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.turn();
        result
    }

    /// Gives out what is free, and wakes whom it went to.
    fn turn(self: &Arc<Self>) {
        let mut state = self.lock();
        let Turn {
            granted,
            handshakes,
            evicted,
            again,
        } = state.queue.turn(self.begun.elapsed());
        let granted = state.wakes_of(&granted);
        let handshakes = state.wakes_of(&handshakes);
        let evicted = state.wakes_of(&evicted);
        let runtime = state.runtime.clone();
        let again = again.filter(|_| !std::mem::replace(&mut state.pacing, true));
        drop(state);

        for wakes in granted {
            wakes.granted.set();
        }
        for wakes in handshakes {
            wakes.handshake.set();
        }
        for wakes in evicted {
            wakes.evicted.set();
        }
        if let Some(at) = again {
            let (at, pacing) = (self.begun + at, Pacing(Arc::clone(self)));
            // A task, and not one of those that wait: each of them may be dropped, or be forgotten by whoever should poll it.
            let waits = async move {
                tokio::time::sleep_until(at).await;
                let pool = Arc::clone(&pacing.0);
                drop(pacing);
                pool.turn();
            };
            if let Some(runtime) = runtime {
                runtime.spawn(waits);
            }
        }
    }
}

impl State {
    fn wakes_of(&self, tickets: &[Ticket]) -> Vec<Arc<Wakes>> {
        let wakes = tickets.iter().filter_map(|ticket| self.wakes.get(ticket));
        wakes.cloned().collect()
    }
}

/// Also a task that never ran, because its runtime ended, makes way for another.
struct Pacing(Arc<Inner>);

impl Drop for Pacing {
    fn drop(&mut self) {
        self.0.lock().pacing = false;
    }
}

// === impl DialPermit ===

impl Drop for DialPermit {
    fn drop(&mut self) {
        let wakes = self.pool.step(|state| {
            state.queue.leave(self.ticket);
            state.wakes.remove(&self.ticket)
        });
        drop(wakes);
    }
}

impl fmt::Debug for DialPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialPermit")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
