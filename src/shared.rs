//! What the handle, the engine and its tasks share.

use std::sync::Arc;

use crate::{
    counters::Counters,
    dial::DialPool,
    events::Events,
    inbox::Inbox,
    options::Options,
    plan::Plan,
    registry::Registry,
    resource::{Health, Provider},
};

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) plan: Arc<Plan>,
    /// By slot.
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    pub(crate) health: Arc<dyn Health>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) events: Events,
    pub(crate) inbox: Inbox,
    pub(crate) dials: DialPool,
    pub(crate) counters: Counters,
}
