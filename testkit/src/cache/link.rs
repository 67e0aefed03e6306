//! The health provider of a test's clusters: up when the test says so.

use std::{collections::HashMap, future::pending, sync::Arc};

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterKey, ClusterResource, HealthCheck, InitContext,
    InitError,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(super) struct Link(pub(super) Arc<Links>);

/// The links to all clusters.
#[derive(Default)]
pub(super) struct Links {
    by_key: Mutex<HashMap<ClusterKey, Wire>>,
    changed: Notify,
}

#[derive(Default)]
struct Wire {
    plugged: bool,
    silent: bool,
    /// Of the newest init that came through.
    up: Option<InitContext>,
}

impl Links {
    pub(super) fn connect(&self, key: &ClusterKey) {
        self.change(key, |wire| {
            (wire.plugged, wire.silent) = (true, false);
        });
    }

    pub(super) fn disconnect(&self, key: &ClusterKey) {
        self.change(key, |wire| {
            (wire.plugged, wire.silent) = (false, false);
        });
    }

    pub(super) fn silence(&self, key: &ClusterKey) {
        self.change(key, |wire| wire.silent = true);
    }

    /// What is up goes bad.
    pub(super) fn lose(&self, key: &ClusterKey) {
        let up = self.by_key.lock().get(key).and_then(|wire| wire.up.clone());
        if let Some(cx) = up {
            cx.failed("the test disconnected it");
        }
    }

    pub(super) fn clear(&self) {
        let wires = std::mem::take(&mut *self.by_key.lock());
        drop(wires);
    }

    fn change(&self, key: &ClusterKey, change: impl FnOnce(&mut Wire)) {
        change(self.by_key.lock().entry(key.clone()).or_default());
        self.changed.notify_waiters();
    }

    /// Returns when `wanted` holds of the wire.
    async fn when(&self, key: &ClusterKey, wanted: impl Fn(&mut Wire) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(self.by_key.lock().entry(key.clone()).or_default()) {
                return;
            }
            changed.await;
        }
    }
}

#[async_trait]
impl ClusterResource for Link {
    type Value = ();

    fn name(&self) -> &'static str {
        "test-link"
    }

    fn init_timeout(&self) -> std::time::Duration {
        // Years: until the test connects.
        std::time::Duration::from_secs(u64::from(u32::MAX))
    }

    async fn init(&self, cx: &InitContext) -> Result<(), InitError> {
        let plugged = |wire: &mut Wire| {
            let there = wire.plugged && !wire.silent;
            if there {
                wire.up = Some(cx.clone());
            }
            there
        };
        self.0.when(cx.key(), plugged).await;
        Ok(())
    }
}

#[async_trait]
impl HealthCheck for Link {
    async fn check(&self, (): &(), cx: &CheckContext) -> Result<Answer, CheckError> {
        let silent = self
            .0
            .by_key
            .lock()
            .get(cx.key())
            .is_some_and(|wire| wire.silent);
        if silent {
            pending::<()>().await;
        }
        Ok(Answer::Ready)
    }
}
