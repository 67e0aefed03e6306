//! The control endpoint: HTTP/1.1 and JSON at 127.0.0.1. Who reaches it may do everything.
//!
//! ```text
//! GET    /clusters                          name, url and newest version of each
//! GET    /counters[?clusters=NAMES]         in total, and of each
//! GET    /requests[?clusters=NAMES][&verb=V][&resource=R][&code=C]   how many, and the last of them
//! GET    /faults                            those that hold
//! POST   /faults      {"fault": …}          injects one: 201 and its id; see `orders.rs`
//! DELETE /faults/ID   DELETE /faults        undoes one, or all, and what commands have done
//! POST   /commands    a line                as on standard input
//! ```

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use clustercache_testkit::{
    api::Verb,
    fleet::{Counters, FakeCluster, RequestHistory},
};
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Running,
    commands::{chosen, obey},
    orders::Orders,
};

/// Far more than any order is long.
const BODY_LIMIT: usize = 64 << 10;

/// Of answers that list requests.
const LAST_REQUESTS: usize = 1000;

pub(crate) struct Control {
    port: u16,
    tasks: TaskTracker,
    ended: CancellationToken,
}

struct Shared {
    running: Arc<Running>,
    orders: Orders,
}

impl Control {
    /// Listens on this port, or on any with 0.
    pub(crate) async fn start(running: Arc<Running>, port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener =
            listener.with_context(|| format!("cannot listen on 127.0.0.1:{port} for control"))?;
        let control = Self {
            port: listener.local_addr()?.port(),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        };
        let orders = Orders::default();
        let shared = Arc::new(Shared { running, orders });
        let (tasks, ended) = (control.tasks.clone(), control.ended.clone());
        let accepting = accept(listener, shared, tasks, ended.clone());
        control
            .tasks
            .spawn(async move { ended.run_until_cancelled_owned(accepting).await });
        Ok(control)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends it, and waits until nothing of it is left.
    pub(crate) async fn end(self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    ended: CancellationToken,
) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors, most likely; the kernel tells nobody when there are some again.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let shared = shared.clone();
            async move { Ok::<_, Infallible>(shared.answer(request).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
        let ended = ended.clone();
        tasks.spawn(async move { ended.run_until_cancelled_owned(connection).await });
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let said = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) => self.act(&parts, &body.to_bytes()),
            Err(error) => Err(anyhow::anyhow!("cannot read the body: {error}")),
        };
        let (code, document) = said.unwrap_or_else(|error| {
            let error = json!({ "error": format!("{error:#}") });
            (StatusCode::BAD_REQUEST, error)
        });
        let mut response = Response::new(Full::new(format!("{document}\n").into()));
        *response.status_mut() = code;
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    fn act(
        &self,
        parts: &http::request::Parts,
        body: &[u8],
    ) -> anyhow::Result<(StatusCode, Value)> {
        let fleet = &self.running.fleet;
        let query = parts.uri.query().unwrap_or_default();
        let query = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.into_owned())
        };
        let named = || {
            chosen(
                fleet,
                &query("clusters").unwrap_or_else(|| "all".to_owned()),
            )
        };
        let path: Vec<_> = parts.uri.path().split('/').skip(1).collect();
        let done = match (&parts.method, &path[..]) {
            (&Method::GET, ["clusters"]) => fleet.clusters().iter().map(described).collect(),
            (&Method::GET, ["counters"]) => counters(named()?)?,
            (&Method::GET, ["requests"]) => requests(named()?, query)?,
            (&Method::GET, ["faults"]) => self.orders.list(),
            (&Method::POST, ["faults"]) => {
                let id = self.orders.take(&self.running, body)?;
                return Ok((StatusCode::CREATED, json!({ "id": id })));
            }
            (&Method::DELETE, ["faults"]) => {
                self.orders.undo_all();
                fleet.clusters().iter().for_each(FakeCluster::heal);
                json!({ "ok": true })
            }
            (&Method::DELETE, ["faults", id]) if self.orders.undo(id.parse()?) => {
                json!({ "ok": true })
            }
            (&Method::POST, ["commands"]) => obey(&self.running, std::str::from_utf8(body)?)?,
            _ => {
                let error = json!({ "error": "there is no such thing here" });
                return Ok((StatusCode::NOT_FOUND, error));
            }
        };
        Ok((StatusCode::OK, done))
    }
}

fn described(cluster: &FakeCluster) -> Value {
    json!({ "name": cluster.name(), "url": cluster.url(), "version": cluster.version() })
}

fn counters(clusters: &[FakeCluster]) -> anyhow::Result<Value> {
    let mut each = Map::new();
    for cluster in clusters {
        let counters = serde_json::to_value(cluster.counters())?;
        each.insert(cluster.name().to_owned(), counters);
    }
    let total: Counters = clusters.iter().map(FakeCluster::counters).sum();
    Ok(json!({ "total": total, "clusters": each }))
}

fn requests(
    clusters: &[FakeCluster],
    query: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Value> {
    let mut history = RequestHistory::default();
    history.extend(clusters.iter().map(FakeCluster::history));
    if let Some(verb) = query("verb") {
        let known = Verb::ALL.iter().find(|known| known.name() == verb);
        history = history.verb(*known.with_context(|| format!("{verb:?} is no verb"))?);
    }
    if let Some(resource) = query("resource") {
        history = history.resource(&resource);
    }
    if let Some(code) = query("code") {
        history = history.code(code.parse().context("`code` is a number")?);
    }
    let entries = history.entries();
    let last = &entries[entries.len().saturating_sub(LAST_REQUESTS)..];
    let last = last.iter().map(|entry| {
        let (request, answer) = (&entry.request, entry.answer);
        json!({
            "at": request.at.to_string(), "verb": request.verb.name(), "resource": request.resource,
            "path": request.path, "query": request.query, "endpoint": request.endpoint.to_string(),
            "code": answer.map(|(code, _)| code), "answeredBy": answer.map(|(_, by)| by),
        })
    });
    Ok(json!({ "count": history.count(), "last": last.collect::<Vec<_>>() }))
}
