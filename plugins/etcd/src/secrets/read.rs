//! One live read of one Secret. It goes past kube's own reading of answers, which logs those that it cannot read, whole: these are keys. The
//! body is limited, and wiped.

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{CALL_WITHIN, Secret, shortened};
use crate::IssuerError;

/// A Secret has 1 MiB at most; base64, and the fields that managers own, add to that.
const LARGEST: usize = 3 * 1024 * 1024;

/// What a name in Kubernetes may have at most.
const LONGEST_NAME: usize = 253;

pub(super) async fn secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Secret, IssuerError> {
    for part in [namespace, name] {
        if !is_name(part) {
            return Err(IssuerError::Name {
                name: part.chars().take(LONGEST_NAME).collect(),
            });
        }
    }
    let what = format!("Secret {namespace}/{name}");
    let reading = answer(client, namespace, name, &what);
    let timed_out = |_| IssuerError::TimedOut {
        what: what.clone(),
        after: CALL_WITHIN,
    };
    let (status, body) = tokio::time::timeout(CALL_WITHIN, reading)
        .await
        .map_err(timed_out)??;
    match status {
        StatusCode::NOT_FOUND => Err(IssuerError::Missing { what }),
        _ if status.is_success() => Secret::parse(what, &body),
        _ => Err(IssuerError::Status {
            what,
            status: status.as_u16(),
            message: message(&body),
        }),
    }
}

async fn answer(
    client: &Client,
    namespace: &str,
    name: &str,
    what: &str,
) -> Result<(StatusCode, Zeroizing<Vec<u8>>), IssuerError> {
    let unreachable = |why: String| IssuerError::Unreachable {
        what: what.to_owned(),
        why: shortened(&why),
    };
    let request = Request::get(format!("/api/v1/namespaces/{namespace}/secrets/{name}"))
        .header(http::header::ACCEPT, "application/json")
        .body(kube::client::Body::empty())
        .map_err(|error| unreachable(error.to_string()))?;
    let answer = client
        .send(request)
        .await
        .map_err(|error| unreachable(chain(&error)))?;
    let (head, mut body) = answer.into_parts();
    // Never grown: what it would leave behind is not wiped.
    let mut whole = Zeroizing::new(Vec::with_capacity(64 * 1024));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreachable(chain(&error)))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > LARGEST {
            return Err(IssuerError::Unreadable {
                what: what.to_owned(),
                why: "the answer is larger than any Secret",
            });
        }
        if whole.len() + data.len() > whole.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(LARGEST));
            larger.extend_from_slice(&whole);
            whole = larger;
        }
        whole.extend_from_slice(&data);
    }
    Ok((head.status, whole))
}

/// A name that goes into a path as it is.
fn is_name(text: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte != b'.' && byte != b'-');
    begins && text.len() <= LONGEST_NAME && text.bytes().all(plain)
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

fn message(body: &[u8]) -> String {
    let status = serde_json::from_slice::<Status>(body);
    status.map_or_else(
        |_| "(no Status)".to_owned(),
        |status| shortened(&status.message),
    )
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next.filter(|_| text.len() < 1_000) {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_kubernetes_go_into_a_path() {
        assert!(is_name("eu-1.prod-etcd"));
        for odd in ["", "a/b", "..", "../x", "a?b", "A", "a b", "a%2fb", "ä"] {
            assert!(!is_name(odd), "{odd}");
        }
        assert!(!is_name(&"x".repeat(254)));
    }
}
