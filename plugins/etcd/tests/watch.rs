//! The one watch of Secrets when the management cluster is not as it should be: versions too old in both forms, watches that end at once, silence.
//! The API is played here, in simulated time: a real one cannot be made to do this on demand.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use clustercache::ClusterKey;
use clustercache_etcd::{EtcdIssuerSource, IssuerChange, IssuerError, SecretIssuers};
use futures_util::{StreamExt, stream, stream::BoxStream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What is asked, and what is answered by a script, one after the other.
#[derive(Clone, Default)]
struct Api {
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
}

enum Says {
    List(u64),
    Status(u16),
    /// Events, then the end.
    Ends(Vec<Value>),
    /// Events, then silence.
    Silent(Vec<Value>),
}

impl Api {
    /// What the watch makes of it; the last answer is given for ever.
    fn play(&self, script: Vec<Says>) -> BoxStream<'static, Result<IssuerChange, IssuerError>> {
        let (asked, script) = (Arc::clone(&self.asked), Arc::new(Mutex::new(script)));
        let service = service_fn(move |request: Request<Body>| {
            let mut script = script.lock().unwrap();
            let uri = request.uri().to_string();
            asked.lock().unwrap().push((uri, Instant::now()));
            let answer = answer(&script[0]);
            if script.len() > 1 {
                script.remove(0);
            }
            async { Ok::<_, Infallible>(answer) }
        });
        SecretIssuers::new(kube::Client::new(service, "default")).changes()
    }

    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let what = |uri: &str| match uri.split_once("resourceVersion=") {
            Some((_, version)) if uri.contains("watch=true") => {
                format!("watch {}", version.split('&').next().unwrap_or_default())
            }
            _ => "list".to_owned(),
        };
        asked.iter().map(|(uri, _)| what(uri)).collect()
    }
}

fn answer(says: &Says) -> Answer {
    let full = |status: u16, body: Value| {
        let body = Full::from(body.to_string()).boxed_unsync();
        let mut answer = Response::new(body);
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer
    };
    let lines = |events: &[Value]| {
        let events = events.iter().map(|event| format!("{event}\n"));
        let events = events.map(|line| Ok(Frame::data(Bytes::from(line))));
        let events: Vec<Result<_, Infallible>> = events.collect();
        stream::iter(events)
    };
    match says {
        Says::List(version) => full(200, list(*version)),
        Says::Status(code) => full(*code, status(*code)),
        Says::Ends(events) => Response::new(StreamBody::new(lines(events)).boxed_unsync()),
        Says::Silent(events) => {
            let events = lines(events).chain(stream::pending());
            Response::new(StreamBody::new(events).boxed_unsync())
        }
    }
}

fn metadata(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": { "namespace": "default", "name": name, "uid": "u", "resourceVersion": version.to_string() },
    })
}

fn list(version: u64) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": { "resourceVersion": version.to_string() },
        "items": [metadata("a-etcd", version - 1), metadata("a-kubeconfig", version - 2)],
    })
}

fn status(code: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "message": "too old\nresource version", "reason": "Expired",
    })
}

fn event(kind: &str, object: &Value) -> Value {
    json!({ "type": kind, "object": object })
}

/// Twice: with a namespace, and without one, where that is the client's own.
fn of(cluster: &str, version: Option<u64>) -> [IssuerChange; 2] {
    [
        ClusterKey::new("default", cluster),
        ClusterKey::named(cluster),
    ]
    .map(|cluster| IssuerChange {
        cluster,
        version: version.map(|version| format!("u/{version}").into()),
    })
}

async fn all(
    mut changes: BoxStream<'static, Result<IssuerChange, IssuerError>>,
) -> (Vec<IssuerChange>, String) {
    let mut seen = Vec::new();
    loop {
        match changes.next().await.expect("it ends by an error only") {
            Ok(change) => seen.push(change),
            Err(error) => return (seen, error.to_string()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_ends_the_stream_in_both_forms_and_the_next_lists_anew() {
    let api = Api::default();
    let forms = [
        Says::Status(410),
        Says::Ends(vec![event("ERROR", &status(410))]),
    ];
    for form in forms {
        let (seen, error) = all(api.play(vec![Says::List(10), form])).await;
        assert_eq!(seen, of("a", Some(9)));
        assert!(
            error.contains("410") && error.contains("too old\\nresource"),
            "{error}"
        );
    }
    assert_eq!(api.asked(), ["list", "watch 10", "list", "watch 10"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was_and_one_that_always_ends_is_waited_for() {
    let api = Api::default();
    let modified = event("MODIFIED", &metadata("b-apiserver-etcd-client", 12));
    let bookmark = event(
        "BOOKMARK",
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "resourceVersion": "20", "annotations": {} } }),
    );
    let deleted = event("DELETED", &metadata("a-etcd", 25));
    let mut script = vec![
        Says::List(10),
        Says::Ends(vec![modified]),
        Says::Ends(vec![bookmark]),
        Says::Ends(vec![deleted]),
    ];
    script.extend((0..10).map(|_| Says::Ends(Vec::new())));
    script.push(Says::Status(500));
    let begun = Instant::now();
    let (seen, error) = all(api.play(script)).await;
    let expected = [of("a", Some(9)), of("b", Some(12)), of("a", None)].concat();
    assert_eq!(seen, expected);
    assert!(error.contains("500"), "{error}");
    let asked = api.asked();
    assert_eq!(asked[..4], ["list", "watch 10", "watch 12", "watch 20"]);
    assert!(
        asked[4..].iter().all(|asked| asked == "watch 25"),
        "{asked:?}"
    );
    // Thirteen at once: full jitter makes all of them at once as good as impossible.
    assert!(
        begun.elapsed() > Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_for_longer_than_bookmarks_are_apart_is_begun_again() {
    let api = Api::default();
    let bookmark = event("BOOKMARK", &metadata("", 15));
    let script = vec![
        Says::List(10),
        Says::Silent(vec![bookmark]),
        Says::Silent(Vec::new()),
        Says::Status(500),
    ];
    let (_, error) = all(api.play(script)).await;
    assert!(error.contains("500"), "{error}");
    assert_eq!(api.asked(), ["list", "watch 10", "watch 15", "watch 15"]);
}
