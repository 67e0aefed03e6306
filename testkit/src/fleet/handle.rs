//! One request: recorded, spoilt if a fault in front says so, authenticated, and answered by the API server behind.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tokio::time::sleep;

use super::{
    FakeCluster, Inner, auth,
    connection_fault::{Part, Stop},
    counters::PathClass,
    faults::Fault,
    journal::AnsweredBy,
    requests::{RequestSeen, ShownCredential},
    serve::Connection,
    spoken::{At, Cut},
    stopped_body::StoppedBody,
    tls,
};
use crate::api::{About, Ask, Body, Caller, Cut as BodyCut, PortForward, Verb};

/// The answer to a request, once there is one.
pub(super) async fn answer(connection: &Connection, request: Request<Incoming>) -> Response<Body> {
    let cluster = &connection.cluster;
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let token = auth::bearer(&parts.headers);
    let ask = cluster
        .api
        .ask(&parts, Caller::new("system:anonymous", &[]));
    let class = class(&ask);
    let (number, seen) = record(connection, &parts, &ask, class, token.as_deref());
    let (mut answer, by) = judge(connection, ask, &parts, body, token.as_deref()).await;
    let code = answer.status();
    if let Some(forward) = answer.extensions_mut().remove::<PortForward>()
        && let Some(upgrade) = upgrade
    {
        *connection.upgraded.lock() = Some((upgrade, forward));
    }
    cluster.journal.answered(number, &seen, code.as_u16(), by);
    let answer = if class == PathClass::Watch && code == StatusCode::OK {
        answer.map(|body| Open::new(cluster, body).boxed_unsync())
    } else {
        answer
    };
    stopped(connection, class, &seen.path, answer)
}

async fn judge(
    connection: &Connection,
    mut ask: Ask,
    parts: &Parts,
    body: Incoming,
    token: Option<&str>,
) -> (Response<Body>, AnsweredBy) {
    let cluster = &connection.cluster;
    let chance = cluster.faults.goaway_chance();
    if parts.version == http::Version::HTTP_2 && chance > 0.0 && cluster.api.luck() < chance {
        connection.go_away.notify_one();
    }
    let latency = cluster.faults.latency();
    if !latency.is_zero() {
        sleep(latency).await;
    }
    let fault = cluster.faults.met(parts.uri.path()).await;
    if let Some(Fault::Answer(code, body)) = fault {
        return (raw(code, body), AnsweredBy::Front);
    }
    match admitted(connection, token) {
        Some(caller) => ask.caller = caller,
        None if fault.is_none() => {
            cluster
                .counting
                .change(|counters| counters.auth_failures += 1);
            return (Ask::unauthorized(), AnsweredBy::Authentication);
        }
        None => {}
    }
    if fault.is_some() {
        // No request gets here that still hangs.
        return (ask.refused(), AnsweredBy::Front);
    }
    let answer = cluster.api.answer(ask, &parts.headers, body).await;
    (answer, AnsweredBy::Api)
}

/// The answer as it is, or one that ends its connection where a fault says so.
fn stopped(
    connection: &Connection,
    class: PathClass,
    path: &str,
    answer: Response<Body>,
) -> Response<Body> {
    let wire = &connection.wire;
    let Some((fault, part, Stop { after, then })) = wire.terms().of_answer(class, path) else {
        return answer;
    };
    if part == Part::Head {
        let at = At::Head {
            left: after,
            begun: false,
        };
        wire.ask_for(Cut { fault, then, at });
        return answer;
    }
    answer.map(|body| StoppedBody::new(body, wire.clone(), fault, after, then).boxed_unsync())
}

fn class(ask: &Ask) -> PathClass {
    match ask.about() {
        About::Health => PathClass::Health,
        About::Version => PathClass::Version,
        About::Discovery => PathClass::Discovery,
        About::Objects(Verb::Get) => PathClass::Get,
        About::Objects(Verb::List) => PathClass::List,
        About::Objects(Verb::Watch) => PathClass::Watch,
        About::Objects(_) => PathClass::Write,
        About::Other => PathClass::Other,
    }
}

/// Counts and remembers a request, and gives it a number.
fn record(
    connection: &Connection,
    parts: &Parts,
    ask: &Ask,
    class: PathClass,
    token: Option<&str>,
) -> (u64, Arc<RequestSeen>) {
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
    let seen = RequestSeen {
        at: cluster.api.now(),
        method: parts.method.clone(),
        verb: ask.verb(),
        resource: ask.resource(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        class,
        credential,
        endpoint: connection.endpoint,
        connection: connection.number,
        protocol: parts.version,
    };
    let seen = Arc::new(seen);
    let number = cluster.journal.record(seen.clone());
    cluster.waiters.tell(&seen);
    (number, seen)
}

/// Who asks: by a valid token, or a valid certificate of an accepted user; a wrong one beside a right one does no harm.
fn admitted(connection: &Connection, token: Option<&str>) -> Option<Caller> {
    let cluster = &connection.cluster;
    if let Some(token) = token {
        if cluster.auth.admits_token(token) {
            return Some(Caller::new(FakeCluster::ADMIN, &["system:masters"]));
        }
        if let Some(caller) = cluster.api.authenticate(token) {
            return Some(caller);
        }
    }
    if connection.certificates.is_empty() {
        return None;
    }
    let identity = cluster.identity.lock().clone();
    identity
        .user(&connection.certificates)
        .filter(|caller| cluster.auth.admits_user(&caller.user))
}

/// JSON if it looks like it, else plain text.
fn raw(code: StatusCode, body: Bytes) -> Response<Body> {
    let kind = if body.starts_with(b"{") {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let body = Full::new(body).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// The body of a watch that is counted as open.
struct Open {
    cluster: Arc<Inner>,
    body: Body,
}

impl Open {
    fn new(cluster: &Arc<Inner>, body: Body) -> Self {
        cluster
            .counting
            .change(|counters| counters.watches_open += 1);
        Self {
            cluster: cluster.clone(),
            body,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.cluster
            .counting
            .change(|counters| counters.watches_open -= 1);
    }
}

impl http_body::Body for Open {
    type Data = Bytes;
    type Error = BodyCut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
