//! Bytes of keys are in no log of any crate (also at TRACE), no error, no `Debug` and no JSON; and in no memory when they are not needed any more.

mod support;

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clustercache::ResourcePhase;
use clustercache_etcd::{
    EtcdClientKey, EtcdIssuer, IssuedCertificate, KeyAlgorithm, MemoryIssuers, issue_once,
};
use clustercache_testkit::{
    ears::{Listener, listen},
    pki::ClusterCa,
    real_or_skip,
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::json;
use support::{
    after, cache, cluster, key,
    management::{Management, ca_secret},
    until, up,
};
use zeroize::Zeroizing;

/// Keeps all that anybody logs.
struct Heard(Mutex<String>);

static HEARD: Heard = Heard(Mutex::new(String::new()));

impl Listener for Heard {
    fn hear(&self, target: &str, text: &str) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(heard, "{target}: {text}");
    }
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
    listen(&HEARD);
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
    let heard = HEARD.0.lock().unwrap().clone();
    assert!(heard.contains("etcd client certificate"), "the ears hear");
    for form in secrets.iter().flat_map(|pem| forms(pem)) {
        assert!(!shown.contains(&form), "{form} in {shown}");
        let line = heard.lines().find(|line| line.contains(&form));
        assert_eq!(line, None, "{form}");
    }
}

/// What is looked for of a private key in memory: a part of its PEM, and of its secret number.
#[cfg(target_os = "linux")]
fn needles(pem: &[u8]) -> [memory::Needle; 2] {
    let lines = pem.split(|byte| *byte == b'\n');
    let mut text = Zeroizing::new(Vec::with_capacity(pem.len()));
    for line in lines.skip(1).take_while(|line| !line.starts_with(b"-")) {
        text.extend_from_slice(line);
    }
    let mut der = Zeroizing::new(vec![0; pem.len()]);
    let length = BASE64_STANDARD
        .decode_slice(&*text, &mut der)
        .expect("a key");
    // By form and kind; what comes before it and after it is public.
    let secret = match length {
        0..=60 => 20,
        61..=125 => 12,
        126..=600 => 40,
        _ => length * 2 / 5,
    };
    let number = &der[secret..secret + 20];
    // On one line of 64.
    let written = secret * 4 / 3 + 4;
    let written = written / 64 * 64 + (written % 64).min(44);
    [
        memory::Needle::new(&text[written..written + 20]),
        memory::Needle::new(number),
    ]
}

