//! Who is let in, and what is remembered of what was shown.

use clustercache_testkit::{
    fleet::{FakeCluster, FakeCredential, OldEndpoint, ShownCredential},
    pki::{ClusterCa, Validity},
};
use serde_json::json;

use crate::client::{Client, Http, connect, soon};

const PATH: &str = "/api/v1/nodes";

async fn code(cluster: &FakeCluster, credential: FakeCredential) -> u16 {
    let access = cluster.access_with(credential);
    Client::connect(&access, Http::Two)
        .await
        .unwrap()
        .get(PATH)
        .await
        .0
}

#[tokio::test]
async fn without_a_valid_credential_everything_is_401_with_a_status() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    client.show("wrong");
    let (code, status) = client.get(PATH).await;
    assert_eq!(
        (code, &status["kind"], &status["reason"]),
        (401, &json!("Status"), &json!("Unauthorized"))
    );
    assert_eq!(client.get("/readyz").await.0, 401);
    assert_eq!(cluster.counters().auth_failures, 2);
    assert!(cluster.seen_tokens().contains("wrong"));
}

#[tokio::test]
async fn several_tokens_are_valid_at_once_until_they_are_rotated_or_revoked() {
    let cluster = FakeCluster::start("a").unwrap();
    let first = cluster.token();
    let second = cluster.add_token();
    cluster.accept_token("third");
    assert_eq!(cluster.token(), second);
    assert_eq!(cluster.valid_tokens().len(), 3);
    let mut client = connect(&cluster).await;
    for (token, wanted) in [(&*first, 200), (&*second, 200), ("third", 200)] {
        client.show(token);
        assert_eq!(client.get(PATH).await.0, wanted);
    }
    cluster.revoke_token("third");
    client.show("third");
    assert_eq!(client.get(PATH).await.0, 401);
    let fourth = cluster.rotate_token();
    for (token, wanted) in [(&first, 401), (&second, 401), (&fourth, 200)] {
        client.show(token);
        assert_eq!(client.get(PATH).await.0, wanted);
    }
    assert_eq!(cluster.counters().connections_accepted, 1);
}

#[tokio::test]
async fn a_certificate_lets_in_an_accepted_user_of_this_ca_while_it_is_valid() {
    let cluster = FakeCluster::start("a").unwrap();
    let certificate = |user, validity| cluster.client_certificate(user, validity).unwrap();
    assert_eq!(
        code(&cluster, certificate(FakeCluster::ADMIN, Validity::years())).await,
        200
    );
    assert_eq!(
        code(
            &cluster,
            certificate(FakeCluster::ADMIN, Validity::expired())
        )
        .await,
        401
    );
    assert_eq!(
        code(
            &cluster,
            certificate(FakeCluster::ADMIN, Validity::not_yet())
        )
        .await,
        401
    );
    let jane = certificate("jane", Validity::years());
    assert_eq!(code(&cluster, jane.clone()).await, 401);
    cluster.accept_user("jane");
    let request = cluster.next_request(|_| true);
    assert_eq!(code(&cluster, jane.clone()).await, 200);
    assert_eq!(
        soon(request).await.credential,
        ShownCredential::Certificate("jane".into())
    );
    cluster.reject_user("jane");
    assert_eq!(code(&cluster, jane).await, 401);

    let foreign = ClusterCa::new("a-ca")
        .unwrap()
        .client(FakeCluster::ADMIN, None, Validity::years())
        .unwrap();
    let foreign = FakeCredential::Certificate {
        certificate_pem: foreign.certificate_pem(),
        key_pem: foreign.key_pem(),
    };
    assert_eq!(code(&cluster, foreign).await, 401);
}

#[tokio::test]
async fn a_token_is_recorded_at_the_endpoint_that_it_was_shown_to() {
    let cluster = FakeCluster::start("a").unwrap();
    let old = cluster.access();
    connect(&cluster).await.get(PATH).await;
    let moved = cluster.move_endpoint(OldEndpoint::Keep).unwrap();
    let token = cluster.add_token();
    assert_eq!(cluster.addr(), moved);
    let request = cluster.next_request(|_| true);
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
    assert_eq!(soon(request).await.endpoint, moved);
    // The old endpoint serves the same cluster.
    assert_eq!(
        Client::connect(&old, Http::One)
            .await
            .unwrap()
            .get(PATH)
            .await
            .0,
        200
    );

    let endpoints = cluster.endpoints();
    assert_eq!(endpoints.len(), 2);
    let FakeCredential::Token(first) = old.credential else {
        panic!("a token by default")
    };
    assert_eq!(cluster.seen_tokens_at(endpoints[0]), [first.clone()].into());
    assert_eq!(cluster.seen_tokens_at(endpoints[1]), [token.clone()].into());
    assert_eq!(cluster.seen_tokens(), [first, token].into());
}

#[tokio::test]
async fn a_renewed_ca_is_the_same_cluster_and_a_replaced_one_is_another() {
    let cluster = FakeCluster::start("a").unwrap();
    let (before, uid) = (cluster.access(), kube_system(&cluster).await);
    let certificate = cluster
        .client_certificate(FakeCluster::ADMIN, Validity::years())
        .unwrap();
    cluster.renew_ca().unwrap();
    assert_ne!(cluster.ca_pem(), before.ca_pem);
    // Old and new bundles verify the new server, and the new one the old user: it is the same key.
    assert!(Client::connect(&before, Http::Two).await.is_ok());
    assert_eq!(kube_system(&cluster).await, uid);
    assert_eq!(code(&cluster, certificate.clone()).await, 200);

    let mut open = connect(&cluster).await;
    cluster.replace().unwrap();
    soon(&mut open.connection).await.unwrap().ok();
    assert!(open.text(PATH).await.is_err());
    assert!(Client::connect(&before, Http::Two).await.is_err());
    soon(cluster.when(|counters| counters.tls_failures == 1)).await;
    assert_ne!(kube_system(&cluster).await, uid);
    assert_eq!(code(&cluster, certificate).await, 401);
    assert_eq!(code(&cluster, before.credential).await, 401);
}

#[tokio::test]
async fn an_expired_server_certificate_fails_the_handshake() {
    let cluster = FakeCluster::start("a").unwrap();
    cluster.present_certificate(Validity::expired()).unwrap();
    assert!(Client::connect(&cluster.access(), Http::Two).await.is_err());
    soon(cluster.when(|counters| counters.tls_failures == 1)).await;
    cluster.present_certificate(Validity::years()).unwrap();
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

async fn kube_system(cluster: &FakeCluster) -> String {
    let (_, namespace) = connect(cluster)
        .await
        .get("/api/v1/namespaces/kube-system")
        .await;
    namespace["metadata"]["uid"].as_str().unwrap().to_owned()
}
