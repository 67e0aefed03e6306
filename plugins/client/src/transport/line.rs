//! The connections that are made with one TLS identity: HTTP/2's one, or a few of HTTP/1.1. Who finds none up waits here, while a task
//! of the transport dials: once for all of them, and to its end, whoever gives up waiting.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    dial::{dial, within},
    error::{TransportError, Wait},
    lease::Lease,
    link::Link,
    tasks::Tasks,
    tls::Tls,
};

/// HTTP/1.1: connections kept without work.
const IDLE: usize = 4;
/// HTTP/1.1: connections at all; a watch holds one. Further requests wait until their deadline.
const MOST: usize = 64;

pub(crate) struct Line {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tls: Tls,
    /// Watches on these connections end. So they do when the transport closes, whose child this is.
    pub(crate) drained: CancellationToken,
    pub(crate) tasks: Tasks,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    retired: bool,
    /// What the server chose when it was dialled last.
    http1: bool,
    shared: Option<Link>,
    idle: Vec<Link>,
    waiting: VecDeque<oneshot::Sender<Result<Lease, TransportError>>>,
    /// HTTP/1.1 connections, those being dialled included.
    open: usize,
    /// Dials under way, and how many of them wait for a permit.
    dials: usize,
    queued: usize,
}

/// Why there is no connection to be had.
pub(crate) enum NoLease {
    /// This line takes no more requests: there is a newer one.
    Retired,
    Failed(TransportError),
}

impl Line {
    pub(crate) fn new(shared: &Arc<Shared>, tls: Tls) -> Arc<Self> {
        Arc::new(Self {
            tls,
            drained: shared.closing.child_token(),
            tasks: Tasks::new(&shared.tasks, shared.killed.child_token()),
            pool: Mutex::default(),
            shared: Arc::clone(shared),
        })
    }

    /// A connection to send one request on: one that is up, or else the next to be. Has no deadline of its own.
    pub(crate) async fn checkout(self: &Arc<Self>) -> Result<Lease, NoLease> {
        let waiter = {
            let mut pool = self.pool();
            if pool.retired {
                return Err(NoLease::Retired);
            }
            if let Some(link) = pool.take() {
                return Ok(Lease::new(self, link));
            }
            // Of those who gave up nothing is left, also where no dial ever ends for them.
            if pool.waiting.len() == pool.waiting.capacity() {
                pool.waiting.retain(|waiter| !waiter.is_closed());
            }
            let (sender, waiter) = oneshot::channel();
            pool.waiting.push_back(sender);
            waiter
        };
        self.dial_if_wanted();
        match waiter.await {
            Ok(lease) => lease.map_err(NoLease::Failed),
            Err(_) => Err(NoLease::Retired),
        }
    }

