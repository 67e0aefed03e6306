//! A cache without clusters, CAs of every kind, and a real etcd that judges what comes out.
#![allow(dead_code, unreachable_pub)] // each test uses its part of it

use std::{
    io::{self, Write as _},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource,
    ClusterState, HealthCheck, InitContext, InitError, MemorySource, ResourcePhase, ResourceState,
    Upsert,
};
use clustercache_etcd::{EtcdClientKey, EtcdIssuer, IssuedCertificate};
use clustercache_testkit::{
    pki::{ClusterCa, Validity},
    real::{MemberPki, PemPair, RealEtcdMember, SKIPPED},
};
use futures_util::StreamExt;

pub mod management;

/// Longer than anything here takes; reached by a fault only.
pub const LIMIT: Duration = Duration::from_secs(120);

pub const NAME: &str = "etcd-client-key";

/// The health provider of clusters that are always there.
pub struct Link;

#[async_trait]
impl ClusterResource for Link {
    type Value = ();

    fn name(&self) -> &'static str {
        "link"
    }

    async fn init(&self, _: &InitContext) -> Result<(), InitError> {
        Ok(())
    }
}

#[async_trait]
impl HealthCheck for Link {
    async fn check(&self, (): &(), _: &CheckContext) -> Result<Answer, CheckError> {
        Ok(Answer::Ready)
    }
}

/// A cache of clusters that need no network.
pub fn cache(provider: EtcdClientKey) -> (ClusterCache, MemorySource) {
    let source = MemorySource::new("test");
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(Link)
        .health_from::<Link>()
        .optional(provider)
        .configure(|options| options.source.linger = Duration::ZERO)
        .start()
        .expect("a good set-up");
    (cache, source)
}

pub fn key(name: &str) -> ClusterKey {
    ClusterKey::new("default", name)
}

pub fn cluster(name: &str, uid: &str) -> Upsert {
    let access = ClusterAccess::builder("https://cluster.invalid:6443")
        .build()
        .expect("a good access");
    Upsert::ready(key(name), access).with_uid(uid)
}

/// A CA as an issuer.
pub fn issuer(ca: &ClusterCa) -> EtcdIssuer {
    EtcdIssuer::ca("the CA of the test", ca.pem(), ca.key_pem())
}

pub fn resource(state: &ClusterState) -> ResourceState {
    let mut resources = state.resources.iter();
    let found = resources.find(|resource| resource.name == NAME);
    found.expect("it is registered").clone()
}

/// Waits until the resource of a cluster is as `is` says.
pub async fn until(
    cache: &ClusterCache,
    key: &ClusterKey,
    is: impl Fn(&ResourceState) -> bool,
) -> ResourceState {
    let mut events = cache.subscribe().key(key);
    let so = async {
        loop {
            match cache.state(key).map(|state| resource(&state)) {
                Ok(resource) if is(&resource) => return resource,
                _ => assert!(events.next().await.is_some(), "the cache ended"),
            }
        }
    };
    tokio::time::timeout(LIMIT, so)
        .await
        .unwrap_or_else(|_| panic!("never so: {:?}", cache.state(key)))
}

pub async fn up(cache: &ClusterCache, key: &ClusterKey) -> Arc<IssuedCertificate> {
    until(cache, key, |resource| resource.phase == ResourcePhase::Up).await;
    current(cache, key)
}

pub fn current(cache: &ClusterCache, key: &ClusterKey) -> Arc<IssuedCertificate> {
    let value = cache.get::<EtcdClientKey>(key).expect("it is up");
    value.current().expect("it is valid")
}

/// Waits until readers get another certificate than this.
pub async fn after(
    cache: &ClusterCache,
    key: &ClusterKey,
    old: &Arc<IssuedCertificate>,
) -> Arc<IssuedCertificate> {
    let mut events = cache.subscribe().key(key);
    let so = async {
        loop {
            let value = cache.get::<EtcdClientKey>(key);
            match value.map(|value| value.current()) {
                Ok(Ok(new)) if !Arc::ptr_eq(&new, old) => return new,
                _ => assert!(events.next().await.is_some(), "the cache ended"),
            }
        }
    };
    let new = tokio::time::timeout(LIMIT, so).await;
    new.unwrap_or_else(|_| panic!("never another: {:?}", cache.state(key)))
}

/// The certificate of a member as kubeadm makes it.
pub fn member(ca: &ClusterCa) -> PemPair {
    let leaf = ca.etcd_member("node", Validity::years()).expect("a leaf");
    PemPair {
        cert_pem: leaf.certificate_pem(),
        key_pem: leaf.key_pem(),
    }
}

/// Starts an etcd of this CA, or says loudly that the test is skipped.
pub async fn etcd(ca: &ClusterCa) -> Option<RealEtcdMember> {
    let (trusted, server) = (ca.pem(), member(ca));
    let pki = MemberPki {
        trusted_pem: &trusted,
        server: &server,
    };
    clustercache_testkit::real::or_skip(RealEtcdMember::start(pki).await)
}

/// `openssl`, or a line that says what is skipped for the want of it.
pub fn openssl(test: &str) -> Option<()> {
    if Command::new("openssl").arg("version").output().is_ok() {
        return Some(());
    }
    // Past the test harness, which would hide it. A line that cannot be written must not fail a test that is skipped.
    let _ = writeln!(io::stderr(), "{SKIPPED} {test}: there is no openssl");
    None
}

/// Runs openssl in a folder; what it printed.
pub fn run_openssl(folder: &Path, line: &str) -> anyhow::Result<String> {
    let output = Command::new("openssl")
        .args(line.split(' '))
        .current_dir(folder)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "openssl {line}: {said}");
    String::from_utf8(output.stdout).context("text")
}
