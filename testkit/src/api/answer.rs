//! Answers, in the form that a client accepts: whole objects, tables, or metadata alone.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use serde_json::Value;

use super::{object::Object, status::Status, table};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Cut>;

/// A fault ended an answer in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut by a fault of the test")]
pub struct Cut;

/// The form of objects that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    Table,
    /// Discovery, all groups in one document.
    AllGroups,
}

impl Form {
    /// The first that the client names and that there is.
    pub(super) fn accepted(headers: &HeaderMap) -> Result<Self, Status> {
        let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else {
            return Ok(Self::Whole);
        };
        accept
            .split(',')
            .find_map(Self::of)
            .ok_or_else(Status::not_acceptable)
    }

    fn of(media: &str) -> Option<Self> {
        let mut parts = media.split(';').map(str::trim);
        let named = parts.next()?;
        let parameter = |name: &str| {
            let found = |part: &str| {
                part.strip_prefix(name)?
                    .strip_prefix('=')
                    .map(str::to_owned)
            };
            parts.clone().find_map(found).unwrap_or_default()
        };
        let kind = (parameter("as"), parameter("g"), parameter("v"));
        match (named, (&*kind.0, &*kind.1, &*kind.2)) {
            ("application/json" | "application/*" | "*/*", ("", _, _)) => Some(Self::Whole),
            ("application/json", ("Table", "meta.k8s.io", "v1")) => Some(Self::Table),
            (
                "application/json",
                ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1"),
            ) => Some(Self::Metadata),
            ("application/json", ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")) => {
                Some(Self::AllGroups)
            }
            _ => None,
        }
    }

    /// One object.
    pub(super) fn one(self, object: &Arc<Object>, options: TableOptions) -> Bytes {
        match self {
            Self::Whole | Self::AllGroups => object.json(),
            Self::Metadata => metadata_only(object),
            Self::Table => table::of([object], &object.version.to_string(), options)
                .to_string()
                .into(),
        }
    }
}

/// How tables are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableOptions {
    pub(super) now: Timestamp,
    pub(super) include: Include,
    /// Whether the columns are named, too.
    pub(super) columns: bool,
}

/// What of the object stands in the row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(super) fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::Nothing),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

const PARTIAL: &[u8] = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;

pub(super) fn metadata_only(object: &Object) -> Bytes {
    [PARTIAL, object.metadata(), b"}"].concat().into()
}

/// The line of a watch for an object of another form.
pub(super) fn line(head: &[u8], object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(head.len() + object.len() + 2);
    out.put_slice(head);
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

pub(super) fn document(code: StatusCode, value: &Value) -> Response<Body> {
    json(code, value.to_string())
}

pub(super) fn json(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    respond(code, "application/json", whole(body))
}

pub(super) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", whole(body))
}

pub(super) fn refusal(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = document(code, status.body());
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

pub(super) fn respond(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}
