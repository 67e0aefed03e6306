//! Programs that print a credential: what a user's `exec` says, and what a program is told. The protocol is that of
//! `client.authentication.k8s.io`, v1 and v1beta1, as client-go speaks it; nobody is there to talk to a program.

use std::path::PathBuf;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    Refusal, RefusalReason,
    allow::{EXEC, Fields, VARIABLE, wrong},
    material::Bytes,
    policy::{Grants, is_variable},
    refusal::Place,
    tree::Node,
};

mod answer;
mod failure;
mod run;

pub(crate) use answer::Issued;
pub use failure::ExecFailure;
pub(crate) use run::{Terms, run};

/// The extension of a cluster that its programs are told.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// What a user's `exec` says, of a program that is allowed.
pub(crate) struct Exec {
    place: Place,
    version: Version,
    command: String,
    program: Program,
    args: Vec<Zeroizing<String>>,
    env: Vec<(String, Zeroizing<String>)>,
    hint: String,
    wants_cluster: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1Beta1,
}

/// Where a program is.
#[derive(Clone)]
pub(crate) enum Program {
    /// In one of the directories of `PATH`.
    Named(String),
    At(PathBuf),
}

/// A program with all that it is given. Two with one `id` give the same credential, so they are run as one.
pub(crate) struct Spec {
    pub(crate) id: SpecId,
    pub(crate) place: Place,
    pub(crate) version: Version,
    /// As it is written and allowed.
    pub(crate) command: String,
    pub(crate) program: Program,
    pub(crate) args: Vec<Zeroizing<String>>,
    pub(crate) env: Vec<(String, Zeroizing<String>)>,
    /// `KUBERNETES_EXEC_INFO`.
    pub(crate) info: Zeroizing<String>,
    /// What the document says to whoever lacks the program.
    pub(crate) hint: String,
}

pub(crate) type SpecId = [u8; 32];

/// What a program is told of the cluster, if its user says so.
pub(crate) struct ClusterInfo<'a> {
    pub(crate) server: &'a str,
    pub(crate) server_name: Option<&'a str>,
    pub(crate) insecure: bool,
    pub(crate) ca: Option<Bytes>,
    pub(crate) proxy: Option<&'a str>,
    pub(crate) config: Option<&'a Value>,
}

impl Exec {
    pub(crate) fn judge(node: Node, grants: Grants<'_>, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, EXEC, grants, place.clone())?;
        let command = fields.needed("command")?.to_string();
        if !grants.has_program(&command) {
            return Err(fields.place("command").refuse(RefusalReason::Exec));
        }
        let refuse = |field: &str, reason| Err(place.field(field).refuse(reason));
        let version = match fields.needed("apiVersion")?.as_str() {
            "client.authentication.k8s.io/v1" => Version::V1,
            "client.authentication.k8s.io/v1beta1" => Version::V1Beta1,
            _ => return refuse("apiVersion", RefusalReason::ExecVersion),
        };
        let mode = fields.text("interactiveMode")?;
        match (mode.as_deref().map(String::as_str), version) {
            (Some("Never" | "IfAvailable"), _) | (None | Some(""), Version::V1Beta1) => {}
            (None | Some(""), Version::V1) => {
                return refuse("interactiveMode", RefusalReason::Missing);
            }
            _ => return refuse("interactiveMode", RefusalReason::Interactive),
        }
        let args = fields.texts("args")?;
        if let Some(at) = args.iter().position(|arg| arg.contains('\0')) {
            return Err(wrong(&fields.place("args").item(at), "text without a NUL"));
        }
        // Without a directory no program is granted.
        let directory = grants.directory.unwrap_or(std::path::Path::new(""));
        let program = if command.contains(std::path::is_separator) {
            Program::At(directory.join(&command))
        } else {
            Program::Named(command.clone())
        };
        Ok(Self {
            version,
            program,
            args,
            env: variables(&mut fields, grants)?,
            hint: fields.text("installHint")?.unwrap_or_default().to_string(),
            wants_cluster: fields.flag("provideClusterInfo")?,
            command,
            place,
        })
    }

    pub(crate) fn wants_cluster(&self) -> bool {
        self.wants_cluster
    }

