//! Where a cluster is, and how it proves that it is that one.

use std::path::Path;

use clustercache::{AccessBuilder, AccessError, AddressPolicy, ClusterAccess};
use rustls_pki_types::ServerName;
use zeroize::Zeroizing;

use super::{Entry, access, decoded};
use crate::{
    Refusal, RefusalReason, address,
    allow::{CLUSTER, Fields},
    exec::{self, ClusterInfo},
    material::{Bytes, Contents, Material},
    policy::{Grants, Need, OptIn},
    refusal::Place,
    tree::Node,
};

const CA: (&str, &str) = ("certificate-authority-data", "certificate-authority");
const INSECURE: &str = "insecure-skip-tls-verify";

/// Where a cluster is, and its CA.
pub(crate) struct Cluster {
    place: Place,
    server: String,
    server_name: Option<String>,
    ca: Option<Material>,
    proxy: Option<Zeroizing<String>>,
    insecure: bool,
    http: bool,
    addresses: AddressPolicy,
    /// What its extension for programs says.
    config: Option<serde_json::Value>,
}

impl Entry for Cluster {
    const LIST: &'static str = "clusters";
    const FIELD: &'static str = "cluster";

    fn judge(node: Node, grants: Grants<'_>, place: Place) -> Result<Self, Refusal> {
        let mut fields = Fields::judge(node, CLUSTER, grants, place.clone())?;
        let server = fields.needed("server")?.to_string();
        let insecure = fields.flag(INSECURE)?;
        let ca = Material::take(&mut fields, CA, grants, decoded)?;
        let cluster = Self {
            http: is_http(&server),
            addresses: grants.addresses(),
            server_name: server_name(&mut fields)?,
            proxy: proxy(&mut fields, grants)?,
            config: exec::config(fields.node("extensions")),
            place,
            server,
            ca,
            insecure,
        };
        cluster.judge_server(grants)?;
        match &cluster.ca {
            Some(ca) if insecure => {
                let reason = RefusalReason::Conflict { with: INSECURE };
                return Err(ca.place().refuse(reason));
            }
            None if !insecure && !cluster.http => {
                return Err(cluster.place.field(CA.0).refuse(RefusalReason::Missing));
            }
            // Judged when it has been read.
            Some(Material::File(..)) | None => cluster.site(None)?,
            Some(Material::Inline(bytes, _)) => cluster.site(Some(bytes))?,
        };
        Ok(cluster)
    }
}

impl Cluster {
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.ca.iter().filter_map(Material::file)
    }

    pub(super) fn read_ca(&self, contents: &Contents) -> Result<Option<Bytes>, Refusal> {
        self.ca.as_ref().map(|ca| ca.read(contents)).transpose()
    }

    pub(super) fn builder(&self, ca: Option<&Bytes>) -> AccessBuilder {
        let mut builder = ClusterAccess::builder(self.server.as_str());
        builder = builder.addresses(self.addresses.clone());
        if let Some(ca) = ca {
            builder = builder.ca_pem(ca.as_slice());
        }
        if let Some(name) = &self.server_name {
            builder = builder.server_name(name.as_str());
        }
        if let Some(url) = &self.proxy {
            builder = builder.proxy(url.as_str());
        }
        if self.insecure {
            builder = builder.insecure_skip_tls_verify();
        }
        // Judged by the allow-list.
        if self.http {
            builder = builder.allow_http();
        }
        builder
    }

    /// Where it is, for nobody yet.
    pub(super) fn site(&self, ca: Option<&Bytes>) -> Result<ClusterAccess, Refusal> {
        let built = self.builder(ca).build();
        built.map_err(|error| access(&self.blamed(&error), error))
    }

    /// Of the field that an error is about.
    pub(super) fn blamed(&self, error: &AccessError) -> Place {
        match (error, &self.ca) {
            (AccessError::NoCertificate { .. } | AccessError::Certificate { .. }, Some(ca)) => {
                ca.place().clone()
            }
            (AccessError::Proxy, _) => self.place.field("proxy-url"),
            _ => self.place.field("server"),
        }
    }

    pub(super) fn info(&self, ca: Option<&Bytes>) -> ClusterInfo<'_> {
        ClusterInfo {
            server: &self.server,
            server_name: self.server_name.as_deref(),
            insecure: self.insecure,
            ca: ca.cloned(),
            proxy: self.proxy.as_deref().map(String::as_str),
            config: self.config.as_ref(),
        }
    }

    fn judge_server(&self, grants: Grants<'_>) -> Result<(), Refusal> {
        let refuse = |reason| Err(self.place.field("server").refuse(reason));
        match self.server.split_once("://") {
            None => return refuse(RefusalReason::NoScheme),
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {}
            Some(_) if self.http && grants.has(Need::OptIn(OptIn::Http)) => {}
            Some(_) => return refuse(RefusalReason::NotHttps),
        }
        // The URL parser drops a fragment without a word.
        if self.server.contains('#') {
            return refuse(RefusalReason::ServerParts);
        }
        let Ok(url) = self.server.parse::<http::Uri>() else {
            return refuse(RefusalReason::Access(AccessError::Url.into()));
        };
        let host = url.host().unwrap_or_default();
        match address::literal(host) {
            Err(address::Odd) => return refuse(RefusalReason::OddAddress),
            Ok(Some(ip)) if self.addresses.check(ip).is_err() => {
                return refuse(RefusalReason::ForbiddenAddress);
            }
            Ok(_) => {}
        }
        let user_info = url
            .authority()
            .is_some_and(|all| all.as_str().contains('@'));
        if !user_info && address::has_port(&url) && url.port_u16().is_none_or(|port| port == 0) {
            return refuse(RefusalReason::ServerParts);
        }
        Ok(())
    }
}

fn is_http(server: &str) -> bool {
    let scheme = server.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"))
}

fn server_name(fields: &mut Fields) -> Result<Option<String>, Refusal> {
    let name = fields.text("tls-server-name")?.map(|name| name.to_string());
    let name = name.filter(|name| !name.is_empty());
    match name.as_deref().map(ServerName::try_from) {
        Some(Err(_)) => {
            let place = fields.place("tls-server-name");
            Err(place.refuse(RefusalReason::NotAServerName))
        }
        _ => Ok(name),
    }
}

fn proxy(fields: &mut Fields, grants: Grants<'_>) -> Result<Option<Zeroizing<String>>, Refusal> {
    let Some(url) = fields.text("proxy-url")? else {
        return Ok(None);
    };
    let place = fields.place("proxy-url");
    if !grants.has_proxy(&url) {
        return Err(place.refuse(RefusalReason::Proxy));
    }
    match address::proxy(&url) {
        Some(_) => Ok(Some(url)),
        None => Err(place.refuse(RefusalReason::ProxyUrl)),
    }
}
