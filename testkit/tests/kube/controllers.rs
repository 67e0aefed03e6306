//! kube-rs' `Controller`.

use std::{sync::Arc, time::Duration};

use clustercache_testkit::api::FakeApi;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::json;

use crate::{client, config, soon};

/// Makes a secret for each config map, and makes it again when it is lost.
async fn reconcile(config: Arc<ConfigMap>, client: Arc<Client>) -> kube::Result<Action> {
    let secrets: Api<Secret> = Api::default_namespaced(client.as_ref().clone());
    let name = config.name_any();
    if secrets.get_opt(&name).await?.is_none() {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.clone());
        secret.metadata.owner_references =
            config.controller_owner_ref(&()).map(|owner| vec![owner]);
        secrets.create(&PostParams::default(), &secret).await?;
    }
    let configs: Api<ConfigMap> = Api::default_namespaced(client.as_ref().clone());
    let done =
        Patch::Merge(json!({ "metadata": { "annotations": { "example.com/done": "true" } } }));
    configs
        .patch_metadata(&name, &PatchParams::default(), &done)
        .await?;
    Ok(Action::await_change())
}

#[tokio::test]
async fn a_controller_makes_what_is_missing_and_notices_when_it_goes() {
    let api = FakeApi::new();
    let client = client(&api);
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let retry = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>| {
        Action::requeue(Duration::from_millis(10))
    };
    let controller = Controller::new(configs, watcher::Config::default())
        .owns(secrets, watcher::Config::default())
        .run(reconcile, retry, Arc::new(client))
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(controller);

    let there = || api.get("v1", "Secret", "default", "a").is_some();
    let done = || {
        let config = api
            .get("v1", "ConfigMap", "default", "a")
            .unwrap_or_default();
        config["metadata"]["annotations"]["example.com/done"] == "true"
    };
    let until = async |wanted: &dyn Fn() -> bool| {
        soon(async {
            while !wanted() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    api.put(config("a", "1")).unwrap();
    until(&|| there() && done()).await;
    api.delete("v1", "Secret", "default", "a");
    until(&there).await;
    running.abort();
}
