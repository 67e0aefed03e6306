//! What a cluster's etcd client certificate costs: to make its key, certificate and TLS configuration, against the crypto crate alone; and to read it,
//! against a read of any value by key.

use std::{hint::black_box, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_lc_rs::rsa::KeySize;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource,
    HealthCheck, InitContext, InitError, MemorySource, Upsert,
};
use clustercache_etcd::{EtcdClientKey, EtcdIssuer, KeyAlgorithm, MemoryIssuers, issue_once};
use clustercache_testkit::pki::ClusterCa;
use figure::{Figures, Unit::Nanoseconds, median, per_call};
use ring::{
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair},
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};

mod figure;

const CLUSTERS: usize = 1_000;

/// Reads in one turn.
const TURN: usize = 1_000;
const TURNS: usize = 200;

fn main() -> anyhow::Result<()> {
    let mut figures = Figures::default();
    for algorithm in KeyAlgorithm::ALL {
        issue(&mut figures, algorithm)?;
    }
    read(&mut figures)?;
    figures.print();
    Ok(())
}

/// In turns, each of so many that a turn takes long enough to be measured.
fn issue(figures: &mut Figures, algorithm: KeyAlgorithm) -> anyhow::Result<()> {
    let (turns, times) = match algorithm {
        KeyAlgorithm::Rsa2048 => (41, 4),
        KeyAlgorithm::Rsa3072 => (31, 2),
        KeyAlgorithm::Rsa4096 => (21, 1),
        _ => (200, 20),
    };
    let ca = ClusterCa::new("etcd-ca")?;
    let signer = EtcdIssuer::ca("the CA", ca.pem(), ca.key_pem());
    let ca_key = PrivatePkcs8KeyDer::from_pem_slice(ca.key_pem().as_bytes())?;
    let bare = bare(algorithm, ca_key.secret_pkcs8_der());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        ours.push(per_call(times, || {
            for _ in 0..times {
                let issued = issue_once(black_box(signer.clone()), algorithm);
                black_box(issued.expect("a good issuer"));
            }
        }));
        theirs.push(per_call(times, || (0..times).for_each(|_| bare())));
    }
    let figure = format!("issue_{algorithm}");
    let reference = ("crypto_alone", median(&mut theirs));
    figures.against(&figure, median(&mut ours), Nanoseconds, reference);
    Ok(())
}

/// The least that any client certificate costs: a key is made and loaded, the CA's is loaded, and signs once.
fn bare(algorithm: KeyAlgorithm, ca_key: &[u8]) -> Box<dyn Fn() + '_> {
    let sign = |ca_key: &[u8]| {
        let algorithm = &signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let random = SystemRandom::new();
        let ca = EcdsaKeyPair::from_pkcs8(algorithm, ca_key, &random).expect("the CA's key");
        black_box(ca.sign(&random, &[7; 400]).expect("a signature"));
    };
    let elliptic = move |algorithm: &'static EcdsaSigningAlgorithm| {
        move || {
            let random = SystemRandom::new();
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
            black_box(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("it"));
            sign(ca_key);
        }
    };
    let rsa = move |size: KeySize| {
        move || {
            use aws_lc_rs::encoding::AsDer;
            let key = aws_lc_rs::rsa::KeyPair::generate(size).expect("a key");
            let key = key.as_der().expect("PKCS #8");
            black_box(signature::RsaKeyPair::from_pkcs8(key.as_ref()).expect("it"));
            sign(ca_key);
        }
    };
    match algorithm {
        KeyAlgorithm::Rsa2048 => Box::new(rsa(KeySize::Rsa2048)),
        KeyAlgorithm::Rsa3072 => Box::new(rsa(KeySize::Rsa3072)),
        KeyAlgorithm::Rsa4096 => Box::new(rsa(KeySize::Rsa4096)),
        KeyAlgorithm::EcdsaP384 => Box::new(elliptic(&signature::ECDSA_P384_SHA384_ASN1_SIGNING)),
        KeyAlgorithm::Ed25519 => Box::new(move || {
            let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
            black_box(Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("it"));
            sign(ca_key);
        }),
        _ => Box::new(elliptic(&signature::ECDSA_P256_SHA256_ASN1_SIGNING)),
    }
}

/// Makes nothing, and is always well.
struct Link;

#[async_trait]
impl ClusterResource for Link {
    type Value = Arc<u64>;

    fn name(&self) -> &'static str {
        "link"
    }

    async fn init(&self, _: &InitContext) -> Result<Arc<u64>, InitError> {
        Ok(Arc::default())
    }
}

#[async_trait]
impl HealthCheck for Link {
    async fn check(&self, _: &Arc<u64>, _: &CheckContext) -> Result<Answer, CheckError> {
        Ok(Answer::Ready)
    }
}

#[tokio::main]
async fn read(figures: &mut Figures) -> anyhow::Result<()> {
    let (issuers, source) = (MemoryIssuers::new(), MemorySource::new("fleet"));
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(Link)
        .health_from::<Link>()
        .resource(EtcdClientKey::shared(issuers.clone()))
        .start()?;
    let ca = ClusterCa::new("etcd-ca")?;
    let access = ClusterAccess::builder("https://cluster.example:6443").build()?;
    let named = (0..CLUSTERS).map(|number| ClusterKey::new("fleet", &format!("c{number:04}")));
    let mut keys: Vec<_> = named.collect();
    for key in &keys {
        issuers.set(key, EtcdIssuer::ca("the CA", ca.pem(), ca.key_pem()));
        source.upsert(Upsert::ready(key.clone(), access.clone()).with_uid(key.to_string()));
    }
    for key in &keys {
        cache.wait_for(key, Duration::from_secs(60)).await?;
    }
    fastrand::shuffle(&mut keys);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        ours.push(per_call(TURN, || {
            for key in &keys {
                let value = cache
                    .get::<EtcdClientKey>(black_box(key))
                    .expect("it is up");
                let _ = black_box(value.current());
            }
        }));
        theirs.push(per_call(TURN, || {
            for key in keys.iter().rev() {
                let _ = black_box(cache.get::<Link>(black_box(key)));
            }
        }));
    }
    let reference = ("keyed_get", median(&mut theirs));
    figures.against("etcd_read", median(&mut ours), Nanoseconds, reference);
    let held = cache.get::<EtcdClientKey>(&keys[0])?;
    let mut held_reads: Vec<_> = (0..TURNS)
        .map(|_| {
            per_call(TURN, || {
                for _ in 0..TURN {
                    let _ = black_box(black_box(&held).current());
                }
            })
        })
        .collect();
    figures.add("etcd_current", median(&mut held_reads), Nanoseconds);
    cache.shutdown().await?;
    Ok(())
}
