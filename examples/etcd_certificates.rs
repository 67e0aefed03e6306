//! etcd client certificates for a fleet: one for each of twenty clusters, used towards a real etcd; a CA is rotated in the middle, and a cluster is
//! created again under its name.
//!
//! `cargo run --example etcd_certificates`: twenty fake API servers over real TLS, and an etcd if there is one to start (`cargo xtask api-server`
//! builds it).

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use clustercache::{ClusterCache, ClusterKey, Identity, MemorySource, ResourcePhase, Upsert};
use clustercache_client::KubeClient;
use clustercache_etcd::{
    CurrentError, EtcdClientKey, EtcdIssuer, IssuedCertificate, MemoryIssuers,
};
use clustercache_kubeconfig::{Kubeconfig, Policy};
use clustercache_testkit::{
    fleet::{FakeCluster, Fleet},
    pki::{ClusterCa, Validity},
    real::{MemberPki, PemPair, RealEtcdMember},
};
use futures_util::StreamExt;
use tokio::time::timeout;

const CLUSTERS: usize = 20;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The fleet's clusters, and what a management cluster would know of them: their kubeconfigs, and the CAs of their etcds.
struct Fleets {
    fleet: Fleet,
    clusters: MemorySource,
    /// With a management cluster at hand this is `SecretIssuers::new(client)`.
    issuers: MemoryIssuers,
}

impl Fleets {
    fn name(&self, cluster: &FakeCluster, uid: &str) -> anyhow::Result<()> {
        let kubeconfig = Kubeconfig::parse(cluster.kubeconfig().as_bytes(), &Policy::operator())?;
        let upsert = Upsert::ready(key(cluster), kubeconfig.current()?.1);
        self.clusters.upsert(upsert.with_uid(uid));
        Ok(())
    }

    fn sign_by(&self, cluster: &FakeCluster, uid: &str, certificates: String, ca: &ClusterCa) {
        let issuer = EtcdIssuer::ca(format!("the CA of {uid}"), certificates, ca.key_pem());
        let identity = Identity::Uid(uid.into());
        self.issuers.set_of(&key(cluster), identity, issuer);
    }
}

fn key(cluster: &FakeCluster) -> ClusterKey {
    ClusterKey::new("default", cluster.name())
}

/// Waits for the certificate of a cluster, and for another one than that before.
async fn certificate(
    cache: &ClusterCache,
    key: &ClusterKey,
    before: Option<&Arc<IssuedCertificate>>,
) -> anyhow::Result<Arc<IssuedCertificate>> {
    let mut events = cache.subscribe().key(key);
    let so = async {
        loop {
            // What a reconciler does: it never waits.
            if let Ok(value) = cache.get::<EtcdClientKey>(key)
                && let Ok(now) = value.current()
                && before.is_none_or(|before| !Arc::ptr_eq(before, &now))
            {
                return anyhow::Ok(now);
            }
            events.next().await.context("the cache ended")?;
        }
    };
    timeout(LIMIT, so).await.context("not in time")?
}

/// The certificate of a member as kubeadm makes it.
fn member(ca: &ClusterCa) -> anyhow::Result<PemPair> {
    let leaf = ca.etcd_member("node", Validity::years())?;
    Ok(PemPair {
        cert_pem: leaf.certificate_pem(),
        key_pem: leaf.key_pem(),
    })
}

/// An etcd that accepts clients of this CA, if there is one.
async fn etcd(ca: &ClusterCa) -> anyhow::Result<Option<RealEtcdMember>> {
    let pki = MemberPki {
        trusted_pem: &ca.pem(),
        server: &member(ca)?,
    };
    match RealEtcdMember::start(pki).await {
        Err(error) if error.is_unavailable() => {
            println!("no etcd is called: {error}");
            Ok(None)
        }
        started => Ok(Some(started?)),
    }
}

async fn call(
    etcd: Option<&RealEtcdMember>,
    certificate: &IssuedCertificate,
) -> anyhow::Result<()> {
    if let Some(etcd) = etcd {
        let status: serde_json::Value = etcd.status(certificate.client_config()).await?.json()?;
        println!("  etcd {} answers", status["version"]);
    }
    Ok(())
}