    pub(crate) fn spec(&self, cluster: Option<ClusterInfo<'_>>) -> Spec {
        let mut spec = Spec {
            id: SpecId::default(),
            place: self.place.clone(),
            version: self.version,
            command: self.command.clone(),
            program: self.program.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            info: info(self.version, cluster),
            hint: self.hint.clone(),
        };
        spec.id = spec.digest();
        spec
    }
}

fn variables(
    fields: &mut Fields,
    grants: Grants<'_>,
) -> Result<Vec<(String, Zeroizing<String>)>, Refusal> {
    let list = fields.place("env");
    let variable = |(index, node)| {
        let mut fields = Fields::judge(node, VARIABLE, grants, list.item(index))?;
        let name = fields.needed("name")?.to_string();
        let value = fields.text("value")?.unwrap_or_default();
        if is_variable(&name, &value) {
            Ok((name, value))
        } else {
            let place = list.item(index);
            Err(wrong(&place, "a name without `=`, and no NUL"))
        }
    };
    let items = fields.list("env")?;
    items.into_iter().enumerate().map(variable).collect()
}

impl Spec {
    /// Each part goes in with its length, so that no two lists of parts read the same.
    fn digest(&self) -> SpecId {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(self.command.as_bytes());
        if let Program::At(path) = &self.program {
            add(path.as_os_str().as_encoded_bytes());
        }
        add(&(self.args.len() as u64).to_be_bytes());
        self.args.iter().for_each(|arg| add(arg.as_bytes()));
        for (name, value) in &self.env {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        add(self.info.as_bytes());
        hash.finalize().into()
    }
}

impl Version {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

fn info(version: Version, cluster: Option<ClusterInfo<'_>>) -> Zeroizing<String> {
    let mut spec = json!({ "interactive": false });
    if let Some(cluster) = cluster {
        spec["cluster"] = cluster.json();
    }
    let info = json!({ "apiVersion": version.text(), "kind": "ExecCredential", "spec": spec });
    Zeroizing::new(info.to_string())
}

impl ClusterInfo<'_> {
    /// Without what is not set, as client-go writes it.
    fn json(&self) -> Value {
        let ca = self.ca.as_ref().map(|ca| STANDARD.encode(ca.as_slice()));
        let fields = [
            ("server", Some(self.server.into())),
            ("tls-server-name", self.server_name.map(Value::from)),
            (
                "insecure-skip-tls-verify",
                self.insecure.then_some(Value::Bool(true)),
            ),
            ("certificate-authority-data", ca.map(Value::from)),
            ("proxy-url", self.proxy.map(Value::from)),
            ("config", self.config.cloned()),
        ];
        let given = |(name, value): (&str, Option<Value>)| Some((name.to_owned(), value?));
        Value::Object(fields.into_iter().filter_map(given).collect::<Map<_, _>>())
    }
}

/// What a cluster's extension for programs says, if it has one; nothing is read of the others.
pub(crate) fn config(extensions: Option<Node>) -> Option<Value> {
    let Some(Node::List(items)) = extensions else {
        return None;
    };
    let ours = |item| match item {
        Node::Map(mut fields) => match fields.remove("name") {
            Some(Node::Text { text, .. }) if text.as_str() == EXTENSION => {
                fields.remove("extension")
            }
            _ => None,
        },
        _ => None,
    };
    items.into_iter().find_map(ours).map(value)
}

/// A bare tree as JSON. Scalars without quotes are what YAML's core schema says that they are.
fn value(node: Node) -> Value {
    let null = node.is_null();
    let (yes, no) = (node.is_true(), node.is_false());
    match node {
        Node::List(items) => items.into_iter().map(value).collect(),
        Node::Map(fields) => {
            let fields = fields.into_iter().map(|(name, node)| (name, value(node)));
            Value::Object(fields.collect())
        }
        Node::Text { .. } if null => Value::Null,
        Node::Text { .. } if yes || no => Value::Bool(yes),
        Node::Text { text, plain: true } => {
            let number = text.parse::<serde_json::Number>();
            number.map_or_else(|_| Value::from(text.as_str()), Value::Number)
        }
        Node::Text { text, .. } => Value::from(text.as_str()),
    }
}
