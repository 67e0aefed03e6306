//! One request: recorded, spoilt if a fault says so, authenticated, answered.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    Body, auth,
    counters::PathClass,
    faults::Fault,
    kinds::{self, Kind},
    list,
    object::{Key, Object},
    query::Query,
    requests::{RequestSeen, ShownCredential},
    serve::Connection,
    status::Status,
    tls, watching,
};

/// As many bytes as a real server takes.
const BODY_LIMIT: usize = 3 << 20;

/// Where a request goes.
enum Target<'a> {
    Health,
    Version,
    Discovery,
    Collection {
        kind: &'static Kind,
        namespace: Option<Cow<'a, str>>,
    },
    Item(Key),
    Nowhere,
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Self {
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let (group, rest) = match &*parts {
            [endpoint, ..] if matches!(*endpoint, "readyz" | "livez" | "healthz") => {
                return Self::Health;
            }
            ["version"] => return Self::Version,
            ["api" | "apis"] | ["api" | "apis", _] | ["apis", _, _] => return Self::Discovery,
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, "v1", rest @ ..] => (*group, rest),
            _ => return Self::Nowhere,
        };
        let (namespace, plural, name) = match rest {
            ["namespaces", namespace, plural] => (Some(*namespace), *plural, None),
            ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name)),
            [plural] => (None, *plural, None),
            [plural, name] => (None, *plural, Some(*name)),
            _ => return Self::Nowhere,
        };
        let text = |text: &'a str| percent_decode_str(text).decode_utf8_lossy();
        match (Kind::by_path(group, plural), name) {
            (Some(kind), None) if kind.namespaced || namespace.is_none() => Self::Collection {
                kind,
                namespace: namespace.map(text),
            },
            (Some(kind), Some(name)) if kind.namespaced == namespace.is_some() => Self::Item(Key {
                kind,
                namespace: namespace.map(text).unwrap_or_default().into(),
                name: text(name).into(),
            }),
            _ => Self::Nowhere,
        }
    }

    fn class(&self, method: &Method, query: &Query<'_>) -> PathClass {
        match self {
            Self::Health => PathClass::Health,
            Self::Version => PathClass::Version,
            Self::Discovery => PathClass::Discovery,
            Self::Nowhere => PathClass::Other,
            Self::Collection { .. } if method == Method::GET && query.flag("watch") => {
                PathClass::Watch
            }
            Self::Collection { .. } if method == Method::GET => PathClass::List,
            Self::Item(_) if method == Method::GET => PathClass::Get,
            Self::Collection { .. } | Self::Item(_) => PathClass::Write,
        }
    }
}

/// The answer to a request, once there is one.
pub(super) async fn answer(connection: &Connection, request: Request<Incoming>) -> Response<Body> {
    let cluster = &connection.cluster;
    let uri = request.uri().clone();
    let query = Query::parse(uri.query().unwrap_or_default());
    let target = Target::of(uri.path());
    let class = target.class(request.method(), &query);
    let token = auth::bearer(request.headers());
    record(connection, &request, class, token.as_deref());

    let latency = cluster.faults.latency();
    if !latency.is_zero() {
        sleep(latency).await;
    }
    let result = match cluster.faults.met(uri.path()).await {
        Some(Fault::Answer(code, body)) => return raw(code, body),
        // No request gets here that still hangs.
        Some(Fault::Forbid | Fault::Hang) => Err(Status::forbidden("fleet-admin", uri.path())),
        None if !admitted(connection, token.as_deref()) => {
            cluster
                .counting
                .change(|counters| counters.auth_failures += 1);
            Err(Status::unauthorized())
        }
        None => serve(connection, target, request, &query).await,
    };
    result.unwrap_or_else(|status| {
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        document(code, &status.body())
    })
}

fn record(
    connection: &Connection,
    request: &Request<Incoming>,
    class: PathClass,
    token: Option<&str>,
) {
    let cluster = &connection.cluster;
    let certificate = || {
        connection
            .certificates
            .first()
            .map(|leaf| tls::common_name(leaf).unwrap_or_default())
    };
    let credential = match token {
        Some(token) => {
            cluster.auth.record(connection.endpoint, token);
            ShownCredential::Token(token.to_owned())
        }
        None => certificate().map_or(ShownCredential::Nothing, ShownCredential::Certificate),
    };
    cluster.counting.request(class);
    cluster.waiters.tell(&RequestSeen {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        class,
        credential,
        endpoint: connection.endpoint,
        connection: connection.number,
        protocol: request.version(),
    });
}

