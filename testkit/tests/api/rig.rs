//! Requests to a server in memory, and the events of its watches.

use std::{collections::VecDeque, future::Future, task::Poll, time::Duration};

use bytes::Bytes;
use clustercache_testkit::api::{Body, Cut, FakeApi};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A limit that no healthy machine reaches, for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("it did not happen within a minute")
}

pub(crate) fn config(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
    })
}

pub(crate) async fn ask(api: &FakeApi, method: &str, path: &str, body: &Value) -> Response<Body> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(body)
        .unwrap();
    api.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn send(api: &FakeApi, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let response = ask(api, method, path, body).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

pub(crate) async fn get(api: &FakeApi, path: &str) -> (u16, Value) {
    send(api, "GET", path, &Value::Null).await
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// A watch of config maps.
pub(crate) async fn watch(api: &FakeApi, query: &str) -> Events {
    let path = format!("/api/v1/configmaps?watch=true&{query}");
    Events::of(ask(api, "GET", &path, &Value::Null).await)
}

/// The events of a watch.
pub(crate) struct Events {
    body: Body,
    /// What came while it was to be silent.
    early: VecDeque<Result<Bytes, Cut>>,
}

impl Events {
    pub(crate) fn of(response: Response<Body>) -> Self {
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            early: VecDeque::new(),
        }
    }

    /// The next line as it came; nothing at a clean end.
    pub(crate) async fn line(&mut self) -> Result<Option<Bytes>, Cut> {
        if let Some(early) = self.early.pop_front() {
            return early.map(Some);
        }
        let frame = soon(self.body.frame()).await.transpose()?;
        Ok(frame.and_then(|frame| frame.into_data().ok()))
    }

    /// The next event; nothing at a clean end.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Value>, Cut> {
        let line = self.line().await?;
        Ok(line.map(|line| serde_json::from_slice(&line).unwrap()))
    }

    /// The type of the next event, and the name of its object.
    pub(crate) async fn next(&mut self) -> (String, String) {
        let event = self.try_next().await.unwrap().expect("the watch ended");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    }

    pub(crate) async fn expect(&mut self, change: &str, name: &str) {
        assert_eq!(self.next().await, (change.to_owned(), name.to_owned()));
    }

    /// Whether nothing comes, although everything had its turn. What comes all the same is not lost.
    pub(crate) async fn is_silent(&mut self) -> bool {
        for _ in 0..20 {
            if let Poll::Ready(frame) = futures_util::poll!(self.body.frame()) {
                let line =
                    frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()));
                self.early.extend(line);
                return false;
            }
            tokio::task::yield_now().await;
        }
        true
    }
}
