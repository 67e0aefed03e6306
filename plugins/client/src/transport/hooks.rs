//! What the transport needs of whoever runs it: leave to dial, the way to do it, an ear for signs of life, a limit. Tests give their own,
//! so that the transport is tested without an engine.

use std::sync::Arc;

use async_trait::async_trait;
use clustercache::{Alive, CheckContext, ClusterKey, DialPermit, InitContext};

use super::limiter::Limiter;
use crate::{Dialer, RequestCounts};

/// Gives leave to dial.
#[async_trait]
pub(crate) trait Gate: Send + Sync {
    /// Waits for it, as long as it takes.
    async fn permit(&self) -> Box<dyn Permit>;
}

/// Leave to dial once, given back when dropped.
#[async_trait]
pub(crate) trait Permit: Send + Sync {
    /// The server's first byte is here; returns when it may be worked on.
    async fn received(&mut self);
    /// Returns when the dial must be given up.
    async fn evicted(&self);
}

/// Hears of signs of life.
pub(crate) trait Signs: Send + Sync {
    /// An authenticated request was answered.
    fn answered(&self);
    /// Bytes came on a watch.
    fn bytes(&self);
    /// Something is wrong: ask the server.
    fn doubt(&self);
}

/// All of it, as a transport holds it.
pub(crate) struct Hooks {
    /// Whom it is for.
    pub(crate) cluster: ClusterKey,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) gate: Box<dyn Gate>,
    pub(crate) signs: Arc<dyn Signs>,
    /// Of all clusters.
    pub(crate) counts: Arc<RequestCounts>,
    /// What outlives the connection, if calls are limited at all.
    pub(crate) limiter: Option<Arc<Limiter>>,
}

impl Hooks {
    pub(crate) fn of(
        cx: &InitContext,
        dialer: &Arc<dyn Dialer>,
        counts: &Arc<RequestCounts>,
        limiter: Option<Arc<Limiter>>,
    ) -> Self {
        Self {
            limiter,
            cluster: cx.key().clone(),
            dialer: Arc::clone(dialer),
            gate: Box::new(cx.clone()),
            signs: Arc::new(cx.alive()),
            counts: Arc::clone(counts),
        }
    }
}

#[async_trait]
impl Gate for InitContext {
    async fn permit(&self) -> Box<dyn Permit> {
        Box::new(self.dial().await)
    }
}

#[async_trait]
impl Gate for CheckContext {
    async fn permit(&self) -> Box<dyn Permit> {
        Box::new(self.dial().await)
    }
}

#[async_trait]
impl Permit for DialPermit {
    async fn received(&mut self) {
        DialPermit::received(self).await;
    }

    async fn evicted(&self) {
        DialPermit::evicted(self).await;
    }
}

impl Signs for Alive {
    fn answered(&self) {
        Alive::answered(self);
    }

    fn bytes(&self) {
        Alive::bytes(self);
    }

    fn doubt(&self) {
        Alive::doubt(self);
    }
}
