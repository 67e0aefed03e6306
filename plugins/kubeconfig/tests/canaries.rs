//! No secret, and no value of a field that is not known, ever shows in an error or `Debug`; neither as it stands, nor decoded.

use base64::{Engine, engine::general_purpose::STANDARD};
use clustercache_kubeconfig::{Kubeconfig, Policy};

mod support;
use support::{Parts, written};

const CANARY: &str = "c4narySECRET";

/// Everything that a caller could print.
fn printed(document: &str) -> String {
    match Kubeconfig::parse(document.as_bytes(), &Policy::tenant()) {
        Err(refusal) => format!("{refusal} {refusal:?} {:?}", refusal.reason()),
        Ok(kubeconfig) => {
            let mut text = format!("{kubeconfig:?} {kubeconfig:#?} {:?}", kubeconfig.current());
            for (_, access) in kubeconfig.contexts() {
                text.extend([format!("{access:?}"), format!("{access:#?}")]);
                if let Err(refusal) = access {
                    text += &refusal.to_string();
                }
            }
            text
        }
    }
}

#[track_caller]
fn silent(document: &str) {
    assert!(!document.is_empty());
    let text = printed(document);
    let base64 = STANDARD.encode(CANARY);
    for canary in [CANARY, &base64, base64.trim_end_matches('=')] {
        assert!(!text.contains(canary), "{text}");
    }
}

#[test]
fn no_field_shows_its_value_whether_known_or_not() {
    let parts = Parts::new();
    let base64 = STANDARD.encode(CANARY);
    let values = [
        CANARY.to_owned(),
        base64.clone(),
        format!("'{CANARY} with spaces'"),
        format!("[{CANARY}]"),
        format!("{{deep: [{{er: {CANARY}}}]}}"),
        format!("https://{CANARY}@host"),
        format!("https://host?{CANARY}"),
        format!("!{CANARY} x"),
        format!("*{CANARY}"),
        format!("{CANARY}: {CANARY}"),
        format!("\"{CANARY}"),
    ];
    let fields = [
        "server",
        "certificate-authority-data",
        "tls-server-name",
        "certificate-authority",
        "insecure-skip-tls-verify",
        "proxy-url",
        "disable-compression",
        "extensions",
        "client-certificate-data",
        "client-key-data",
        "token",
        "client-certificate",
        "client-key",
        "tokenFile",
        "exec",
        "auth-provider",
        "as",
        "as-uid",
        "as-groups",
        "as-user-extra",
        "username",
        "password",
        "cluster",
        "user",
        "namespace",
        "name",
        "unknown",
    ];
    for value in &values {
        for field in fields {
            let field = format!("{field}: {value}");
            silent(&written(&field, "token: t", "cluster: c, user: u"));
            silent(&written(&parts.cluster(), &field, "cluster: c, user: u"));
            silent(&written(&parts.cluster(), "token: t", &field));
            let sound = written(&parts.cluster(), "token: t", "cluster: c, user: u");
            silent(&(sound.clone() + &field));
            silent(&sound.replace("- name: u", &format!("- name: u\n  {field}")));
        }
    }
}

#[test]
fn no_accepted_credential_shows() {
    let parts = Parts::new();
    let user = format!("{}, token: {CANARY}", parts.user());
    let document = written(&parts.cluster(), &user, "cluster: c, user: u");
    let text = printed(&document);
    assert!(text.contains("client certificate and token"), "{text}");
    silent(&document);
    let key = STANDARD.decode(&parts.key).unwrap();
    let key = std::str::from_utf8(&key).unwrap();
    let line = key.lines().nth(1).unwrap();
    for secret in [line, &line[..32], &parts.key, &parts.key[..32]] {
        assert!(!text.contains(secret));
    }
}

#[test]
fn a_credential_that_is_wrong_by_a_little_does_not_show() {
    let parts = Parts::new();
    let key = STANDARD.encode(format!(
        "-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"
    ));
    let certificate = STANDARD.encode(format!(
        "-----BEGIN CERTIFICATE-----\n{CANARY}\n-----END CERTIFICATE-----\n"
    ));
    let context = "cluster: c, user: u";
    for user in [
        format!(
            "client-certificate-data: {}, client-key-data: {key}",
            parts.certificate
        ),
        format!(
            "client-certificate-data: {certificate}, client-key-data: {}",
            parts.key
        ),
        format!(
            "client-certificate-data: {}, client-key-data: {CANARY}!",
            parts.certificate
        ),
        format!("token: \"{CANARY}\\n\""),
        format!("token: {CANARY}, token: {CANARY}"),
        format!("token:{CANARY}: x"),
        format!("{}{CANARY}: x", "x".repeat(40)),
    ] {
        silent(&written(&parts.cluster(), &user, context));
        silent(&written(&user, "token: t", context));
    }
}