    /// What of our own is short, if that is why somebody waits.
    pub(crate) fn shortage(&self) -> Option<&'static str> {
        let pool = self.pool();
        match (pool.dials, pool.queued) {
            (0, _) if pool.http1 => Some("one of the HTTP/1.1 connections"),
            (dials, queued) if dials > 0 && dials == queued => Some("a permit to dial"),
            _ => None,
        }
    }

    /// Takes no more requests. Watches go on for `watches`, then what is left has the grace of a close; connections close by themselves
    /// when the last answer on them ends.
    pub(crate) fn retire(&self, watches: Duration) {
        let rest = {
            let mut pool = self.pool();
            pool.retired = true;
            (
                std::mem::take(&mut pool.waiting),
                std::mem::take(&mut pool.idle),
                pool.shared.take(),
            )
        };
        drop(rest);
        let (tasks, drained) = (self.tasks.clone(), self.drained.clone());
        let grace = self.shared.deadlines.close;
        let drain = async move {
            tokio::select! {
                () = tasks.gone() => (),
                () = sleep(watches) => (),
            }
            // Also where there was none: an upgrade may just be on its way here.
            drained.cancel();
            tokio::select! {
                () = tasks.gone() => (),
                () = sleep(grace) => tasks.killed.cancel(),
            }
        };
        // Not of this line's own tasks, for which it waits.
        Tasks::new(&self.shared.tasks, self.shared.killed.clone()).spawn(drain);
    }

    /// An HTTP/1.1 connection whose last answer has been read, or a new one.
    pub(crate) fn give_back(self: &Arc<Self>, mut link: Link) {
        while !link.is_closed() {
            let waiter = {
                let mut pool = self.pool();
                let waiter = pool.waiting.pop_front();
                if waiter.is_none() && !pool.retired && pool.idle.len() < IDLE {
                    pool.idle.push(link);
                    return;
                }
                waiter
            };
            // None waits, and enough are kept: it closes.
            let Some(waiter) = waiter else { return };
            match waiter.send(Ok(Lease::new(self, link))) {
                Err(Ok(lease)) => link = lease.into_link(),
                _ => return,
            }
        }
    }

    /// Starts the dials that those who wait need.
    fn dial_if_wanted(self: &Arc<Self>) {
        loop {
            {
                let mut pool = self.pool();
                let waiting = pool.waiting.len();
                let wanted = if pool.http1 {
                    pool.dials < waiting && pool.open < MOST
                } else {
                    pool.dials == 0 && waiting > 0
                };
                if !wanted || pool.retired {
                    return;
                }
                pool.open += 1;
                pool.dials += 1;
                pool.queued += 1;
            }
            let mut dialling = Dialling {
                line: Arc::clone(self),
                queued: true,
                over: false,
            };
            self.tasks.spawn(async move {
                let link = dialling.run().await;
                dialling.over = true;
                dialling.line.dialled(link);
            });
        }
    }

    fn dialled(self: &Arc<Self>, link: Result<Link, TransportError>) {
        let mut pool = self.pool();
        pool.dials -= 1;
        match link {
            _ if pool.retired => drop(pool),
            Ok(Link::H2(sender)) => {
                pool.http1 = false;
                pool.open -= 1;
                pool.shared = Some(Link::H2(sender.clone()));
                let waiting = std::mem::take(&mut pool.waiting);
                drop(pool);
                for waiter in waiting {
                    let _ = waiter.send(Ok(Lease::new(self, Link::H2(sender.clone()))));
                }
            }
            Ok(link) => {
                pool.http1 = true;
                drop(pool);
                self.give_back(link);
            }
            Err(error) => {
                pool.open -= 1;
                // Over HTTP/1.1 each has a dial of its own; else this was everybody's.
                let one = if pool.http1 { 1 } else { usize::MAX };
                let count = pool.waiting.len().min(one);
                let failed: Vec<_> = pool.waiting.drain(..count).collect();
                drop(pool);
                for waiter in failed {
                    let _ = waiter.send(Err(error.clone()));
                }
            }
        }
        self.dial_if_wanted();
    }

    /// How many places are kept for those who wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.pool().waiting.len()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// A connection that is up, as far as can be seen.
    fn take(&mut self) -> Option<Link> {
        if let Some(Link::H2(sender)) = &self.shared {
            if !sender.is_closed() {
                return Some(Link::H2(sender.clone()));
            }
            self.shared = None;
        }
        self.idle.retain(|link| !link.is_closed());
        self.idle.pop()
    }
}

/// One dial. Whatever becomes of its task, those who wait for it hear of it.
struct Dialling {
    line: Arc<Line>,
    queued: bool,
    over: bool,
}

impl Dialling {
    async fn run(&mut self) -> Result<Link, TransportError> {
        let shared = Arc::clone(&self.line.shared);
        let permit = shared.hooks.gate.permit().await;
        self.dequeue();
        if self.line.pool().retired {
            return Err(TransportError::Retired);
        }
        let deadlines = &shared.deadlines;
        let (stream, permit) = dial(&shared, &self.line.tls, permit).await?;
        let weak = Arc::downgrade(&self.line);
        let ended = move || {
            if let Some(line) = weak.upgrade() {
                line.pool().open -= 1;
                line.dial_if_wanted();
            }
        };
        let begin = Link::begin(stream, &self.line.tasks, ended);
        let link = within(Wait::Handshake, deadlines.tls, begin).await?;
        drop(permit);
        link
    }

    fn dequeue(&mut self) {
        if std::mem::take(&mut self.queued) {
            self.line.pool().queued -= 1;
        }
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.dequeue();
        if !self.over {
            let source = Arc::new(std::io::Error::other("the dial was cut off"));
            self.line.dialled(Err(TransportError::Reset { source }));
        }
    }
}
