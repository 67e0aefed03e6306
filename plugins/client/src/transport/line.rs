//! The connections that are made with one TLS identity: one of HTTP/2, and more where its streams are all used, or a few of HTTP/1.1. Who
//! finds none up, or none with room, waits here, while a task of the transport dials: once for all of them, and to its end, whoever
//! gives up waiting.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    class::Class,
    dial::{PERMIT, dial, within},
    error::{TransportError, Wait},
    http2::Http2,
    lease::Lease,
    link::Link,
    tasks::Tasks,
    tls::Tls,
};

/// HTTP/1.1: connections kept without work.
const IDLE: usize = 4;
/// Connections in use by others than probes; over HTTP/1.1 a watch holds one. Further requests wait until their deadline.
const MOST: usize = 64;
/// One more, for probes alone: however busy we are, it is seen that a cluster has died.
const FOR_PROBES: usize = 1;

/// After a dial that failed, while there is another connection.
const AGAIN: Duration = Duration::from_secs(1);

/// What is short where every stream is used.
pub(crate) const STREAM: &str = "a stream of an HTTP/2 connection";

pub(crate) struct Line {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tls: Tls,
    /// Watches on these connections end. So they do when the transport closes, whose child this is.
    pub(crate) drained: CancellationToken,
    tasks: Tasks,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    retired: bool,
    /// What the server chose when it was dialled last.
    http1: bool,
    /// HTTP/2: one is filled before the next is used.
    shared: Vec<Http2>,
    /// HTTP/1.1.
    idle: Vec<Link>,
    /// Probes before others.
    waiting: VecDeque<Waiter>,
    /// Connections, those being dialled included.
    open: usize,
    /// Dials under way, and how many of them wait for a permit, or their turn.
    dials: usize,
    queued: usize,
    /// How long, in all, somebody waited here for what is ours to give, and until when that is counted.
    withheld: Duration,
    counted: Option<Instant>,
}

struct Waiter {
    class: Class,
    lease: oneshot::Sender<Result<Lease, TransportError>>,
}

impl Waiter {
    fn is_probe(&self) -> bool {
        matches!(self.class, Class::Probe(_))
    }
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

