//! Documents to test with: a sound one with real certificates, from which a test takes or to which it adds what it is about.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test is a crate of its own, and none uses all of it"
)]

pub mod events;
pub mod log;
pub mod programs;

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use clustercache::ClusterAccess;
use clustercache_kubeconfig::{Kubeconfig, Policy, Refusal, RefusalReason};

/// What a sound document is made of; base64 as it stands in the document.
pub struct Parts {
    pub ca: String,
    pub certificate: String,
    pub key: String,
}

impl Parts {
    pub fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            ca: STANDARD.encode(ca),
            certificate: STANDARD.encode(certificate),
            key: STANDARD.encode(key.serialize_pem()),
        }
    }

    /// The fields of a sound cluster, in flow style.
    pub fn cluster(&self) -> String {
        format!(
            "server: 'https://10.0.0.1:6443', certificate-authority-data: {}",
            self.ca
        )
    }

    /// The fields of a sound user with a client certificate.
    pub fn user(&self) -> String {
        format!(
            "client-certificate-data: {}, client-key-data: {}",
            self.certificate, self.key
        )
    }

    /// A document of whole contexts: their name, the last octet of their server, and their token.
    pub fn fleet(&self, contexts: &[(&str, u8, &str)]) -> String {
        let mut lists = [String::new(), String::new(), String::new()];
        for (name, host, token) in contexts {
            let _ = write!(
                lists[0],
                "- name: {name}\n  cluster: {{server: 'https://10.0.0.{host}:6443', certificate-authority-data: {}}}\n",
                self.ca
            );
            let _ = write!(lists[1], "- name: {name}\n  user: {{token: {token}}}\n");
            let _ = write!(
                lists[2],
                "- name: {name}\n  context: {{cluster: {name}, user: {name}}}\n"
            );
        }
        let [clusters, users, contexts] = lists;
        format!(
            "apiVersion: v1\nclusters:\n{clusters}contexts:\n{contexts}current-context: ''\nkind: Config\npreferences: {{}}\nusers:\n{users}"
        )
    }
}

/// A document with the context `dev`, of which `cluster`, `user` and `context` are the fields.
pub fn written(cluster: &str, user: &str, context: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n\
         contexts:\n- name: dev\n  context: {{{context}}}\ncurrent-context: dev\n"
    )
}

/// The fields of a sound context.
pub const CONTEXT: &str = "cluster: c, user: u";

/// The access of a document's current context.
pub fn current(document: &str) -> Result<ClusterAccess, Refusal> {
    let kubeconfig = Kubeconfig::parse(document.as_bytes(), &Policy::tenant())?;
    kubeconfig.current().map(|(_, access)| access)
}

#[track_caller]
pub fn refused(document: &str, path: &str, reason: &RefusalReason) {
    let refusal = current(document).expect_err(path);
    assert_eq!((refusal.path(), refusal.reason()), (path, reason));
    assert!(
        refusal.to_string().starts_with(if path.is_empty() {
            "the document"
        } else {
            path
        }),
        "{refusal}"
    );
}
