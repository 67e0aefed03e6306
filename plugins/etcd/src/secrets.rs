//! Issuers from the Secrets of a management cluster, as Cluster API lays them out: `<cluster>-etcd`, and where that has no key
//! `<cluster>-apiserver-etcd-client`. Read live when something is to be signed, and watched by their metadata: no CA's key is kept.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use clustercache::{ClusterKey, Identity};
use futures_util::stream::BoxStream;
use kube::Client;
use tokio::sync::Semaphore;

use crate::{EtcdIssuer, EtcdIssuerSource, IssuerChange, IssuerError};

mod document;
mod read;
mod watch;

use document::Secret;

/// By which Cluster API says whose a Secret is: such Secrets are watched.
const LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The two Secrets of a cluster, by how their names end.
const CA: &str = "-etcd";
const EXTERNAL: &str = "-apiserver-etcd-client";

/// Reads etcd CAs from the Secrets of a management cluster, as Cluster API keeps them: `<cluster>-etcd` in the cluster's namespace, with
/// `tls.crt` and `tls.key`. Without a `tls.key` the etcd is external, and `<cluster>-apiserver-etcd-client` is used as it is.
///
/// - A Secret that is being deleted, or is owned by a `Cluster` of another UID than the [source](clustercache::ClusterSource) of the cluster
///   says, is not used.
/// - One watch for all, of the metadata of Secrets with the label `cluster.x-k8s.io/cluster-name`. A Secret without it is found all the same,
///   with a warning, and read again once a minute.
/// - It needs `get`, `list` and `watch` on Secrets.
///
/// ```no_run
/// use clustercache_etcd::{EtcdClientKey, SecretIssuers};
///
/// # async fn of(management: kube::Client) {
/// let provider = EtcdClientKey::per_cluster(SecretIssuers::new(management));
/// # let _ = provider;
/// # }
/// ```
#[derive(Clone)]
pub struct SecretIssuers {
    turns: Arc<Semaphore>,
    client: Arc<dyn Fn() -> Result<Client, String> + Send + Sync>,
}

impl SecretIssuers {
    /// Of the management cluster that `client` is for.
    pub fn new(client: Client) -> Self {
        Self::by(move || Ok::<_, std::convert::Infallible>(client.clone()))
    }

    /// The same with a client that is asked for at each call: for a management cluster that is in a `ClusterCache` itself, whose clients come
    /// and go.
    pub fn by<E: fmt::Display>(
        client: impl Fn() -> Result<Client, E> + Send + Sync + 'static,
    ) -> Self {
        let client = move || client().map_err(|error| shortened(&error.to_string()));
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            client: Arc::new(client),
        }
    }

    fn client(&self, what: &str) -> Result<Client, IssuerError> {
        (self.client)().map_err(|why| IssuerError::Unreachable {
            what: what.to_owned(),
            why,
        })
    }
}

#[async_trait]
impl EtcdIssuerSource for SecretIssuers {
    async fn read(
        &self,
        cluster: &ClusterKey,
        identity: &Identity,
    ) -> Result<EtcdIssuer, IssuerError> {
        let mut ca = self.secret(cluster, CA, identity).await?;
        let certificates = ca.take("tls.crt")?.to_vec();
        let issuer = if let Some(key) = ca.take_if_there("tls.key")? {
            EtcdIssuer::ca(ca.what(), certificates, key.to_vec())
        } else {
            let mut client = self.secret(cluster, EXTERNAL, identity).await?;
            let certificate = client.take("tls.crt")?.to_vec();
            let key = client.take("tls.key")?.to_vec();
            let issuer = EtcdIssuer::external(client.what(), certificates, certificate, key);
            client.marks(issuer)
        };
        Ok(ca.marks(issuer))
    }

    fn changes(&self) -> BoxStream<'static, Result<IssuerChange, IssuerError>> {
        watch::changes(self.clone())
    }
}

impl SecretIssuers {
    async fn secret(
        &self,
        cluster: &ClusterKey,
        ending: &str,
        identity: &Identity,
    ) -> Result<Secret, IssuerError> {
        let name = format!("{}{ending}", cluster.name());
        let client = self.client(&name)?;
        let namespace = cluster.namespace().unwrap_or(client.default_namespace());
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let secret = read::secret(&client, namespace, &name).await?;
        secret.is_of(identity)?;
        Ok(secret)
    }
}

/// Of text that is somebody else's: on one line, and cut.
fn shortened(text: &str) -> String {
    const MOST: usize = 300;
    text.escape_debug().take(MOST).collect()
}

impl fmt::Debug for SecretIssuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretIssuers").finish_non_exhaustive()
    }
}

/// Reads at once: a fleet that starts does not ask for thousands of Secrets in one moment.
const AT_ONCE: usize = 64;

/// How long a call other than a watch may take.
const CALL_WITHIN: Duration = Duration::from_secs(10);
