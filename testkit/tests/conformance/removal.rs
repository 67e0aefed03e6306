//! A custom kind that goes while it is watched, and comes back.

use clustercache_testkit::{
    api::Kind,
    fleet::FakeAccess,
    real::{Caller, RealApiServer},
    real_or_skip,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    access_to, alone,
    client::{Client, Http, soon},
    normal::normal,
    script::{Script, Step},
    scripts::{NONE, at, version},
};

const GIZMOS: &str = "/apis/example.org/v1/namespaces/default/gizmos";

fn kind() -> Kind {
    Kind::custom("example.org", "v1", "Gizmo")
}

fn gizmo(name: &str) -> Value {
    json!({ "apiVersion": "example.org/v1", "kind": "Gizmo", "metadata": { "name": name } })
}

/// Two objects, and the version of the first.
async fn before(s: &mut Script) -> String {
    let a = s.post(GIZMOS, &gizmo("a")).await;
    s.post(GIZMOS, &gizmo("b")).await;
    version(&a)
}

/// What a watch from that version is told when the kind goes.
async fn watched(access: &FakeAccess, from: &str, goes: impl Future) -> Vec<Value> {
    let mut client = Client::connect(access, Http::Two).await.unwrap();
    let path = format!("{GIZMOS}?watch=true&timeoutSeconds=60&resourceVersion={from}");
    let mut events = client.watch(&path).await;
    let mut told = vec![events.next().await.unwrap()];
    goes.await;
    while let Some(event) = events.next().await {
        told.push(event);
    }
    told.iter().map(normal).collect()
}

async fn after(s: &mut Script) {
    s.get(GIZMOS).await;
    s.get(&at(GIZMOS, "a")).await;
    s.post(GIZMOS, &gizmo("a")).await;
    s.get(&format!("{GIZMOS}?watch=true")).await;
    s.get("/apis/example.org/v1").await;
    s.get("/apis/example.org").await;
}

async fn back(s: &mut Script, from: &str) {
    s.get(GIZMOS).await;
    s.post(GIZMOS, &gizmo("a")).await;
    s.get(&format!(
        "{GIZMOS}?watch=true&timeoutSeconds=1&resourceVersion={from}"
    ))
    .await;
    s.delete(&at(GIZMOS, "a"), &NONE).await;
}

async fn forget(server: &RealApiServer) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.example.org";
    let deleted = server.request(Caller::Admin, Method::DELETE, path, None);
    deleted.await.unwrap().success().unwrap();
    // It goes with the last of its objects.
    while server.get(Caller::Admin, path).await.unwrap().status != 404 {
        tokio::task::yield_now().await;
    }
    // Handlers and discovery hear of it later.
    for path in [GIZMOS, "/apis/example.org/v1", "/apis/example.org"] {
        while server.get(Caller::Admin, path).await.unwrap().status != 404 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_goes_and_comes_back_as_on_the_real_server() {
    let servers = real_or_skip!(1);
    let fake = alone();
    let access = access_to(&servers[0]);
    let mut ours = Script::new(&fake.access()).await;
    let mut theirs = Script::new(&access).await;
    fake.api().add_kind(kind()).unwrap();
    theirs.establish(&kind()).await;
    let (from, theirs_from) = tokio::join!(before(&mut ours), before(&mut theirs));
    let fake_access = fake.access();
    let removed = async { fake.api().remove_kind("example.org", "gizmos") };
    let told = soon(watched(&fake_access, &from, removed)).await;
    let forgotten = Box::pin(forget(&servers[0]));
    let theirs_told = soon(watched(&access, &theirs_from, forgotten)).await;
    assert_eq!(told, theirs_told);
    tokio::join!(after(&mut ours), after(&mut theirs));
    let mut different = Step::differences("after", &ours.steps(), &theirs.steps());
    fake.api().add_kind(kind()).unwrap();
    theirs.establish(&kind()).await;
    tokio::join!(back(&mut ours, &from), back(&mut theirs, &theirs_from));
    different.extend(Step::differences("back", &ours.steps(), &theirs.steps()));
    assert!(different.is_empty(), "{}", different.join("\n"));
}
