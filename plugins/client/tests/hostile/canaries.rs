//! The secrets of every access of the corpus, and every form in which one of them could show.

use std::{fmt::Write, sync::LazyLock};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use clustercache::{ClusterAccess, ClusterKey, Upsert};
use clustercache_testkit::{
    hostile::{Behaviour, HostileServer, Step},
    pki::{ClusterCa, Validity},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{ears, rig::Rig};

/// It may stand in a header, and is another text when it is encoded for a URL.
pub(crate) const TOKEN: &str = "c4nary/T0KEN+of~the=corpus";

/// Of a user of a proxy.
const PASSWORD: &str = "c4nary/P4SS+of~the=proxy";

pub(crate) struct Canaries {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
    forms: Vec<String>,
}

/// One key for all: the certificate is by a CA of its own, which no server asks for.
pub(crate) static CANARIES: LazyLock<Canaries> = LazyLock::new(|| {
    let leaf = ClusterCa::new("canaries")
        .and_then(|ca| ca.client("canary", None, Validity::years()))
        .expect("a certificate can be made");
    let key = leaf.key_der();
    let key = key.secret_der();
    // The secret itself, in the midst of PKCS #8, without what stands in every key.
    let middle = &key[40..60];
    let mut forms = forms_of(TOKEN.as_bytes());
    forms.extend(forms_of(PASSWORD.as_bytes()));
    forms.extend(forms_of(middle));
    // A line of the PEM, as it stands.
    let pem = leaf.key_pem();
    forms.extend(pem.lines().skip(1).take(2).map(str::to_owned));
    Canaries {
        certificate_pem: leaf.certificate_pem(),
        key_pem: pem,
        forms,
    }
});

/// As text, as bytes in `Debug`, in hexadecimal, for a URL, and in base64 at each of the three places where it may begin.
pub(crate) fn forms_of(secret: &[u8]) -> Vec<String> {
    let hex = secret.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let mut forms = vec![
        secret.escape_ascii().to_string(),
        format!("{secret:?}").trim_matches(['[', ']']).to_owned(),
        hex.to_uppercase(),
        hex,
        percent_encoding::percent_encode(secret, NON_ALPHANUMERIC).to_string(),
    ];
    if let Ok(text) = std::str::from_utf8(secret) {
        forms.push(text.to_owned());
        forms.push(utf8_percent_encode(text, NON_ALPHANUMERIC).to_string());
        // What most encoders leave as it is.
        forms.push(
            text.replace('/', "%2F")
                .replace('+', "%2B")
                .replace('=', "%3D"),
        );
    }
    for skipped in 0..3 {
        for encoded in [
            STANDARD_NO_PAD.encode(&secret[skipped..]),
            URL_SAFE_NO_PAD.encode(&secret[skipped..]),
        ] {
            // The last letter depends on what follows.
            forms.push(encoded[..encoded.len() - 1].to_owned());
        }
    }
    forms
}

/// What of a secret shows in a text.
pub(crate) fn found_in(text: &str) -> Option<&'static str> {
    let forms = &CANARIES.forms;
    forms
        .iter()
        .find(|form| text.contains(*form))
        .map(String::as_str)
}

#[test]
fn a_secret_is_found_in_every_form() {
    let bearer = format!("Bearer {TOKEN}");
    for text in [
        bearer.clone(),
        format!("{:?}", bearer.as_bytes()),
        STANDARD_NO_PAD.encode(&bearer),
        STANDARD_NO_PAD.encode(format!("x{bearer}")),
        URL_SAFE_NO_PAD.encode(format!("xx{bearer}y")),
        utf8_percent_encode(&bearer, NON_ALPHANUMERIC).to_string(),
        CANARIES.key_pem.clone(),
        STANDARD_NO_PAD.encode(TOKEN),
    ] {
        assert!(found_in(&text).is_some(), "{text}");
    }
    assert_eq!(found_in("nothing of it, also not c4nary"), None);
    assert_eq!(found_in(&CANARIES.certificate_pem), None);
}

/// That the ears hear is shown by what they are told: on another path than the one that all tests look at.
#[test]
fn what_any_crate_logs_is_listened_to() {
    ears::listen();
    let mine = ears::heard_by_this_thread(|| {
        tracing::trace!(target: "h2", token = TOKEN, "a field");
        log::trace!(target: "rustls", "a record {TOKEN}");
        let span = tracing::trace_span!("a span", token = TOKEN);
        drop(span);
    });
    assert_eq!(mine, 3);
}

/// A proxy that shows what it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_repeats_its_password_puts_it_into_no_log_and_no_state() {
    let basic = STANDARD_NO_PAD.encode(format!("me:{PASSWORD}"));
    let refused = format!(
        "HTTP/1.1 407 Basic {basic}\r\nproxy-authenticate: Basic {PASSWORD}\r\ncontent-length: {}\r\n\r\n{PASSWORD}",
        PASSWORD.len()
    );
    let rig = Rig::start().await;
    for (number, (scheme, said)) in [
        ("http", refused.into_bytes()),
        ("http", PASSWORD.into()),
        // Of the version 5, with user and password, which are refused.
        ("socks5", [&[5, 2, 1, 1], PASSWORD.as_bytes()].concat()),
        ("socks5", [&[5, 2, 1], PASSWORD.as_bytes()].concat()),
        ("socks5", [&[5, 0xff], PASSWORD.as_bytes()].concat()),
        ("socks5", PASSWORD.into()),
    ]
    .into_iter()
    .enumerate()
    {
        let behaviour = Behaviour::tcp().greeting([Step::write(said), Step::HalfClose]);
        let proxy = HostileServer::start("proxy", behaviour).unwrap();
        let password = utf8_percent_encode(PASSWORD, NON_ALPHANUMERIC);
        let access = ClusterAccess::builder("https://cluster.example")
            .ca_pem(proxy.ca().pem())
            .proxy(format!("{scheme}://me:{password}@{}", proxy.addr()));
        let key = ClusterKey::named(&format!("proxied-{number}"));
        let upsert = Upsert::ready(key.clone(), access.build().unwrap());
        ears::shows(&format!("{upsert:?}"));
        rig.source.upsert(upsert);
        let error = rig.failed(&key).await;
        ears::shows(&format!("{} {error:?}", error.message));
        assert!(
            error.message.contains("the way through the proxy"),
            "{error:?}"
        );
        rig.remove(&key);
    }
    rig.end().await;
}

/// What is no answer of a cluster's, but shows all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_public_type_prints_a_secret() {
    let mut rig = Rig::start().await;
    let (key, server) = rig.add("debug", crate::rig::healthy(crate::rig::H2));
    let cluster = rig.connected(&key).await;
    let upsert = clustercache::Upsert::ready(key.clone(), crate::rig::access(&server));
    let access = rig.cache.access(&key).unwrap();
    let client = cluster.get::<clustercache_client::KubeClient>().unwrap();
    for text in [
        format!("{access:?} {access:#?} {upsert:?}"),
        format!("{:?} {:?}", access.credential(), access.endpoint()),
        format!("{:?}", access.credential().client_certificate()),
        format!("{:?} {cluster:?} {client:?}", rig.cache),
        format!("{:?} {:?}", rig.cache.counters(), rig.cache.dials()),
    ] {
        ears::shows(&text);
    }
    rig.end().await;
}
