//! What the handle, the engine and its tasks share.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;

use crate::{
    ClusterKey, EngineStatus, HookKind, ShutdownReport,
    counters::Counters,
    dial::DialPool,
    engine::Report,
    events::Events,
    inbox::Inbox,
    latch::Latch,
    options::Options,
    plan::Plan,
    registry::Registry,
    resource::{Health, Provider},
};

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) plan: Arc<Plan>,
    /// By slot.
    pub(crate) providers: Vec<Registered>,
    pub(crate) health: Arc<dyn Health>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) events: Events,
    pub(crate) inbox: Inbox,
    pub(crate) dials: DialPool,
    pub(crate) counters: Counters,
    /// What tasks tell the engine. It is bounded: a task waits for the engine, which never waits for a task.
    pub(crate) reports: mpsc::Sender<Report>,
    /// Every cluster known at start is connected or has been tried.
    pub(crate) started: Latch,
    /// The engine has ended.
    pub(crate) ended: Latch,
    pub(crate) shutdown: Mutex<ShutdownReport>,
}

impl Shared {
    /// A hook was given up on, or a value dropped without one.
    pub(crate) fn abandoned(&self, key: &ClusterKey, slot: usize, hook: HookKind) {
        self.counters.abandon(slot);
        self.left(key, slot, hook);
    }

    /// For the report of the shutdown.
    pub(crate) fn left(&self, key: &ClusterKey, slot: usize, hook: HookKind) {
        let mut report = self.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(key, self.plan.name(slot), hook);
    }

    /// There is no engine any more: every read says so, every stream ends, every wait returns.
    pub(crate) fn close(&self, status: EngineStatus) {
        self.registry.set_status(status);
        self.started.set();
        self.events.close();
        self.ended.set();
    }
}

/// A provider, and what it was asked once.
pub(crate) struct Registered {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) init_timeout: Duration,
    pub(crate) teardown_timeout: Duration,
}
