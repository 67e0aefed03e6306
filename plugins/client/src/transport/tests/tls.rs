//! Why a server is not trusted, or does not trust us: each reason told apart, since people mend them differently.

use std::sync::{Arc, Mutex};

use clustercache::{AccessBuilder, ClusterAccess, FailureKind};
use clustercache_testkit::pki::{ClusterCa, Validity};
use rustls::{
    HandshakeKind, ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    pki_types::PrivateKeyDer,
    server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

use super::{
    peer::{Peer, builder, config, http, leaf, mutual, with},
    rig::{Open, get, transport, whole},
};
use crate::{TlsReason, TransportError};

fn ca(name: &str) -> ClusterCa {
    ClusterCa::new(name).unwrap()
}

fn access(peer: &Peer, ca: &ClusterCa) -> AccessBuilder {
    ClusterAccess::builder(peer.url()).ca_pem(ca.pem())
}

async fn ask(access: AccessBuilder) -> Result<String, TransportError> {
    let transport = transport(
        access.build().unwrap(),
        Box::new(Open),
        Arc::default(),
        |_| (),
    );
    whole(get(&transport, "/version").await?).await
}

async fn reason(access: AccessBuilder) -> TlsReason {
    let error = ask(access).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Tls, "{error}");
    match error {
        TransportError::Tls { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_server_of_the_cluster_is_trusted() {
    let ca = ca("good");
    let peer = Peer::tls(config(&leaf(&ca), &ca, 1)).await;
    assert_eq!(ask(access(&peer, &ca)).await.unwrap(), "ok");
    let named = access(&peer, &ca).server_name("kubernetes.default.svc");
    assert_eq!(ask(named).await.unwrap(), "ok");
}

#[tokio::test]
async fn a_certificate_that_has_expired_or_is_not_valid_yet_is_told_apart() {
    let ca = ca("times");
    for (validity, expected) in [
        (Validity::expired(), TlsReason::Expired),
        (Validity::not_yet(), TlsReason::NotYetValid),
    ] {
        let peer = Peer::tls(config(&ca.server(validity).unwrap(), &ca, 0)).await;
        assert_eq!(reason(access(&peer, &ca)).await, expected);
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_told_apart() {
    let ca = ca("name");
    let peer = Peer::tls(config(&leaf(&ca), &ca, 0)).await;
    let other = access(&peer, &ca).server_name("other.example");
    assert_eq!(reason(other).await, TlsReason::WrongName);
}

#[tokio::test]
async fn a_foreign_ca_and_one_of_the_same_name_are_told_apart_from_a_certificate_that_signs_itself()
{
    let ours = ca("ours");
    for foreign in [ca("foreign"), ca("ours")] {
        let peer = Peer::tls(config(&leaf(&foreign), &foreign, 1)).await;
        let why = reason(access(&peer, &ours)).await;
        assert!(
            matches!(why, TlsReason::UnknownIssuer | TlsReason::Certificate),
            "{why}"
        );
    }
}

/// A certificate that signs itself, for the names of a server, and its key.
fn self_signed(is_ca: bool) -> (rcgen::Certificate, rcgen::KeyPair) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    if is_ca {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    (params.self_signed(&key).unwrap(), key)
}

fn serving(certificate: &rcgen::Certificate, key: &rcgen::KeyPair) -> ServerConfig {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = builder().with_no_client_auth();
    with(
        config
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap(),
    )
}

#[tokio::test]
async fn a_certificate_that_signs_itself_is_told_apart_also_if_it_is_a_ca() {
    let ours = ca("ours");
    for is_ca in [false, true] {
        let (certificate, key) = self_signed(is_ca);
        let peer = Peer::tls(serving(&certificate, &key)).await;
        assert_eq!(reason(access(&peer, &ours)).await, TlsReason::SelfSigned);
    }
}

#[tokio::test]
async fn a_certificate_that_signs_itself_is_trusted_if_it_is_in_the_bundle() {
    let (certificate, key) = self_signed(false);
    let peer = Peer::tls(serving(&certificate, &key)).await;
    let access = ClusterAccess::builder(peer.url()).ca_pem(certificate.pem());
    assert_eq!(ask(access).await.unwrap(), "ok");
}

#[tokio::test]
async fn a_certificate_for_clients_only_is_told_apart() {
    let ca = ca("purpose");
    let client = ca.client("jane", None, Validity::years()).unwrap();
    let peer = Peer::tls(config(&client, &ca, 0)).await;
    assert_eq!(reason(access(&peer, &ca)).await, TlsReason::NotForServers);
}

#[tokio::test]
async fn a_chain_of_a_thousand_certificates_is_not_read() {
    let ca = ca("long");
    let peer = Peer::tls(config(&leaf(&ca), &ca, 1_000)).await;
    assert_eq!(reason(access(&peer, &ca)).await, TlsReason::TooLong);
}

#[tokio::test]
async fn a_chain_that_leads_nowhere_is_refused_however_long() {
    let (ours, foreign) = (ca("ours"), ca("foreign"));
    // As many as are read.
    let peer = Peer::tls(config(&leaf(&foreign), &foreign, 100)).await;
    assert_eq!(reason(access(&peer, &ours)).await, TlsReason::UnknownIssuer);
}

/// Reads what comes first, and says `bytes`.
async fn saying(bytes: Vec<u8>) -> Peer {
    Peer::start(move |mut tcp| {
        let bytes = bytes.clone();
        async move {
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(&bytes).await;
            let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_of_tls_1_1_is_told_apart() {
    let ca = ca("old");
    // A ServerHello of TLS 1.1, with a cipher of that time; and an alert that says which version it is not.
    let body = [&[3, 2][..], &[7; 32], &[0, 0x00, 0x2f, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    let hello = [&[22, 3, 2, 0, length + 4, 2, 0, 0, length][..], &body].concat();
    let alert = vec![21, 3, 1, 0, 2, 2, 70];
    for bytes in [hello, alert] {
        let peer = saying(bytes).await;
        assert_eq!(reason(access(&peer, &ca)).await, TlsReason::Version);
    }
}

#[tokio::test]
async fn what_speaks_no_tls_is_told_apart() {
    let ca = ca("plain");
    for bytes in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
    ] {
        let peer = saying(bytes.into()).await;
        assert_eq!(
            reason(access(&peer, &ca)).await,
            TlsReason::NotTls,
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_at_the_handshake_is_a_reset() {
    let ca = ca("closed");
    let peer = Peer::start(|mut tcp| async move {
        let _ = tcp.read(&mut [0; 4096]).await;
    })
    .await;
    let error = ask(access(&peer, &ca)).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Reset, "{error}");
}

#[tokio::test]
async fn a_server_that_refuses_our_certificate_or_wants_one_is_told_apart_in_both_versions() {
    let (ours, foreign) = (ca("mutual"), ca("foreign"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let peer = Peer::tls(mutual(&ours, version)).await;
        let refused = TlsReason::ClientCertificateRefused;
        assert_eq!(reason(access(&peer, &ours)).await, refused);
        for (ca, validity, expected) in [
            (&foreign, Validity::years(), Some(&refused)),
            (&ours, Validity::expired(), Some(&refused)),
            (&ours, Validity::years(), None),
        ] {
            let user = ca.client("jane", None, validity).unwrap();
            let access =
                access(&peer, &ours).client_certificate_pem(user.certificate_pem(), user.key_pem());
            match expected {
                Some(expected) => assert_eq!(reason(access).await, *expected),
                None => assert_eq!(ask(access).await.unwrap(), "ok"),
            }
        }
    }
}

/// Shows one certificate, and has another key.
#[derive(Debug)]
struct Impostor(Arc<CertifiedKey>);

impl ResolvesServerCert for Impostor {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[tokio::test]
async fn without_verification_any_certificate_will_do_but_its_key_must_be_the_servers() {
    let (certificate, key) = self_signed(false);
    let peer = Peer::tls(serving(&certificate, &key)).await;
    let insecure = |peer: &Peer| ClusterAccess::builder(peer.url()).insecure_skip_tls_verify();
    assert_eq!(ask(insecure(&peer)).await.unwrap(), "ok");

    let other = PrivateKeyDer::Pkcs8(rcgen::KeyPair::generate().unwrap().serialize_der().into());
    let key = ring::sign::any_supported_type(&other).unwrap();
    let impostor = Impostor(Arc::new(CertifiedKey::new(
        vec![certificate.der().clone()],
        key,
    )));
    let config = builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(impostor));
    let peer = Peer::tls(with(config)).await;
    assert_eq!(reason(insecure(&peer)).await, TlsReason::Certificate);
}

#[tokio::test]
async fn plain_http_is_spoken_if_the_operator_allows_it() {
    let peer = Peer::start(http).await;
    let access = ClusterAccess::builder(format!("http://{}", peer.address)).allow_http();
    assert_eq!(ask(access).await.unwrap(), "ok");
}

/// With all that it takes to resume a session.
fn resuming(
    ca: &ClusterCa,
    version: &'static SupportedProtocolVersion,
    tickets: bool,
) -> ServerConfig {
    let mut config = mutual(ca, version);
    config.session_storage = ServerSessionMemoryCache::new(64);
    if tickets {
        config.ticketer = ring::Ticketer::new().unwrap();
    }
    config
}

#[tokio::test]
async fn no_session_is_resumed_so_that_each_connection_shows_its_own_certificate() {
    for version in [&TLS12, &TLS13] {
        for tickets in [false, true] {
            let ca = ca("resumes");
            let acceptor = TlsAcceptor::from(Arc::new(resuming(&ca, version, tickets)));
            let kinds = Arc::<Mutex<Vec<_>>>::default();
            let peer = Peer::start({
                let kinds = Arc::clone(&kinds);
                move |tcp| {
                    let (acceptor, kinds) = (acceptor.clone(), Arc::clone(&kinds));
                    async move {
                        let stream = acceptor.accept(tcp).await.unwrap();
                        kinds
                            .lock()
                            .unwrap()
                            .push(stream.get_ref().1.handshake_kind());
                        http(stream).await;
                    }
                }
            })
            .await;
            let client = ca.client("us", None, Validity::years()).unwrap();
            let access = access(&peer, &ca)
                .client_certificate_pem(client.certificate_pem(), client.key_pem());
            let access = access.build().unwrap();
            let transport = transport(access, Box::new(Open), Arc::default(), |_| ());
            for _ in 0..2 {
                let until = Instant::now() + transport.0.shared.deadlines.probe;
                // What is asked is answered behind the tickets.
                let mut fresh = Box::pin(transport.fresh(&Open, until)).await.unwrap();
                fresh.ask("/readyz", until).await.unwrap();
            }
            let kinds = std::mem::take(&mut *kinds.lock().unwrap());
            assert_eq!(
                kinds,
                [Some(HandshakeKind::Full); 2],
                "{version:?} {tickets}"
            );
        }
    }
}
