//! `Status` bodies: what a real API server answers when it does not answer what was asked for.

use serde_json::{Value, json};

use super::kind::Kind;

/// A refusal: an error in here, and a `Status` on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) retry_after: Option<u32>,
    body: Box<Value>,
}

/// One thing that is wrong with an object, as `details.causes` has it.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Cause {
    pub(super) fn required(field: &str, why: &str) -> Self {
        let why = if why.is_empty() {
            String::new()
        } else {
            format!(": {why}")
        };
        Self::new("FieldValueRequired", field, format!("Required value{why}"))
    }

    pub(super) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    pub(super) fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(super) fn not_supported(field: &str, value: &Value, known: &[&str]) -> Self {
        let known: Vec<_> = known.iter().map(|known| format!("{known:?}")).collect();
        let message = format!(
            "Unsupported value: {value}: supported values: {}",
            known.join(", ")
        );
        Self::new("FieldValueNotSupported", field, message)
    }

    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self {
            reason,
            message,
            field: field.to_owned(),
        }
    }

    fn json(&self) -> Value {
        json!({ "reason": self.reason, "message": self.message, "field": self.field })
    }
}

impl Status {
    pub(super) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code,
        });
        if !reason.is_empty() {
            body["reason"] = reason.into();
        }
        Self {
            code,
            retry_after: None,
            body: Box::new(body),
        }
    }

    pub(super) fn details(mut self, details: Value) -> Self {
        self.body["details"] = details;
        self
    }

    fn about(self, kind: &Kind, name: &str) -> Self {
        let details = about(kind, name, &kind.plural);
        self.details(details)
    }

    fn causes(mut self, causes: Vec<Value>) -> Self {
        self.body["details"]["causes"] = causes.into();
        self
    }

    /// Seconds, in the header and the body.
    pub(super) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self.body["details"]["retryAfterSeconds"] = seconds.into();
        self
    }

    pub(super) fn body(&self) -> &Value {
        &self.body
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Custom objects must say what they are.
    pub(super) fn kind_missing(kind: &Kind, object: &Value) -> Self {
        let body = object.to_string();
        let beginning: String = body.chars().take(30).collect();
        let shown = if beginning.len() < body.len() {
            format!("{beginning} ...")
        } else {
            beginning
        };
        Self::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{body}' ({shown})",
            kind.name
        ))
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// `why` follows `pods "a" is forbidden: `.
    pub(super) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let named = if name.is_empty() {
            String::new()
        } else {
            format!(" {name:?}")
        };
        let message = format!("{}{named} is forbidden: {why}", kind.qualified());
        let details = about(kind, name, &kind.plural);
        Self::new(403, "Forbidden", message).details(details)
    }

    /// Nothing can be made in a namespace that ends.
    pub(super) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        });
        Self::forbidden(kind, name, &why).causes(vec![cause])
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).details(json!({}))
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).details(json!({}))
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, \
                       application/json;stream=watch";
        Self::new(406, "NotAcceptable", message).details(json!({}))
    }

    pub(super) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            kind.qualified()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// What a deletion was told of the object is not so; it names the kind where other conflicts name the resource.
    pub(super) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let group = if kind.group.is_empty() {
            String::new()
        } else {
            format!(".{}", kind.group)
        };
        let message = format!(
            "Operation cannot be fulfilled on {}{group} {name:?}: {why}",
            kind.name
        );
        Self::new(409, "Conflict", message).details(about(kind, name, &kind.name))
    }

    /// The object has another version than the one that a change is based on.
    pub(super) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// The version of a watch is older than what is kept.
    pub(super) fn too_old(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", message)
    }

    /// The exact version of a list is older than what is kept.
    pub(super) fn list_expired() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message)
    }

    /// The version of a list's next page is older than what is kept; `go_on` is a token for the rest as it is now.
    pub(super) fn continue_expired(go_on: &str) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start \
                       a new list without the continue parameter, or use the continue token in this response to \
                       retrieve the remainder of the results. Continuing with the provided token results in an \
                       inconsistent list - objects that were created, modified, or deleted between the time the first \
                       chunk was returned and now may show up in the list.";
        let mut status = Self::new(410, "Expired", message);
        status.body["metadata"]["continue"] = go_on.into();
        status
    }

    /// 410 where a proxy or an aggregated server says so, before anything is read.
    pub(super) fn gone() -> Self {
        Self::new(410, "Gone", "the resource version is gone")
    }

    pub(super) fn too_large() -> Self {
        let message = "Request entity too large: limit is 3145728";
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub(super) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A patch of a type that no kind takes.
    pub(super) fn unknown_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").details(json!({}))
    }

    /// `kind` is `Pod` or `Widget.example.com`.
    pub(super) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_as(&kind.group, &kind.name, name, causes)
    }

    pub(super) fn invalid_as(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let lines: Vec<_> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let all = match &*lines {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut details = json!({ "kind": kind });
        for (field, text) in [("name", name), ("group", group)] {
            if !text.is_empty() {
                details[field] = text.into();
            }
        }
        Self::new(
            422,
            "Invalid",
            format!("{qualified} {name:?} is invalid: {all}"),
        )
        .details(details)
        .causes(causes.iter().map(Cause::json).collect())
    }

    /// A patch that is well formed and does not fit.
    pub(super) fn unfit_patch(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message).details(json!({}))
    }

    /// An eviction that its budget does not allow now.
    pub(super) fn over_budget(cause: &str, retry_after: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let cause = json!({ "reason": "DisruptionBudget", "message": cause });
        let mut status = Self::new(429, "TooManyRequests", message).causes(vec![cause]);
        if let Some(seconds) = retry_after {
            status = status.retry_after(seconds);
        }
        status
    }

    /// A list was asked to be at least as new as a version that did not come.
    pub(super) fn version_in_the_future(asked: u64, newest: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {newest}");
        let cause = json!({
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
        });
        Self::new(504, "Timeout", message)
            .causes(vec![cause])
            .retry_after(1)
    }
}

fn about(kind: &Kind, name: &str, called: &str) -> Value {
    let mut details = json!({ "kind": called });
    for (field, text) in [("name", name), ("group", &*kind.group)] {
        if !text.is_empty() {
            details[field] = text.into();
        }
    }
    details
}

/// What a success without an object is answered with.
pub(super) fn success(kind: &Kind, name: &str, uid: &Value) -> Value {
    let mut details = about(kind, name, &kind.plural);
    details["uid"] = uid.clone();
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    })
}
