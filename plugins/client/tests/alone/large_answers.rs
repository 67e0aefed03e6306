//! Answers that are meant to hurt, over both protocols, in a whole cache: a clear error, little memory, the cluster stays connected, and its
//! neighbour hears nothing. The heap is counted.

use std::{alloc::System, error::Error, time::Duration};

use clustercache::{ClusterAccess, ClusterCache, ClusterKey, MemorySource, Upsert};
use clustercache_client::{ClientExt, KubeClient, Limits, Part, TransportError};
use clustercache_testkit::{
    fleet::FakeCredential,
    guard::PanicGuard,
    hostile::{Answer, Behaviour, HostileServer, Step},
};
use futures_util::{StreamExt, future::join};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::WatchParams};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::alone;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: usize = 1 << 20;

/// All that is allocated for one answer, on both sides: what is given back counts, so that what is held at once is less.
const MOST: usize = 64 * MIB;

fn healthy(http2: bool) -> Behaviour {
    let behaviour = if http2 {
        Behaviour::http2()
    } else {
        Behaviour::http1()
    };
    behaviour.on("/readyz", Answer::new(200).body("ok"))
}

/// An answer without end.
fn endless(answer: Answer) -> Vec<Step> {
    vec![
        Step::Answer(answer.unfinished()),
        Step::Body(vec![b'x'; 16 << 10].into(), u64::MAX),
    ]
}

fn length(length: u64) -> Answer {
    Answer::new(200)
        .unfinished()
        .header("content-length", length.to_string())
}

/// What it is, where it is asked for, what the server does, and what is too large then.
type Row = (&'static str, &'static str, Vec<Step>, Option<Part>);

fn table() -> [Row; 8] {
    [
        (
            "endless call",
            "/version",
            endless(Answer::new(200)),
            Some(Part::Call),
        ),
        (
            "endless list",
            "/api/v1/pods",
            endless(Answer::new(200)),
            Some(Part::List),
        ),
        (
            "endless refusal",
            "/api/v1/pods",
            endless(Answer::new(500)),
            Some(Part::Call),
        ),
        (
            "endless head",
            "/version",
            vec![
                Step::write("HTTP/1.1 200 OK\r\n"),
                Step::for_ever("x: y\r\n"),
            ],
            None,
        ),
        (
            "256 MiB",
            "/version",
            length(256 << 20).into(),
            Some(Part::Call),
        ),
        (
            "largest",
            "/api/v1/pods",
            length(i64::MAX.unsigned_abs()).into(),
            Some(Part::List),
        ),
        (
            "encoded",
            "/version",
            Answer::new(200).header("content-encoding", "gzip").into(),
            None,
        ),
        (
            "redirect",
            "/version",
            Answer::new(302).header("location", "https://other/").into(),
            None,
        ),
    ]
}

fn access(server: &HostileServer) -> ClusterAccess {
    let fake = server.access();
    let FakeCredential::Token(token) = fake.credential else {
        unreachable!("a hostile server has a token")
    };
    let access = ClusterAccess::builder(&fake.url).ca_pem(fake.ca_pem);
    access.token(token).build().unwrap()
}

fn cause(error: &kube::Error) -> &TransportError {
    let mut next = Some(error as &(dyn Error + 'static));
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref() {
            return ours;
        }
        next = error.source();
    }
    panic!("no error of ours: {error:?}")
}

fn part(error: &kube::Error) -> Option<Part> {
    match cause(error) {
        TransportError::TooLarge { what, .. } => Some(*what),
        _ => None,
    }
}

async fn soon<T>(event: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, event)
        .await
        .expect("it happens in time")
}

#[test]
fn an_answer_that_is_meant_to_hurt_is_a_clear_error_and_costs_little() {
    alone(answers_that_are_meant_to_hurt());
}

async fn answers_that_are_meant_to_hurt() {
    let limits = {
        let mut limits = Limits::default();
        (limits.call, limits.list, limits.line) = (1 << 20, 2 << 20, 1 << 20);
        limits
    };
    let source = MemorySource::new("test");
    let cache = ClusterCache::builder()
        .source(source.clone())
        .resource(KubeClient::new().limits(limits))
        .health_from::<KubeClient>()
        .start()
        .unwrap();
    let _guard = PanicGuard::new(&cache);
    let keys = ["http1", "http2", "neighbour"].map(ClusterKey::named);
    let servers = [false, true, true].map(|http2| {
        HostileServer::start(
            "server",
            healthy(http2).on("/", Answer::new(200).body("{}")),
        )
        .unwrap()
    });
    for (key, server) in keys.iter().zip(&servers) {
        source.upsert(Upsert::ready(key.clone(), access(server)));
        soon(cache.wait_for(key, Duration::from_secs(50)))
            .await
            .unwrap();
    }

    let get = |key: &ClusterKey, path: &str| {
        let client = cache.client(key).unwrap();
        let request = Request::get(path).body(Vec::new()).unwrap();
        async move { soon(client.request_text(request)).await }
    };
    for (server, key) in servers.iter().zip(&keys).take(2) {
        let http2 = key.name() == "http2";
        for (name, path, steps, expected) in table() {
            server.behave(healthy(http2).on(path, steps));
            let before = HEAP.stats().bytes_allocated;
            let (answer, neighbour) = join(get(key, path), get(&keys[2], "/version")).await;
            let took = HEAP.stats().bytes_allocated - before;
            let error = answer.expect_err(name);
            assert_eq!(part(&error), expected, "{name}: {error}");
            assert!(took < MOST, "{name} took {} MiB", took / MIB);
            neighbour.unwrap();
        }

        server.behave(healthy(http2).on("/api/", endless(Answer::new(200))));
        let before = HEAP.stats().bytes_allocated;
        let pods = Api::<Pod>::all(cache.client(key).unwrap());
        let params = WatchParams::default();
        let mut events = soon(pods.watch(&params, "0")).await.unwrap().boxed();
        let error = soon(events.next()).await.unwrap().unwrap_err();
        let took = HEAP.stats().bytes_allocated - before;
        let text = error.source().map(ToString::to_string);
        assert!(took < MOST, "a line took {} MiB", took / MIB);
        assert!(text.unwrap_or_default().contains("Limits::line"), "{error}");

        server.behave(healthy(http2).on("/", Answer::new(200).body("{}")));
        get(key, "/version").await.unwrap();
    }
    cache.shutdown().await.unwrap();
}
