//! The same script of requests against the fake and the real API server: what they answer is the same, but for what each
//! makes up by itself (UIDs, versions, times).
//!
//! What is allowed to differ is in `normal.rs`, each with its reason.

// The one place that knows where programs are kept.
#[path = "../../../xtask/src/api_server_cache.rs"]
#[allow(dead_code, reason = "xtask needs more of it")]
mod programs;

#[path = "../fleet/client.rs"]
#[allow(dead_code, reason = "shared with the tests of the fleet")]
mod client;
mod clients;
mod expiry;
mod normal;
mod removal;
mod script;
mod scripts;

use clustercache_testkit::{
    api::{FakeApi, Kind},
    fleet::{FakeAccess, FakeCluster, FakeCredential},
    real::RealApiServer,
    real_or_skip,
};
use serde_json::{Value, json};

use self::{
    script::{Script, Step},
    scripts::Named,
};

/// A fake one that is as alone as a real one without controllers and kubelets.
fn alone() -> FakeCluster {
    let api = FakeApi::builder()
        .pods_end(false)
        .budgets_kept(false)
        .build();
    for kind in kinds() {
        api.add_kind(kind).unwrap();
    }
    FakeCluster::builder("fake").api(api).start().unwrap()
}

fn access_to(server: &RealApiServer) -> FakeAccess {
    FakeAccess {
        name: "real".to_owned(),
        url: server.url(),
        ca_pem: server.ca_pem().to_owned(),
        credential: FakeCredential::Certificate {
            certificate_pem: server.admin().cert_pem.clone(),
            key_pem: server.admin().key_pem.clone(),
        },
    }
}

/// The custom kinds that both have.
fn kinds() -> [Kind; 2] {
    let gadgets = Kind::custom("example.com", "v1", "Gadget").cluster_scoped();
    [
        Kind::custom("example.com", "v1", "Widget"),
        gadgets.without_status(),
    ]
}

/// What a real server is told of a kind.
fn definition(kind: &Kind) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let (group, plural) = (kind.group(), kind.plural());
    let scope = if kind.is_namespaced() {
        "Namespaced"
    } else {
        "Cluster"
    };
    let status = kind.has_status().then(|| json!({}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": scope, "names": { "kind": kind.kind(), "plural": plural },
            "versions": [{
                "name": kind.version(), "served": true, "storage": true, "subresources": { "status": status },
                "schema": { "openAPIV3Schema": any },
            }],
        },
    })
}

/// Runs each script against both, and shows every step at which they differ.
async fn compare(scripts: &[Named]) {
    let servers = real_or_skip!(1);
    let fake = alone();
    let (mut fake, mut real) = (
        Script::new(&fake.access()).await,
        Script::new(&access_to(&servers[0])).await,
    );
    for kind in kinds() {
        real.establish(&kind).await;
    }
    let mut different = Vec::new();
    let mut steps = 0;
    for (name, script) in scripts {
        let (ours, theirs) = tokio::join!(fake.run(*script), real.run(*script));
        steps += theirs.len();
        different.extend(Step::differences(name, &ours, &theirs));
    }
    assert!(
        different.is_empty(),
        "{} of {steps} steps differ:\n{}",
        different.len(),
        different.join("\n")
    );
    println!("{steps} steps are answered alike");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_as_the_real_server_answers_them() {
    compare(scripts::ALL).await;
}
