//! Single calls.

use clustercache_testkit::api::{Caller, FakeApi, Fault, Kind, Verb};
use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Node, Pod, ServiceAccount},
};
use kube::{
    Api, Client, Error,
    api::{
        ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, Patch,
        PatchParams, PostParams,
    },
    core::PartialObjectMeta,
    discovery::{Discovery, Scope},
};
use serde_json::json;

use crate::{client, config, pod};

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn code(error: &Error) -> u16 {
    let Error::Api(status) = error else {
        panic!("{error}")
    };
    status.code
}

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let api = FakeApi::new();
    let configs: Api<ConfigMap> = Api::default_namespaced(client(&api));
    let created = configs
        .create(&PostParams::default(), &typed(config("a", "1")))
        .await
        .unwrap();
    let mut changed = created.clone();
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("more".to_owned(), "2".to_owned());
    let replaced = configs
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(
        replaced.metadata.resource_version,
        created.metadata.resource_version
    );
    let stale = configs
        .replace("a", &PostParams::default(), &created)
        .await
        .unwrap_err();
    assert_eq!(code(&stale), 409);
    let merge = Patch::Merge(json!({ "data": { "value": null } }));
    let patched = configs
        .patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(
        patched.data.unwrap().into_keys().collect::<Vec<_>>(),
        ["more"]
    );
    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    configs.delete("a", &dry).await.unwrap();
    configs.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(configs.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn lists_come_in_pages_and_as_metadata() {
    let api = FakeApi::new();
    for number in 0..7 {
        api.put(pod(&format!("p{number}"), "n")).unwrap();
    }
    let pods: Api<Pod> = Api::all(client(&api));
    let mut names = Vec::new();
    let mut params = ListParams::default().limit(3);
    loop {
        let page = pods.list(&params).await.unwrap();
        names.extend(
            page.items
                .iter()
                .filter_map(|pod| pod.metadata.name.clone()),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
    let metadata = pods
        .list_metadata(&ListParams::default().fields("spec.nodeName=n"))
        .await
        .unwrap();
    let first: &PartialObjectMeta<Pod> = &metadata.items[0];
    assert_eq!(
        (metadata.items.len(), first.metadata.name.as_deref()),
        (7, Some("p0"))
    );
    api.history()
        .verb(Verb::List)
        .resource("pods")
        .assert_count(4);
}

#[tokio::test]
async fn cordon_is_a_strategic_patch_and_eviction_honours_a_budget_that_follows_its_pods() {
    let api = FakeApi::new();
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }))
        .unwrap();
    let nodes: Api<Node> = Api::all(client(&api));
    nodes.cordon("n").await.unwrap();
    let cordoned = nodes.get("n").await.unwrap();
    assert_eq!(cordoned.spec.unwrap().unschedulable, Some(true));

    for name in ["a", "b"] {
        api.put(pod(name, "n")).unwrap();
    }
    api.put(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    })).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client(&api));
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let refused = pods.evict("b", &EvictParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), 429);
    // The replacement runs elsewhere.
    api.put(pod("c", "m")).unwrap();
    pods.evict("b", &EvictParams::default()).await.unwrap();
    assert!(api.finish_pod("default", "a"));
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_vanishes_after_its_grace_though_nobody_looks() {
    let api = FakeApi::new();
    api.put(pod("a", "n")).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client(&api));
    pods.delete("a", &DeleteParams::default().grace_period(5))
        .await
        .unwrap();
    tokio::time::advance(std::time::Duration::from_secs(4)).await;
    let ending = pods.get("a").await.unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(5));
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_token_is_its_accounts_until_it_ends_or_the_account_goes() {
    let api = FakeApi::new();
    api.put(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot", "namespace": "default" } })).unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client(&api));
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(600),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let issue = async || {
        let issued = accounts
            .create_token_request("robot", &PostParams::default(), &request)
            .await
            .unwrap();
        issued.status.unwrap().token.unwrap()
    };
    let (first, second) = (issue().await, issue().await);
    let robot = api.authenticate(&first).unwrap();
    assert_eq!(&*robot.user, "system:serviceaccount:default:robot");
    assert_ne!(first, second);
    tokio::time::advance(std::time::Duration::from_secs(599)).await;
    assert!(api.authenticate(&first).is_some());
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert!(api.authenticate(&first).is_none());
    let third = issue().await;
    api.delete("v1", "ServiceAccount", "default", "robot");
    assert!(api.authenticate(&third).is_none());
}

#[tokio::test]
async fn a_server_says_who_asks() {
    let api = FakeApi::new();
    let service = tower::util::MapRequest::new(
        api.clone(),
        |mut request: http::Request<kube::client::Body>| {
            request
                .extensions_mut()
                .insert(Caller::new("jane", &["ops"]));
            request
        },
    );
    let reviews: Api<SelfSubjectReview> = Api::all(Client::new(service, "default"));
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("jane"));
    assert_eq!(user.groups.unwrap(), ["ops", "system:authenticated"]);
    api.history().user("jane").assert_count(1);
}

