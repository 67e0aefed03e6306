//! One etcd member with client certificates required, as kubeadm lays it out: a CA of its own, a server certificate with the node's name. It can
//! be given another CA.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ::http::Method;
use rustls::ClientConfig;
use serde_json::json;
use tempfile::TempDir;

use super::binaries::Binaries;
use super::http::{self, Ask};
use super::process::{Process, Spec, flags};
use super::watchdog::Watchdog;
use super::{Answer, PemPair, RealError, pki, ports};

/// What a member shows, and by which CAs it judges its clients.
#[derive(Debug, Clone, Copy)]
pub struct MemberPki<'a> {
    /// The CAs whose client certificates it accepts, as PEM.
    pub trusted_pem: &'a str,
    /// Its own certificate, which must be for clients too: etcd dials itself.
    pub server: &'a PemPair,
}

/// A real etcd of one member, on loopback. It ends with this value.
#[derive(Debug)]
pub struct RealEtcdMember {
    // In the order in which they must go.
    process: Process,
    address: SocketAddr,
    watchdog: Watchdog,
    folder: TempDir,
}

impl RealEtcdMember {
    /// Starts one, and returns when it answers.
    pub async fn start(pki: MemberPki<'_>) -> Result<Self, RealError> {
        let binaries = Binaries::find()?;
        let folder = tempfile::Builder::new()
            .prefix("clustercache-etcd-")
            .tempdir()
            .map_err(RealError::io("make a temporary folder"))?;
        let watchdog = Watchdog::over(folder.path())?;
        write(folder.path(), pki)?;
        let address = ports::free()?;
        let process = Process::start(Spec {
            name: "etcd".to_owned(),
            program: binaries.etcd,
            arguments: arguments(folder.path(), address)?,
            log: folder.path().join("etcd.log"),
            group: 0,
        })?;
        let mut member = Self {
            process,
            address,
            watchdog,
            folder,
        };
        member.until_ready(pki).await?;
        Ok(member)
    }

    /// Starts it again with other certificates, over the same data and on the same port.
    pub async fn restart(&mut self, pki: MemberPki<'_>) -> Result<(), RealError> {
        self.process.kill().await?;
        write(self.folder.path(), pki)?;
        self.process.spawn()?;
        self.until_ready(pki).await
    }

    /// Where it listens for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for its status with this client's certificate, on a connection of its own.
    pub async fn status(&self, tls: &Arc<ClientConfig>) -> Result<Answer, RealError> {
        let ask = Ask {
            method: Method::POST,
            path: "/v3/maintenance/status",
            bearer: None,
            body: Some(&json!({})),
        };
        ask.send(self.address, Arc::clone(tls)).await?.success()
    }

    /// The end of what it logged, over all its lives.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    async fn until_ready(&mut self, pki: MemberPki<'_>) -> Result<(), RealError> {
        if let Some(group) = self.process.pid() {
            self.watchdog.watch(group)?;
        }
        let tls = http::tls("etcd", pki.trusted_pem, Some(pki.server))?;
        let address = self.address;
        let ask = || async {
            let answer = Ask::get("/health").send(address, Arc::clone(&tls)).await?;
            answer.success().map(drop)
        };
        self.process.ready(ask).await
    }
}

fn write(folder: &Path, pki: MemberPki<'_>) -> Result<(), RealError> {
    pki::write(folder, "ca.crt", pki.trusted_pem)?;
    pki.server.write(folder, "server").map(drop)
}

fn arguments(folder: &Path, address: SocketAddr) -> Result<Vec<std::ffi::OsString>, RealError> {
    let url = format!("https://{address}");
    let peer_url = format!("https://{}", ports::free()?);
    let file = |name: &str| folder.join(name).into_os_string();
    Ok(flags([
        ("--name", "node".into()),
        ("--data-dir", file("data")),
        ("--listen-client-urls", url.clone().into()),
        ("--advertise-client-urls", url.into()),
        ("--listen-peer-urls", peer_url.clone().into()),
        ("--initial-advertise-peer-urls", peer_url.clone().into()),
        ("--initial-cluster", format!("node={peer_url}").into()),
        ("--cert-file", file("server.crt")),
        ("--key-file", file("server.key")),
        ("--trusted-ca-file", file("ca.crt")),
        ("--client-cert-auth", "true".into()),
        ("--peer-cert-file", file("server.crt")),
        ("--peer-key-file", file("server.key")),
        ("--peer-trusted-ca-file", file("ca.crt")),
        ("--peer-client-cert-auth", "true".into()),
        // What it holds is worth nothing after the test.
        ("--unsafe-no-fsync", "true".into()),
        ("--log-level", "warn".into()),
    ]))
}
