//! A certificate's life: made once, whoever asks and however often the cluster reconnects; renewed in time; kept when that fails, and said so; and
//! nothing of it left for another cluster of the name.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use clustercache::{ClusterKey, GetError, Identity, Phase, ResourcePhase};
use clustercache_etcd::{
    CurrentError, EtcdClientKey, EtcdIssuer, IssuedCertificate, KeyAlgorithm, MemoryIssuers,
};
use clustercache_testkit::{
    pki::{ClusterCa, Validity},
    real::{MemberPki, RealEtcdMember},
};
use futures_util::{StreamExt, future::join_all};
use sha2::{Digest, Sha256};
use support::{LIMIT, after, cache, cluster, current, etcd, issuer, key, member, until, up};

fn ca() -> ClusterCa {
    ClusterCa::new("etcd-ca").expect("a CA")
}

/// Calls an etcd all the time, each on a new connection with the certificate that is current then.
struct Calls {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Result<RealEtcdMember, String>>,
}

impl Calls {
    fn begin(cache: &clustercache::ClusterCache, key: &ClusterKey, etcd: RealEtcdMember) -> Self {
        let (stop, made) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (cache, key) = (cache.clone(), key.clone());
        let task = tokio::spawn({
            let (stop, made) = (Arc::clone(&stop), Arc::clone(&made));
            async move {
                while !stop.load(Relaxed) {
                    let value = cache
                        .get::<EtcdClientKey>(&key)
                        .map_err(|error| error.to_string())?;
                    let certificate = value.current().map_err(|error| error.to_string())?;
                    let answer = etcd.status(certificate.client_config()).await;
                    answer.map_err(|error| error.to_string())?;
                    made.fetch_add(1, Relaxed);
                }
                Ok(etcd)
            }
        });
        Self { stop, made, task }
    }

