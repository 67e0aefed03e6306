//! Endpoint and credential are one value: a token changes in place, and goes nowhere but to its own endpoint.

use std::sync::Arc;

use clustercache::{ClusterAccess, Refresh};
use clustercache_testkit::fleet::{FakeCluster, FakeCredential, OldEndpoint, ShownCredential};

use tokio::{io::AsyncWriteExt, sync::Notify};

use super::{
    peer::head,
    raw::{RawServer, answer},
    rig::{Open, Rig, access, soon, transport, whole},
};

#[tokio::test]
async fn a_new_token_is_on_the_next_request_over_the_same_connection() {
    let rig = Rig::new("token");
    let watch = rig.watch().await;
    rig.text("/version").await.unwrap();
    let token = rig.cluster.rotate_token();
    let refreshed = rig.transport.refresh(&access(&rig.cluster.access()));
    assert_eq!(refreshed, Refresh::InPlace);
    let seen = rig.cluster.next_request(|_| true);
    rig.text("/version").await.unwrap();
    assert_eq!(soon(seen).await.credential, ShownCredential::Token(token));
    let counters = rig.cluster.counters();
    assert_eq!(
        (counters.connections_accepted, counters.watches_open),
        (1, 1)
    );
    rig.cluster.end_watches();
    let rest = soon(http_body_util::BodyExt::collect(watch)).await;
    rest.expect("the watch was untouched until the server ended it");
}

#[tokio::test]
async fn the_same_access_changes_nothing() {
    let rig = Rig::new("same");
    let same = access(&rig.cluster.access());
    assert_eq!(rig.transport.refresh(&same), Refresh::Unchanged);
}

#[tokio::test]
async fn a_token_never_goes_to_another_endpoint_than_its_own() {
    let rig = Rig::new("moves");
    let old = rig.cluster.token();
    rig.text("/version").await.unwrap();
    let here = rig.cluster.addr();
    let there = rig.cluster.move_endpoint(OldEndpoint::Keep).unwrap();
    let token = rig.cluster.add_token();
    let moved = access(&rig.cluster.access());
    assert_eq!(rig.transport.refresh(&moved), Refresh::Rebuild);
    // Not even to an endpoint that a request names.
    rig.text(&format!("https://{there}/version")).await.unwrap();
    rig.transport.replace_pooled();
    rig.text("/version").await.unwrap();
    assert!(rig.cluster.seen_tokens_at(there).is_empty());
    assert_eq!(rig.cluster.seen_tokens_at(here), [old].into());
    assert!(!rig.cluster.seen_tokens().contains(&token));
}

#[tokio::test]
async fn whoever_builds_a_request_does_not_choose_its_token() {
    let rig = Rig::new("chosen");
    let request = http::Request::get("/version").header("authorization", "Bearer mine");
    let request = request.body(kube::client::Body::empty()).unwrap();
    let mut transport = rig.transport.clone();
    soon(tower::Service::call(&mut transport, request))
        .await
        .unwrap();
    assert_eq!(rig.cluster.seen_tokens(), [rig.cluster.token()].into());
}

#[tokio::test]
async fn a_server_of_another_ca_gets_no_request() {
    let (one, other) = (
        FakeCluster::start("one").unwrap(),
        FakeCluster::start("other").unwrap(),
    );
    let mut mixed = one.access();
    mixed.ca_pem = other.ca_pem();
    let rig = Rig::on(one, access(&mixed), |_| ());
    let error = rig.get("/version").await.err().unwrap();
    assert!(
        error.to_string().contains("not signed by the cluster's CA"),
        "{error}"
    );
    assert!(rig.cluster.seen_tokens().is_empty());
}

#[tokio::test]
async fn a_server_is_known_by_tls_server_name_where_one_is_given() {
    let cluster = FakeCluster::start("name").unwrap();
    let build = |name: &str| {
        let access = ClusterAccess::builder(cluster.url()).ca_pem(cluster.ca_pem());
        access
            .token(cluster.token())
            .server_name(name)
            .build()
            .unwrap()
    };
    let (right, wrong) = (build("kubernetes.default.svc"), build("example.com"));
    let rig = Rig::on(cluster, right, |_| ());
    rig.text("/version").await.unwrap();
    let rig = Rig::on(rig.cluster, wrong, |_| ());
    let error = rig.get("/version").await.err().unwrap();
    assert!(error.to_string().contains("for another name"), "{error}");
}

#[tokio::test]
async fn a_credential_that_cannot_be_used_is_not_taken() {
    let rig = Rig::new("mismatch");
    let cluster = &rig.cluster;
    let certificate = |user| {
        let validity = clustercache_testkit::pki::Validity::years();
        match cluster.client_certificate(user, validity).unwrap() {
            FakeCredential::Certificate {
                certificate_pem,
                key_pem,
            } => (certificate_pem, key_pem),
            FakeCredential::Token(_) => unreachable!("a certificate was asked for"),
        }
    };
    let ((certificate_pem, _), (_, key_pem)) = (certificate("a"), certificate("b"));
    let credential = FakeCredential::Certificate {
        certificate_pem,
        key_pem,
    };
    let broken = access(&cluster.access_with(credential));
    assert_eq!(rig.transport.refresh(&broken), Refresh::Rebuild);
    rig.text("/version").await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_made_plain_with_the_token_that_its_request_had() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = RawServer::serving(&[], {
        let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
        move |_, mut stream| {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            async move {
                // As a proxy does that shows what it was sent.
                let head = head(&mut stream).await.unwrap();
                asked.notify_one();
                go.notified().await;
                let _ = stream.write_all(answer(403, &head).as_bytes()).await;
                let _ = stream.flush().await;
            }
        }
    })
    .await;
    let url = server.access().endpoint().url().to_string();
    let with = |token: &str| {
        let access = ClusterAccess::builder(&url).ca_pem(server.ca());
        access.token(token.to_owned()).build().unwrap()
    };
    let transport = transport(with("f1rst-s3cret"), Box::new(Open), Arc::default(), |_| ());
    let request = http::Request::get("/version").body(kube::client::Body::empty());
    let call = tower::Service::call(&mut transport.clone(), request.unwrap());
    let renewed = async {
        asked.notified().await;
        let new = with("s3cond-s3cret");
        assert_eq!(transport.refresh(&new), Refresh::InPlace);
        go.notify_one();
    };
    let (answer, ()) = soon(async { tokio::join!(call, renewed) }).await;
    let text = whole(answer.unwrap()).await.unwrap();
    assert!(
        text.contains("Bearer [our token]") && !text.contains("s3cret"),
        "{text}"
    );
}