/// A valid certificate of an accepted user, or a valid token; a wrong one beside a right one does no harm.
fn admitted(connection: &Connection, token: Option<&str>) -> bool {
    let cluster = &connection.cluster;
    if token.is_some_and(|token| cluster.auth.admits_token(token)) {
        return true;
    }
    if connection.certificates.is_empty() {
        return false;
    }
    let identity = cluster.identity.lock().clone();
    identity
        .user(&connection.certificates)
        .is_some_and(|user| cluster.auth.admits_user(&user))
}

async fn serve(
    connection: &Connection,
    target: Target<'_>,
    request: Request<Incoming>,
    query: &Query<'_>,
) -> Result<Response<Body>, Status> {
    let cluster = &connection.cluster;
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    match (target, method) {
        (Target::Health, Method::GET) => Ok(raw(StatusCode::OK, Bytes::from_static(b"ok"))),
        (Target::Version, Method::GET) => Ok(document(StatusCode::OK, &kinds::version())),
        (Target::Discovery, Method::GET) => {
            let document_at = kinds::discovery(&path, &connection.endpoint.to_string());
            document_at
                .map(|value| document(StatusCode::OK, &value))
                .ok_or_else(Status::no_such_path)
        }
        (Target::Collection { kind, namespace }, Method::GET) if query.flag("watch") => {
            watching::watch(cluster, kind, namespace.as_deref(), query)
                .map(|body| json_response(StatusCode::OK, body))
        }
        (Target::Collection { kind, namespace }, Method::GET) => {
            list::list(&cluster.store, kind, namespace.as_deref(), query)
                .map(|body| json_bytes(StatusCode::OK, body))
        }
        (Target::Collection { kind, namespace }, Method::POST)
            if kind.namespaced == namespace.is_some() =>
        {
            let value = body(request).await?;
            let object =
                cluster
                    .store
                    .create(kind, namespace.as_deref().unwrap_or_default(), value)?;
            Ok(whole(StatusCode::CREATED, &object))
        }
        (Target::Item(key), Method::GET) => {
            let object = cluster.store.with(|state| state.get(&key).cloned());
            object
                .map(|object| whole(StatusCode::OK, &object))
                .ok_or_else(|| Status::not_found(key.kind, &key.name))
        }
        (Target::Item(key), Method::PUT) => {
            let value = body(request).await?;
            cluster
                .store
                .update(&key, value)
                .map(|object| whole(StatusCode::OK, &object))
        }
        (Target::Item(key), Method::DELETE) => {
            let gone = cluster.store.remove(&key)?.value();
            let details = json!({ "name": key.name, "kind": key.kind.plural, "uid": gone["metadata"]["uid"] });
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(document(StatusCode::OK, &status))
        }
        (Target::Nowhere, _) => Ok(raw(
            StatusCode::NOT_FOUND,
            Bytes::from_static(b"404 page not found\n"),
        )),
        _ => Err(Status::method_not_allowed()),
    }
}

async fn body(request: Request<Incoming>) -> Result<Value, Status> {
    let sent_as = request
        .headers()
        .get(CONTENT_TYPE)
        .map(http::HeaderValue::as_bytes);
    if sent_as.is_some_and(|sent_as| !sent_as.starts_with(b"application/json")) {
        return Err(Status::unsupported_media_type());
    }
    let body = Limited::new(request.into_body(), BODY_LIMIT)
        .collect()
        .await
        .map_err(|error| {
            if error.is::<LengthLimitError>() {
                Status::too_large()
            } else {
                Status::bad_request("the body broke off")
            }
        })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| Status::bad_request(format!("no JSON: {error}")))
}

fn whole(code: StatusCode, object: &Arc<Object>) -> Response<Body> {
    let mut out = bytes::BytesMut::with_capacity(object.json.len() + 64);
    object.write(&mut out);
    json_bytes(code, out.freeze())
}

fn document(code: StatusCode, value: &Value) -> Response<Body> {
    json_bytes(code, value.to_string().into())
}

fn json_bytes(code: StatusCode, body: Bytes) -> Response<Body> {
    json_response(code, Full::new(body).boxed_unsync())
}

fn json_response(code: StatusCode, body: Body) -> Response<Body> {
    response(code, "application/json", body)
}

/// JSON if it looks like it, else plain text.
fn raw(code: StatusCode, body: Bytes) -> Response<Body> {
    let kind = if body.starts_with(b"{") {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    response(code, kind, Full::new(body).boxed_unsync())
}

fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
