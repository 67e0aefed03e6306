//! One real kube-apiserver: its own authority, its admin, its tokens, and what can be done to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::http::{self, Ask};
use super::pki::{self, Authority};
use super::process::{Process, Spec, flags};
use super::{Answer, PemPair, RealError, RealEtcd, ports};

/// Less is refused by the server.
const SHORTEST_TOKEN: Duration = Duration::from_secs(600);
/// How long a role binding may take to be seen by the authorizer.
const GRANTED_WITHIN: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// The admin, by client certificate.
    Admin,
    /// Whoever holds this client certificate.
    Certificate(&'a PemPair),
    /// Whoever holds this token.
    Token(&'a str),
    /// Nobody in particular: no credential is sent.
    Anonymous,
}

/// A real kube-apiserver.
#[derive(Debug)]
pub struct RealApiServer {
    process: Process,
    address: SocketAddr,
    authority: Authority,
    ca_pem: String,
    admin: PemPair,
    tls_admin: Arc<ClientConfig>,
    tls_bare: Arc<ClientConfig>,
}

impl RealApiServer {
    pub(super) async fn start(
        program: &Path,
        folder: &Path,
        index: usize,
        etcd: &RealEtcd,
    ) -> Result<Self, RealError> {
        let name = format!("kube-apiserver-{index}");
        let folder = folder.join(&name);
        std::fs::create_dir(&folder)
            .map_err(RealError::io(format!("make {}", folder.display())))?;

        let authority = Authority::new(&format!("{name}-ca"))?;
        let ca_pem = authority.cert_pem();
        let admin = authority.client("admin", Some("system:masters"))?;
        let tls_admin = http::tls(&name, &ca_pem, Some(&admin))?;
        let tls_bare = http::tls(&name, &ca_pem, None)?;

        let address = ports::free()?;
        let process = Process::start(Spec {
            arguments: arguments(&folder, index, address, &authority, etcd)?,
            log: folder.join("log"),
            name,
            program: program.to_owned(),
            group: etcd.pid().unwrap_or(0),
        })?;
        let mut server = Self {
            process,
            address,
            authority,
            ca_pem,
            admin,
            tls_admin,
            tls_bare,
        };
        server.until_ready().await?;
        Ok(server)
    }

    /// Where it listens, as in `https://127.0.0.1:15000`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority that signed its certificate, and whose client certificates it accepts. No other server has it.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The client certificate of the admin, who is in the group `system:masters`.
    pub fn admin(&self) -> &PemPair {
        &self.admin
    }

    /// A new client certificate, for a user and the group that it is in, if any.
    pub fn issue_client(&self, user: &str, group: Option<&str>) -> Result<PemPair, RealError> {
        self.authority.client(user, group)
    }

    /// A kubeconfig of the admin, all data inline.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(&format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            BASE64_STANDARD.encode(&self.admin.cert_pem),
            BASE64_STANDARD.encode(&self.admin.key_pem),
        ))
    }

    /// A kubeconfig of whoever holds this token, all data inline.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        self.kubeconfig_with(&format!("token: {token}"))
    }

    fn kubeconfig_with(&self, user: &str) -> String {
        let name = self.process.name();
        let server = self.url();
        let ca = BASE64_STANDARD.encode(&self.ca_pem);
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {name}
  user:
    {user}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
current-context: {name}
"
        )
    }

    /// A new token of a service account, `namespace/name` or a name in `default`, for 600 s: the server gives none for
    /// less. The account is made where it is missing; it may do nothing yet, see [`grant_admin`](Self::grant_admin).
    ///
    /// The server caches for 10 s that it accepted a token, so one whose account was deleted is refused only after that.
    pub async fn token_for(&self, service_account: &str) -> Result<String, RealError> {
        self.token_that_lives(service_account, SHORTEST_TOKEN).await
    }

    /// Like [`token_for`](Self::token_for), for another time, of 600 s at least.
    pub async fn token_that_lives(
        &self,
        service_account: &str,
        lifetime: Duration,
    ) -> Result<String, RealError> {
        let (namespace, name) = split(service_account);
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name },
        });
        self.ensure(&accounts, &account).await?;
        let path = format!("{accounts}/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": lifetime.as_secs() },
        });
        let answer: Value = self
            .post(Caller::Admin, &path, &request)
            .await?
            .success()?
            .json()?;
        answer["status"]["token"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| RealError::NoAnswer {
                request: format!("POST {path}"),
                why: "no token in it".to_owned(),
            })
    }

    /// Binds a service account to `cluster-admin`, and returns when the server's authorizer has seen it.
    pub async fn grant_admin(&self, service_account: &str) -> Result<(), RealError> {
        let (namespace, name) = split(service_account);
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{namespace}-{name}-admin") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
        });
        self.ensure(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            &binding,
        )
        .await?;

        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{namespace}:{name}"),
                "resourceAttributes": { "verb": "*", "group": "*", "resource": "*" },
            },
        });
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let deadline = Instant::now() + GRANTED_WITHIN;
        loop {
            let answer: Value = self
                .post(Caller::Admin, reviews, &review)
                .await?
                .success()?
                .json()?;
            if answer["status"]["allowed"] == true {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(RealError::NoAnswer {
                    request: format!("POST {reviews}"),
                    why: format!("{service_account} is no admin after {GRANTED_WITHIN:?}"),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a GET.
    pub async fn get(&self, caller: Caller<'_>, path: &str) -> Result<Answer, RealError> {
        self.request(caller, Method::GET, path, None).await
    }

    /// Sends a POST with a body of JSON.
    pub async fn post(
        &self,
        caller: Caller<'_>,
        path: &str,
        body: &Value,
    ) -> Result<Answer, RealError> {
        self.request(caller, Method::POST, path, Some(body)).await
    }

    /// Sends a request on a connection of its own; an error where nothing comes back within 10 s.
    pub async fn request(
        &self,
        caller: Caller<'_>,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, RealError> {
        let (tls, bearer) = match caller {
            Caller::Admin => (Arc::clone(&self.tls_admin), None),
            Caller::Certificate(pair) => {
                let tls = http::tls(self.process.name(), &self.ca_pem, Some(pair))?;
                (tls, None)
            }
            Caller::Token(token) => (Arc::clone(&self.tls_bare), Some(token)),
            Caller::Anonymous => (Arc::clone(&self.tls_bare), None),
        };
        let ask = Ask {
            method,
            path,
            bearer,
            body,
        };
        ask.send(self.address, tls).await
    }

    /// `kill -STOP`: the system still accepts for it, and nobody answers.
    pub fn stop(&self) -> Result<(), RealError> {
        self.process.stop()
    }

    /// `kill -CONT`.
    pub fn cont(&self) -> Result<(), RealError> {
        self.process.cont()
    }

    /// `kill -9`; returns when it is gone, and connections are refused.
    pub async fn kill(&mut self) -> Result<(), RealError> {
        self.process.kill().await
    }

    /// Starts it again on the same port, with the same PKI, over the same data, and returns when it is ready. Kills it
    /// first where it still runs.
    pub async fn restart(&mut self) -> Result<(), RealError> {
        self.process.kill().await?;
        self.process.spawn()?;
        self.until_ready().await
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The end of what it logged, over all its lives.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    async fn until_ready(&mut self) -> Result<(), RealError> {
        let (address, tls) = (self.address, &self.tls_admin);
        let good = async |path| {
            let answer = Ask::get(path).send(address, Arc::clone(tls)).await?;
            answer.success().map(drop)
        };
        let ask = || async {
            good("/readyz").await?;
            // A controller inside it makes the namespace, after it said that it is ready.
            good("/api/v1/namespaces/default").await
        };
        self.process.ready(ask).await
    }

    /// Makes an object, where it is missing.
    async fn ensure(&self, path: &str, object: &Value) -> Result<(), RealError> {
        let answer = self.post(Caller::Admin, path, object).await?;
        if answer.status == StatusCode::CONFLICT {
            return Ok(());
        }
        answer.success().map(drop)
    }
}

fn split(service_account: &str) -> (&str, &str) {
    service_account
        .split_once('/')
        .unwrap_or(("default", service_account))
}

fn arguments(
    folder: &Path,
    index: usize,
    address: SocketAddr,
    authority: &Authority,
    etcd: &RealEtcd,
) -> Result<Vec<std::ffi::OsString>, RealError> {
    let ca = pki::write(folder, "ca.crt", &authority.cert_pem())?;
    let server = authority
        .server("kube-apiserver")?
        .write(folder, "server")?;
    let etcd_ca = pki::write(folder, "etcd-ca.crt", etcd.ca_pem())?;
    let etcd_client = etcd.client().write(folder, "etcd-client")?;
    let (token_private, token_public) = pki::token_keys()?;
    let token_private = pki::write(folder, "tokens.key", &token_private)?;
    let token_public = pki::write(folder, "tokens.pub", &token_public)?;
    Ok(flags([
        ("--etcd-servers", etcd.url().into()),
        ("--etcd-cafile", etcd_ca.into()),
        ("--etcd-certfile", etcd_client.cert.into()),
        ("--etcd-keyfile", etcd_client.key.into()),
        ("--etcd-prefix", format!("/cluster-{index}").into()),
        ("--bind-address", address.ip().to_string().into()),
        ("--advertise-address", address.ip().to_string().into()),
        ("--secure-port", address.port().to_string().into()),
        ("--cert-dir", folder.into()),
        ("--tls-cert-file", server.cert.into()),
        ("--tls-private-key-file", server.key.into()),
        ("--client-ca-file", ca.into()),
        ("--service-account-key-file", token_public.into()),
        ("--service-account-signing-key-file", token_private.into()),
        (
            "--service-account-issuer",
            "https://kubernetes.default.svc".into(),
        ),
        ("--service-cluster-ip-range", "10.0.0.0/24".into()),
        ("--authorization-mode", "RBAC".into()),
        // No controller makes the account that it would ask for.
        ("--disable-admission-plugins", "ServiceAccount".into()),
        ("--endpoint-reconciler-type", "none".into()),
        ("--profiling", "false".into()),
    ]))
}
