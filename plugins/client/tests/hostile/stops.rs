//! A cluster that stops, wherever it does, or is slow, however long: an error at the deadline, or at once, which names the stage.

use std::{collections::BTreeMap, time::Duration};

use clustercache::{ClusterKey, ClusterState, FailureKind, Phase};
use clustercache_testkit::hostile::{Answer, Behaviour, HostileServer, Step, Then};

use crate::{
    ears,
    rig::{BOTH, H1, H2, Protocol, Rig, healthy},
};

/// One attempt each, with deadlines that are waited for.
async fn once() -> Rig {
    within(Duration::from_millis(500)).await
}

async fn within(deadline: Duration) -> Rig {
    Rig::with(|deadlines, options| {
        deadlines.probe = deadline;
        deadlines.tls = deadline;
        options.retry.first = Duration::from_secs(3_600);
        options.retry.most = Duration::from_secs(3_600);
        // The neighbour's probes have these deadlines too, and must not fall for that.
        options.health.down_failures = 1_000;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_accepts_and_says_nothing_is_an_error_at_the_deadline_of_tls() {
    let mut rig = once().await;
    let (key, server) = rig.add("mute", Behaviour::tcp());
    let error = rig.failed(&key).await;
    assert_eq!(error.kind, FailureKind::TimedOut);
    assert!(error.message.contains("TLS handshake"), "{}", error.message);
    // What the client had to say it has said: once.
    assert_eq!((server.counts().connections, server.counts().sent), (1, 0));
    rig.end().await;
}

/// How many bytes a server sends until a cluster is connected.
async fn whole(rig: &mut Rig, protocol: Protocol) -> u64 {
    let (key, server) = rig.add("whole", healthy(protocol));
    rig.connected(&key).await;
    server.counts().sent
}

/// A cluster for each stop, a few at a time, at one server; the stage or kind of each failure, counted. Some may connect: not every byte
/// of HTTP/2 is needed.
async fn stopped(rig: &mut Rig, server: &HostileServer, clusters: u64) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::<_, u64>::new();
    let numbers: Vec<_> = (0..clusters).collect();
    for some in numbers.chunks(16) {
        let keys: Vec<_> = some
            .iter()
            .map(|number| rig.add_at(&format!("stop-{number}"), server))
            .collect();
        for key in &keys {
            *ends.entry(end_of(rig, key).await).or_default() += 1;
            rig.source.remove(key);
        }
    }
    ends
}

async fn end_of(rig: &Rig, key: &ClusterKey) -> String {
    let over = |state: &ClusterState| state.last_error.is_some() || state.phase == Phase::Connected;
    match rig.until(key, over).await.last_error {
        Some(error) if error.kind == FailureKind::TimedOut => {
            let stage = error.message.split(" took ").next();
            stage.unwrap_or_default().to_owned()
        }
        Some(error) => format!("{:?}", error.kind),
        None => "connected".to_owned(),
    }
}

async fn stops_at_every_offset(then: Then) -> Vec<BTreeMap<String, u64>> {
    const STEP: u64 = 7;
    // Only silence is waited for; all else has the time that a busy machine needs.
    let deadline = if then == Then::Silence { 500 } else { 60_000 };
    let mut all = Vec::new();
    for protocol in BOTH {
        let mut rig = within(Duration::from_millis(deadline)).await;
        let whole = whole(&mut rig, protocol).await;
        let stops = move |connection| ((connection - 1) * STEP, then);
        let (_, server) = rig.add("first", healthy(protocol).stop_each(stops));
        let ends = stopped(&mut rig, &server, whole / STEP - 1).await;
        rig.end().await;
        all.push(ends);
    }
    all
}

fn only(ends: &BTreeMap<String, u64>, allowed: &[&str]) {
    let others: Vec<_> = ends
        .keys()
        .filter(|end| !allowed.contains(&end.as_str()))
        .collect();
    assert!(others.is_empty(), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_falls_silent_at_any_byte_is_an_error_that_names_the_stage() {
    let stages = [
        "the TLS handshake",
        "the HTTP handshake",
        "waiting for a connection",
        "the head of the answer",
        "the body of the answer",
        "connected",
    ];
    for ends in stops_at_every_offset(Then::Silence).await {
        only(&ends, &stages);
        for stage in ["the TLS handshake", "the head of the answer"] {
            assert!(ends.contains_key(stage), "{stage} in {ends:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_closes_at_any_byte_is_a_reset() {
    for ends in stops_at_every_offset(Then::Close).await {
        only(&ends, &["Reset", "connected"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_resets_at_any_byte_is_a_reset() {
    for ends in stops_at_every_offset(Then::Reset).await {
        only(&ends, &["Reset", "connected"]);
    }
}

/// Each prefix of a proper answer, as records of its own, so that each byte is seen as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_ends_at_any_byte_of_its_head_or_body_is_an_error() {
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";
    for (end, allowed) in [
        (
            Step::Silence,
            // A busy machine may need longer than a deadline for TLS.
            &[
                "the TLS handshake",
                "waiting for a connection",
                "the head of the answer",
                "the body of the answer",
            ][..],
        ),
        (Step::HalfClose, &["Reset"]),
        (Step::Cut, &["Reset"]),
        (Step::Reset, &["Reset"]),
    ] {
        let silent = matches!(end, Step::Silence);
        let deadline = if silent { 500 } else { 60_000 };
        let mut rig = within(Duration::from_millis(deadline)).await;
        let step = end.clone();
        let behaviour = Behaviour::http1().on_each("/readyz", move |seen| {
            let length = usize::try_from(seen.connection - 1).unwrap() % ANSWER.len();
            vec![Step::write(&ANSWER.as_bytes()[..length]), step.clone()]
        });
        let (key, server) = rig.add("first", behaviour);
        rig.failed(&key).await;
        let ends = stopped(&mut rig, &server, ANSWER.len() as u64 - 1).await;
        only(&ends, allowed);
        rig.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_says_a_byte_now_and_then_is_an_error_at_the_deadline() {
    // Many within a deadline: none is too long without one.
    let pace = Duration::from_millis(50);
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    let body = Answer::new(200)
        .header("content-length", "1000")
        .unfinished();
    let slow_body = [
        Step::Answer(body.clone()),
        Step::Drip("x".repeat(1000).into(), pace),
    ];
    let mut rig = once().await;
    let mut before = [0; 2];
    for (before, protocol) in before.iter_mut().zip(BOTH) {
        let (key, server) = rig.add("silent", protocol().on("/readyz", Step::Silence));
        rig.failed(&key).await;
        *before = server.counts().sent;
        rig.source.remove(&key);
    }
    let [one, two] = before;
    for (name, behaviour, before, stage) in [
        (
            "tls-1",
            healthy(H1).byte_every(pace),
            0,
            "the TLS handshake",
        ),
        (
            "tls-2",
            healthy(H2).byte_every(pace),
            0,
            "the TLS handshake",
        ),
        (
            "head",
            H1().on("/readyz", Step::Drip(head.into(), pace)),
            one,
            "the head of the answer",
        ),
        (
            "body-1",
            H1().on("/readyz", slow_body.clone()),
            one,
            "the body of the answer",
        ),
        (
            "body-2",
            H2().on_each("/readyz", move |seen| {
                let mut bytes = Vec::new();
                for _ in 0..1000 {
                    let frame =
                        clustercache_testkit::hostile::http2::data(seen.stream, b"x", false);
                    bytes.extend_from_slice(&frame);
                }
                vec![
                    Step::Answer(Answer::new(200).unfinished()),
                    Step::Drip(bytes.into(), pace),
                ]
            }),
            two,
            "the body of the answer",
        ),
    ] {
        let (key, server) = rig.add(name, behaviour);
        let error = rig.failed(&key).await;
        assert_eq!(
            error.kind,
            FailureKind::TimedOut,
            "{name}: {}",
            error.message
        );
        assert!(error.message.contains(stage), "{name}: {}", error.message);
        // Several had come: each is a record of its own, or a byte of the handshake, which has not always the same length.
        let came = server.counts().sent - before;
        let least = if before == 0 { 2 } else { 40 };
        assert!(came >= least, "{name}: {came} bytes");
    }
    rig.end().await;
}

/// The same of a call: its deadline is over all of it, however often a byte comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_answered_byte_by_byte_ends_at_its_deadline() {
    let mut rig = Rig::start().await;
    for (name, protocol) in [("one", H1), ("two", H2)] {
        let body = Answer::new(200)
            .header("content-length", "1000000")
            .unfinished();
        let slow = healthy(protocol).on_each("/api", move |seen| {
            let mut steps = vec![Step::Answer(body.clone())];
            for _ in 0..1000 {
                let byte = match seen.stream {
                    0 => bytes::Bytes::from("x"),
                    stream => clustercache_testkit::hostile::http2::data(stream, b"x", false),
                };
                steps.extend([Step::Wait(Duration::from_millis(50)), Step::Write(byte)]);
            }
            steps
        });
        let (key, server) = rig.add(name, slow);
        let client = rig.client(&key).await;
        let request = http::Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
        let error = client.request_text(request).await.unwrap_err();
        let text = ears::tells(&error);
        assert!(
            text.contains("the body of the answer took longer than 2s"),
            "{text}"
        );
        assert_eq!(server.counts().requests_to("/api/v1/nodes"), 1);
    }
    rig.end().await;
}
