//! Kubernetes `Status` bodies: what a real API server answers when it does not answer what was asked for.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal, as an error in here and as a `Status` on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Status {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        let mut details = json!({ "name": name, "kind": kind.plural });
        if !kind.group.is_empty() {
            details["group"] = kind.group.into();
        }
        self.details = Some(details);
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden(user: &str, path: &str) -> Self {
        let message = format!("forbidden: User {user:?} cannot access path {path:?}");
        let mut status = Self::new(403, "Forbidden", message);
        status.details = Some(json!({}));
        status
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", kind.qualified()),
        )
        .about(kind, name)
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        let mut status = Self::new(404, "NotFound", message);
        status.details = Some(json!({}));
        status
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(405, "MethodNotAllowed", message);
        status.details = Some(json!({}));
        status
    }

    pub(super) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", kind.qualified()),
        )
        .about(kind, name)
    }

    pub(super) fn conflict(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes to \
             the latest version and try again",
            kind.qualified()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The version of a watch is older than what is kept.
    pub(super) fn too_old(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// The version of a list's next page is older than what is kept.
    pub(super) fn continue_expired() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You must start \
                       a new list without the continue parameter.";
        Self::new(410, "Expired", message)
    }

    pub(super) fn too_large() -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        )
    }

    pub(super) fn unsupported_media_type() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json";
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A list was asked to be at least as new as a version that does not exist yet.
    pub(super) fn version_in_the_future(asked: u64, newest: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {newest}");
        let mut status = Self::new(504, "Timeout", message.clone());
        let cause =
            json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        status.details = Some(json!({ "causes": [cause], "retryAfterSeconds": 1 }));
        status
    }

    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            body["details"] = details.clone();
        }
        body
    }
}
