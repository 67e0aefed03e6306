//! What a program answers: an `ExecCredential` with a status.

use std::{sync::Arc, time::SystemTime};

use clustercache::{AccessBuilder, ClusterAccess};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{ExecFailure, Version};

/// A credential that a program gave. Prints nothing of it.
pub(crate) struct Issued {
    certificate: Option<(SecretString, SecretString)>,
    token: Option<SecretString>,
    /// The earlier of what the program said and the client certificate's own end.
    pub(crate) expires: Option<SystemTime>,
}

impl Issued {
    /// Reads what was printed. Does not ask whether it has ended.
    pub(super) fn read(output: &[u8], version: Version) -> Result<Self, ExecFailure> {
        // The parser's own words may quote the document.
        let malformed = |_| ExecFailure::Malformed {
            output: output.len(),
        };
        let said: ExecCredential = serde_json::from_slice(output).map_err(malformed)?;
        if said.kind != "ExecCredential" || said.api_version != version.text() {
            let expected = version.text();
            return Err(ExecFailure::Version { expected });
        }
        let status = said.status.ok_or(ExecFailure::Nothing)?;
        let expires = status
            .expiration_timestamp
            .as_deref()
            .map(str::parse::<jiff::Timestamp>);
        let expires = expires.transpose().map_err(|_| ExecFailure::Time)?;
        let (chain, key) = (
            filled(status.client_certificate_data),
            filled(status.client_key_data),
        );
        let certificate = match (chain, key) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => return Err(ExecFailure::Half),
        };
        let mut issued = Self {
            certificate,
            token: filled(status.token),
            expires: expires.map(SystemTime::from),
        };
        if issued.certificate.is_none() && issued.token.is_none() {
            return Err(ExecFailure::Nothing);
        }
        // Any endpoint will do to have the credential judged by itself.
        let built = issued
            .give_to(ClusterAccess::builder("https://any"))
            .build();
        let built = built.map_err(|error| ExecFailure::Access(Arc::new(error)))?;
        issued.expires = built.credential().expires();
        Ok(issued)
    }

    pub(crate) fn give_to(&self, mut builder: AccessBuilder) -> AccessBuilder {
        if let Some((chain, key)) = &self.certificate {
            builder = builder.client_certificate_pem(chain.expose_secret(), key.clone());
        }
        if let Some(token) = &self.token {
            builder = builder.token(token.clone());
        }
        match self.expires {
            Some(at) => builder.expires(at),
            None => builder,
        }
    }
}

#[cfg(test)]
impl Issued {
    pub(crate) fn ending(expires: Option<SystemTime>) -> Self {
        Self {
            certificate: None,
            token: Some("t".into()),
            expires,
        }
    }
}

fn filled(text: Option<SecretString>) -> Option<SecretString> {
    text.filter(|text| !text.expose_secret().is_empty())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<SecretString>,
    client_certificate_data: Option<SecretString>,
    client_key_data: Option<SecretString>,
}
