//! What a cluster's answers to `/readyz` and `/version` mean: the table "Health" of ARCHITECTURE.md, and nothing else.

use async_trait::async_trait;
use bytes::Bytes;
use clustercache::{Answer, CheckError, FailureKind};
use http::StatusCode;

use crate::{TransportError, status::is_status};

/// An answer to a question of the health check.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// What [`Limits::probe`](crate::Limits::probe) lets be read of it.
    pub(crate) body: Bytes,
}

/// Whom one asks.
#[async_trait]
pub(crate) trait Ask: Send {
    async fn ask(&mut self, path: &'static str) -> Result<Reply, TransportError>;
}

/// Asks whether the cluster is alive and ready.
pub(crate) async fn check(server: &mut dyn Ask) -> Result<Answer, CheckError> {
    let readyz = server
        .ask("/readyz")
        .await
        .map_err(|error| failed(&error))?;
    match readyz.status.as_u16() {
        200..=299 => Ok(Answer::Ready),
        401 => Err(unauthorized("/readyz")),
        // It may be that this path is forbidden to us, or that it is a proxy that says so: the version tells.
        403 | 404 | 429 | 500 | 503 => {
            let version = server
                .ask("/version")
                .await
                .map_err(|error| failed(&error))?;
            is_alive(&readyz, &version)
        }
        400..=499 if is_status(&readyz.body) => Ok(Answer::Ready),
        code => Err(CheckError::new(
            FailureKind::Status(code),
            format_args!("/readyz answered {code}"),
        )),
    }
}

fn is_alive(readyz: &Reply, version: &Reply) -> Result<Answer, CheckError> {
    let (first, second) = (readyz.status, version.status.as_u16());
    match second {
        401 => Err(unauthorized("/version")),
        200..=299 => Ok(alive(readyz)),
        403 if is_status(&version.body) => Ok(alive(readyz)),
        _ => Err(CheckError::new(
            FailureKind::Status(second),
            format_args!("/readyz answered {}, and /version {second}", first.as_u16()),
        )),
    }
}

fn alive(readyz: &Reply) -> Answer {
    let code = readyz.status.as_u16();
    match code {
        403 | 404 => Answer::Ready,
        _ => Answer::NotReady(format!("/readyz answered {code}{}", said(&readyz.body))),
    }
}

/// What an API server that is not ready says of it: the checks that failed, escaped, in few words.
fn said(body: &[u8]) -> String {
    const MOST: usize = 256;
    let text = String::from_utf8_lossy(body);
    let failed: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("[-]"))
        .collect();
    let failed: String = failed.join(", ").chars().take(MOST).collect();
    if failed.is_empty() {
        return failed;
    }
    format!(": {}", failed.escape_debug())
}

fn unauthorized(path: &str) -> CheckError {
    CheckError::new(
        FailureKind::Unauthorized,
        format_args!("{path} answered 401: the credential is refused"),
    )
}

pub(crate) fn failed(error: &TransportError) -> CheckError {
    CheckError::new(error.kind(), error.text())
}
