//! One request over TLS on a connection of its own, with a deadline: what a harness needs to ask, and no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{PemPair, RealError};

/// A stopped server accepts and answers nothing: nobody waits longer than this.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body, whole.
    pub body: Bytes,
    request: String,
}

impl Answer {
    /// The body as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, RealError> {
        serde_json::from_slice(&self.body).map_err(|source| RealError::Json {
            request: self.request.clone(),
            source,
        })
    }

    /// This answer, or an error where it is none of success.
    pub fn success(self) -> Result<Self, RealError> {
        if self.status.is_success() {
            return Ok(self);
        }
        Err(RealError::Refused {
            status: self.status,
            body: self.text().chars().take(1000).collect(),
            request: self.request,
        })
    }
}

/// The TLS side of a client that trusts one authority.
pub(super) fn tls(
    name: &str,
    ca_pem: &str,
    pair: Option<&PemPair>,
) -> Result<Arc<ClientConfig>, RealError> {
    let wrong = |source| RealError::Tls {
        name: name.to_owned(),
        source,
    };
    let not_pem = |_| wrong(rustls::Error::General("not PEM".to_owned()));
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(cert.map_err(not_pem)?).map_err(wrong)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_root_certificates(roots);
    let config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .map_err(not_pem)?;
            let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(not_pem)?;
            builder.with_client_auth_cert(chain, key).map_err(wrong)?
        }
    };
    Ok(Arc::new(config))
}

/// A request to be sent.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) bearer: Option<&'a str>,
    pub(super) body: Option<&'a Value>,
}

impl<'a> Ask<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self {
            method: Method::GET,
            path,
            bearer: None,
            body: None,
        }
    }

    pub(super) async fn send(
        self,
        to: SocketAddr,
        tls: Arc<ClientConfig>,
    ) -> Result<Answer, RealError> {
        let request = format!("{} https://{to}{}", self.method, self.path);
        let no_answer = |why: String| RealError::NoAnswer {
            request: request.clone(),
            why,
        };
        match tokio::time::timeout(ANSWER_WITHIN, self.exchange(to, tls)).await {
            Ok(Ok((status, body))) => Ok(Answer {
                status,
                body,
                request,
            }),
            Ok(Err((step, why))) => Err(no_answer(format!("{step}: {why}"))),
            Err(_) => Err(no_answer(format!("nothing within {ANSWER_WITHIN:?}"))),
        }
    }

    async fn exchange(
        self,
        to: SocketAddr,
        tls: Arc<ClientConfig>,
    ) -> Result<(StatusCode, Bytes), Wrong> {
        let socket = TcpStream::connect(to).await.map_err(at("connect"))?;
        let stream = TlsConnector::from(tls)
            .connect(ServerName::IpAddress(to.ip().into()), socket)
            .await
            .map_err(at("TLS"))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(at("HTTP"))?;
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(header::HOST, to.to_string())
            .header(header::ACCEPT, "application/json");
        if let Some(token) = self.bearer {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match self.body {
            None => Bytes::new(),
            Some(json) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                json.to_string().into()
            }
        };
        let request = request.body(Full::new(body)).map_err(at("request"))?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(at("answer"))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), BODY_LIMIT)
                .collect()
                .await
                .map_err(at("body"))?;
            Ok((status, body.to_bytes()))
        };
        // The connection lives in this future, so that nothing outlives the request.
        tokio::pin!(answer);
        tokio::select! {
            done = &mut answer => done,
            ended = connection => match ended {
                Ok(()) => answer.await,
                Err(error) => Err(at("connection")(error)),
            },
        }
    }
}

/// The step that failed, and why.
type Wrong = (&'static str, String);

fn at<E: std::fmt::Display>(step: &'static str) -> impl FnOnce(E) -> Wrong {
    move |error| (step, error.to_string())
}
