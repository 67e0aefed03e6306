//! What is known of one cluster, beyond its connections: nothing until somebody asks, then asked once for all who wait, and again when a kind is
//! missing, but not more often than every few seconds. Whoever waits drives the request; who goes away leaves it to the others.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{Shared, WeakShared},
};
use kube::{
    Client,
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource},
};
use tokio::time::Instant;

use super::{Discovery, DiscoveryError, document::Found, fetch::fetch};

/// A kind that is missing is not asked for again before.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    newest: Option<Discovery>,
    /// When it was asked for last, however that went.
    asked: Option<Instant>,
    /// Why the newest is not newer.
    failed: Option<DiscoveryError>,
    /// A call found that the newest is wrong.
    doubted: bool,
    /// As long as somebody waits for it.
    asking: Option<WeakShared<Asking>>,
}

type Asking = Pin<Box<dyn Future<Output = Result<Discovery, DiscoveryError>> + Send>>;

enum Answer {
    Known(Discovery),
    Failed(DiscoveryError),
    Wait(Shared<Asking>),
}

/// How to ask.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) client: Client,
    pub(crate) deadline: Duration,
    /// A call found that what is known is wrong.
    pub(crate) doubted: bool,
}

impl Known {
    pub(crate) async fn newest(self: &Arc<Self>, ask: Ask) -> Result<Discovery, DiscoveryError> {
        self.get(ask, false).await
    }

    async fn get(self: &Arc<Self>, ask: Ask, anew: bool) -> Result<Discovery, DiscoveryError> {
        match self.look(ask, anew) {
            Answer::Known(newest) => Ok(newest),
            Answer::Failed(error) => Err(error),
            Answer::Wait(asking) => asking.await,
        }
    }

    pub(crate) async fn resolve(
        self: &Arc<Self>,
        gvk: &GroupVersionKind,
        ask: Ask,
    ) -> Result<(ApiResource, ApiCapabilities), DiscoveryError> {
        // An older one is good enough to find it in, but not to say that it is not there.
        if let Found::Kind(kind) = self.newest(ask.clone()).await?.0.find(gvk) {
            return Ok(*kind);
        }
        let api_version = gvk.api_version();
        match self.get(ask, true).await?.0.find(gvk) {
            Found::Kind(kind) => Ok(*kind),
            Found::CannotSay => Err(DiscoveryError::CannotSay { api_version }),
            Found::Nothing => Err(DiscoveryError::NoSuchKind {
                api_version,
                kind: gvk.kind.clone(),
            }),
        }
    }

    fn look(self: &Arc<Self>, ask: Ask, anew: bool) -> Answer {
        let mut state = self.state();
        // It stays so until it is asked about.
        state.doubted |= ask.doubted;
        let anew = anew || state.doubted;
        let is_fresh = state
            .asked
            .is_some_and(|asked| asked.elapsed() < AGAIN_AFTER);
        match (&state.newest, &state.failed) {
            (Some(newest), _) if !anew => return Answer::Known(newest.clone()),
            (Some(_), Some(error)) if is_fresh => return Answer::Failed(error.clone()),
            (Some(newest), None) if is_fresh => return Answer::Known(newest.clone()),
            _ => (),
        }
        if let Some(asking) = state.asking.as_ref().and_then(WeakShared::upgrade) {
            return Answer::Wait(asking);
        }
        let known = Arc::clone(self);
        let asking: Asking = Box::pin(async move {
            let answer = fetch(ask.client, ask.deadline).await;
            known.state().take(&answer);
            answer
        });
        let asking = asking.shared();
        state.asking = asking.downgrade();
        state.doubted = false;
        Answer::Wait(asking)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, answer: &Result<Discovery, DiscoveryError>) {
        self.asked = Some(Instant::now());
        self.failed = answer.as_ref().err().cloned();
        self.asking = None;
        if let Ok(newest) = answer {
            self.newest = Some(newest.clone());
        }
    }
}
