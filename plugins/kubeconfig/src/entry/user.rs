//! Who we are to a cluster.

use std::{collections::BTreeMap, path::Path};

use clustercache::{AccessBuilder, AccessError, ClusterAccess, Impersonation};
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::{Entry, access, decoded};
use crate::{
    Refusal, RefusalReason,
    allow::{Fields, USER, texts, wrong},
    exec::Exec,
    material::{Contents, Material},
    policy::Grants,
    refusal::Place,
    tree::Node,
};

const CERTIFICATE: (&str, &str) = ("client-certificate-data", "client-certificate");
const KEY: (&str, &str) = ("client-key-data", "client-key");
const TOKEN: (&str, &str) = ("token", "tokenFile");

/// Who we are to a cluster, and as whom we act.
pub(crate) struct User {
    place: Place,
    credential: Credential,
    impersonation: Option<Impersonation>,
}

enum Credential {
    Given {
        certificate: Option<(Material, Material)>,
        token: Option<Material>,
    },
    Program(Exec),
}

impl Entry for User {
    const LIST: &'static str = "users";
    const FIELD: &'static str = "user";

    fn judge(node: Node, grants: Grants<'_>, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, USER, grants, place.clone())?;
        let token = Material::take(&mut fields, TOKEN, grants, |token, _| {
            Ok(Zeroizing::new(token.as_bytes().to_vec()))
        })?;
        let chain = Material::take(&mut fields, CERTIFICATE, grants, decoded)?;
        let key = Material::take(&mut fields, KEY, grants, decoded)?;
        let exec = match fields.node("exec") {
            Some(node) if !node.is_null() => Some(Exec::judge(node, grants, fields.place("exec"))?),
            _ => None,
        };
        let missing = |field| Err(place.field(field).refuse(RefusalReason::Missing));
        let credential = match (exec, chain, key, token) {
            (None, None, None, None) => return Err(place.refuse(RefusalReason::NoCredential)),
            (None, None, Some(_), _) => return missing(CERTIFICATE.0),
            (None, Some(_), None, _) => return missing(KEY.0),
            (None, chain, key, token) => Credential::Given {
                certificate: chain.zip(key),
                token,
            },
            (Some(exec), None, None, None) => Credential::Program(exec),
            (Some(_), chain, key, token) => {
                let given = [chain, key, token].into_iter().flatten().next();
                let place = given.map_or(place, |given| given.place().clone());
                return Err(place.refuse(RefusalReason::Conflict { with: "exec" }));
            }
        };
        let user = Self {
            impersonation: impersonation(&mut fields)?,
            place,
            credential,
        };
        user.check()?;
        Ok(user)
    }
}

impl User {
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.materials().filter_map(Material::file)
    }

    pub(super) fn exec(&self) -> Option<&Exec> {
        match &self.credential {
            Credential::Given { .. } => None,
            Credential::Program(exec) => Some(exec),
        }
    }

    /// Gives all but what a program would.
    pub(super) fn give_to(
        &self,
        builder: AccessBuilder,
        contents: &Contents,
    ) -> Result<AccessBuilder, Refusal> {
        let mut builder = self.impersonate(builder);
        let Credential::Given { certificate, token } = &self.credential else {
            return Ok(builder);
        };
        if let Some((chain, key)) = certificate {
            let key = text(key, contents, AccessError::Key)?;
            builder = builder.client_certificate_pem(chain.read(contents)?.as_slice(), key);
        }
        if let Some(token) = token {
            builder = builder.token(text(token, contents, AccessError::Token)?);
        }
        Ok(builder)
    }

    pub(super) fn impersonate(&self, builder: AccessBuilder) -> AccessBuilder {
        match &self.impersonation {
            Some(who) => builder.impersonate(who.clone()),
            None => builder,
        }
    }

    /// Of the field that an error is about, if it is one of ours.
    pub(super) fn blamed(&self, error: &AccessError) -> Option<Place> {
        if let AccessError::Impersonation { field } = error {
            return Some(self.place.field(match *field {
                "uid" => "as-uid",
                "groups" => "as-groups",
                "extra" => "as-user-extra",
                _ => "as",
            }));
        }
        let Credential::Given { certificate, token } = &self.credential else {
            return None;
        };
        let part = "the client certificate";
        let blamed = match error {
            AccessError::Token => token.as_ref(),
            AccessError::Key => certificate.as_ref().map(|(_, key)| key),
            AccessError::NoCertificate { part: of } | AccessError::Certificate { part: of }
                if *of == part =>
            {
                certificate.as_ref().map(|(chain, _)| chain)
            }
            _ => None,
        };
        blamed.map(|material| material.place().clone())
    }

    /// What stands inline is judged by itself: any endpoint will do for that.
    fn check(&self) -> Result<(), Refusal> {
        if self.files().next().is_some() {
            return Ok(());
        }
        let builder = self.give_to(ClusterAccess::builder("https://any"), &Contents::new())?;
        builder.build().map(drop).map_err(|error| {
            let place = self.blamed(&error);
            access(&place.unwrap_or_else(|| self.place.clone()), error)
        })
    }

    fn materials(&self) -> impl Iterator<Item = &Material> {
        let (certificate, token) = match &self.credential {
            Credential::Given { certificate, token } => (certificate.as_ref(), token.as_ref()),
            Credential::Program(_) => (None, None),
        };
        let pair = certificate.map(|(chain, key)| [chain, key]);
        pair.into_iter().flatten().chain(token)
    }
}

fn impersonation(fields: &mut Fields) -> Result<Option<Impersonation>, Refusal> {
    let user = fields.text("as")?.map(|user| user.to_string());
    let uid = fields.text("as-uid")?.map(|uid| uid.to_string());
    let groups = strings(&fields.texts("as-groups")?);
    let extra = extra(fields)?;
    let Some(user) = user else {
        // They have no meaning without one.
        let given = uid.is_some() || !groups.is_empty() || !extra.is_empty();
        let missing = || fields.place("as").refuse(RefusalReason::Missing);
        return if given { Err(missing()) } else { Ok(None) };
    };
    let mut who = Impersonation::user(user);
    (who.uid, who.groups, who.extra) = (uid, groups, extra);
    Ok(Some(who))
}

fn extra(fields: &mut Fields) -> Result<BTreeMap<String, Vec<String>>, Refusal> {
    let place = fields.place("as-user-extra");
    let named = match fields.node("as-user-extra") {
        Some(Node::Map(named)) => named,
        None => BTreeMap::new(),
        Some(_) => return Err(wrong(&place, "a mapping")),
    };
    let values = |(name, node): (String, Node)| match node {
        Node::List(items) => {
            let values = texts(items, &place.field(&name))?;
            Ok((name, strings(&values)))
        }
        _ => Err(wrong(&place.field(&name), "a list")),
    };
    named.into_iter().map(values).collect()
}

fn strings(texts: &[Zeroizing<String>]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

/// The text of a key or a token. What is in a file ends with a line feed as often as not.
fn text(
    material: &Material,
    contents: &Contents,
    otherwise: AccessError,
) -> Result<SecretString, Refusal> {
    let bytes = material.read(contents)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) if material.file().is_some() => Ok(SecretString::from(text.trim())),
        Ok(text) => Ok(SecretString::from(text)),
        Err(_) => Err(access(material.place(), otherwise)),
    }
}