    /// A connection to send one request on: one that is up and has room, or else the next to be. Has no deadline of its own.
    pub(crate) async fn checkout(self: &Arc<Self>, class: Class) -> Result<Lease, NoLease> {
        let waiter = {
            let mut pool = self.pool();
            if pool.retired {
                return Err(NoLease::Retired);
            }
            if let Some(lease) = pool.take(self, class) {
                return Ok(lease);
            }
            // Of those who gave up nothing is left, also where no dial ever ends for them.
            if pool.waiting.len() == pool.waiting.capacity() {
                pool.waiting.retain(|waiter| !waiter.lease.is_closed());
            }
            let (lease, waiter) = oneshot::channel();
            pool.wait(Waiter { class, lease });
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
        self.pool().shortage()
    }

    /// How long, in all, there was a [`shortage`](Self::shortage) while somebody waited: what it grows by while one waits for a connection
    /// is not the server's time.
    pub(crate) fn withheld(&self) -> Duration {
        self.pool().withheld
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
                std::mem::take(&mut pool.shared),
            )
        };
        drop(rest);
        let (tasks, drained) = (self.tasks.clone(), self.drained.clone());
        let grace = self.shared.deadlines.close;
        let drain = async move {
            tokio::select! {
                () = tasks.gone() => return,
                () = sleep(watches) => drained.cancel(),
            }
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
                let waiter = pool.next();
                if waiter.is_none() && !pool.retired && pool.idle.len() < IDLE {
                    pool.idle.push(link);
                    return;
                }
                waiter
            };
            // None waits, and enough are kept: it closes.
            let Some(waiter) = waiter else { return };
            match waiter.lease.send(Ok(Lease::whole(self, link))) {
                Err(Ok(lease)) => link = lease.into_link(),
                _ => return,
            }
        }
    }

    /// A stream is over, or there may be more: who waits may have it.
    pub(crate) fn made_room(self: &Arc<Self>) {
        let served = self.pool().serve(self);
        for (waiter, lease) in served {
            let _ = waiter.lease.send(Ok(lease));
        }
        self.dial_if_wanted();
    }

    /// Starts the dials that those who wait need.
    fn dial_if_wanted(self: &Arc<Self>) {
        loop {
            {
                let mut pool = self.pool();
                if pool.retired || !pool.wants_dial() {
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
            Ok(Link::H2(link)) => {
                pool.http1 = false;
                pool.shared.push(link);
                drop(pool);
                self.made_room();
            }
            Ok(link) => {
                pool.http1 = true;
                drop(pool);
                self.give_back(link);
                self.dial_if_wanted();
            }
            Err(error) => {
                pool.open -= 1;
                pool.forget_closed();
                // There are streams, which may end before another dial is up.
                if !pool.shared.is_empty() {
                    let wait = !pool.waiting.is_empty();
                    drop(pool);
                    if wait {
                        self.dial_later();
                    }
                    return;
                }
                // Over HTTP/1.1 each has a dial of its own; else this was everybody's.
                let one = if pool.http1 { 1 } else { usize::MAX };
                let count = pool.waiting.len().min(one);
                let failed: Vec<_> = pool.waiting.drain(..count).collect();
                drop(pool);
                for waiter in failed {
                    let _ = waiter.lease.send(Err(error.clone()));
                }
                self.dial_if_wanted();
            }
        }
    }

    /// For those who still wait then.
    fn dial_later(self: &Arc<Self>) {
        let line = Arc::downgrade(self);
        self.tasks.spawn(async move {
            sleep(AGAIN).await;
            if let Some(line) = line.upgrade() {
                line.dial_if_wanted();
            }
        });
    }

    /// A connection is over.
    fn ended(self: &Arc<Self>) {
        let mut pool = self.pool();
        pool.open -= 1;
        pool.forget_closed();
        drop(pool);
        self.dial_if_wanted();
    }

    /// How many places are kept for those who wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.pool().waiting.len()
    }

    /// How many dials are under way.
    #[cfg(test)]
    pub(crate) fn dials(&self) -> usize {
        self.pool().dials
    }

    /// How many connections of HTTP/2 there are.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.pool().shared.len()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.count();
        pool
    }
}

impl Pool {
    /// Since it was last looked at nothing has changed but the time.
    fn count(&mut self) {
        if self.waiting.is_empty() {
            self.counted = None;
            return;
        }
        let now = Instant::now();
        if let Some(before) = self.counted.replace(now)
            && self.shortage().is_some()
        {
            self.withheld += now - before;
        }
    }

