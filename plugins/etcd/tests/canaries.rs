//! Bytes of keys are in no log of any crate (also at TRACE), no error, no `Debug` and no JSON.

mod support;

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clustercache::ResourcePhase;
use clustercache_etcd::{EtcdClientKey, EtcdIssuer, IssuedCertificate, MemoryIssuers};
use clustercache_testkit::{pki::ClusterCa, real_or_skip};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::json;
use support::{
    after, cache, cluster, key,
    management::{Management, ca_secret},
    until, up,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static HEARD: Mutex<String> = Mutex::new(String::new());

/// Keeps all that anybody logs.
struct Ears;

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, "{field}={value} ");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

fn hear(target: &str, text: &str) {
    let mut heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = writeln!(heard, "{target}: {text}");
}

impl Subscriber for Ears {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        hear(span.metadata().target(), &text.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        hear("record", &text.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        hear(event.metadata().target(), &text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl log::Log for Ears {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        hear(record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}

/// Every form in which a key could show: a line of its PEM, its bytes in `Debug`, in hexadecimal, and in base64 wherever it may begin.
fn forms(pem: &str) -> Vec<String> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).expect("a key");
    // In the midst, where no two keys are alike.
    let middle = &der.secret_pkcs8_der()[40..60];
    let hex = middle.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let mut forms: Vec<_> = pem.lines().skip(1).take(2).map(str::to_owned).collect();
    let bytes = format!("{middle:?}");
    forms.extend([
        bytes.trim_matches(['[', ']']).to_owned(),
        hex.to_uppercase(),
        hex,
    ]);
    forms.extend((0..3).map(|skipped| BASE64_STANDARD.encode(&middle[skipped..])[..20].to_owned()));
    // As it stands in a Secret: base64 of base64.
    forms.extend(
        forms
            .clone()
            .iter()
            .map(|form| BASE64_STANDARD.encode(form)[..20].to_owned()),
    );
    forms
}

#[test]
fn a_key_is_found_in_each_of_its_forms() {
    let pem = ClusterCa::new("x").unwrap().key_pem();
    let forms = forms(&pem);
    let shows = |text: &str| forms.iter().any(|form| text.contains(form));
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert!(shows(&pem) && shows(&format!("{:?}", der.secret_pkcs8_der())));
    assert!(!shows("nothing of it"));
}

/// The same key over the wire, with what `kubectl apply` leaves in the metadata, which is watched.
async fn from_secrets(ca: &ClusterCa) {
    let servers = real_or_skip!(1);
    let management = Management::of(servers).await.expect("a management cluster");
    let issuers = management.issuers();
    let (cache, source) = cache(EtcdClientKey::shared(issuers));
    let mut secret = ca_secret("a", &ca.pem(), ca);
    let applied = secret.to_string();
    secret["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": applied });
    management.create(&secret).await.expect("a Secret");
    source.upsert(cluster("a", "one"));
    let first = up(&cache, &key("a")).await;
    let other = ClusterCa::new("etcd-ca").unwrap();
    let replaced = ca_secret("a", &(ca.pem() + &other.pem()), ca);
    management.replace(&replaced).await.expect("replaced");
    after(&cache, &key("a"), &first).await;
    // What cannot be read is not logged either.
    let odd = ca_secret("a", &ca.key_pem(), ca);
    management.replace(&odd).await.expect("replaced");
    until(&cache, &key("a"), |resource| resource.failures > 0).await;
    cache.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bytes_of_a_key_are_in_a_log_an_error_a_debug_or_json() {
    tracing::subscriber::set_global_default(Ears).expect("nobody else listens");
    log::set_logger(&Ears).expect("nobody else listens");
    log::set_max_level(log::LevelFilter::Trace);

    let (ca, other) = (
        ClusterCa::new("etcd-ca").unwrap(),
        ClusterCa::new("etcd-ca").unwrap(),
    );
    let issuers = MemoryIssuers::new();
    let mut provider = EtcdClientKey::per_certificate(issuers.clone());
    provider = provider.lifetime(std::time::Duration::from_secs(6));
    let keys = provider.keys();
    let mut shown = vec![format!("{provider:?} {keys:?}")];
    let (cache, source) = cache(provider);
    let mut secrets = vec![ca.key_pem(), other.key_pem()];
    let good = support::issuer(&ca);
    shown.push(format!("{good:?} {issuers:?}"));
    issuers.set(&key("a"), good);
    // Keys where certificates should be, and half of one.
    let swapped = EtcdIssuer::ca("it", ca.key_pem(), ca.pem());
    let half = ca.key_pem()[..150].to_owned();
    for (name, issuer) in [
        ("swapped", swapped),
        ("half", EtcdIssuer::ca("it", ca.pem(), half)),
        ("foreign", EtcdIssuer::ca("it", other.pem(), ca.key_pem())),
        (
            "given",
            EtcdIssuer::external("it", ca.pem(), other.pem(), ca.key_pem()),
        ),
    ] {
        issuers.set(&key(name), issuer);
        source.upsert(cluster(name, name));
        until(&cache, &key(name), |resource| resource.failures > 0).await;
    }
    source.upsert(cluster("a", "one"));
    let first = up(&cache, &key("a")).await;
    let second = after(&cache, &key("a"), &first).await;
    issuers.set(&key("a"), EtcdIssuer::ca("it", other.pem(), ca.key_pem()));
    until(&cache, &key("a"), |resource| resource.failures > 0).await;
    // A handshake, in which rustls logs what it does.
    if let Some(etcd) = support::etcd(&ca).await {
        let _ = etcd.status(second.client_config()).await;
    }
    until(&cache, &key("a"), |resource| {
        resource.phase != ResourcePhase::Up
    })
    .await;
    from_secrets(&ca).await;
    let of = |certificate: &IssuedCertificate| {
        format!("{certificate:?} {:?}", certificate.client_config())
    };
    shown.push(of(&first));
    shown.push(of(&second));
    secrets.extend([first.key_pem().to_owned(), second.key_pem().to_owned()]);
    for state in cache.states().unwrap() {
        shown.push(format!(
            "{state:?} {}",
            serde_json::to_string(&state).unwrap()
        ));
        if let Err(error) = cache.get::<EtcdClientKey>(&state.key) {
            shown.push(format!("{error} {error:?}"));
        }
    }
    cache.shutdown().await.unwrap();
    let shown = shown.concat();
    let heard = HEARD.lock().unwrap().clone();
    assert!(heard.contains("etcd client certificate"), "the ears hear");
    for form in secrets.iter().flat_map(|pem| forms(pem)) {
        assert!(!shown.contains(&form), "{form} in {shown}");
        let line = heard.lines().find(|line| line.contains(&form));
        assert_eq!(line, None, "{form}");
    }
}
