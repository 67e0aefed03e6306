//! A script as it runs against one server, and what came of each step.

use std::{future::Future, pin::Pin};

use clustercache_testkit::{api::Kind, fleet::FakeAccess};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::{
    client::{Client, Http, soon},
    definition, normal,
};

/// One answer.
pub(crate) struct Step {
    asked: String,
    code: u16,
    /// What is compared of the head, beside the status.
    head: String,
    answer: Value,
}

/// The headers that clients act on.
const HEADERS: [&str; 2] = ["content-type", "retry-after"];

impl Step {
    /// What to print of the steps at which two runs of a script differ.
    pub(crate) fn differences(script: &str, ours: &[Self], theirs: &[Self]) -> Vec<String> {
        assert_eq!(
            ours.len(),
            theirs.len(),
            "{script}: the scripts went different ways"
        );
        let both = ours.iter().zip(theirs);
        both.filter_map(|(ours, theirs)| Self::difference(script, ours, theirs))
            .collect()
    }

    /// What to print if the fake's answer is not the real one's.
    fn difference(script: &str, ours: &Self, theirs: &Self) -> Option<String> {
        if (ours.code, &ours.head, &ours.answer) == (theirs.code, &theirs.head, &theirs.answer) {
            return None;
        }
        let mut lines = Vec::new();
        normal::differences("", &ours.answer, &theirs.answer, &mut lines);
        let lines = lines.join("\n    ");
        Some(format!(
            "{script}: {}\n  fake {} {}, real {} {}\n    {lines}",
            theirs.asked, ours.code, ours.head, theirs.code, theirs.head
        ))
    }
}

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A connection to one server, and what it has answered so far.
pub(crate) struct Script {
    access: FakeAccess,
    client: Client,
    steps: Vec<Step>,
}

impl Script {
    pub(crate) async fn new(access: &FakeAccess) -> Self {
        Self::connect(access, Http::Two).await
    }

    async fn connect(access: &FakeAccess, http: Http) -> Self {
        Self {
            access: access.clone(),
            client: Client::connect(access, http).await.unwrap(),
            steps: Vec::new(),
        }
    }

    /// The same server over HTTP/1.1.
    pub(crate) async fn over_http_1(&self) -> Self {
        Self::connect(&self.access, Http::One).await
    }

    /// What came of another connection's steps is part of this one's.
    pub(crate) fn take_steps_of(&mut self, mut other: Self) {
        self.steps.append(&mut other.steps);
    }

    pub(crate) async fn run(&mut self, script: fn(&mut Self) -> Running<'_>) -> Vec<Step> {
        script(self).await;
        self.steps()
    }

    /// What came of all steps until now.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Creates a kind on a real server, and waits until it is served everywhere.
    pub(crate) async fn establish(&mut self, kind: &Kind) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) = self
            .client
            .send(Method::POST, path, &definition(kind))
            .await;
        assert_eq!(code, 201, "{answer}");
        let group = format!("/apis/{}/{}", kind.group(), kind.version());
        let objects = format!("{group}/{}", kind.plural());
        while soon(self.client.text(&objects)).await.unwrap().0 != 200 {
            tokio::task::yield_now().await;
        }
        // Discovery hears of it later.
        let all = (
            "accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        );
        let named = format!("{:?}", kind.plural());
        for (path, headers) in [(&*group, &[][..]), ("/apis", &[all][..])] {
            let mut known = false;
            while !known {
                let asked = self.client.exchange(Method::GET, path, headers, "");
                known = soon(asked).await.unwrap().1.contains(&named);
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
        let response = soon(self.client.open_with(method, path, headers, &body))
            .await
            .unwrap();
        let code = response.status().as_u16();
        let header = |name| response.headers().get(name)?.to_str().ok();
        let head = HEADERS.map(|name| header(name).unwrap_or("-")).join(", ");
        let body = soon(response.into_body().collect()).await.unwrap();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
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
            head,
            answer: normal::normal(&answer),
        });
        answer
    }

    pub(crate) async fn get(&mut self, path: &str) -> Value {
        self.ask("GET", path, &[], &Value::Null).await
    }

    /// A document of discovery, without what the fake does not serve.
    pub(crate) async fn discover(&mut self, path: &str, accept: &str) {
        self.get_as(path, accept).await;
        let step = self.steps.last_mut().expect("there was one");
        step.answer = normal::discovery(&step.answer);
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
