//! A server over real TLS that reads one head and answers with the given bytes: for answers that no proper server gives.

use std::{future::Future, net::SocketAddr, sync::Arc};

use clustercache::ClusterAccess;
use clustercache_testkit::pki::{ClusterCa, Validity};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;

/// What comes after the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing more, for ever.
    Hang,
    /// A TCP reset.
    Reset,
    /// The next head.
    Next,
}

pub(super) struct RawServer {
    address: SocketAddr,
    ca: String,
    _accepting: AbortOnDropHandle<()>,
}

impl RawServer {
    /// Answers each request over HTTP/1.1 with the next of `answers`, for ever with the last.
    pub(super) async fn start(answers: Vec<(String, Then)>) -> Self {
        let answers: Arc<[_]> = answers.into();
        Self::serving(&[], move |_, stream| serve(stream, Arc::clone(&answers))).await
    }

    /// Does with each connection, of which this is the n-th from 0, what it is told.
    pub(super) async fn serving<F, S>(alpn: &[&[u8]], serve: F) -> Self
    where
        F: Fn(usize, TlsStream<TcpStream>) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let ca = ClusterCa::new("raw").unwrap();
        let leaf = ca.server(Validity::years()).unwrap();
        let key: PrivateKeyDer<'static> = leaf.key_der();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.certificate_der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, ca) = (listener.local_addr().unwrap(), ca.pem());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serve = Arc::new(serve);
        let accepting = async move {
            for nth in 0.. {
                let (tcp, _) = listener.accept().await.unwrap();
                let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(tcp).await {
                        serve(nth, stream).await;
                    }
                });
            }
        };
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self {
            address,
            ca,
            _accepting: accepting,
        }
    }

    pub(super) fn ca(&self) -> String {
        self.ca.clone()
    }

    pub(super) fn access(&self) -> ClusterAccess {
        ClusterAccess::builder(format!("https://{}", self.address))
            .ca_pem(self.ca.clone())
            .token("t")
            .build()
            .unwrap()
    }
}

async fn serve(mut stream: TlsStream<TcpStream>, answers: Arc<[(String, Then)]>) {
    for turn in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let (answer, then) = &answers[turn.min(answers.len() - 1)];
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.flush().await;
        match then {
            Then::Next => (),
            Then::Hang => std::future::pending().await,
            Then::Reset => {
                let _ = stream.get_ref().0.set_zero_linger();
                return;
            }
        }
    }
}

/// A proper answer.
pub(super) fn answer(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
