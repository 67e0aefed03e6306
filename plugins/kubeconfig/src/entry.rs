//! One entry of a document's lists: a cluster, a user or a context, judged by itself, so that what is wrong with one is the matter of
//! those contexts only that use it.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use clustercache::{AccessBuilder, AccessError, ClusterAccess};
use rustls_pki_types::ServerName;
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::{
    Refusal, RefusalReason,
    allow::{CLUSTER, CONTEXT, Fields, USER},
    refusal::Place,
    tree::Node,
};

const CA: &str = "certificate-authority-data";
const CERTIFICATE: &str = "client-certificate-data";
const KEY: &str = "client-key-data";

/// An entry of a list; the same whatever its kind.
pub(crate) trait Entry: Sized {
    /// The field that has the list.
    const LIST: &'static str;
    /// The field of an item that has the entry.
    const FIELD: &'static str;

    fn judge(node: Node, place: Place) -> Result<Self, Refusal>;
}

/// Where a cluster is, and its CA.
pub(crate) struct Cluster {
    server: String,
    server_name: Option<String>,
    ca: Vec<u8>,
}

/// Who we are to it.
pub(crate) struct User {
    certificate: Option<(Vec<u8>, SecretString)>,
    token: Option<SecretString>,
}

/// Which user at which cluster.
pub(crate) struct Context {
    place: Place,
    pub(crate) cluster: String,
    pub(crate) user: String,
}

impl Context {
    pub(crate) fn place(&self, field: &str) -> Place {
        self.place.field(field)
    }

    pub(crate) fn access(&self, cluster: &Cluster, user: &User) -> Result<ClusterAccess, Refusal> {
        // Both were built alone, so this does not fail; if it did, it would be the pair's fault.
        user.give_to(cluster.builder())
            .build()
            .map_err(|error| access(&self.place, error))
    }
}

impl Cluster {
    fn builder(&self) -> AccessBuilder {
        let builder = ClusterAccess::builder(self.server.as_str()).ca_pem(self.ca.as_slice());
        match &self.server_name {
            Some(name) => builder.server_name(name.as_str()),
            None => builder,
        }
    }
}

impl User {
    fn give_to(&self, mut builder: AccessBuilder) -> AccessBuilder {
        if let Some((chain, key)) = &self.certificate {
            builder = builder.client_certificate_pem(chain.as_slice(), key.clone());
        }
        match &self.token {
            Some(token) => builder.token(token.clone()),
            None => builder,
        }
    }
}

// === impl Entry ===

impl Entry for Cluster {
    const LIST: &'static str = "clusters";
    const FIELD: &'static str = "cluster";

    fn judge(node: Node, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, CLUSTER, place)?;
        let server = fields.needed("server")?.to_string();
        let server_name = fields.text("tls-server-name")?.map(|name| name.to_string());
        let server_name = server_name.filter(|name| !name.is_empty());
        if server_name
            .as_deref()
            .is_some_and(|name| ServerName::try_from(name).is_err())
        {
            let place = fields.place("tls-server-name");
            return Err(place.refuse(RefusalReason::NotAServerName));
        }
        let ca = fields.needed(CA)?;
        let ca = decoded(&ca, &fields.place(CA))?.to_vec();
        let cluster = Self {
            server,
            server_name,
            ca,
        };
        cluster.check(&fields)?;
        Ok(cluster)
    }
}

impl Cluster {
    fn check(&self, fields: &Fields) -> Result<(), Refusal> {
        let refuse = |reason| Err(fields.place("server").refuse(reason));
        match self.server.split_once("://") {
            None => return refuse(RefusalReason::NoScheme),
            Some((scheme, _)) if !scheme.eq_ignore_ascii_case("https") => {
                return refuse(RefusalReason::NotHttps);
            }
            // The URL parser drops a fragment without a word.
            Some(_) if self.server.contains('#') => return refuse(RefusalReason::ServerParts),
            Some(_) => {}
        }
        let built = self.builder().build().map_err(|error| {
            let field = match error {
                AccessError::NoCertificate { .. } | AccessError::Certificate { .. } => CA,
                _ => "server",
            };
            access(&fields.place(field), error)
        })?;
        let url = built.endpoint().url();
        let host = url.host().unwrap_or_default();
        let rest = url
            .authority()
            .and_then(|all| all.as_str().strip_prefix(host));
        match (rest, url.port_u16()) {
            (Some(""), None) | (Some(_), Some(1..)) => Ok(()),
            _ => refuse(RefusalReason::ServerParts),
        }
    }
}

impl Entry for User {
    const LIST: &'static str = "users";
    const FIELD: &'static str = "user";

    fn judge(node: Node, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, USER, place.clone())?;
        let token = fields.filled("token")?;
        let token = token.map(|text| SecretString::from(text.as_str()));
        let certificate = match (fields.filled(CERTIFICATE)?, fields.filled(KEY)?) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some((
                decoded(&chain, &fields.place(CERTIFICATE))?.to_vec(),
                key_text(&key, &fields.place(KEY))?,
            )),
            (None, Some(_)) => {
                return Err(fields.place(CERTIFICATE).refuse(RefusalReason::Missing));
            }
            (Some(_), None) => return Err(fields.place(KEY).refuse(RefusalReason::Missing)),
        };
        if token.is_none() && certificate.is_none() {
            return Err(place.refuse(RefusalReason::NoCredential));
        }
        let user = Self { certificate, token };
        // Any endpoint will do to have the credential judged by itself.
        let built = user.give_to(ClusterAccess::builder("https://any")).build();
        built.map_err(|error| {
            let field = match error {
                AccessError::Token => "token",
                AccessError::Key => KEY,
                _ => CERTIFICATE,
            };
            access(&fields.place(field), error)
        })?;
        Ok(user)
    }
}

impl Entry for Context {
    const LIST: &'static str = "contexts";
    const FIELD: &'static str = "context";

    fn judge(node: Node, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, CONTEXT, place.clone())?;
        Ok(Self {
            place,
            cluster: fields.needed("cluster")?.to_string(),
            user: fields.needed("user")?.to_string(),
        })
    }
}

/// Base64 as client-go takes it: padded, and with line breaks, which a block scalar leaves in.
fn decoded(text: &str, place: &Place) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let mut dense = Zeroizing::new(String::with_capacity(text.len()));
    dense.extend(text.chars().filter(|c| !c.is_ascii_whitespace()));
    STANDARD
        .decode(dense.as_bytes())
        .map(Zeroizing::new)
        .map_err(|_| place.refuse(RefusalReason::Base64))
}

fn key_text(text: &str, place: &Place) -> Result<SecretString, Refusal> {
    let bytes = decoded(text, place)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| access(place, AccessError::Key))?;
    Ok(SecretString::from(text))
}

fn access(place: &Place, error: AccessError) -> Refusal {
    place.refuse(RefusalReason::Access(Arc::new(error)))
}
