//! One object as the server has it now, for who may not act on what is cached.

use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use kube::{Resource, client::Body};
use percent_encoding::utf8_percent_encode;
use serde::de::DeserializeOwned;

use crate::{
    ClusterInformers,
    ask::PLAIN,
    error::{Misplaced, shortened},
    line::Status,
};

/// Why the server's word could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// These informers belong to no cluster.
    #[error("these informers are fed by hand; there is no server to ask")]
    NoServer,
    /// No answer came.
    #[error("asking the server failed")]
    Call(#[source] kube::Error),
    /// The server refuses.
    #[error("get {path} failed with {status}: {message}")]
    Refused {
        /// What was asked for.
        path: String,
        /// The status of the answer.
        status: u16,
        /// What the server says, on one line and cut.
        message: String,
    },
    /// What came is not what was asked for.
    #[error("what came of {path} does not fit its type: {why}")]
    Undecodable {
        /// What was asked for.
        path: String,
        /// What is wrong with it: where, and nothing of what stands there.
        why: String,
    },
}

impl ClusterInformers {
    /// Asks the server itself for an object, declared or not: one request, within the client's
    /// [deadline](clustercache_client::Deadlines::call). `None` if there is no such object; what the server says of it is no news to the
    /// store, which has it when the watch tells.
    pub async fn read_live<'n, K>(
        &self,
        namespace: impl Into<Option<&'n str>>,
        name: &str,
    ) -> Result<Option<K>, LiveError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let client = self.client.as_ref().ok_or(LiveError::NoServer)?;
        let mut path = K::url_path(&(), namespace.into());
        path.push('/');
        path.extend(utf8_percent_encode(name, PLAIN));
        let request = http::Request::get(&path)
            .header(header::ACCEPT, HeaderValue::from_static("application/json"))
            .body(Body::empty())
            .map_err(|error| LiveError::Call(kube::Error::HttpError(error)))?;
        let answer = client.send(request).await.map_err(LiveError::Call)?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(LiveError::Call)?.to_bytes();
        if status.is_success() {
            let object = serde_json::from_slice(&body);
            return object.map(Some).map_err(|error| LiveError::Undecodable {
                path,
                why: Misplaced::from(error).to_string(),
            });
        }
        let said = Status::of(status.as_u16(), &body);
        // Of a kind that is not served there is no `Status`.
        if status == StatusCode::NOT_FOUND && said.reason == "NotFound" {
            return Ok(None);
        }
        Err(LiveError::Refused {
            path,
            status: said.code,
            message: shortened(&said.message),
        })
    }
}
