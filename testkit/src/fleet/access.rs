//! What a client needs to reach a fake cluster, as one value, and kubeconfig documents made of such values.
//!
//! Every field is public: a test that wants an endpoint with another cluster's CA, or yesterday's token, edits the value.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A way to reach a fake cluster: an endpoint, its CA and a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeAccess {
    /// The names of context, cluster and user in a kubeconfig.
    pub name: String,
    /// `https://127.0.0.1:PORT`.
    pub url: String,
    /// The CA's certificate as PEM.
    pub ca_pem: String,
    /// What the client shows.
    pub credential: FakeCredential,
}

/// What a client shows to be let in. Fake clusters are no secret: `Debug` prints all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FakeCredential {
    /// A bearer token.
    Token(String),
    /// A client certificate and its key, both as PEM.
    Certificate {
        /// The certificate.
        certificate_pem: String,
        /// The private key (PKCS #8).
        key_pem: String,
    },
}

impl FakeAccess {
    /// A kubeconfig with this one context, which is the current one; everything in it is inline.
    pub fn kubeconfig(&self) -> String {
        kubeconfig_of([self])
    }
}

impl FakeCredential {
    fn yaml(&self) -> String {
        match self {
            Self::Token(token) => format!("    token: {}\n", quoted(token)),
            Self::Certificate {
                certificate_pem,
                key_pem,
            } => format!(
                "    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(certificate_pem),
                STANDARD.encode(key_pem)
            ),
        }
    }
}

/// One kubeconfig with a context for each access, in that order; the first is the current one.
pub fn kubeconfig_of<'a>(accesses: impl IntoIterator<Item = &'a FakeAccess>) -> String {
    let (mut clusters, mut contexts, mut users) = (vec![], vec![], vec![]);
    let mut current = None;
    for access in accesses {
        let name = quoted(&access.name);
        let (server, ca) = (quoted(&access.url), STANDARD.encode(&access.ca_pem));
        clusters.push(format!(
            "- name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n"
        ));
        contexts.push(format!(
            "- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n"
        ));
        users.push(format!(
            "- name: {name}\n  user:\n{}",
            access.credential.yaml()
        ));
        current.get_or_insert(name);
    }
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {}\nclusters:{}contexts:{}users:{}",
        current.unwrap_or_else(|| quoted("")),
        list(&clusters),
        list(&contexts),
        list(&users),
    )
}

fn list(entries: &[String]) -> String {
    if entries.is_empty() {
        " []\n".to_owned()
    } else {
        format!("\n{}", entries.concat())
    }
}

/// A JSON string is a double-quoted YAML scalar.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn access(name: &str, credential: FakeCredential) -> FakeAccess {
        FakeAccess {
            name: name.into(),
            url: "https://127.0.0.1:1".into(),
            ca_pem: "CA".into(),
            credential,
        }
    }

    #[test]
    fn a_kubeconfig_is_yaml_with_one_context_an_access_and_everything_inline() {
        let odd = access("a: \"b\" # c", FakeCredential::Token("t".into()));
        let certificate = FakeCredential::Certificate {
            certificate_pem: "CERT".into(),
            key_pem: "KEY".into(),
        };
        let text = kubeconfig_of([&odd, &access("second", certificate)]);
        let document: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(document["current-context"], "a: \"b\" # c");
        assert_eq!(document["contexts"][1]["context"]["cluster"], "second");
        assert_eq!(
            document["clusters"][0]["cluster"]["certificate-authority-data"],
            STANDARD.encode("CA")
        );
        assert_eq!(document["users"][0]["user"]["token"], "t");
        assert_eq!(
            document["users"][1]["user"]["client-key-data"],
            STANDARD.encode("KEY")
        );
    }

    #[test]
    fn a_kubeconfig_of_nobody_is_still_a_document() {
        let document: Value = serde_saphyr::from_str(&kubeconfig_of([])).unwrap();
        assert_eq!(document["contexts"], serde_json::json!([]));
    }
}
