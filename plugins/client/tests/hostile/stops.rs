//! A cluster that stops, wherever it does, or is slow, however long: an error at the deadline, or at once, which names the stage.

use std::{ops::Range, time::Duration};

use clustercache::{ClusterKey, ClusterState, FailureKind, Phase};
use clustercache_testkit::hostile::{Answer, Behaviour, HostileServer, Step, Then};

use crate::{
    ears,
    rig::{BOTH, H1, H2, Protocol, Rig, healthy, soon},
};

/// One attempt each, with deadlines that are waited for.
async fn once() -> Rig {
    within(Duration::from_millis(500)).await
}

async fn within(deadline: Duration) -> Rig {
    Rig::with(|deadlines, options| {
        deadlines.probe = deadline;
        deadlines.tls = deadline;
        // With full jitter: one of thousands must not come within the test.
        options.retry.first = Duration::from_secs(300 * 86_400);
        options.retry.most = options.retry.first;
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

/// Stages in which a cluster can fall silent, in their order.
const STAGES: [&str; 6] = [
    "the TLS handshake",
    "the HTTP handshake",
    "waiting for a connection",
    "the head of the answer",
    "the body of the answer",
    CONNECTED,
];
const TLS: &str = STAGES[0];
const HEAD: &str = STAGES[3];
const BODY: &str = STAGES[4];
const CONNECTED: &str = "connected";
const RESET: &str = "Reset";

/// Offsets at which a connection may stop, and how it then ends: in one of these ways.
#[derive(Clone, Debug)]
struct Region {
    offsets: Range<u64>,
    ends: Vec<&'static str>,
}

impl Region {
    fn new(offsets: Range<u64>, ends: &[&'static str]) -> Self {
        let ends = ends.to_vec();
        Self { offsets, ends }
    }

    /// As many as are tried side by side.
    fn parts(&self) -> impl Iterator<Item = Self> {
        const MOST: u64 = 64;
        let Range { start, end } = self.offsets;
        let starts = (start..end).step_by(usize::try_from(MOST).unwrap());
        starts.map(move |start| Self::new(start..end.min(start + MOST), &self.ends))
    }
}

/// Where the next connections of a server stop: each an offset further.
#[derive(Clone, Copy)]
struct Stops {
    first: u64,
    before: u64,
}

impl Stops {
    fn of(self, connection: u64) -> u64 {
        self.first + (connection - self.before - 1)
    }
}

/// A cluster for each offset. Where one waits for a deadline, a busy machine may need it for an earlier stage: then it has a longer one.
async fn sweep(deadlines: &[u64], regions: &[Region], stopping: impl Fn(Stops) -> Behaviour) {
    let mut left: Vec<_> = regions.iter().flat_map(Region::parts).collect();
    for deadline in deadlines {
        let mut rig = within(Duration::from_millis(*deadline)).await;
        let server = rig.server(HostileServer::start("stops", Behaviour::tcp()).unwrap());
        let mut again = Vec::new();
        for part in left {
            let before = server.counts().connections;
            let first = part.offsets.start;
            server.behave(stopping(Stops { first, before }));
            let add = |offset| rig.add_at(&format!("stop-{offset}"), &server);
            let keys: Vec<_> = part.offsets.clone().map(add).collect();
            let mut was_early = false;
            for key in &keys {
                let end = end_of(&rig, key).await;
                was_early |= is_early(&part, &end);
            }
            rig.look();
            for key in &keys {
                rig.source.remove(key);
            }
            let met = server.counts().connections - before;
            let (keys, may_be_up) = (keys.len() as u64, part.ends.contains(&CONNECTED));
            // What was up is probed on another connection once its own has ended.
            assert!(
                met == keys || may_be_up && met > keys,
                "{met} stops of {keys}"
            );
            if was_early {
                again.push(part);
            }
        }
        rig.end().await;
        left = again;
        if left.is_empty() {
            return;
        }
    }
    panic!("ended in an earlier stage: {left:?}");
}

/// Whether it ended in an earlier stage than it should have. All that is neither that nor as it should be is a failure.
#[track_caller]
fn is_early(part: &Region, end: &str) -> bool {
    if part.ends.contains(&end) {
        return false;
    }
    let stage = |name: &str| STAGES.iter().position(|stage| *stage == name);
    let last = part.ends.iter().filter_map(|end| stage(end)).max();
    match (stage(end), last) {
        (Some(stage), Some(last)) if stage < last => true,
        _ => panic!("{end} in {part:?}"),
    }
}

async fn end_of(rig: &Rig, key: &ClusterKey) -> String {
    let over = |state: &ClusterState| state.last_error.is_some() || state.phase == Phase::Connected;
    match rig.until(key, over).await.last_error {
        Some(error) if error.kind == FailureKind::TimedOut => {
            let stage = error.message.split(" took ").next();
            stage.unwrap_or_default().to_owned()
        }
        Some(error) => format!("{:?}", error.kind),
        None => CONNECTED.to_owned(),
    }
}

/// Healthy, and its first answer's head and body are records of their own.
fn in_two_records(protocol: Protocol) -> Behaviour {
    let head = Answer::new(200).header("content-length", "2").unfinished();
    protocol().on(
        "/readyz",
        [Step::Answer(head), Step::Body("ok".into(), 1), Step::End],
    )
}

/// What TLS 1.3 adds to a record, and HTTP/2 to a frame.
const RECORD: u64 = 22;
const FRAME: u64 = 9;
/// Each with what it sends of a body of two bytes: over HTTP/2 an empty frame follows, which ends the stream.
const WITH_BODY: [(Protocol, u64); 2] = [(H1, RECORD + 2), (H2, RECORD * 2 + FRAME * 2 + 2)];

/// Where the stages end in what a server sends.
struct Ends {
    tls: u64,
    head: u64,
    all: u64,
}

impl Ends {
    async fn of((protocol, body): (Protocol, u64)) -> Self {
        let mut rig = within(Duration::from_secs(60)).await;
        // Names as long as that of the sweep: a certificate has them in it.
        let (_, server) = rig.add("shake", protocol().without_settings());
        let tls = soon("TLS", server.when(|counts| counts.handshakes == 1)).await;
        let (key, server) = rig.add("whole", in_two_records(protocol));
        rig.connected(&key).await;
        let all = server.counts().sent;
        rig.end().await;
        Self {
            tls: tls.sent,
            head: all - body,
            all,
        }
    }

    /// By stage. The signatures of a handshake and of its certificate differ in length by a few bytes: there it may be the one stage or the next.
    fn regions(&self, [tls, head, body, all]: [&'static str; 4]) -> Vec<Region> {
        const FEW: u64 = 8;
        let Self {
            tls: t,
            head: h,
            all: a,
        } = *self;
        vec![
            Region::new(0..t - FEW, &[tls]),
            Region::new(t - FEW..t + FEW, &[tls, head]),
            Region::new(t + FEW..h - FEW, &[head]),
            Region::new(h - FEW..h + FEW, &[head, body]),
            Region::new(h + FEW..a - FEW, &[body]),
            Region::new(a - FEW..a, &[body, all]),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_falls_silent_at_any_byte_is_an_error_that_names_the_stage() {
    for with_body in WITH_BODY {
        let (protocol, _) = with_body;
        let regions = Ends::of(with_body)
            .await
            .regions([TLS, HEAD, BODY, CONNECTED]);
        let stopping = |stops: Stops| {
            let stop = move |connection| (stops.of(connection), Then::Silence);
            in_two_records(protocol).stop_each(stop)
        };
        sweep(&[500, 2_000, 10_000], &regions, stopping).await;
    }
}

/// Half of the offsets each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_closes_or_resets_at_any_byte_is_a_reset() {
    for with_body in WITH_BODY {
        let (protocol, _) = with_body;
        let regions = Ends::of(with_body)
            .await
            .regions([RESET, RESET, RESET, CONNECTED]);
        let stopping = |stops: Stops| {
            let stop = move |connection| match stops.of(connection) {
                offset if offset % 2 == 0 => (offset, Then::Close),
                offset => (offset, Then::Reset),
            };
            in_two_records(protocol).stop_each(stop)
        };
        sweep(&[60_000], &regions, stopping).await;
    }
}

/// Each prefix of a proper answer, as records of its own, so that each byte is seen as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_ends_at_any_byte_of_its_head_or_body_is_an_error() {
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";
    let (head, all) = (ANSWER.len() as u64 - 2, ANSWER.len() as u64);
    for (end, [in_head, in_body]) in [
        (Step::Silence, [HEAD, BODY]),
        (Step::HalfClose, [RESET; 2]),
        (Step::Cut, [RESET; 2]),
        (Step::Reset, [RESET; 2]),
    ] {
        let deadlines = match end {
            Step::Silence => &[500, 2_000, 10_000][..],
            _ => &[60_000],
        };
        let regions = [
            Region::new(0..head, &[in_head]),
            Region::new(head..all, &[in_body]),
        ];
        let stopping = |stops: Stops| {
            let end = end.clone();
            H1().on_each("/readyz", move |seen| {
                let length = usize::try_from(stops.of(seen.connection)).unwrap();
                vec![Step::write(&ANSWER.as_bytes()[..length]), end.clone()]
            })
        };
        sweep(deadlines, &regions, stopping).await;
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
        rig.remove(&key);
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
