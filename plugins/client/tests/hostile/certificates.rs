//! A server that is not the one that it should be, by its certificate or its TLS: refused, and each reason told apart, as people mend them
//! differently.

use clustercache::{ClusterKey, FailureKind, Upsert};
use clustercache_testkit::{
    hostile::{Behaviour, HostileServer, Step},
    pki::{ClusterCa, Leaf, Validity},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::rig::{BOTH, Rig, access, access_with, healthy};

/// What a server shows, and its key.
type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn ca(name: &str) -> ClusterCa {
    ClusterCa::new(name).unwrap()
}

fn proper(ca: &ClusterCa) -> Leaf {
    ca.server(Validity::years()).unwrap()
}

/// A leaf, with its CA so many times after it.
fn chain(leaf: &Leaf, ca: &ClusterCa, times: usize) -> Shown {
    let above = (0..times).map(|_| ca.der().clone());
    let chain = std::iter::once(leaf.certificate_der().clone()).chain(above);
    (chain.collect(), leaf.key_der())
}

fn self_signed(is_ca: bool) -> Shown {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    (vec![certificate.der().clone()], key)
}

/// Each with what must be said of it.
fn improper(ours: &ClusterCa) -> Vec<(&'static str, Shown, &'static str)> {
    let (foreign, namesake) = (ca("foreign"), ca("ours"));
    let of = |validity| chain(&ours.server(validity).unwrap(), ours, 0);
    let client = ours.client("jane", None, Validity::years()).unwrap();
    vec![
        ("expired", of(Validity::expired()), "has expired"),
        ("not-yet", of(Validity::not_yet()), "is not valid yet"),
        (
            "foreign",
            chain(&proper(&foreign), &foreign, 1),
            "is not signed by the cluster's CA",
        ),
        // It has the issuer's name, and a signature that is not the issuer's.
        (
            "namesake",
            chain(&proper(&namesake), &namesake, 1),
            "certificate is",
        ),
        ("self-signed", self_signed(false), "signs itself"),
        ("self-signed-ca", self_signed(true), "signs itself"),
        ("for-clients", chain(&client, ours, 0), "is not for servers"),
        (
            "a-thousand",
            chain(&proper(ours), ours, 1_000),
            "are longer than 64 KiB",
        ),
        (
            "nowhere",
            chain(&proper(&foreign), &foreign, 100),
            "is not signed by the cluster's CA",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_certificate_is_refused_and_each_reason_is_told_apart() {
    let ours = ca("ours");
    let mut rig = Rig::start().await;
    for protocol in BOTH {
        for (name, (chain, key), why) in improper(&ours) {
            let name = format!("{name}-{}", rig.servers());
            let server = HostileServer::showing(&name, healthy(protocol), &ours, chain, &key);
            let server = rig.server(server.unwrap());
            refused(&rig, &rig.add_at(&name, &server), why).await;
            assert_eq!(server.counts().requests, 0, "{name}");
        }
        // The same server is proper under its own name.
        let name = format!("another-name-{}", rig.servers());
        let server = HostileServer::start(&name, healthy(protocol)).unwrap();
        let server = rig.server(server);
        let other = access_with(&server, |access| access.server_name("other.example"));
        let key = ClusterKey::named(&name);
        rig.source.upsert(Upsert::ready(key.clone(), other));
        refused(&rig, &key, "is for another name").await;
        rig.source
            .upsert(Upsert::ready(key.clone(), access(&server)));
        rig.connected(&key).await;
    }
    rig.end().await;
}

/// A ServerHello of that time, with a cipher of that time; and an alert that says which version it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_tls_1_1_is_refused_and_told_apart() {
    let body = [&[3, 2][..], &[7; 32], &[0, 0x00, 0x2f, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    let hello = [&[22, 3, 2, 0, length + 4, 2, 0, 0, length][..], &body].concat();
    let alert = vec![21, 3, 1, 0, 2, 2, 70];
    let mut rig = Rig::start().await;
    for (name, said) in [("hello", hello), ("alert", alert)] {
        let (key, _) = rig.add(name, Behaviour::tcp().greeting(Step::write(said)));
        refused(&rig, &key, "no TLS of version 1.2 or newer").await;
    }
    rig.end().await;
}

/// It never had a connection, and its error says why.
async fn refused(rig: &Rig, key: &ClusterKey, why: &str) {
    let error = rig.failed(key).await;
    assert_eq!(error.kind, FailureKind::Tls, "{key}: {error:?}");
    assert!(error.message.contains(why), "{key}: {}", error.message);
}
