//! What a resource says of itself while it is up: when what it holds ends, and what last went wrong in keeping it.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Weak},
    time::SystemTime,
};

use super::{InitError, error::chain};
use crate::{ClusterKey, Generation, InitContext, inbox::Command, inbox::Signal, shared::Shared};

/// How a resource that is up stands: when it ends, and what went wrong in keeping it. Shown in its
/// [`ResourceState`](crate::ResourceState); changes nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub(crate) expires: Option<SystemTime>,
    pub(crate) failures: u32,
    pub(crate) trouble: Option<Arc<str>>,
}

impl Standing {
    pub(crate) const WELL: Self = Self {
        expires: None,
        failures: 0,
        trouble: None,
    };

    /// It is well, and has no end.
    pub fn well() -> Self {
        Self::WELL
    }

    /// It ends then, unless it is renewed.
    #[must_use]
    pub fn expires(mut self, at: SystemTime) -> Self {
        self.expires = Some(at);
        self
    }

    /// It is as good as before, and what should keep it so failed: so often in a row, last for this reason.
    #[must_use]
    pub fn trouble(mut self, failures: u32, error: &(dyn Error + 'static)) -> Self {
        self.failures = failures.max(1);
        self.trouble = Some(chain(error));
        self
    }
}

/// By which one `init`, and what it made, can speak of itself for as long as it likes: cheap to clone, keeps nothing alive, and without effect
/// when what it speaks of is no more.
#[derive(Clone)]
pub struct Reporter {
    shared: Weak<Shared>,
    key: ClusterKey,
    generation: Generation,
    slot: usize,
    incarnation: u32,
}

impl Reporter {
    pub(crate) fn of(cx: &InitContext) -> Self {
        let connection = &cx.0.connection;
        Self {
            shared: Arc::downgrade(&connection.shared),
            key: connection.key.clone(),
            generation: connection.generation,
            slot: cx.0.slot,
            incarnation: cx.incarnation(),
        }
    }

    /// The connection that it speaks for.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Says how the value stands. While `init` runs, it counts from when the value is up. Subscribers are told of it each time, also if it says
    /// the same as before: it may be of something new.
    pub fn stands(&self, standing: Standing) {
        self.signal(Signal::Stands {
            slot: self.slot,
            incarnation: self.incarnation,
            standing,
        });
    }

    /// As [`InitContext::failed`].
    pub fn failed(&self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.signal(Signal::Failed {
            slot: self.slot,
            incarnation: self.incarnation,
            error: InitError::retry(error).text,
        });
    }

    /// As [`ClusterCache::reconsider`](crate::ClusterCache::reconsider) of this resource of this cluster: what made an `init` fail, or find
    /// that there is no such thing, has changed.
    pub fn reconsider(&self) {
        if let Some(shared) = self.shared.upgrade() {
            let command = Command::Reconsider(self.key.clone(), self.slot);
            shared.inbox.command(command);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(shared) = self.shared.upgrade() {
            shared.inbox.signal(&self.key, self.generation, signal);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Reporter({} {} incarnation {})",
            self.key.shown(),
            self.generation,
            self.incarnation
        )
    }
}