    /// None of them failed.
    async fn end(self) -> RealEtcdMember {
        self.stop.store(true, Relaxed);
        let etcd = self.task.await.expect("no panic");
        assert!(self.made.load(Relaxed) > 0, "it was called");
        etcd.expect("no call fails")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_readers_at_the_start_and_ten_thousand_reads_are_one_key_and_one_signature() {
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca()));
    let provider = EtcdClientKey::per_cluster(issuers);
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    let readers = (0..1_000).map(|_| {
        let cache = cache.clone();
        tokio::spawn(async move {
            let mut events = cache.subscribe().key(&key("a"));
            loop {
                if let Ok(value) = cache.get::<EtcdClientKey>(&key("a")) {
                    return value.current().expect("it is valid");
                }
                events.next().await.expect("the cache runs");
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    source.upsert(cluster("a", "one"));
    let read = tokio::time::timeout(LIMIT, join_all(readers))
        .await
        .expect("all of them");
    let first = read[0].as_ref().expect("no panic");
    for one in &read {
        assert!(Arc::ptr_eq(one.as_ref().expect("no panic"), first));
    }
    for _ in 0..10_000 {
        assert!(Arc::ptr_eq(&current(&cache, &key("a")), first));
    }
    assert_eq!((keys.counts().keys(), keys.counts().certificates()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reconnects_make_and_sign_nothing() {
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca()));
    let provider = EtcdClientKey::per_cluster(issuers);
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    let first = up(&cache, &key("a")).await;
    let held = cache.get::<EtcdClientKey>(&key("a")).unwrap();
    let mut events = cache.subscribe().key(&key("a"));
    let mut last = cache.state(&key("a")).unwrap().generation;
    for _ in 0..1_000 {
        cache.reconnect(&key("a"));
        let next = async {
            loop {
                let state = cache.state(&key("a")).unwrap();
                let is_up = support::resource(&state).phase == ResourcePhase::Up;
                if is_up && state.generation != last {
                    return state.generation;
                }
                events.next().await.expect("the cache runs");
            }
        };
        last = tokio::time::timeout(LIMIT, next)
            .await
            .expect("it reconnects");
    }
    assert!(Arc::ptr_eq(&current(&cache, &key("a")), &first));
    assert!(
        Arc::ptr_eq(&held.current().unwrap(), &first),
        "also for who held it"
    );
    assert_eq!((keys.counts().keys(), keys.counts().certificates()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_renewed_at_two_thirds_and_no_call_fails() {
    let ca = ca();
    let Some(etcd) = etcd(&ca).await else { return };
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca));
    let provider = EtcdClientKey::per_cluster(issuers).lifetime(Duration::from_secs(6));
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    let mut certificate = up(&cache, &key("a")).await;
    let calls = Calls::begin(&cache, &key("a"), etcd);
    for _ in 0..4 {
        let next = after(&cache, &key("a"), &certificate).await;
        let lives = certificate
            .expires()
            .duration_since(certificate.issued())
            .unwrap();
        let renewed = next.issued().duration_since(certificate.issued()).unwrap();
        assert!(renewed >= lives.mul_f64(0.59), "{renewed:?} of {lives:?}");
        assert!(next.issued() < certificate.expires(), "they overlap");
        assert_eq!(
            next.key_pem(),
            certificate.key_pem(),
            "on the cluster's key"
        );
        certificate = next;
    }
    calls.end().await;
    assert_eq!(keys.counts().keys(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_renewal_keeps_the_old_and_says_so_and_the_end_takes_the_resource_down() {
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca()));
    let provider = EtcdClientKey::per_cluster(issuers.clone()).lifetime(Duration::from_secs(8));
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    let first = up(&cache, &key("a")).await;
    let held = cache.get::<EtcdClientKey>(&key("a")).unwrap();
    let expires = until(&cache, &key("a"), |resource| resource.expires.is_some())
        .await
        .expires;
    assert_eq!(expires, Some(first.expires()));

    issuers.remove(&key("a"));
    let troubled = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    assert_eq!(troubled.phase, ResourcePhase::Up);
    assert!(troubled.message.unwrap().contains("does not exist"));
    assert!(
        Arc::ptr_eq(&held.current().unwrap(), &first),
        "the old is used"
    );
    assert_eq!(cache.census().troubled, 1);
    let json = serde_json::to_value(cache.state(&key("a")).unwrap()).unwrap();
    let resources = json["resources"].as_array().unwrap();
    let ours = resources
        .iter()
        .find(|resource| resource["name"] == support::NAME)
        .unwrap();
    assert!(
        ours["expires"].is_string() && ours["failures"].as_u64() > Some(0),
        "{ours}"
    );
    let page = page(&cache);
    assert!(
        page.contains("clustercache_troubled_clusters 1\n"),
        "{page}"
    );
    assert!(
        page.contains("clustercache_nearest_resource_expiry_timestamp_seconds "),
        "{page}"
    );

    let down = until(&cache, &key("a"), |resource| {
        resource.phase != ResourcePhase::Up
    })
    .await;
    assert!(down.expires.is_none());
    assert_eq!(held.current().unwrap_err(), CurrentError::Expired);
    let error = cache.get::<EtcdClientKey>(&key("a")).unwrap_err();
    assert!(
        matches!(error, GetError::Reinitialising { .. }),
        "{error:?}"
    );

    issuers.set(&key("a"), issuer(&ca()));
    let second = up(&cache, &key("a")).await;
    assert_ne!(second.issuer_fingerprint(), first.issuer_fingerprint());
    assert_eq!(
        held.current().unwrap().certificate_pem(),
        second.certificate_pem()
    );
    assert_eq!(cache.census().troubled, 0);
}

fn page(cache: &clustercache::ClusterCache) -> String {
    text(clustercache_metrics::CacheMetrics::new(cache).per_cluster())
}

fn text(metrics: clustercache_metrics::CacheMetrics) -> String {
    let registry = prometheus::Registry::new();
    registry.register(Box::new(metrics)).unwrap();
    prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_certificates_and_failures_are_on_the_page_of_metrics() {
    let issuers = MemoryIssuers::new();
    for name in ["a", "b"] {
        issuers.set(&key(name), issuer(&ca()));
    }
    let provider = EtcdClientKey::shared(issuers);
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    let page = || {
        let metrics = clustercache_metrics::CacheMetrics::new(&cache);
        text(metrics.etcd(keys.clone()))
    };
    let shows = |made: [u64; 3]| {
        let page = page();
        for (name, made) in ["keys", "certificates", "failures"].into_iter().zip(made) {
            let line = format!("\nclustercache_etcd_{name}_total {made}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
    };
    shows([0, 0, 0]);
    for name in ["a", "b"] {
        source.upsert(cluster(name, name));
        up(&cache, &key(name)).await;
    }
    shows([1, 2, 0]);
    source.upsert(cluster("without", "issuer"));
    until(&cache, &key("without"), |resource| resource.failures > 0).await;
    cache.shutdown().await.unwrap();
    let failures = keys.counts().failures();
    assert!(failures > 0);
    shows([1, 2, failures]);
}

/// No CA's key waits for it, and it is not made for that alone.
#[cfg(feature = "rsa")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_key_of_one_certificate_is_made_once() {
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca()));
    let provider = EtcdClientKey::per_certificate(issuers).algorithm(KeyAlgorithm::Rsa2048);
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    up(&cache, &key("a")).await;
    assert_eq!((keys.counts().keys(), keys.counts().certificates()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clusters_share_one_key_and_a_rotation_under_calls_fails_none() {
    const CLUSTERS: u64 = 500;
    let ca = ca();
    let Some(etcd) = etcd(&ca).await else { return };
    let issuers = MemoryIssuers::new();
    let provider = EtcdClientKey::shared(issuers.clone());
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    let names: Vec<_> = (0..CLUSTERS).map(|number| format!("c{number}")).collect();
    for name in &names {
        issuers.set(&key(name), issuer(&ca));
        source.upsert(cluster(name, name));
    }
    let mut old = Vec::new();
    for name in &names {
        old.push(up(&cache, &key(name)).await);
    }
    assert_eq!(keys.counts().keys(), 1);
    assert_eq!(keys.counts().certificates(), CLUSTERS);
    let one = |all: &[Arc<IssuedCertificate>]| {
        let mut keys: Vec<_> = all.iter().map(|one| one.key_pem().to_owned()).collect();
        keys.dedup();
        keys.len() == 1
    };
    assert!(one(&old));

    let calls = Calls::begin(&cache, &key("c0"), etcd);
    keys.rotate_key();
    let mut new = Vec::new();
    for (name, old) in names.iter().zip(&old) {
        new.push(after(&cache, &key(name), old).await);
    }
    calls.end().await;
    assert!(one(&new) && new[0].key_pem() != old[0].key_pem());
    assert_eq!(keys.counts().keys(), 2);
    assert_eq!(keys.counts().certificates(), CLUSTERS * 2);

    // One goes; the others do not notice.
    source.remove(&key("c7"));
    let mut events = cache.subscribe().key(&key("c7"));
    while cache.state(&key("c7")).is_ok() {
        events.next().await.expect("the cache runs");
    }
    for (name, new) in names.iter().zip(&new).filter(|(name, _)| *name != "c7") {
        assert!(Arc::ptr_eq(&current(&cache, &key(name)), new));
    }
    assert_eq!(keys.counts().keys(), 2);
    cache.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_policy_has_its_keys_and_rotates_them() {
    type Make = fn(MemoryIssuers) -> EtcdClientKey;
    let policies: [(&str, Make, u64); 3] = [
        ("per cluster", EtcdClientKey::per_cluster, 2),
        ("per certificate", EtcdClientKey::per_certificate, 2),
        ("shared", EtcdClientKey::shared, 1),
    ];
    for (name, make, expected) in policies {
        let issuers = MemoryIssuers::new();
        let provider = make(issuers.clone());
        let keys = provider.keys();
        let (cache, source) = cache(provider);
        for name in ["a", "b"] {
            issuers.set(&key(name), issuer(&ca()));
            source.upsert(cluster(name, name));
        }
        let old = [up(&cache, &key("a")).await, up(&cache, &key("b")).await];
        assert_eq!(keys.counts().keys(), expected, "{name}");
        // Another CA: the key may stay.
        issuers.set(&key("a"), issuer(&ca()));
        let renewed = after(&cache, &key("a"), &old[0]).await;
        let stays = renewed.key_pem() == old[0].key_pem();
        assert_eq!(stays, name != "per certificate");
        let before = keys.counts().keys();
        keys.rotate_key();
        let rotated = after(&cache, &key("a"), &renewed).await;
        after(&cache, &key("b"), &old[1]).await;
        assert_ne!(rotated.key_pem(), renewed.key_pem());
        assert_eq!(keys.counts().keys(), before + expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_too_old_and_another_algorithm_are_new_keys() {
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca()));
    let is_384 = Arc::<AtomicBool>::default();
    let algorithm = Arc::clone(&is_384);
    let provider = EtcdClientKey::per_cluster(issuers.clone())
        .max_key_age(Duration::from_secs(2))
        .algorithm_by(move |_| {
            if algorithm.load(Relaxed) {
                KeyAlgorithm::EcdsaP384
            } else {
                KeyAlgorithm::Ed25519
            }
        });
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    let first = up(&cache, &key("a")).await;
    let second = after(&cache, &key("a"), &first).await;
    assert_ne!(first.key_pem(), second.key_pem());
    assert_eq!(second.key_algorithm(), Some(KeyAlgorithm::Ed25519));
    is_384.store(true, Relaxed);
    let third = after(&cache, &key("a"), &second).await;
    assert_eq!(third.key_algorithm(), Some(KeyAlgorithm::EcdsaP384));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_of_the_name_has_nothing_of_the_old_and_neither_has_who_held_it() {
    let (old_ca, new_ca) = (ca(), ca());
    let issuers = MemoryIssuers::new();
    let identity = |uid: &str| Identity::Uid(uid.into());
    issuers.set_of(&key("a"), identity("one"), issuer(&old_ca));
    let provider = EtcdClientKey::per_cluster(issuers.clone());
    let keys = provider.keys();
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    let old = up(&cache, &key("a")).await;
    let held = cache.get::<EtcdClientKey>(&key("a")).unwrap();
    // The old Secret is still there.
    source.remove(&key("a"));
    source.upsert(cluster("a", "two"));
    let refused = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    assert!(refused.message.unwrap().contains("another Cluster"));
    assert_eq!(held.current().unwrap_err(), CurrentError::Retired);
    issuers.set_of(&key("a"), identity("two"), issuer(&new_ca));
    let new = up(&cache, &key("a")).await;
    assert_ne!(new.issuer_fingerprint(), old.issuer_fingerprint());
    assert_ne!(new.key_pem(), old.key_pem());
    assert_eq!(keys.counts().keys(), 2);
    assert_eq!(held.current().unwrap_err(), CurrentError::Retired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_etcd_is_none_of_ours_is_not_applicable_until_it_is() {
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca()));
    let ours = Arc::<AtomicBool>::default();
    let applies = Arc::clone(&ours);
    let provider = EtcdClientKey::per_cluster(issuers).applies_to(move |_| applies.load(Relaxed));
    let (cache, source) = cache(provider);
    source.upsert(cluster("a", "one"));
    until(&cache, &key("a"), |resource| {
        resource.phase == ResourcePhase::NotApplicable
    })
    .await;
    let error = cache.get::<EtcdClientKey>(&key("a")).unwrap_err();
    assert!(matches!(error, GetError::NotApplicable { .. }), "{error:?}");
    ours.store(true, Relaxed);
    cache.reconsider::<EtcdClientKey>(&key("a"));
    up(&cache, &key("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_an_issuer_is_told_apart_harms_no_sibling_and_is_mended() {
    let good = ca();
    let ends = |validity| ClusterCa::lasting("etcd-ca", validity).expect("a CA");
    let leaf = good.client("leaf", None, Validity::years()).unwrap();
    let junk = "no PEM at all, and much of it ".repeat(70_000);
    let of = |certificates: &str, key: &str| EtcdIssuer::ca("its CA", certificates, key);
    let whole = |ca: &ClusterCa| of(&ca.pem(), &ca.key_pem());
    let cut = &good.key_pem()[..120];
    let encrypted = good
        .key_pem()
        .replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let cases = [
        (
            "foreign-key",
            of(&good.pem(), &ca().key_pem()),
            "belongs to none of the 1",
        ),
        ("garbage", of("garbage", "garbage"), "no certificate"),
        ("no-key", of(&good.pem(), "garbage"), "no private key"),
        (
            "cut-key",
            of(&good.pem(), cut),
            "no private key that can be read",
        ),
        ("encrypted", of(&good.pem(), &encrypted), "encrypted"),
        (
            "cut-pem",
            of(&good.pem()[..200], &good.key_pem()),
            "not PEM",
        ),
        (
            "no-ca",
            of(&leaf.certificate_pem(), &leaf.key_pem()),
            "is no CA",
        ),
        (
            "expired",
            whole(&ends(Validity::expired())),
            "has expired at",
        ),
        (
            "not-yet",
            whole(&ends(Validity::not_yet())),
            "is not valid before",
        ),
        ("junk", of(&junk, &junk), "bytes, which no bundle"),
        ("junk-key", of(&good.pem(), &junk), "bytes, which no bundle"),
        (
            "many",
            of(&good.pem().repeat(65), &good.key_pem()),
            "more than 64",
        ),
    ];
    let issuers = MemoryIssuers::new();
    let provider = EtcdClientKey::per_cluster(issuers.clone());
    let (cache, source) = cache(provider);
    issuers.set(&key("sibling"), issuer(&good));
    source.upsert(cluster("sibling", "s"));
    source.upsert(cluster("missing", "m"));
    for (name, issuer, _) in &cases {
        issuers.set(&key(name), issuer.clone());
        source.upsert(cluster(name, name));
    }
    let all = cases.iter().map(|(name, _, why)| (*name, *why));
    for (name, why) in all.clone().chain([("missing", "does not exist")]) {
        let failed = until(&cache, &key(name), |resource| resource.failures > 0).await;
        let message = failed.message.unwrap();
        assert!(message.contains(why), "{name}: {message}");
        assert!(message.len() < 400, "{name}: {message}");
        assert_eq!(cache.state(&key(name)).unwrap().phase, Phase::Connected);
    }
    let sibling = up(&cache, &key("sibling")).await;
    for (name, _) in all.chain([("missing", "")]) {
        issuers.set(&key(name), issuer(&good));
        up(&cache, &key(name)).await;
    }
    assert!(Arc::ptr_eq(&sibling, &current(&cache, &key("sibling"))));
}

/// No reader gets a pair that does not fit: the key is the certificate's, and the certificate the CA's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ca_that_is_replaced_in_any_order_is_followed_and_etcd_accepts() {
    let (first, second) = (ca(), ca());
    let Some(mut etcd) = etcd(&first).await else {
        return;
    };
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&first));
    let (cache, source) = cache(EtcdClientKey::per_cluster(issuers.clone()));
    source.upsert(cluster("a", "one"));
    let mut certificate = up(&cache, &key("a")).await;
    etcd.status(certificate.client_config()).await.unwrap();
    let renewed = second.renewed().unwrap();
    let bundle = |one: &ClusterCa, other: &ClusterCa| format!("{}{}", one.pem(), other.pem());
    // Both orders of both keys, then a CA that keeps its key, then the new one alone.
    let steps = [
        (bundle(&first, &second), &first),
        (bundle(&first, &second), &second),
        (bundle(&second, &first), &second),
        (bundle(&second, &first), &first),
        (bundle(&renewed, &first), &renewed),
        (second.pem(), &second),
    ];
    for (certificates, by) in steps {
        issuers.set(
            &key("a"),
            EtcdIssuer::ca("it", certificates.clone(), by.key_pem()),
        );
        let next = after(&cache, &key("a"), &certificate).await;
        assert_eq!(next.ca_pem(), certificates);
        let signer: [u8; 32] = Sha256::digest(by.der()).into();
        assert_eq!(next.issuer_fingerprint(), Some(&signer));
        let (server, trusted) = (member(by), by.pem());
        let pki = MemberPki {
            trusted_pem: &trusted,
            server: &server,
        };
        etcd.restart(pki).await.unwrap();
        let answer = etcd.status(next.client_config()).await;
        answer.expect("a certificate of the right CA, and its servers are trusted");
        certificate = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_ends_with_its_ca_at_the_latest() {
    let ends = Validity::lasting(Duration::from_secs(3600));
    let ca = ClusterCa::lasting("etcd-ca", ends).unwrap();
    let issuers = MemoryIssuers::new();
    issuers.set(&key("a"), issuer(&ca));
    let (cache, source) = cache(EtcdClientKey::per_cluster(issuers).ten_years());
    source.upsert(cluster("a", "one"));
    let certificate = up(&cache, &key("a")).await;
    let ends = ends
        .not_after
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let expires = certificate
        .expires()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert_eq!(expires.as_secs(), ends);
}

#[test]
fn every_mistake_is_told_at_the_start() {
    let provider = EtcdClientKey::shared(MemoryIssuers::new())
        .lifetime(Duration::ZERO)
        .common_name("x".repeat(65))
        .max_key_age(Duration::ZERO)
        .algorithm(KeyAlgorithm::Rsa4096);
    let mistakes = clustercache::ClusterResource::mistakes(&provider);
    let needs_rsa = !KeyAlgorithm::Rsa4096.is_available();
    assert_eq!(mistakes.len(), 3 + usize::from(needs_rsa), "{mistakes:?}");
    assert_eq!(
        needs_rsa,
        mistakes
            .iter()
            .any(|mistake| mistake.contains("feature `rsa`"))
    );
}
