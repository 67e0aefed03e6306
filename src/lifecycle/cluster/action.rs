//! What a cluster's lifecycle asks the shell for.

use std::sync::Arc;

use crate::{
    Changes, ClusterAccess, Generation, Route, TeardownReason, Verdict, lifecycle::resources::Step,
    vitals::Vitals,
};

/// What the shell must do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Make what the tasks of a connection share.
    Open {
        generation: Generation,
        access: ClusterAccess,
        vitals: Arc<Vitals>,
        predecessor: Option<Generation>,
    },
    Step {
        generation: Generation,
        step: Step,
    },
    /// The connection has new access.
    SetAccess {
        generation: Generation,
        access: ClusterAccess,
    },
    Probe {
        generation: Generation,
        number: u64,
        route: Route,
        /// An answer that is as good as the last changes nothing.
        calm: bool,
    },
    ReplacePooled {
        generation: Generation,
    },
    /// The source is to read the access again.
    Reread {
        source: usize,
    },
    /// The replacement of this connection is over: nothing refers to the old one.
    Swapped {
        generation: Generation,
    },
    /// Readers see nothing of it any more: tear it all down.
    Retire {
        generation: Generation,
        reason: TeardownReason,
    },
    /// It takes too long: cancel its running hook, drop the rest.
    Abandon {
        generation: Generation,
    },
    /// Identity state and warm state are another's.
    NewIdentity,
    /// What readers see changed.
    Publish,
    Tell(Changes),
    /// For the fleet brake.
    Verdict(Verdict),
    /// A provider could not take a credential in place.
    CountRebuild {
        slot: usize,
    },
    Log(Log),
}

/// A line of the log: one a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Connected,
    Replaced,
    Down,
    Held,
}
