//! What a shutdown says of what it had to leave.

use std::{fmt, sync::Arc};

use crate::ClusterKey;

/// What came of a [`shutdown`](crate::ClusterCache::shutdown).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Hooks that were cancelled: each init that still ran, and each teardown that did not end in time.
    pub abandoned: Arc<Vec<Abandoned>>,
}

/// A hook that was cancelled at shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abandoned {
    /// Of which cluster.
    pub key: ClusterKey,
    /// Of which provider.
    pub resource: &'static str,
    /// Which hook.
    pub hook: HookKind,
}

/// Which of a provider's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// `init`.
    Init,
    /// `teardown`.
    Teardown,
}

impl ShutdownReport {
    /// Whether everything ended by itself.
    pub fn is_clean(&self) -> bool {
        self.abandoned.is_empty()
    }

    pub(crate) fn add(&mut self, key: &ClusterKey, resource: &'static str, hook: HookKind) {
        Arc::make_mut(&mut self.abandoned).push(Abandoned {
            key: key.clone(),
            resource,
            hook,
        });
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        write!(f, "{} hook(s) abandoned", self.abandoned.len())?;
        for (
            index,
            Abandoned {
                key,
                resource,
                hook,
            },
        ) in self.abandoned.iter().take(SHOWN).enumerate()
        {
            let hook = match hook {
                HookKind::Init => "init",
                HookKind::Teardown => "teardown",
            };
            write!(
                f,
                "{} {hook} of {resource} of {}",
                if index == 0 { ":" } else { "," },
                key.shown()
            )?;
        }
        match self.abandoned.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}
