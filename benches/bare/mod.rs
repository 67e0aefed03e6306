//! The parts that a client of a cluster cannot do without, put together by hand and with nothing around them: rustls, a connection of hyper's, and
//! a `kube::Client` on it. What ours costs is measured against these.
#![allow(dead_code, unreachable_pub)] // each bench uses its part of it

use std::sync::Arc;

use anyhow::Context;
use clustercache::ClusterAccess;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use hyper::{Request, Response, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::Body;
use rustls::{
    ClientConfig, RootCertStore, client::Resumption, crypto::ring, pki_types::ServerName,
};
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection, and what its requests say.
#[derive(Clone)]
pub struct Bare {
    sender: SendRequest<Body>,
    authorization: Arc<str>,
}

impl Bare {
    /// Dials, shakes hands, and has the first request answered.
    pub async fn connect(access: &ClusterAccess) -> anyhow::Result<Self> {
        let url = access.endpoint().url();
        let host = url.host().context("a host")?;
        let stream = TcpStream::connect((host, url.port_u16().unwrap_or(443))).await?;
        stream.set_nodelay(true)?;
        let name = access.endpoint().server_name().unwrap_or(host).to_owned();
        let stream = TlsConnector::from(tls(access)?)
            .connect(ServerName::try_from(name)?, stream)
            .await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        tokio::spawn(connection);
        let token = access.credential().token().context("a token")?;
        let bare = Self {
            sender,
            authorization: format!("Bearer {}", token.expose_secret()).into(),
        };
        bare.get("/readyz").await?;
        Ok(bare)
    }

    /// Connects all, so many at once.
    pub async fn connect_all<'a>(
        accesses: impl Iterator<Item = &'a ClusterAccess>,
        at_once: usize,
    ) -> anyhow::Result<Vec<Self>> {
        let dials = accesses.map(|access| tokio::spawn(Self::connect_owned(access.clone())));
        let mut connected = stream::iter(dials).buffer_unordered(at_once);
        let mut all = Vec::new();
        while let Some(bare) = connected.next().await {
            all.push(bare??);
        }
        Ok(all)
    }

    async fn connect_owned(access: ClusterAccess) -> anyhow::Result<Self> {
        Self::connect(&access).await
    }

    /// One request, its answer read to the end.
    pub async fn get(&self, path: &str) -> anyhow::Result<()> {
        let request = Request::get(format!("https://bare{path}")).body(Body::empty())?;
        let answer = self.send(request).await?;
        anyhow::ensure!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().collect().await?;
        Ok(())
    }

    /// A `kube::Client` on it.
    pub fn client(&self) -> kube::Client {
        let bare = self.clone();
        let service = tower::service_fn(move |request| {
            let bare = bare.clone();
            async move { bare.send(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn send(&self, mut request: Request<Body>) -> anyhow::Result<Response<Incoming>> {
        let authorization = self.authorization.parse()?;
        request
            .headers_mut()
            .insert(hyper::header::AUTHORIZATION, authorization);
        Ok(self.sender.clone().send_request(request).await?)
    }
}

fn tls(access: &ClusterAccess) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(access.ca().certificates().iter().cloned());
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
