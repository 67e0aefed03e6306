//! Which cluster of its name a provider speaks of, and whether that is the one still (rule 9).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::Identity;

/// The identity that a connection belongs to; cheap to clone, and keeps nothing of the cluster alive. For what outlives a connection: it
/// must not serve what it keeps once another cluster has the name.
#[derive(Clone)]
pub struct IdentityHandle(Arc<Known>);

struct Known {
    identity: Identity,
    over: AtomicBool,
}

impl IdentityHandle {
    pub(crate) fn new(identity: Identity) -> Self {
        Self(Arc::new(Known {
            identity,
            over: AtomicBool::new(false),
        }))
    }

    /// What makes the cluster this one: the UID that its source gives, if it gives one.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Whether the cluster is known still, as this one. `false` for good before readers can see another cluster of the name. Never waits.
    #[inline]
    pub fn is_current(&self) -> bool {
        !self.0.over.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.0.over.store(true, Ordering::Release);
    }
}

impl fmt::Debug for IdentityHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IdentityHandle({:?}, current {})",
            self.identity(),
            self.is_current()
        )
    }
}