#[cfg(target_os = "linux")]
#[test]
fn after_a_signature_no_memory_of_ours_has_the_key_of_the_ca() {
    if support::openssl("after_a_signature_no_memory_of_ours_has_the_key_of_the_ca").is_none() {
        return;
    }
    // Made by another process: here it is where we have put it, and nowhere else.
    for (make, convert) in [
        (
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out ca.key",
            "pkcs8 -topk8 -nocrypt",
        ),
        (
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out ca.key",
            "rsa -traditional",
        ),
        (
            "ecparam -name prime256v1 -genkey -noout -out ca.key",
            "pkcs8 -topk8 -nocrypt",
        ),
        ("ecparam -name prime256v1 -genkey -noout -out ca.key", "ec"),
        (
            "genpkey -algorithm ed25519 -out ca.key",
            "pkcs8 -topk8 -nocrypt",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let make_ca = "req -x509 -new -key ca.key -subj /CN=etcd-ca -days 30 -out ca.crt \
                       -addext basicConstraints=critical,CA:TRUE";
        for line in [
            make,
            make_ca,
            &format!("{convert} -in ca.key -out form.key"),
        ] {
            support::run_openssl(folder, line).unwrap();
        }
        let ca = std::fs::read(folder.join("ca.crt")).unwrap();
        let mut key = Zeroizing::new(std::fs::read(folder.join("form.key")).unwrap());
        let needles = needles(&key);
        assert!(memory::count(&needles[0]) > 0, "{make}: it would be seen");
        let issuer = EtcdIssuer::ca("it", ca, std::mem::take(&mut *key));
        let issued = issue_once(issuer, KeyAlgorithm::Ed25519).unwrap();
        let left = needles.map(|needle| memory::count(&needle));
        assert_eq!(left, [0, 0], "{make}, {convert}: PEM, number");
        drop(issued);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_cluster_is_another_one_no_memory_of_ours_has_the_key_of_the_old() {
    let available = KeyAlgorithm::ALL.into_iter();
    for algorithm in available.filter(|algorithm| algorithm.is_available()) {
        let issuers = MemoryIssuers::new();
        let (cache, source) =
            cache(EtcdClientKey::per_cluster(issuers.clone()).algorithm(algorithm));
        issuers.set(
            &key("a"),
            support::issuer(&ClusterCa::new("etcd-ca").unwrap()),
        );
        source.upsert(cluster("a", "one"));
        let old = up(&cache, &key("a")).await;
        let needles = needles(old.key_pem().as_bytes());
        assert!(
            memory::count(&needles[0]) > 0,
            "{algorithm}: it would be seen"
        );
        source.upsert(cluster("a", "two"));
        let new = after(&cache, &key("a"), &old).await;
        assert!(memory::count(&needles[0]) > 0, "{algorithm}: we hold it");
        drop(old);
        let left = needles.map(|needle| memory::count(&needle));
        assert_eq!(left, [0, 0], "{algorithm}: PEM, number");
        drop(new);
        cache.shutdown().await.unwrap();
    }
}

/// This process's memory, as the kernel shows it: what was freed is there as it was left. It is looked at without a copy of what is looked for.
#[cfg(target_os = "linux")]
mod memory {
    use std::{fs, fs::File, hint::black_box, os::unix::fs::FileExt};

    /// Bytes that are looked for, none of them as it is.
    pub(super) struct Needle(Vec<u8>);

    impl Needle {
        pub(super) fn new(bytes: &[u8]) -> Self {
            assert!(bytes.len() >= 16, "of fewer there may be others");
            Self(bytes.iter().map(|byte| !byte).collect())
        }

        fn is_at(&self, bytes: &[u8]) -> bool {
            self.0.iter().zip(bytes).all(|(mine, byte)| *mine == !byte)
        }
    }

    /// How often it is in what this process has written.
    pub(super) fn count(needle: &Needle) -> usize {
        overwrite_stack();
        let memory = File::open("/proc/self/mem").expect("our own memory");
        let maps = fs::read_to_string("/proc/self/maps").expect("our own memory");
        let areas = maps.lines().filter_map(area);
        areas
            .map(|(from, to)| in_area(needle, &memory, from, to))
            .sum()
    }

    /// Of memory that can be written, and is no file's.
    fn area(line: &str) -> Option<(u64, u64)> {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let (from, to) = range.split_once('-')?;
        let is_no_file = words.nth(2)? == "0";
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = (number(from)?, number(to)?);
        (rights.starts_with("rw") && is_no_file).then_some(range)
    }

    fn in_area(needle: &Needle, memory: &File, from: u64, to: u64) -> usize {
        const STEP: usize = 1 << 20;
        let length = needle.0.len();
        let mut bytes = vec![0; STEP + length - 1];
        let mut found = 0;
        for at in (from..to).step_by(STEP) {
            // What it read last is in this process as well.
            bytes.fill(0);
            let room = usize::try_from(to - at)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            // Some areas cannot be read; nothing of ours is there.
            let Ok(read) = memory.read_at(&mut bytes[..room], at) else {
                continue;
            };
            let first = !needle.0[0];
            let starts = bytes[..read]
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == first);
            let places =
                starts.filter(|(at, _)| needle.is_at(&bytes[*at..]) && at + length <= read);
            found += places.count();
        }
        bytes.fill(0);
        black_box(&bytes);
        found
    }

    /// What calls have left below us: the crypto library's own is there too, which nobody can wipe.
    #[inline(never)]
    fn overwrite_stack() {
        black_box(&mut [0_u8; 256 << 10]);
    }
}
