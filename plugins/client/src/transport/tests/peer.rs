//! Servers that are no API servers: what a dial may meet on its way. Each is a listener on loopback with a task a connection.

use std::{future::Future, net::SocketAddr, sync::Arc};

use clustercache_testkit::pki::{ClusterCa, Leaf, Validity};
use rustls::{
    ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion, WantsVerifier,
    crypto::ring,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::raw::answer;

pub(super) struct Peer {
    pub(super) address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl Peer {
    pub(super) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::at("127.0.0.1", serve).await
    }

    pub(super) async fn at<F>(ip: &str, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(tcp));
            }
        };
        Self {
            address,
            _accepting: AbortOnDropHandle::new(tokio::spawn(accepting)),
        }
    }

    /// Answers every request over TLS with `ok`. What it hears after a handshake that failed it reads to the end, so that its alert is
    /// not lost to a reset.
    pub(super) async fn tls(config: ServerConfig) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::start(move |tcp| {
            let acceptor = acceptor.clone();
            async move {
                match acceptor.accept(tcp).into_fallible().await {
                    Ok(stream) => http(stream).await,
                    Err((_, mut tcp)) => {
                        let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
                    }
                }
            }
        })
        .await
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Reads heads, and answers each with `ok`.
pub(super) async fn http(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Some(_head) = head(&mut stream).await {
        if stream
            .write_all(answer(200, "ok").as_bytes())
            .await
            .is_err()
        {
            return;
        }
        let _ = stream.flush().await;
    }
}

/// Reads up to the end of a head.
pub(super) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// With HTTP/1.1, and the leaf first in what is shown.
pub(super) fn config(leaf: &Leaf, after: &ClusterCa, times: usize) -> ServerConfig {
    let mut chain = vec![leaf.certificate_der().clone()];
    chain.extend((0..times).map(|_| after.der().clone()));
    let config = builder().with_no_client_auth();
    with(config.with_single_cert(chain, leaf.key_der()).unwrap())
}

pub(super) fn builder() -> ConfigBuilder<ServerConfig, WantsVerifier> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
}

pub(super) fn with(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config
}

pub(super) fn leaf(ca: &ClusterCa) -> Leaf {
    ca.server(Validity::years()).unwrap()
}

/// Speaks one version, and wants a client certificate of its own CA.
pub(super) fn mutual(ca: &ClusterCa, version: &'static SupportedProtocolVersion) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap());
    let leaf = leaf(ca);
    let chain = vec![leaf.certificate_der().clone()];
    with(config.with_single_cert(chain, leaf.key_der()).unwrap())
}