/// The CA of the first cluster is another: both are trusted, then the new one signs.
async fn rotate(
    fleets: &Fleets,
    cache: &ClusterCache,
    etcd: Option<&mut RealEtcdMember>,
    ca: &ClusterCa,
    before: &Arc<IssuedCertificate>,
) -> anyhow::Result<()> {
    let first = &fleets.fleet.clusters()[0];
    println!("the CA of {} is rotated", first.name());
    let new_ca = ClusterCa::new("etcd-ca")?;
    fleets.sign_by(first, "1", ca.pem() + &new_ca.pem(), &new_ca);
    let renewed = certificate(cache, &key(first), Some(before)).await?;
    ensure!(renewed.key_pem() == before.key_pem(), "the key stays");
    let Some(etcd) = etcd else { return Ok(()) };
    let pki = MemberPki {
        trusted_pem: &new_ca.pem(),
        server: &member(&new_ca)?,
    };
    etcd.restart(pki).await?;
    call(Some(etcd), &renewed).await
}

/// The last cluster is deleted and created again under its name, with another CA, while somebody holds what was the old one's.
async fn create_again(fleets: &Fleets, cache: &ClusterCache) -> anyhow::Result<()> {
    let last = &fleets.fleet.clusters()[CLUSTERS - 1];
    println!("{} is created again", last.name());
    let held = cache.get::<EtcdClientKey>(&key(last))?;
    last.replace()?;
    fleets.name(last, "2")?;
    let mut events = cache.subscribe().key(&key(last));
    while held.current().is_ok() {
        let event = timeout(LIMIT, events.next()).await?;
        event.context("the cache ended")?;
    }
    ensure!(matches!(held.current(), Err(CurrentError::Retired)));
    if let Err(why) = cache.get::<EtcdClientKey>(&key(last)) {
        println!("  nothing of the old one is served: {why}");
    }
    let its_own = ClusterCa::new("etcd-ca")?;
    fleets.sign_by(last, "2", its_own.pem(), &its_own);
    let new = certificate(cache, &key(last), None).await?;
    ensure!(new.ca_pem() == its_own.pem());
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let fleets = Fleets {
        fleet: Fleet::start(CLUSTERS).await?,
        clusters: MemorySource::new("management"),
        issuers: MemoryIssuers::new(),
    };
    let provider = EtcdClientKey::per_cluster(fleets.issuers.clone());
    let keys = provider.keys();
    let cache = ClusterCache::builder()
        .source(fleets.clusters.clone())
        .resource(KubeClient::new().user_agent("etcd-example/1.0"))
        .health_from::<KubeClient>()
        .optional(provider)
        .configure(|options| options.source.linger = Duration::ZERO)
        .start()?;

    let all = fleets.fleet.clusters();
    let ca = ClusterCa::new("etcd-ca")?;
    for cluster in all {
        let its_own = ClusterCa::new("etcd-ca")?;
        let ca = if key(cluster) == key(&all[0]) {
            &ca
        } else {
            &its_own
        };
        fleets.sign_by(cluster, "1", ca.pem(), ca);
        fleets.name(cluster, "1")?;
    }
    let mut certificates = Vec::new();
    for cluster in all {
        certificates.push(certificate(&cache, &key(cluster), None).await?);
    }
    let counts = || {
        format!(
            "{} keys, {} certificates",
            keys.counts().keys(),
            keys.counts().certificates()
        )
    };
    println!("{CLUSTERS} clusters: {}", counts());
    let mut etcd = etcd(&ca).await?;
    call(etcd.as_ref(), &certificates[0]).await?;

    rotate(&fleets, &cache, etcd.as_mut(), &ca, &certificates[0]).await?;
    create_again(&fleets, &cache).await?;

    println!("all keys are rotated");
    keys.rotate_key();
    for (cluster, old) in all.iter().zip(&certificates).skip(1).take(CLUSTERS - 2) {
        let now = certificate(&cache, &key(cluster), Some(old)).await?;
        ensure!(now.key_pem() != old.key_pem());
    }
    println!("{}", counts());
    let state = cache.state(&key(&all[0]))?;
    let of_etcd = state
        .resources
        .iter()
        .find(|resource| resource.expires.is_some());
    let of_etcd = of_etcd.context("it says when it ends")?;
    ensure!(of_etcd.phase == ResourcePhase::Up);
    cache.shutdown().await?;
    fleets.fleet.shutdown().await;
    Ok(())
}
