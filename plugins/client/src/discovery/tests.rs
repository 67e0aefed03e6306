//! What is kept, and when it is asked for again: in simulated time, over servers that are functions.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Request, Response};
use kube::{client::Body, core::GroupVersionKind};
use serde_json::json;

use super::{Ask, Discovery, DiscoveryError, Known};

/// A server that serves these kinds, and counts how often it is asked.
#[derive(Default)]
struct Server {
    kinds: Mutex<Vec<String>>,
    fails: Mutex<bool>,
    asked: AtomicUsize,
}

impl Server {
    fn serving(kinds: &[&str]) -> Arc<Self> {
        let server = Arc::<Self>::default();
        server.serve(kinds);
        server
    }

    fn serve(&self, kinds: &[&str]) {
        *self.kinds.lock().unwrap() = kinds.iter().map(ToString::to_string).collect();
    }

    fn answer(&self, path: &str) -> Response<Body> {
        if path == "/apis" {
            self.asked.fetch_add(1, Relaxed);
        }
        let mut answer = Response::new(Body::empty());
        if *self.fails.lock().unwrap() {
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            return answer;
        }
        let kinds = self.kinds.lock().unwrap();
        let resources = kinds.iter().map(|kind| {
            let plural = format!("{}s", kind.to_lowercase());
            json!({ "resource": plural, "scope": "Cluster", "verbs": ["get"], "responseKind": { "kind": kind } })
        });
        let versions = json!([{ "version": "v1", "resources": resources.collect::<Vec<_>>() }]);
        let group = json!({ "metadata": { "name": "a.io" }, "versions": versions });
        let items = if path == "/apis" { vec![group] } else { vec![] };
        let list = json!({ "kind": "APIGroupDiscoveryList", "items": items });
        *answer.body_mut() = list.to_string().into_bytes().into();
        answer
    }

    fn ask(self: &Arc<Self>) -> Ask {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(request.uri().path());
            async move { Ok::<_, Infallible>(answer) }
        });
        Ask {
            client: kube::Client::new(service, "default"),
            deadline: Duration::from_secs(30),
            doubted: false,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Relaxed)
    }
}

fn kind(name: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("a.io", "v1", name)
}

async fn is_missing(known: &Arc<Known>, server: &Arc<Server>, name: &str) -> bool {
    match known.resolve(&kind(name), server.ask()).await {
        Ok(_) => false,
        Err(DiscoveryError::NoSuchKind { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_asked_for_again_but_not_all_the_time() {
    let (known, server) = (Arc::<Known>::default(), Server::serving(&["One"]));
    for _ in 0..100 {
        assert!(is_missing(&known, &server, "Two").await);
    }
    assert_eq!(server.asked(), 1, "it has just said so");
    server.serve(&["One", "Two"]);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(!is_missing(&known, &server, "One").await);
    assert_eq!(server.asked(), 1, "what is known is not asked for");
    assert!(!is_missing(&known, &server, "Two").await);
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_a_call_found_gone_is_looked_for_in_a_newer_document() {
    let (known, server) = (Arc::<Known>::default(), Server::serving(&["One"]));
    assert!(!is_missing(&known, &server, "One").await);
    server.serve(&[]);
    let doubted = Ask {
        doubted: true,
        ..server.ask()
    };
    known.resolve(&kind("One"), doubted).await.unwrap();
    assert_eq!(server.asked(), 1, "it has just said so");
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(
        is_missing(&known, &server, "One").await,
        "it is still doubted"
    );
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_could_not_be_asked_again_has_not_said_that_a_kind_is_missing() {
    let (known, server) = (Arc::<Known>::default(), Server::serving(&["One"]));
    assert!(!is_missing(&known, &server, "One").await);
    *server.fails.lock().unwrap() = true;
    tokio::time::advance(Duration::from_secs(6)).await;
    for _ in 0..10 {
        let error = known.resolve(&kind("Two"), server.ask()).await.unwrap_err();
        assert!(
            matches!(error, DiscoveryError::Answered { status: 500, .. }),
            "{error}"
        );
    }
    assert_eq!(server.asked(), 2);
    assert!(
        !is_missing(&known, &server, "One").await,
        "what is known is still known"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up_at_the_deadline() {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let ask = Ask {
        client: kube::Client::new(service, "default"),
        deadline: Duration::from_secs(30),
        doubted: false,
    };
    let error = Arc::<Known>::default().newest(ask).await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Deadline { .. }), "{error}");
}

#[tokio::test]
async fn a_thousand_clusters_that_serve_the_same_hold_one_copy() {
    let mut all: Vec<Discovery> = Vec::new();
    for number in 0..1_000 {
        let kinds = if number % 10 == 0 {
            ["Same", "Other"]
        } else {
            ["Same", "One"]
        };
        let server = Server::serving(&kinds);
        all.push(Arc::<Known>::default().newest(server.ask()).await.unwrap());
    }
    let copies: HashSet<_> = all
        .iter()
        .map(|discovery| Arc::as_ptr(&discovery.0))
        .collect();
    assert_eq!(copies.len(), 2);
    assert_eq!(Arc::strong_count(&all[1].0), 900);
}
