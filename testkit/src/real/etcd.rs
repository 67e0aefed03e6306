//! The one etcd that all API servers of a fleet share, with client certificates required.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ::http::Method;
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::http::{self, Ask};
use super::pki::{self, Authority};
use super::process::{Process, Spec};
use super::{Answer, PemPair, RealError, ports};

/// A real etcd.
#[derive(Debug)]
pub struct RealEtcd {
    process: Process,
    address: SocketAddr,
    ca_pem: String,
    client: PemPair,
    tls: Arc<ClientConfig>,
}

impl RealEtcd {
    pub(super) async fn start(
        program: &Path,
        folder: &Path,
        spawned: impl FnOnce(u32) -> Result<(), RealError>,
    ) -> Result<Self, RealError> {
        let authority = Authority::new("etcd-ca")?;
        let ca_pem = authority.cert_pem();
        let ca = pki::write(folder, "etcd-ca.crt", &ca_pem)?;
        let server = authority.server("etcd")?.write(folder, "etcd")?;
        let client = authority.client("root", None)?;
        let tls = http::tls("etcd", &ca_pem, Some(&client))?;

        let address = ports::free()?;
        let url = format!("https://{address}");
        let peer_url = format!("https://{}", ports::free()?);
        let arguments = [
            ("--name", "etcd".into()),
            ("--data-dir", folder.join("etcd-data").into_os_string()),
            ("--listen-client-urls", url.clone().into()),
            ("--advertise-client-urls", url.into()),
            ("--listen-peer-urls", peer_url.clone().into()),
            ("--initial-advertise-peer-urls", peer_url.clone().into()),
            ("--initial-cluster", format!("etcd={peer_url}").into()),
            ("--cert-file", server.cert.clone().into()),
            ("--key-file", server.key.clone().into()),
            ("--trusted-ca-file", ca.clone().into()),
            ("--client-cert-auth", "true".into()),
            ("--peer-cert-file", server.cert.into()),
            ("--peer-key-file", server.key.into()),
            ("--peer-trusted-ca-file", ca.into()),
            ("--peer-client-cert-auth", "true".into()),
            // What it holds is worth nothing after the test.
            ("--unsafe-no-fsync", "true".into()),
            ("--log-level", "warn".into()),
        ];
        let process = Process::start(Spec {
            name: "etcd".to_owned(),
            program: program.to_owned(),
            arguments: super::process::flags(arguments),
            log: folder.join("etcd.log"),
            group: 0,
        })?;
        if let Some(group) = process.pid() {
            spawned(group)?;
        }
        let mut etcd = Self {
            process,
            address,
            ca_pem,
            client,
            tls,
        };
        let tls = &etcd.tls;
        etcd.process
            .ready(|| async { healthy(address, Arc::clone(tls)).await?.success().map(drop) })
            .await?;
        Ok(etcd)
    }

    /// Where it listens for clients.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The authority that signed its certificate, and whose client certificates it accepts.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A client certificate that it accepts.
    pub fn client(&self) -> &PemPair {
        &self.client
    }

    /// The process, which is also the group of all API servers that share it.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Asks for `/health`.
    pub async fn health(&self) -> Result<Answer, RealError> {
        healthy(self.address, Arc::clone(&self.tls)).await
    }

    /// Forgets all history until now, as `etcdctl compact` does. An API server remembers for a while what its etcd has forgotten, until it is
    /// started again.
    pub async fn compact(&self) -> Result<(), RealError> {
        // `\0`: what it is asked for is of no matter, its answer says the newest revision.
        let newest: Value = self
            .ask("/v3/kv/range", &json!({ "key": "AA==" }))
            .await?
            .json()?;
        let revision = &newest["header"]["revision"];
        let compaction = json!({ "revision": revision, "physical": true });
        self.ask("/v3/kv/compaction", &compaction).await.map(drop)
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Answer, RealError> {
        let ask = Ask {
            method: Method::POST,
            path,
            bearer: None,
            body: Some(body),
        };
        ask.send(self.address, Arc::clone(&self.tls))
            .await?
            .success()
    }

    /// `kill -STOP`: every API server of the fleet loses its storage, and keeps answering what it can.
    pub fn stop(&self) -> Result<(), RealError> {
        self.process.stop()
    }

    /// `kill -CONT`.
    pub fn cont(&self) -> Result<(), RealError> {
        self.process.cont()
    }

    /// The end of what it logged.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

async fn healthy(address: SocketAddr, tls: Arc<ClientConfig>) -> Result<Answer, RealError> {
    Ask::get("/health").send(address, tls).await
}
