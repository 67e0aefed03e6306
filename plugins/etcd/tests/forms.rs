//! Each kind of key, signed by each kind of CA in each form that its key may have: etcd accepts it, and so does openssl.

mod support;

use std::{fs, path::Path, sync::Arc};

use anyhow::Context;
use clustercache::{ClusterCache, ClusterKey, MemorySource};
use clustercache_etcd::{
    EtcdClientKey, EtcdIssuer, IssuedCertificate, KeyAlgorithm, MemoryIssuers,
};
use clustercache_testkit::real::{MemberPki, PemPair, RealEtcdMember, or_skip};
use support::{cache, cluster, key, openssl, run_openssl, up};

/// A form, and how openssl makes it of a key.
type Forms = &'static [(&'static str, &'static str)];

/// Kinds of CA: how openssl makes the key, and which forms it has.
const CAS: [(&str, &str, Forms); 4] = [
    (
        "rsa",
        "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out ca.key",
        &[
            ("pkcs8", "pkcs8 -topk8 -nocrypt -in ca.key -out form.key"),
            ("pkcs1", "rsa -traditional -in ca.key -out form.key"),
        ],
    ),
    (
        "p256",
        "ecparam -name prime256v1 -genkey -out ca.key",
        &[
            ("pkcs8", "pkcs8 -topk8 -nocrypt -in ca.key -out form.key"),
            ("sec1", "ec -in ca.key -out form.key"),
            // As `ecparam -genkey` writes it.
            ("sec1-with-parameters", "version"),
            (
                "sec1-without-point",
                "ec -in ca.key -no_public -out form.key",
            ),
        ],
    ),
    (
        "p384",
        "ecparam -name secp384r1 -genkey -noout -out ca.key",
        &[
            ("pkcs8", "pkcs8 -topk8 -nocrypt -in ca.key -out form.key"),
            ("sec1", "ec -in ca.key -out form.key"),
        ],
    ),
    (
        "ed25519",
        "genpkey -algorithm ed25519 -out ca.key",
        &[("pkcs8", "pkcs8 -topk8 -nocrypt -in ca.key -out form.key")],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_key_by_every_form_of_ca_key_is_accepted() -> anyhow::Result<()> {
    if openssl("every_kind_of_key_by_every_form_of_ca_key_is_accepted").is_none() {
        return Ok(());
    }
    let issuing = Issuing::begin();
    for (kind, make, forms) in CAS {
        let folder = tempfile::tempdir()?;
        let folder = folder.path();
        let pki = authority(folder, kind, make)?;
        let ca = fs::read_to_string(folder.join("ca.crt"))?;
        let member = RealEtcdMember::start(MemberPki {
            trusted_pem: &ca,
            server: &pki,
        });
        let Some(etcd) = or_skip(member.await) else {
            return Ok(());
        };
        for (form, convert) in forms {
            let form_key = folder.join("form.key");
            fs::copy(folder.join("ca.key"), &form_key)?;
            run_openssl(folder, convert)?;
            let ca_key = fs::read(&form_key)?;
            let issuer = EtcdIssuer::ca("it", ca.clone(), ca_key);
            for certificate in issuing.all(&format!("{kind}.{form}"), issuer).await {
                let algorithm = certificate.key_algorithm().context("it is ours")?;
                let case = || format!("{algorithm} by {kind} in {form}");
                judged(folder, &certificate).with_context(case)?;
                let answer = etcd.status(certificate.client_config()).await;
                let status: serde_json::Value = answer.with_context(case)?.json()?;
                anyhow::ensure!(status["version"].is_string(), "{}: {status}", case());
            }
        }
    }
    Ok(())
}

/// A cache whose clusters say in their names which algorithm they want. A key of each is made once: those of RSA take their time.
struct Issuing {
    issuers: MemoryIssuers,
    cache: ClusterCache,
    source: MemorySource,
}

impl Issuing {
    fn begin() -> Self {
        let issuers = MemoryIssuers::new();
        let of_name = |key: &ClusterKey| {
            let (name, _) = key.name().split_once('.').expect("its name");
            name.parse().expect("an algorithm")
        };
        let provider = EtcdClientKey::shared(issuers.clone()).algorithm_by(of_name);
        let (cache, source) = cache(provider);
        Self {
            issuers,
            cache,
            source,
        }
    }

    /// One certificate of each algorithm that this build has.
    async fn all(&self, case: &str, issuer: EtcdIssuer) -> Vec<Arc<IssuedCertificate>> {
        let mut certificates = Vec::new();
        for algorithm in KeyAlgorithm::ALL {
            if algorithm.is_available() {
                let name = format!("{algorithm}.{case}");
                self.issuers.set(&key(&name), issuer.clone());
                self.source.upsert(cluster(&name, "uid"));
                certificates.push(up(&self.cache, &key(&name)).await);
            }
        }
        certificates
    }
}

/// A CA by openssl, and the certificate of a member.
fn authority(folder: &Path, kind: &str, make: &str) -> anyhow::Result<PemPair> {
    run_openssl(folder, make)?;
    // Names as kubeadm's, and as an operator's own.
    let subject = match kind {
        "rsa" => "/CN=etcd-ca",
        "p256" => "/O=Example/OU=a/OU=b/OU=a/CN=etcd-ca",
        "p384" => "/DC=example/DC=eu/OU=a+OU=b/CN=etcd-ca",
        _ => "/C=DE/O=Example/CN=etcd-ca",
    };
    run_openssl(
        folder,
        &format!(
            "req -x509 -new -key ca.key -subj {subject} -days 30 -out ca.crt \
             -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,digitalSignature,keyCertSign"
        )
        .replace("  ", " "),
    )?;
    fs::write(
        folder.join("names"),
        "subjectAltName=DNS:node,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
    )?;
    run_openssl(
        folder,
        "ecparam -name prime256v1 -genkey -noout -out node.key",
    )?;
    run_openssl(
        folder,
        "req -new -key node.key -subj /CN=node -out node.csr",
    )?;
    run_openssl(
        folder,
        "x509 -req -in node.csr -CA ca.crt -CAkey ca.key -days 10 -extfile names -out node.crt",
    )?;
    Ok(PemPair {
        cert_pem: fs::read_to_string(folder.join("node.crt"))?,
        key_pem: fs::read_to_string(folder.join("node.key"))?,
    })
}

/// What openssl says of a certificate: for clients, now and for a server whose clock is four minutes behind; and what is in it.
fn judged(folder: &Path, certificate: &IssuedCertificate) -> anyhow::Result<()> {
    fs::write(folder.join("client.crt"), certificate.certificate_pem())?;
    fs::write(folder.join("client.key"), certificate.key_pem())?;
    let verify = "verify -x509_strict -purpose sslclient -CAfile ca.crt";
    run_openssl(folder, &format!("{verify} client.crt"))?;
    let issued = certificate.issued().duration_since(std::time::UNIX_EPOCH)?;
    let behind = issued.as_secs() - 240;
    // The CA is as young as the test.
    let own = "verify -partial_chain -purpose sslclient -CAfile client.crt";
    run_openssl(folder, &format!("{own} -attime {behind} client.crt"))?;
    let too_early = issued.as_secs() - 301;
    let refused = run_openssl(folder, &format!("{own} -attime {too_early} client.crt"));
    anyhow::ensure!(refused.is_err(), "valid before it should be");
    let text = run_openssl(
        folder,
        "x509 -in client.crt -noout -text -certopt no_sigdump,no_pubkey",
    )?;
    for wanted in [
        "Subject: CN = cluster-api.x-k8s.io",
        "TLS Web Client Authentication",
        "Digital Signature",
        "X509v3 Authority Key Identifier",
    ] {
        let text = text.replace("CN=", "CN = ");
        anyhow::ensure!(text.contains(wanted), "no {wanted} in {text}");
    }
    anyhow::ensure!(!text.contains("TLS Web Server Authentication"), "{text}");
    anyhow::ensure!(!text.contains("CA:TRUE"), "{text}");
    // The key is the certificate's.
    let of_key = run_openssl(folder, "pkey -in client.key -pubout")?;
    let of_certificate = run_openssl(folder, "x509 -in client.crt -noout -pubkey")?;
    anyhow::ensure!(of_key == of_certificate, "another key");
    Ok(())
}
