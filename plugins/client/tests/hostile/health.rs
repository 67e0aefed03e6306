//! The table "Health" of ARCHITECTURE.md, through the real health check: what `/readyz` answers, and what `/version` says after it, on
//! a new connection and on one that was up.

use std::time::Duration;

use clustercache::{ClusterState, FailureKind, Phase, Stage, Verdict as Health};
use clustercache_testkit::hostile::{Answer, Behaviour, Counts, Step};

use crate::rig::{BOTH, Protocol, Rig, healthy, soon};

const STATUS: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}"#;

/// What a path is answered with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    /// With a page of HTML, an empty body, or a `Status`.
    Html(u16),
    Empty(u16),
    Status(u16),
    Garbage,
    Reset,
    Nothing,
}

use Said::{Empty, Garbage, Html, Nothing, Reset, Status};

const SAID: [Said; 26] = [
    Empty(200),
    Html(200),
    Status(200),
    Empty(204),
    Html(301),
    Empty(302),
    Empty(400),
    Status(400),
    Empty(401),
    Status(401),
    Html(403),
    Empty(403),
    Status(403),
    Empty(404),
    Status(404),
    Html(418),
    Status(418),
    Empty(429),
    Status(429),
    Empty(500),
    Empty(502),
    Empty(503),
    Html(504),
    Garbage,
    Reset,
    Nothing,
];

impl Said {
    fn steps(self) -> Vec<Step> {
        match self {
            Empty(status) => Answer::new(status).into(),
            Html(status) => Answer::new(status).body("<html>welcome</html>").into(),
            Status(status) => Answer::new(status).body(STATUS).into(),
            // No HTTP of any version.
            Garbage => vec![Step::write(vec![0x55; 64]), Step::HalfClose],
            Reset => vec![Step::Reset],
            Nothing => vec![Step::Silence],
        }
    }

    /// By that table, the kind of failure, where it is one.
    fn failure(self) -> FailureKind {
        match self {
            Garbage => FailureKind::Protocol,
            Reset => FailureKind::Reset,
            Nothing => FailureKind::TimedOut,
            Empty(401) | Html(401) | Status(401) => FailureKind::Unauthorized,
            Empty(code) | Html(code) | Status(code) => FailureKind::Status(code),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Ready,
    NotReady,
    Fails(FailureKind),
}

fn verdict(readyz: Said, version: Said) -> Verdict {
    let fails = |said: Said| Verdict::Fails(said.failure());
    match readyz {
        Empty(200..=299) | Html(200..=299) | Status(200..=299) => Verdict::Ready,
        _ if asks_for_version(readyz) => match version {
            Empty(200..=299) | Html(200..=299) | Status(200..=299 | 403) => match readyz {
                Empty(403 | 404) | Html(403 | 404) | Status(403 | 404) => Verdict::Ready,
                _ => Verdict::NotReady,
            },
            _ => fails(version),
        },
        Status(code @ 400..=499) if code != 401 => Verdict::Ready,
        _ => fails(readyz),
    }
}

fn asks_for_version(readyz: Said) -> bool {
    let (Empty(code) | Html(code) | Status(code)) = readyz else {
        return false;
    };
    matches!(code, 403 | 404 | 429 | 500 | 503)
}

/// One of each kind, for what is asked second.
const KINDS: [Said; 10] = [
    Empty(200),
    Empty(302),
    Status(401),
    Html(403),
    Status(403),
    Status(404),
    Empty(500),
    Garbage,
    Reset,
    Nothing,
];

/// All pairs that differ in what is asked.
fn pairs() -> Vec<(Said, Said)> {
    let mut pairs = Vec::new();
    for readyz in SAID {
        if asks_for_version(readyz) {
            pairs.extend(KINDS.map(|version| (readyz, version)));
        } else {
            // It is not asked: this would be another verdict.
            let fails = matches!(verdict(readyz, Empty(200)), Verdict::Fails(_));
            pairs.push((readyz, if fails { Empty(200) } else { Reset }));
        }
    }
    pairs
}

fn behaviour(protocol: Protocol, (readyz, version): (Said, Said)) -> Behaviour {
    protocol()
        .on("/readyz", readyz.steps())
        .on("/version", version.steps())
}

/// Each that fails is dialled again and again: not more than a busy machine can take.
const AT_ONCE: usize = 12;

async fn rig() -> Rig {
    Rig::with(|deadlines, options| {
        deadlines.probe = Duration::from_secs(2);
        // Failures of probes are looked at, not what becomes of them.
        options.health.down_failures = 1_000;
        options.brake.enabled = false;
        options.health.suspect_interval = Duration::from_secs(1);
        options.retry.first = Duration::from_millis(500);
        options.retry.most = Duration::from_millis(500);
    })
    .await
}

/// A busy machine may make a failure of its own before.
fn shows(now: &ClusterState, stage: Stage, verdict: Verdict) -> bool {
    let healthy = now.phase == Phase::Connected && now.health == Health::Healthy;
    match verdict {
        Verdict::Ready => healthy && now.not_ready.is_none(),
        Verdict::NotReady => healthy && now.not_ready.is_some(),
        Verdict::Fails(kind) => {
            let error = now.last_error.as_ref();
            error.is_some_and(|error| error.stage == stage && error.kind == kind)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_is_what_readyz_and_then_version_say() {
    for protocol in BOTH {
        let mut rig = rig().await;
        for pairs in pairs().chunks(AT_ONCE) {
            let clusters: Vec<_> = pairs
                .iter()
                .map(|pair| {
                    let name = format!("{pair:?}");
                    (*pair, rig.add(&name, behaviour(protocol, *pair)))
                })
                .collect();
            let stage = Stage::Init("kube-client");
            for (pair, (key, server)) in &clusters {
                let expected = verdict(pair.0, pair.1);
                rig.until(key, |state| shows(state, stage, expected)).await;
                let asked = server.counts().requests_to("/version") > 0;
                assert_eq!(asked, asks_for_version(pair.0), "{pair:?}");
            }
            rig.look();
            for (_, (key, _)) in &clusters {
                rig.source.remove(key);
            }
        }
        rig.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_up_is_what_readyz_and_then_version_say() {
    for protocol in BOTH {
        let mut rig = rig().await;
        for pairs in pairs().chunks(AT_ONCE) {
            let mut clusters = Vec::new();
            for pair in pairs {
                let (key, server) = rig.add(&format!("{pair:?}"), healthy(protocol));
                clusters.push((*pair, key, server));
            }
            for (pair, key, server) in &clusters {
                rig.connected(key).await;
                server.behave(behaviour(protocol, *pair));
            }
            for (pair, key, server) in &clusters {
                let expected = verdict(pair.0, pair.1);
                // What was right before is right now only once it was asked anew, and judged.
                if !matches!(expected, Verdict::Fails(_)) {
                    let asked = server.counts().requests_to("/readyz") + 2;
                    let more = server.when(|counts| counts.requests_to("/readyz") >= asked);
                    soon(format!("{pair:?}"), more).await;
                }
                let shown = async {
                    // That the last error is another one is no event: it is looked at with each probe.
                    while !shows(&rig.cache.state(key).unwrap(), Stage::Probe, expected) {
                        let asked = server.counts().requests_to("/readyz");
                        let more = |counts: &Counts| counts.requests_to("/readyz") > asked;
                        server.when(more).await;
                    }
                };
                soon(format!("{pair:?}"), shown).await;
            }
            rig.look();
            for (_, key, _) in &clusters {
                rig.source.remove(key);
            }
        }
        rig.end().await;
    }
}