    fn shortage(&self) -> Option<&'static str> {
        match (self.dials, self.queued) {
            (0, _) if self.http1 => Some("one of the HTTP/1.1 connections"),
            (dials, queued) if dials > 0 && dials == queued => Some(PERMIT),
            // A server that allows none at all is not one that we have used up.
            _ if self
                .shared
                .iter()
                .any(|link| link.is_told() && link.limit() > 0) =>
            {
                Some(STREAM)
            }
            _ => None,
        }
    }

    /// A connection that is up, as far as can be seen, and has room.
    fn take(&mut self, line: &Arc<Line>, class: Class) -> Option<Lease> {
        self.forget_closed();
        let probe = matches!(class, Class::Probe(_));
        // The last one is not begun with by others.
        let may_begin = probe || self.shared.iter().filter(|link| link.is_used()).count() < MOST;
        let has_room = |link: &&Http2| link.has_room(probe) && (may_begin || link.is_used());
        let links = || self.shared.iter().filter(has_room);
        // One that answers no ping is for those who find no other, and for a probe, which is sent because of it.
        if let Some(link) = links()
            .find(|link| link.is_mute() == probe)
            .or(links().next())
        {
            return Some(Lease::stream(line, link, class));
        }
        if !probe && self.used() >= MOST {
            return None;
        }
        Some(Lease::whole(line, self.idle.pop()?))
    }

    /// Connections of HTTP/1.1 that have work, or may have when they are up.
    fn used(&self) -> usize {
        self.open.saturating_sub(self.idle.len())
    }

    /// Who is to have a connection of HTTP/1.1 that has no work any more.
    fn next(&mut self) -> Option<Waiter> {
        self.waiting.retain(|waiter| !waiter.lease.is_closed());
        // It is still counted among those that are used.
        let is_last = self.used() > MOST;
        let front = self.waiting.front()?;
        (!is_last || front.is_probe()).then(|| self.waiting.pop_front())?
    }

    fn wait(&mut self, waiter: Waiter) {
        if waiter.is_probe() {
            self.waiting.push_front(waiter);
        } else {
            self.waiting.push_back(waiter);
        }
    }

    /// Those of the queue for whom there is a stream now.
    fn serve(&mut self, line: &Arc<Line>) -> Vec<(Waiter, Lease)> {
        let mut served = Vec::new();
        if self.shared.is_empty() {
            return served;
        }
        while let Some(waiter) = self.waiting.pop_front() {
            if waiter.lease.is_closed() {
                continue;
            }
            let Some(lease) = self.take(line, waiter.class) else {
                self.waiting.push_front(waiter);
                return served;
            };
            served.push((waiter, lease));
        }
        // None waits: what is not used beside the first closes.
        let mut nth = 0;
        self.shared.retain(|link| {
            nth += 1;
            nth == 1 || link.load.streams.load(Relaxed) > 0
        });
        served
    }

    fn wants_dial(&self) -> bool {
        let waiting = self.waiting.len();
        // Probes are the first.
        let probe = self.waiting.front().is_some_and(Waiter::is_probe);
        let used = if self.http1 { self.used() } else { self.open };
        if used >= MOST + if probe { FOR_PROBES } else { 0 } {
            return false;
        }
        if self.http1 {
            return self.dials < waiting;
        }
        // There may be room as soon as a server says so. One that allows no streams allows none on another connection.
        let is_full = |link: &Http2| link.is_told() && link.limit() > 0;
        self.dials == 0 && waiting > 0 && self.shared.iter().all(is_full)
    }

    fn forget_closed(&mut self) {
        self.shared.retain(|link| !link.is_closed());
        self.idle.retain(|link| !link.is_closed());
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
        self.wait(false);
        if self.line.pool().retired {
            return Err(TransportError::Retired);
        }
        let (deadlines, tls) = (&shared.deadlines, self.line.tls.clone());
        // Boxed: while a fleet connects, most dials wait for their permit.
        let dial = Box::pin(dial(&shared, &tls, permit, |waits| self.wait(waits)));
        let (stream, permit) = dial.await?;
        let weak = Arc::downgrade(&self.line);
        let told = {
            let weak = Weak::clone(&weak);
            move || {
                if let Some(line) = weak.upgrade() {
                    line.made_room();
                }
            }
        };
        let ended = move || {
            if let Some(line) = weak.upgrade() {
                line.ended();
            }
        };
        let begin = Link::begin(stream, &shared, &self.line.tasks, told, ended);
        let link = within(Wait::Handshake, deadlines.tls, Box::pin(begin)).await?;
        drop(permit);
        link
    }

    /// Whether it waits for leave of ours, and not for the server.
    fn wait(&mut self, waits: bool) {
        let waited = std::mem::replace(&mut self.queued, waits);
        let mut pool = self.line.pool();
        pool.queued = pool.queued + usize::from(waits) - usize::from(waited);
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.wait(false);
        if !self.over {
            let source = Arc::new(std::io::Error::other("the dial was cut off"));
            self.line.dialled(Err(TransportError::Reset { source }));
        }
    }
}
