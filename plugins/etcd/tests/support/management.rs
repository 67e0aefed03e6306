//! A real management cluster, and Secrets as Cluster API makes them.

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use clustercache::{ClusterAccess, ClusterCache, ClusterKey, MemorySource, Upsert};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_etcd::SecretIssuers;
use clustercache_kubeconfig::{Kubeconfig, Policy};
use clustercache_testkit::{
    pki::ClusterCa,
    real::{Caller, RealApiServer, RealApiServers},
};
use http::Method;
use serde_json::{Value, json};

use super::LIMIT;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A management cluster, in a cache of its own.
pub struct Management {
    pub servers: RealApiServers,
    cache: ClusterCache,
}

impl Management {
    fn key() -> ClusterKey {
        ClusterKey::named("management")
    }

    pub async fn of(servers: RealApiServers) -> anyhow::Result<Self> {
        let source = MemorySource::new("management");
        source.upsert(Upsert::ready(Self::key(), access(&servers[0])?));
        let cache = ClusterCache::builder()
            .source(source)
            .resource(KubeClient::new())
            .health_from::<KubeClient>()
            .start()?;
        cache.wait_for(&Self::key(), LIMIT).await?;
        Ok(Self { servers, cache })
    }

    pub fn issuers(&self) -> SecretIssuers {
        let cache = self.cache.clone();
        SecretIssuers::by(move || cache.client(&Self::key()))
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let answer = self.servers[0]
            .request(Caller::Admin, method, path, body)
            .await?;
        answer.success()?;
        Ok(())
    }

    pub async fn create(&self, secret: &Value) -> anyhow::Result<()> {
        self.send(Method::POST, SECRETS, Some(secret)).await
    }

    pub async fn replace(&self, secret: &Value) -> anyhow::Result<()> {
        let path = format!(
            "{SECRETS}/{}",
            secret["metadata"]["name"].as_str().context("a name")?
        );
        self.send(Method::PUT, &path, Some(secret)).await
    }

    pub async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, &format!("{SECRETS}/{name}"), None)
            .await
    }
}

fn access(server: &RealApiServer) -> anyhow::Result<ClusterAccess> {
    let kubeconfig = Kubeconfig::parse(server.kubeconfig().as_bytes(), &Policy::operator())?;
    Ok(kubeconfig.current()?.1)
}

/// A Secret of a cluster, as Cluster API makes it; without entries that are empty.
pub fn secret(cluster: &str, ending: &str, entries: &[(&str, &str)]) -> Value {
    let data = entries.iter().filter(|(_, text)| !text.is_empty());
    let data: serde_json::Map<_, _> = data
        .map(|(entry, text)| ((*entry).to_owned(), BASE64_STANDARD.encode(text).into()))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": format!("{cluster}{ending}"),
            "labels": { "cluster.x-k8s.io/cluster-name": cluster },
        },
        "data": data,
    })
}

pub fn ca_secret(cluster: &str, certificates: &str, ca: &ClusterCa) -> Value {
    secret(
        cluster,
        "-etcd",
        &[("tls.crt", certificates), ("tls.key", &ca.key_pem())],
    )
}

pub fn owned(mut secret: Value, uid: &str) -> Value {
    secret["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "it", "uid": uid,
    }]);
    secret
}

pub fn unlabelled(mut secret: Value) -> Value {
    secret["metadata"]["labels"] = json!({});
    secret
}
