//! A script as it runs against one server, and what came of each step.

use std::{future::Future, pin::Pin};

use clustercache_testkit::fleet::FakeAccess;
use http::Method;
use serde_json::Value;

use crate::{
    client::{Client, Http, soon},
    normal,
};

/// One answer.
pub(crate) struct Step {
    asked: String,
    code: u16,
    answer: Value,
}

impl Step {
    /// What to print if the fake's answer is not the real one's.
    pub(crate) fn difference(script: &str, ours: &Self, theirs: &Self) -> Option<String> {
        if (ours.code, &ours.answer) == (theirs.code, &theirs.answer) {
            return None;
        }
        let mut lines = Vec::new();
        normal::differences("", &ours.answer, &theirs.answer, &mut lines);
        let lines = lines.join("\n    ");
        Some(format!(
            "{script}: {}\n  fake {}, real {}\n    {lines}",
            theirs.asked, ours.code, theirs.code
        ))
    }
}

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A connection to one server, and what it has answered so far.
pub(crate) struct Script {
    client: Client,
    steps: Vec<Step>,
}

impl Script {
    pub(crate) async fn new(access: &FakeAccess) -> Self {
        Self {
            client: Client::connect(access, Http::Two).await.unwrap(),
            steps: Vec::new(),
        }
    }

    pub(crate) async fn run(&mut self, script: fn(&mut Self) -> Running<'_>) -> Vec<Step> {
        script(self).await;
        std::mem::take(&mut self.steps)
    }

    /// Creates a kind on a real server, and waits until it is served everywhere.
    pub(crate) async fn establish(&mut self, definition: &Value) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) = self.client.send(Method::POST, path, definition).await;
        assert_eq!(code, 201, "{answer}");
        for path in ["/apis/example.com/v1/widgets", "/apis/example.com/v1"] {
            while soon(self.client.text(path)).await.unwrap().0 != 200 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Sends a request, records what it is answered, and returns that as it came.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Value {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let asked = format!("{method} {path} {headers:?} {body}");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (code, text) = soon(self.client.exchange(method, path, headers, &body))
            .await
            .unwrap();
        let code = code.as_u16();
        let answer = match serde_json::from_str(&text) {
            Ok(one) if !(path.contains("watch=") && code == 200) => one,
            _ if path.contains("watch=") => text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .collect(),
            _ => text.into(),
        };
        self.steps.push(Step {
            asked: asked.chars().take(400).collect(),
            code,
            answer: normal::normal(&answer),
        });
        answer
    }

    pub(crate) async fn get(&mut self, path: &str) -> Value {
        self.ask("GET", path, &[], &Value::Null).await
    }

    pub(crate) async fn get_as(&mut self, path: &str, accept: &str) -> Value {
        self.ask("GET", path, &[("accept", accept)], &Value::Null)
            .await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, &[("content-type", "application/json")], body)
            .await
    }

    pub(crate) async fn put(&mut self, path: &str, body: &Value) -> Value {
        self.ask("PUT", path, &[("content-type", "application/json")], body)
            .await
    }

    pub(crate) async fn patch(&mut self, path: &str, kind: &str, body: &Value) -> Value {
        let content_type = format!("application/{kind}+json");
        self.ask("PATCH", path, &[("content-type", &content_type)], body)
            .await
    }

    pub(crate) async fn delete(&mut self, path: &str, options: &Value) -> Value {
        self.ask(
            "DELETE",
            path,
            &[("content-type", "application/json")],
            options,
        )
        .await
    }
}
