//! Clients that we did not write against the API server in memory: kube-rs' `Api`, `Discovery`, `watcher` and `Controller`.

mod calls;
mod controllers;
mod watchers;

use std::{future::Future, time::Duration};

use clustercache_testkit::api::FakeApi;
use kube::Client;
use serde_json::{Value, json};

/// A limit that no healthy machine reaches, for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("it did not happen within a minute")
}

pub(crate) fn client(api: &FakeApi) -> Client {
    Client::new(api.clone(), "default")
}

pub(crate) fn config(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } }, "data": { "value": value },
    })
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
