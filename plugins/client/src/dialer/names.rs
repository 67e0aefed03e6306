//! Names to addresses by the system's resolver, which blocks its thread for as long as it likes. So it has threads of its own, not tokio's,
//! which others need and which a runtime waits for when it ends; few enough that a flood of lookups is bounded; and lookups of one name
//! are one. A name that hangs is remembered, and has only some of the threads, so that the others go on.
//!
//! No resolver crate: what an operator has set up for the machine (`/etc/hosts`, search domains and `ndots` of a pod, `nsswitch.conf`,
//! a resolver on the machine) holds for kubectl and must hold here, also when it changes.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::connect::MOST as ADDRESSES;
use crate::{TransportError, Wait};

/// Lookups at a time of names that are not known to hang.
const THREADS: usize = 48;
/// And of those that are.
const FOR_HANGING: usize = 16;
/// How many names are remembered as hanging; then the oldest is forgotten.
const REMEMBERED: usize = 1024;

/// What blocks: the system's resolver, or a test's.
type Resolver = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
type Found = Result<Vec<SocketAddr>, Arc<io::Error>>;

#[derive(Clone)]
pub(crate) struct Names(Arc<Inner>);

struct Inner {
    resolver: Box<Resolver>,
    state: Mutex<State>,
    threads: Arc<Semaphore>,
    for_hanging: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    running: HashMap<Arc<str>, watch::Receiver<Option<Found>>>,
    /// Names whose last lookup took longer than its deadline.
    hanging: VecDeque<Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Self::by(|host| Ok((host, 0).to_socket_addrs()?.take(ADDRESSES).collect()))
    }
}

impl Names {
    pub(crate) fn by(
        resolver: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            resolver: Box::new(resolver),
            state: Mutex::default(),
            threads: Arc::new(Semaphore::new(THREADS)),
            for_hanging: Arc::new(Semaphore::new(FOR_HANGING)),
        }))
    }

    /// The addresses of `host`, one at least. Waiting for a thread is in the deadline. Dropping the future leaves a lookup that has begun
    /// to its end, for whoever asks next.
    pub(crate) async fn lookup(
        &self,
        host: &str,
        port: u16,
        after: Duration,
    ) -> Result<Vec<SocketAddr>, TransportError> {
        let until = Instant::now() + after;
        let late = TransportError::Deadline {
            stage: Wait::Resolve,
            after,
        };
        let mut lookup = self.join_or_begin(host, until, after).await?;
        let found = timeout_at(until, lookup.wait_for(Option::is_some)).await;
        let found = found
            .map_err(|_| late)?
            .ok()
            .and_then(|found| found.clone());
        let unresolved = |source| TransportError::Dns {
            host: host.into(),
            source,
        };
        let gone = || Err(Arc::new(io::Error::other("the lookup was cut off")));
        let mut found = found.unwrap_or_else(gone).map_err(unresolved)?;
        if found.is_empty() {
            let none = io::Error::other("the name has no address");
            return Err(unresolved(Arc::new(none)));
        }
        for address in &mut found {
            address.set_port(port);
        }
        Ok(found)
    }

    async fn join_or_begin(
        &self,
        host: &str,
        until: Instant,
        after: Duration,
    ) -> Result<watch::Receiver<Option<Found>>, TransportError> {
        let hanging = {
            let state = self.state();
            if let Some(running) = state.running.get(host) {
                return Ok(running.clone());
            }
            state.hanging.iter().any(|name| **name == *host)
        };
        let lane = if hanging {
            &self.0.for_hanging
        } else {
            &self.0.threads
        };
        let Ok(thread) = timeout_at(until, Arc::clone(lane).acquire_owned()).await else {
            return Err(if hanging {
                let stage = Wait::Resolve;
                TransportError::Deadline { stage, after }
            } else {
                let what = "a thread to resolve a name";
                TransportError::Busy { what, after }
            });
        };
        let thread = thread.expect("the semaphores are never closed");
        let mut state = self.state();
        // Somebody may have been faster.
        if let Some(running) = state.running.get(host) {
            return Ok(running.clone());
        }
        let (told, lookup) = watch::channel(None);
        let name: Arc<str> = host.into();
        state.running.insert(Arc::clone(&name), lookup.clone());
        drop(state);
        let running = Running {
            names: self.clone(),
            name,
            begun: Instant::now(),
            after,
            _thread: thread,
        };
        let work = move || {
            let found = (running.names.0.resolver)(&running.name).map_err(Arc::new);
            // Gone from the list before it is told: who asks from now on asks anew.
            drop(running);
            told.send_replace(Some(found));
        };
        let spawned = thread::Builder::new().name("resolve".into()).spawn(work);
        spawned.map(|_| lookup).map_err(|_| TransportError::Busy {
            what: "a thread to resolve a name",
            after,
        })
    }

    /// How many names are remembered as hanging.
    #[cfg(test)]
    pub(crate) fn hanging(&self) -> usize {
        self.state().hanging.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup on its thread, however it ends.
struct Running {
    names: Names,
    name: Arc<str>,
    begun: Instant,
    after: Duration,
    _thread: OwnedSemaphorePermit,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.names.state();
        state.running.remove(&self.name);
        state.hanging.retain(|name| *name != self.name);
        if self.begun.elapsed() >= self.after {
            if state.hanging.len() == REMEMBERED {
                state.hanging.pop_front();
            }
            state.hanging.push_back(Arc::clone(&self.name));
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}