#[tokio::test]
async fn kinds_are_discovered_as_they_come_and_go() {
    let api = FakeApi::new();
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    api.add_kind(Kind::custom("example.com", "v1", "Widget").cluster_scoped())
        .unwrap();
    for aggregated in [false, true] {
        let discovery = Discovery::new(client(&api));
        let discovery = if aggregated {
            discovery.run_aggregated().await
        } else {
            discovery.run().await
        };
        let discovery = discovery.unwrap();
        let (resource, capabilities) = discovery.resolve_gvk(&gvk).unwrap();
        assert_eq!(
            (&*resource.plural, capabilities.scope),
            ("widgets", Scope::Cluster)
        );
        let pod = discovery
            .resolve_gvk(&GroupVersionKind::gvk("", "v1", "Pod"))
            .unwrap();
        assert_eq!(pod.1.scope, Scope::Namespaced);
    }
    let widgets: Api<DynamicObject> = Api::all_with(client(&api), &ApiResource::from_gvk(&gvk));
    let mut widget = DynamicObject::new("a", &ApiResource::from_gvk(&gvk));
    widget.data = json!({ "spec": { "size": 1 } });
    widgets
        .create(&PostParams::default(), &widget)
        .await
        .unwrap();
    let status = Patch::Merge(json!({ "status": { "ready": true }, "spec": { "size": 9 } }));
    let patched = widgets
        .patch_status("a", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(
        patched.data,
        json!({ "spec": { "size": 1 }, "status": { "ready": true } })
    );
    api.remove_kind("example.com", "widgets");
    assert_eq!(
        code(&widgets.list(&ListParams::default()).await.unwrap_err()),
        404
    );
}

#[tokio::test]
async fn a_fault_meets_the_requests_that_it_names_and_no_others_until_it_is_undone() {
    let api = FakeApi::new();
    let configs: Api<ConfigMap> = Api::default_namespaced(client(&api));
    let pods: Api<Pod> = Api::default_namespaced(client(&api));
    for (fault, wanted) in [
        (Fault::status(500), 500),
        (Fault::status(503).retry_after(1), 503),
        (Fault::unauthorized(), 401),
        (Fault::forbidden(), 403),
        (Fault::gone(), 410),
    ] {
        for _ in 0..100 {
            let injected = api.inject(fault.clone().verb(Verb::List).resource("pods"));
            assert_eq!(
                code(&pods.list(&ListParams::default()).await.unwrap_err()),
                wanted
            );
            configs.list(&ListParams::default()).await.unwrap();
            assert!(pods.get_opt("none").await.unwrap().is_none());
            api.undo(injected);
            pods.list(&ListParams::default()).await.unwrap();
        }
    }
    let half = api.inject(Fault::status(500).share(0.5).resource("configmaps"));
    let mut failed = 0;
    for _ in 0..200 {
        failed += usize::from(configs.list(&ListParams::default()).await.is_err());
    }
    // By chance: both bounds are ten standard deviations away.
    assert!((30..170).contains(&failed), "{failed} of 200");
    api.undo(half);
    configs.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_request_that_hangs_is_answered_once_the_fault_is_undone() {
    let api = FakeApi::new();
    let pods: Api<Pod> = Api::default_namespaced(client(&api));
    let hang = api.inject(Fault::hang().verb(Verb::Get));
    let mut get = Box::pin(pods.get_opt("none"));
    assert!(futures_util::poll!(&mut get).is_pending());
    while api.history().verb(Verb::Get).count() == 0 {
        assert!(futures_util::poll!(&mut get).is_pending());
        tokio::task::yield_now().await;
    }
    api.undo(hang);
    assert!(crate::soon(get).await.unwrap().is_none());
}
