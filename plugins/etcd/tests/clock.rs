//! A server whose clock is four minutes behind ours accepts a certificate that was just issued.

mod support;

use std::{sync::Arc, time::Duration};

use clustercache_etcd::{EtcdClientKey, MemoryIssuers};
use clustercache_testkit::pki::{ClusterCa, Validity};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{ServerName, UnixTime},
    server::WebPkiClientVerifier,
    time_provider::TimeProvider,
};
use support::{cache, cluster, issuer, key, up};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

#[derive(Debug)]
struct Behind(Duration);

impl TimeProvider for Behind {
    fn current_time(&self) -> Option<UnixTime> {
        let now = Duration::from_secs(UnixTime::now().as_secs());
        Some(UnixTime::since_unix_epoch(now.checked_sub(self.0)?))
    }
}

async fn accepts(behind: Duration) -> Result<(), String> {
    // Older than the test, as CAs are.
    let ca = ClusterCa::lasting("etcd-ca", Validity::years()).unwrap();
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca));
    let (cache, source) = cache(EtcdClientKey::per_cluster(issuers));
    source.upsert(cluster("a", "one"));
    let certificate = up(&cache, &key("a")).await;

    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let server = ca.etcd_member("node", Validity::years()).unwrap();
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(Behind(behind)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![server.certificate_der().clone()], server.key_der())
        .unwrap();
    config.send_tls13_tickets = 0;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let accepted = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor
            .accept(stream)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let connected = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::clone(certificate.client_config()));
        let name = ServerName::try_from("node").unwrap();
        // Whether it is accepted, the server says.
        connector
            .connect(name, stream)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let (accepted, connected) = tokio::join!(accepted, connected);
    accepted.and(connected)
}

#[tokio::test]
async fn a_server_four_minutes_behind_accepts_and_one_six_minutes_behind_does_not() {
    accepts(Duration::from_secs(240)).await.unwrap();
    let refused = accepts(Duration::from_secs(360)).await.unwrap_err();
    assert!(refused.contains("not valid yet"), "{refused}");
}
