//! A Secret as it comes over the wire, with just what is needed of it. Its data is wiped when it is dropped.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use clustercache::Identity;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::LABEL;
use crate::{EtcdIssuer, IssuerError};

pub(super) struct Secret {
    what: String,
    raw: Raw,
}

#[derive(Deserialize)]
struct Raw {
    metadata: Metadata,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    labels: Option<Labels>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(rename = "cluster.x-k8s.io/cluster-name")]
    cluster: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    uid: String,
}

/// The two entries that are read; whatever else is in it is never copied.
#[derive(Default, Deserialize)]
struct Data {
    #[serde(rename = "tls.crt")]
    certificate: Option<Zeroizing<String>>,
    #[serde(rename = "tls.key")]
    key: Option<Zeroizing<String>>,
}

impl Secret {
    pub(super) fn parse(what: String, json: &[u8]) -> Result<Self, IssuerError> {
        match serde_json::from_slice(json) {
            Ok(raw) => Ok(Self { what, raw }),
            // What serde says of it may quote it.
            Err(_) => Err(IssuerError::Unreadable {
                what,
                why: "the answer is no Secret",
            }),
        }
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Whether it may be used for this cluster.
    pub(super) fn is_of(&self, identity: &Identity) -> Result<(), IssuerError> {
        let what = || self.what.clone();
        if self.raw.metadata.deletion_timestamp.is_some() {
            return Err(IssuerError::BeingDeleted { what: what() });
        }
        let Identity::Uid(uid) = identity else {
            return Ok(());
        };
        let mut owners = self.raw.metadata.owner_references.iter();
        match owners.find(|owner| owner.is_cluster() && *owner.uid != **uid) {
            Some(owner) => Err(IssuerError::Foreign {
                what: what(),
                owner: owner.uid.chars().take(64).collect(),
            }),
            None => Ok(()),
        }
    }

    pub(super) fn take(&mut self, entry: &'static str) -> Result<Zeroizing<Vec<u8>>, IssuerError> {
        let what = self.what.clone();
        self.take_if_there(entry)?
            .ok_or(IssuerError::Incomplete { what, entry })
    }

    /// An entry that is empty is as none.
    pub(super) fn take_if_there(
        &mut self,
        entry: &'static str,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, IssuerError> {
        let data = self.raw.data.get_or_insert_default();
        let text = match entry {
            "tls.crt" => data.certificate.take(),
            _ => data.key.take(),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let mut bytes = Zeroizing::new(vec![0; text.len() / 4 * 3 + 3]);
        let length = BASE64_STANDARD.decode_slice(text.as_bytes(), &mut bytes);
        let length = length.map_err(|_| IssuerError::Unreadable {
            what: self.what.clone(),
            why: "its data is not base64",
        })?;
        bytes.truncate(length);
        Ok(Some(bytes))
    }

    /// By which its changes are known again.
    pub(super) fn marks(&self, issuer: EtcdIssuer) -> EtcdIssuer {
        let Metadata {
            uid,
            resource_version,
            labels,
            ..
        } = &self.raw.metadata;
        let labelled = labels
            .as_ref()
            .is_some_and(|labels| labels.cluster.is_some());
        let issuer = issuer.version(version(uid, resource_version));
        if labelled {
            return issuer;
        }
        issuer.unwatched(format!("{} has no label {LABEL}; give it one", self.what))
    }
}

impl Owner {
    fn is_cluster(&self) -> bool {
        let group = self.api_version.split('/').next();
        self.kind == "Cluster" && group == Some("cluster.x-k8s.io")
    }
}

pub(super) fn version(uid: &str, resource_version: &str) -> Arc<str> {
    format!("{uid}/{resource_version}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(json: &str) -> Secret {
        Secret::parse("it".into(), json.as_bytes()).unwrap()
    }

    fn owned_by(api_version: &str, uid: &str) -> Secret {
        let owner = format!(r#"{{"apiVersion":"{api_version}","kind":"Cluster","uid":"{uid}"}}"#);
        secret(&format!(
            r#"{{"metadata":{{"ownerReferences":[{owner}]}}}}"#
        ))
    }

    #[test]
    fn a_secret_of_a_cluster_of_another_uid_or_on_its_way_out_is_not_used() {
        let ours = Identity::Uid("a".into());
        let api = "cluster.x-k8s.io/v1beta2";
        assert_eq!(owned_by(api, "a").is_of(&ours), Ok(()));
        let foreign = owned_by(api, "b").is_of(&ours);
        assert!(matches!(foreign, Err(IssuerError::Foreign { owner, .. }) if owner == "b"));
        assert_eq!(owned_by("example.com/v1", "b").is_of(&ours), Ok(()));
        assert_eq!(owned_by(api, "b").is_of(&Identity::ByCa), Ok(()));
        let ending = secret(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#);
        assert!(matches!(
            ending.is_of(&ours),
            Err(IssuerError::BeingDeleted { .. })
        ));
    }

    #[test]
    fn what_is_not_there_or_no_base64_is_told_apart_and_never_quoted() {
        let mut none = secret(r#"{"metadata":{}}"#);
        assert!(matches!(
            none.take("tls.crt"),
            Err(IssuerError::Incomplete { .. })
        ));
        let mut junk = secret(r#"{"metadata":{},"data":{"tls.key":"ca*nary","tls.crt":""}}"#);
        assert_eq!(junk.take_if_there("tls.crt"), Ok(None));
        let error = junk.take("tls.key").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("nary"));
        let Err(error) = Secret::parse("it".into(), br#"{"metadata":"canary"}"#) else {
            panic!("it is no Secret");
        };
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}
