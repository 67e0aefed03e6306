//! A plain client: rustls and hyper, no pool, no retry.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use clustercache_testkit::fleet::{FakeAccess, FakeCluster, FakeCredential};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A limit that no healthy machine reaches, for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("it did not happen within a minute")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http {
    One,
    Two,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

pub(crate) struct Client {
    sender: Sender,
    token: Option<String>,
    /// Ends when the connection does, with how it did.
    pub(crate) connection: JoinHandle<hyper::Result<()>>,
}

/// A connection to the cluster with its current access.
pub(crate) async fn connect(cluster: &FakeCluster) -> Client {
    Client::connect(&cluster.access(), Http::Two).await.unwrap()
}

pub(crate) fn addr(access: &FakeAccess) -> SocketAddr {
    access
        .url
        .strip_prefix("https://")
        .unwrap()
        .parse()
        .unwrap()
}

pub(crate) async fn handshake(
    access: &FakeAccess,
    alpn: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(access.ca_pem.as_bytes()).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match &access.credential {
        FakeCredential::Token(_) => builder.with_no_client_auth(),
        FakeCredential::Certificate {
            certificate_pem,
            key_pem,
        } => {
            let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let socket = TcpStream::connect(addr(access)).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
}

impl Client {
    pub(crate) async fn connect(access: &FakeAccess, http: Http) -> io::Result<Self> {
        let alpn: &[&[u8]] = if http == Http::Two {
            &[b"h2", b"http/1.1"]
        } else {
            &[b"http/1.1"]
        };
        let tls = handshake(access, alpn).await?;
        let negotiated = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(tls);
        let (sender, connection) = if negotiated {
            let (sender, driver) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(io::Error::other)?;
            (Sender::Two(sender), tokio::spawn(driver))
        } else {
            let (sender, driver) = http1::handshake(io).await.map_err(io::Error::other)?;
            (Sender::One(sender), tokio::spawn(driver))
        };
        let token = match &access.credential {
            FakeCredential::Token(token) => Some(token.clone()),
            FakeCredential::Certificate { .. } => None,
        };
        Ok(Self {
            sender,
            token,
            connection,
        })
    }

    pub(crate) fn protocol(&self) -> Http {
        match self.sender {
            Sender::One(_) => Http::One,
            Sender::Two(_) => Http::Two,
        }
    }

    pub(crate) fn show(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    pub(crate) async fn open(
        &mut self,
        method: Method,
        path: &str,
        body: &str,
    ) -> hyper::Result<http::Response<Incoming>> {
        self.open_with(method, path, &[], body).await
    }

    pub(crate) async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> hyper::Result<(StatusCode, String)> {
        let response = self.open_with(method, path, headers, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec()).unwrap()))
    }

    pub(crate) async fn open_with(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> hyper::Result<http::Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1{path}"));
        if self.protocol() == Http::One {
            request = request.uri(path).header("host", "127.0.0.1");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// The status and the body as text, or how the connection failed.
    pub(crate) async fn text(&mut self, path: &str) -> hyper::Result<(StatusCode, String)> {
        self.exchange(Method::GET, path, &[], "").await
    }

    pub(crate) async fn send(&mut self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let response = soon(self.open(method, path, &body)).await.unwrap();
        let status = response.status().as_u16();
        assert_eq!(response.headers()["content-type"], "application/json");
        let body = soon(response.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    pub(crate) async fn get(&mut self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn watch(&mut self, path: &str) -> Events {
        let response = soon(self.open(Method::GET, path, "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Events {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }
}

/// The events of a watch.
pub(crate) struct Events {
    body: Incoming,
    rest: Vec<u8>,
}

impl Events {
    /// The next event, nothing at a clean end, or how it broke off.
    pub(crate) async fn try_next(&mut self) -> hyper::Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => self
                    .rest
                    .extend_from_slice(&frame.into_data().unwrap_or_default()),
                None => return Ok(None),
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Value> {
        soon(self.try_next()).await.unwrap()
    }

    /// The type of the next event, and the name of its object.
    pub(crate) async fn change(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch ended");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    }
}
