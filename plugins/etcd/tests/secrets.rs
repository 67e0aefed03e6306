//! CAs from the Secrets of a real management cluster, and a real etcd that judges what they sign. Skipped, loudly, without the binaries.

mod support;

use std::sync::Arc;

use anyhow::Context;
use clustercache::ResourcePhase;
use clustercache_etcd::{EtcdClientKey, EtcdIssuerSource};
use clustercache_testkit::{
    pki::{ClusterCa, Validity},
    real::MemberPki,
    real_or_skip,
};
use serde_json::json;
use support::{
    LIMIT, after, cache, cluster, etcd, key,
    management::{Management, ca_secret, owned, secret, unlabelled},
    member, until, up,
};
use tokio::time::Instant;

fn ca() -> ClusterCa {
    ClusterCa::new("etcd-ca").expect("a CA")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_replaced_is_followed_by_a_certificate_that_etcd_accepts()
-> anyhow::Result<()> {
    let management = Management::of(real_or_skip!(1, Ok(()))).await?;
    let (first, second) = (ca(), ca());
    let Some(mut etcd) = etcd(&first).await else {
        return Ok(());
    };
    let (cache, source) = cache(EtcdClientKey::per_cluster(management.issuers()));
    source.upsert(cluster("a", "one"));
    // Not there yet, then there.
    let missing = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    assert!(
        missing
            .message
            .context("why")?
            .contains("Secret default/a-etcd does not exist")
    );
    management
        .create(&ca_secret("a", &first.pem(), &first))
        .await?;
    let mut certificate = up(&cache, &key("a")).await;
    etcd.status(certificate.client_config()).await?;
    let both = [first.pem() + &second.pem(), second.pem() + &first.pem()];
    let steps = [
        (&both[0], &first),
        (&both[0], &second),
        (&both[1], &second),
        (&both[1], &first),
        (&second.pem(), &second),
    ];
    for (certificates, by) in steps {
        let began = Instant::now();
        management
            .replace(&ca_secret("a", certificates, by))
            .await?;
        let next = after(&cache, &key("a"), &certificate).await;
        println!("a certificate of the new CA after {:?}", began.elapsed());
        let (server, trusted) = (member(by), by.pem());
        let pki = MemberPki {
            trusted_pem: &trusted,
            server: &server,
        };
        etcd.restart(pki).await?;
        etcd.status(next.client_config()).await?;
        certificate = next;
    }
    // What touches the Secret and not the CA, issues nothing; neither does its end.
    let mut touched = ca_secret("a", &second.pem(), &second);
    touched["metadata"]["annotations"] = json!({ "touched": "yes" });
    management.replace(&touched).await?;
    management.delete("a-etcd").await?;
    let troubled = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    assert_eq!(troubled.phase, ResourcePhase::Up);
    assert!(Arc::ptr_eq(
        &support::current(&cache, &key("a")),
        &certificate
    ));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_created_again_within_a_second_first_has_what_is_its_own() -> anyhow::Result<()> {
    let management = Management::of(real_or_skip!(1, Ok(()))).await?;
    let (old_ca, new_ca) = (ca(), ca());
    let (cache, source) = cache(EtcdClientKey::per_cluster(management.issuers()));
    management
        .create(&owned(ca_secret("a", &old_ca.pem(), &old_ca), "one"))
        .await?;
    source.upsert(cluster("a", "one"));
    let old = up(&cache, &key("a")).await;
    source.remove(&key("a"));
    source.upsert(cluster("a", "two"));
    let refused = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    let message = refused.message.context("why")?;
    assert!(
        message.contains("owned by another Cluster") && message.contains("one"),
        "{message}"
    );
    management.delete("a-etcd").await?;
    management
        .create(&owned(ca_secret("a", &new_ca.pem(), &new_ca), "two"))
        .await?;
    let new = up(&cache, &key("a")).await;
    assert_ne!(new.issuer_fingerprint(), old.issuer_fingerprint());
    assert_eq!(new.ca_pem(), new_ca.pem());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_on_its_way_out_is_not_used() -> anyhow::Result<()> {
    let management = Management::of(real_or_skip!(1, Ok(()))).await?;
    let ca = ca();
    let mut held = ca_secret("a", &ca.pem(), &ca);
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    management.create(&held).await?;
    management.delete("a-etcd").await?;
    let (cache, source) = cache(EtcdClientKey::per_cluster(management.issuers()));
    source.upsert(cluster("a", "one"));
    let refused = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    assert!(refused.message.context("why")?.contains("is being deleted"));
    held["metadata"]["finalizers"] = json!([]);
    management.replace(&held).await?;
    management.create(&ca_secret("a", &ca.pem(), &ca)).await?;
    up(&cache, &key("a")).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_etcd_has_the_client_certificate_that_is_given_and_is_followed()
-> anyhow::Result<()> {
    let management = Management::of(real_or_skip!(1, Ok(()))).await?;
    let ca = ca();
    let Some(etcd) = etcd(&ca).await else {
        return Ok(());
    };
    let given = || {
        let leaf = ca.client("apiserver-etcd-client", None, Validity::lasting(LIMIT * 60));
        let leaf = leaf.expect("a leaf");
        let entries = [
            ("tls.crt", leaf.certificate_pem()),
            ("tls.key", leaf.key_pem()),
        ];
        let entries = entries.each_ref().map(|(entry, text)| (*entry, &**text));
        (
            secret("a", "-apiserver-etcd-client", &entries),
            leaf.certificate_pem(),
        )
    };
    let (cache, source) = cache(EtcdClientKey::per_cluster(management.issuers()));
    management
        .create(&secret("a", "-etcd", &[("tls.crt", &ca.pem())]))
        .await?;
    source.upsert(cluster("a", "one"));
    let missing = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    let message = missing.message.context("why")?;
    assert!(
        message.contains("a-apiserver-etcd-client does not exist"),
        "{message}"
    );
    let (first, pem) = given();
    management.create(&first).await?;
    let certificate = up(&cache, &key("a")).await;
    assert_eq!(certificate.certificate_pem(), pem, "as it is");
    assert_eq!(certificate.key_algorithm(), None);
    etcd.status(certificate.client_config()).await?;
    let (second, pem) = given();
    management.replace(&second).await?;
    let next = after(&cache, &key("a"), &certificate).await;
    assert_eq!(next.certificate_pem(), pem);
    etcd.status(next.client_config()).await?;
    // One whose key is another's is never handed out.
    let (third, _) = given();
    let mut odd = second;
    odd["data"]["tls.key"] = third["data"]["tls.key"].clone();
    management.replace(&odd).await?;
    let troubled = until(&cache, &key("a"), |resource| resource.failures > 0).await;
    assert!(troubled.message.context("why")?.contains("does not belong"));
    assert!(Arc::ptr_eq(&support::current(&cache, &key("a")), &next));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_label_does_not_hide_a_secret() -> anyhow::Result<()> {
    let management = Management::of(real_or_skip!(1, Ok(()))).await?;
    let (first, second) = (ca(), ca());
    let (cache, source) = cache(EtcdClientKey::per_cluster(management.issuers()));
    management
        .create(&unlabelled(ca_secret("a", &first.pem(), &first)))
        .await?;
    source.upsert(cluster("a", "one"));
    let certificate = up(&cache, &key("a")).await;
    // Its label makes it watched, whatever else changes.
    management
        .replace(&ca_secret("a", &second.pem(), &second))
        .await?;
    let next = after(&cache, &key("a"), &certificate).await;
    assert_ne!(next.issuer_fingerprint(), certificate.issuer_fingerprint());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_management_cluster_that_restarts_or_is_away_is_followed_again() -> anyhow::Result<()> {
    let mut management = Management::of(real_or_skip!(1, Ok(()))).await?;
    let (first, second) = (ca(), ca());
    let (cache, source) = cache(EtcdClientKey::per_cluster(management.issuers()));
    management
        .create(&ca_secret("a", &first.pem(), &first))
        .await?;
    source.upsert(cluster("a", "one"));
    let certificate = up(&cache, &key("a")).await;
    management.servers[0].kill().await?;
    let answer = management
        .issuers()
        .read(&key("a"), &clustercache::Identity::ByCa)
        .await;
    let error = answer.err().context("nobody is there")?.to_string();
    assert!(error.contains("a-etcd"), "{error}");
    assert!(Arc::ptr_eq(
        &support::current(&cache, &key("a")),
        &certificate
    ));
    management.servers[0].restart().await?;
    management
        .replace(&ca_secret("a", &second.pem(), &second))
        .await?;
    let next = after(&cache, &key("a"), &certificate).await;
    assert_eq!(next.ca_pem(), second.pem());
    Ok(())
}
