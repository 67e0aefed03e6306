//! What a server can do with HTTP/2: a connection ends, or goes on as it should, and what a server says without saying anything is bounded.

use std::time::Duration;

use bytes::Bytes;
use clustercache::{FailureKind, Phase};
use clustercache_testkit::hostile::{Answer, Behaviour, Counts, Seen, Step, http2};
use http::Request;

use crate::{
    cost::processors,
    ears,
    rig::{H1, H2, Rig, healthy, soon, well},
};

/// What a flood may cost, on one connection: as many bytes as fit into the buffers on its way, and into what it takes to see it.
const FLOOD: u64 = 16 << 20;

/// What it may cost beside what its bytes do: the connections that it comes on, and whatever else goes on meanwhile.
const BESIDE: Duration = Duration::from_secs(1);
/// What of it is as dear as one byte of an honest answer in frames as small.
const DEARER: u32 = 8;

/// A name, and a frame in place of an answer.
type OnRequest = (&'static str, fn(&Seen) -> Bytes);
type Stage = (&'static str, fn(&Seen) -> Vec<Step>);

/// Frames without end.
struct Flood {
    name: &'static str,
    /// What must have come before it, on a stream that there is; none where it is of the connection.
    after: Option<fn(u32) -> Bytes>,
    frame: fn(u32) -> Bytes,
}

impl Flood {
    fn new(name: &'static str, frame: fn(u32) -> Bytes) -> Self {
        Self {
            name,
            after: None,
            frame,
        }
    }

    fn after(self, first: fn(u32) -> Bytes) -> Self {
        Self {
            after: Some(first),
            ..self
        }
    }

    fn steps(&self, stream: u32) -> Vec<Step> {
        let first = self.after.map(|first| Step::Write(first(stream)));
        let flood = Step::for_ever((self.frame)(stream));
        first.into_iter().chain([flood]).collect()
    }
}

/// Before what needs nothing but that the stream is there.
fn nothing(_: u32) -> Bytes {
    Bytes::new()
}

fn floods() -> Vec<Flood> {
    vec![
        Flood::new("settings", |_| {
            http2::settings(&[(http2::HEADER_TABLE_SIZE, 4096)])
        }),
        Flood::new("empty settings", |_| http2::settings(&[])),
        Flood::new("pings", |_| http2::ping(*b"flooding")),
        Flood::new("answers to pings", |_| {
            http2::frame(http2::PING, 1, 0, b"flooding")
        }),
        Flood::new("empty data", |stream| http2::data(stream, b"", false))
            .after(|stream| http2::headers(stream, 200, [], false)),
        Flood::new("windows", |_| http2::window_update(0, 1)),
        Flood::new("windows of a stream", |stream| {
            http2::window_update(stream, 1)
        })
        .after(nothing),
        Flood::new("resets", |stream| http2::rst_stream(stream, http2::CANCEL)).after(nothing),
        Flood::new("priorities", |stream| {
            http2::frame(2, 0, stream, &[0, 0, 0, 0, 1])
        }),
        Flood::new("unknown frames", |_| http2::frame(0xbe, 0, 0, b"")),
        Flood::new("ends", |stream| http2::goaway(stream, http2::NO_ERROR)),
        Flood::new("continuations", |stream| {
            http2::frame(http2::CONTINUATION, 0, stream, b"")
        })
        // `:status: 200`, and no end of the block.
        .after(|stream| http2::frame(http2::HEADERS, 0, stream, &[0x88])),
    ]
}

/// With probes that are waited for, but not for long.
async fn rig() -> Rig {
    Rig::with(|deadlines, _| deadlines.probe = Duration::from_secs(1)).await
}

/// What 1 KiB costs where each byte of an answer is a frame of its own, and all of them are wanted.
async fn honest(rig: &mut Rig) -> Duration {
    const FRAMES: u64 = 20_000;
    let bytes = |seen: &Seen| {
        vec![
            Step::Answer(Answer::new(200).unfinished()),
            Step::Repeat(http2::data(seen.stream, b"x", false), FRAMES),
            Step::End,
        ]
    };
    let (key, server) = rig.add("honest", healthy(H2).on_each("/api", bytes));
    let client = rig.client(&key).await;
    let mut price = Duration::ZERO;
    // The first time frames are logged. A busy machine may take the connection for one that hangs: then it is another's turn.
    let mut left = 2;
    while left > 0 {
        let before = (server.counts().sent, processors());
        let request = Request::get("/api/v1/nodes").body(vec![]).unwrap();
        let Ok(text) = soon("an answer", client.request_text(request)).await else {
            continue;
        };
        assert_eq!(text.len() as u64, FRAMES);
        price = (processors() - before.1) / kibibytes(server.counts().sent - before.0);
        left -= 1;
    }
    rig.remove(&key);
    price
}

fn kibibytes(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap()
}

/// Of a flood that is over: it was cut off, and processors worked no more for it than for as much that is wanted.
fn was_bounded(name: &str, counts: &Counts, worked: Duration, honest: Duration) {
    assert!(
        counts.sent < FLOOD * counts.connections,
        "{name}: {counts:?}"
    );
    let most = BESIDE + honest * DEARER * kibibytes(counts.sent);
    assert!(
        worked < most,
        "{name}: {worked:?} of work, of at most {most:?}, for {counts:?}"
    );
}

/// Before any answer: the cluster does not come up; each connection costs no more than so much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_a_new_connection_is_bounded() {
    let mut rig = rig().await;
    let honest = honest(&mut rig).await;
    for (number, flood) in floods().into_iter().enumerate() {
        let (before, name) = (processors(), flood.name);
        let flood = match flood.after {
            None => H2().greeting(flood.steps(1)),
            Some(_) => H2().on_each("/readyz", move |seen| flood.steps(seen.stream)),
        };
        let (key, server) = rig.add(&format!("flood-{number}"), flood);
        let error = rig.failed(&key).await;
        ears::shows(&error.message);
        rig.remove(&key);
        let counts = soon(name, server.when(|counts| counts.open == 0)).await;
        was_bounded(name, &counts, processors() - before, honest);
    }
    rig.end().await;
}

/// In place of an answer to a call: the call fails, and the cluster stays connected, because its health check is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_in_place_of_an_answer_ends_its_connection_and_not_the_cluster() {
    let mut rig = Rig::start().await;
    let honest = honest(&mut rig).await;
    for (number, flood) in floods().into_iter().enumerate() {
        let (before, name) = (processors(), flood.name);
        let flood = healthy(H2).on_each("/api", move |seen| flood.steps(seen.stream));
        let (key, server) = rig.add(&format!("flood-{number}"), flood);
        let client = rig.client(&key).await;
        let life = rig.connected(&key).await.generation().unwrap();
        let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
        let error = soon(name, client.request_text(request)).await.unwrap_err();
        ears::tells(&error);
        // Calls that meet the flood before its connection ends fail with it, and no other.
        let answered = async {
            while let Err(error) = client.apiserver_version().await {
                ears::tells(&error);
            }
        };
        soon(name, answered).await;
        let connected = rig.connected(&key).await;
        assert_eq!(connected.generation().unwrap(), life, "{name}");
        let counts = server.counts();
        was_bounded(name, &counts, processors() - before, honest);
        // A probe on a busy machine may have one of its own.
        let most = 6 + counts.requests_to("/readyz");
        assert!(counts.connections < most, "{name}: {counts:?}");
        rig.remove(&key);
    }
    rig.end().await;
}

fn goaway_then_answer(seen: &Seen) -> Vec<Step> {
    let answer = Answer::new(200).body("ok");
    vec![
        Step::Write(http2::goaway(seen.stream, http2::NO_ERROR)),
        Step::Answer(answer),
    ]
}

/// As a server does that closes a connection after each request: a connection each, and nothing that anybody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goaway_with_every_answer_is_no_loss() {
    let mut rig = Rig::start().await;
    let (key, server) = rig.add("goaway", H2().on_each("/", goaway_then_answer));
    let client = rig.client(&key).await;
    let life = rig.connected(&key).await.generation().unwrap();
    for number in 0..20 {
        let request = Request::get(format!("/api/v1/nodes/{number}"))
            .body(vec![])
            .unwrap();
        let answer = soon("a call", client.request_text(request)).await;
        assert_eq!(
            answer.unwrap_or_else(|error| panic!("{number}: {error:?}")),
            "ok"
        );
    }
    // Probes too, and some of them.
    let probed = server.counts().requests_to("/readyz") + 3;
    soon(
        "probes",
        server.when(|counts| counts.requests_to("/readyz") >= probed),
    )
    .await;
    let state = rig.cache.state(&key).unwrap();
    assert_eq!(
        (state.phase, state.generation),
        (Phase::Connected, life),
        "{state:?}"
    );
    assert!(state.last_error.is_none(), "{state:?}");
    rig.end().await;
}

/// A request that the server has not looked at is sent again, elsewhere, and not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_not_looked_at_is_sent_again_and_only_a_few_times() {
    let refusals: [OnRequest; 2] = [
        ("goaway", |_| http2::goaway(0, http2::NO_ERROR)),
        ("refused stream", |seen| {
            http2::rst_stream(seen.stream, http2::REFUSED_STREAM)
        }),
    ];
    for (name, refusal) in refusals {
        let mut rig = Rig::start().await;
        // The second time it is looked at.
        let once = healthy(H2).on_each("/api", move |seen| {
            if seen.connection == 1 && seen.path.ends_with("once") && seen.number < 3 {
                return vec![Step::Write(refusal(seen))];
            }
            if seen.path.ends_with("never") {
                return vec![Step::Write(refusal(seen))];
            }
            Answer::new(200).body("ok").into()
        });
        let (key, server) = rig.add("again", once);
        let client = rig.client(&key).await;
        let life = rig.connected(&key).await.generation().unwrap();
        let ask = |path: &'static str| {
            let request = Request::get(path).body(vec![]).unwrap();
            soon(path, client.request_text(request))
        };
        let answer = ask("/api/v1/nodes/once").await;
        assert_eq!(
            answer.unwrap_or_else(|error| panic!("{name}: {error:?}")),
            "ok"
        );
        let error = ask("/api/v1/nodes/never").await.unwrap_err();
        ears::tells(&error);
        let asked = server.counts().requests_to("/api/v1/nodes/never");
        assert!((1..=10).contains(&asked), "{name}: {asked} requests");
        let state = rig.cache.state(&key).unwrap();
        assert_eq!(
            (state.phase, state.generation),
            (Phase::Connected, life),
            "{name}"
        );
        rig.end().await;
    }
}

/// Whatever the stage, a GOAWAY with a reason is an error of what was under way, and the next call has another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goaway_at_each_stage_ends_what_was_under_way_and_nothing_else() {
    let mut rig = Rig::start().await;
    let stages: [Stage; 4] = [
        ("before the head", |seen| {
            vec![
                Step::Write(http2::goaway(seen.stream, http2::INTERNAL_ERROR)),
                Step::HalfClose,
            ]
        }),
        ("after the head", |seen| {
            vec![
                Step::Answer(Answer::new(200).unfinished()),
                Step::Write(http2::goaway(seen.stream, http2::INTERNAL_ERROR)),
                Step::HalfClose,
            ]
        }),
        ("in the body", |seen| {
            vec![
                Step::Answer(Answer::new(200).body("half").unfinished()),
                Step::Write(http2::goaway(seen.stream, http2::ENHANCE_YOUR_CALM)),
                Step::HalfClose,
            ]
        }),
        ("and it resets", |seen| {
            vec![
                Step::Write(http2::goaway(seen.stream, http2::NO_ERROR)),
                Step::Reset,
            ]
        }),
    ];
    for (number, (stage, steps)) in stages.into_iter().enumerate() {
        let (key, _) = rig.add(
            &format!("stage-{number}"),
            healthy(H2).on_each("/api", steps),
        );
        let client = rig.client(&key).await;
        let life = rig.connected(&key).await.generation().unwrap();
        for _ in 0..3 {
            let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
            let error = soon(stage, client.request_text(request)).await.unwrap_err();
            ears::tells(&error);
            let version = soon(stage, client.apiserver_version()).await;
            version.unwrap_or_else(|error| panic!("{stage}: {error:?}"));
        }
        assert_eq!(
            rig.connected(&key).await.generation().unwrap(),
            life,
            "{stage}"
        );
    }
    let (key, server) = rig.add(
        "first",
        H2().greeting(Step::Write(http2::goaway(0, http2::NO_ERROR))),
    );
    ears::shows(&rig.failed(&key).await.message);
    // Attempts have their backoff; connections are no loop without one.
    let counts = soon("attempts", server.when(|counts| counts.connections >= 4)).await;
    let attempts = u64::from(rig.cache.state(&key).unwrap().attempts) + 1;
    assert!(
        counts.connections <= attempts * 4,
        "{counts:?} in {attempts} attempts"
    );
    rig.end().await;
}

/// What we have to say does not fit into a window of nothing: an error at the deadline, for that call only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_of_nothing_stops_the_body_of_a_request_until_its_deadline() {
    let mut rig = Rig::start().await;
    let narrow = well(H2().settings([(http2::INITIAL_WINDOW_SIZE, 0)]));
    let (key, server) = rig.add("narrow", narrow);
    let client = rig.client(&key).await;
    let request = Request::post("/api/v1/nodes")
        .body(vec![b'x'; 100])
        .unwrap();
    let error = soon("a call", client.request_text(request))
        .await
        .unwrap_err();
    let text = ears::tells(&error);
    assert!(text.contains("took longer than 2s"), "{text}");
    client.apiserver_version().await.unwrap();
    assert_eq!(server.counts().connections, 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_allows_no_stream_is_an_error_and_not_a_wait_without_end() {
    let mut rig = Rig::start().await;
    let none = well(H2().settings([(http2::MAX_CONCURRENT_STREAMS, 0)]));
    let (key, _) = rig.add("none", none);
    let error = rig.failed(&key).await;
    assert!(
        matches!(error.kind, FailureKind::TimedOut | FailureKind::Busy),
        "{error:?}"
    );
    rig.end().await;
}

/// No proper server says any of this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_proper_http2_is_an_error_of_that_connection() {
    let improper: Vec<OnRequest> = vec![
        ("a frame that is too large", |seen| {
            http2::frame(http2::DATA, 0, seen.stream, &vec![0; 1 << 20])
        }),
        ("a stream of the server's", |_| http2::data(2, b"x", false)),
        ("a stream that never began", |_| {
            http2::data(0x7fff_fff1, b"x", false)
        }),
        ("data on the connection", |_| http2::data(0, b"x", false)),
        ("settings on a stream", |seen| {
            http2::frame(http2::SETTINGS, 0, seen.stream, b"")
        }),
        ("settings that are cut", |_| {
            http2::frame(http2::SETTINGS, 0, 0, b"1234")
        }),
        ("a window too large", |_| {
            http2::settings(&[(http2::INITIAL_WINDOW_SIZE, u32::MAX)])
        }),
        ("a frame size of nothing", |_| {
            http2::settings(&[(http2::MAX_FRAME_SIZE, 1)])
        }),
        ("an overflow of the window", |_| {
            http2::window_update(0, 0x7fff_ffff)
        }),
        ("a window of no more", |seen| {
            http2::window_update(seen.stream, 0)
        }),
        ("data before the head", |seen| {
            http2::data(seen.stream, b"x", true)
        }),
        ("no status", |seen| {
            http2::block(seen.stream, &http2::header_block([("x", &b"y"[..])]), true)
        }),
        ("a status that is none", |seen| {
            http2::block(
                seen.stream,
                &http2::header_block([(":status", &b"20"[..])]),
                true,
            )
        }),
        ("a name in capitals", |seen| {
            http2::headers(seen.stream, 200, [("X-Y", &b"z"[..])], true)
        }),
        ("a value with a newline", |seen| {
            http2::headers(seen.stream, 200, [("x", &b"y\r\nz: 1"[..])], true)
        }),
        ("HPACK that is none", |seen| {
            http2::block(seen.stream, &[0xff; 40], true)
        }),
        ("HPACK of no table", |seen| {
            http2::block(seen.stream, &[0xc6], true)
        }),
        ("a promise", |seen| {
            http2::frame(5, 4, seen.stream, &[0, 0, 0, 2, 0x88])
        }),
        ("a ping that is cut", |_| {
            http2::frame(http2::PING, 0, 0, b"1234")
        }),
        ("a block in two, and another between", |seen| {
            let first = http2::frame(http2::HEADERS, 0, seen.stream, &[0x88]);
            [first, http2::ping(*b"between!")].concat().into()
        }),
        ("text", |_| {
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n".into()
        }),
        ("nothing but zeros", |_| vec![0; 1000].into()),
    ];
    let mut rig = Rig::start().await;
    for (number, (name, frame)) in improper.into_iter().enumerate() {
        let behaviour = healthy(H2).on_each("/api", move |seen| vec![Step::Write(frame(seen))]);
        let (key, _) = rig.add(&format!("improper-{number}"), behaviour);
        let client = rig.client(&key).await;
        let life = rig.connected(&key).await.generation().unwrap();
        let request = Request::get("/api/v1/nodes/a").body(vec![]).unwrap();
        let error = soon(name, client.request_text(request)).await;
        ears::tells(
            &error
                .err()
                .unwrap_or_else(|| panic!("{name} is taken for an answer")),
        );
        let version = soon(name, client.apiserver_version()).await;
        version.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(
            rig.connected(&key).await.generation().unwrap(),
            life,
            "{name}"
        );
        rig.remove(&key);
    }
    rig.end().await;
}

/// The protocol that was chosen by ALPN is not the one that is spoken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_than_the_one_that_was_chosen_is_an_error() {
    let mut rig = Rig::start().await;
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let plain = Behaviour::tcp().greeting(Step::write("HTTP/1.1 400 Bad Request\r\n\r\n"));
    for (name, behaviour, kinds) in [
        (
            "h1-as-h2",
            H2().without_settings().greeting(Step::write(answer)),
            &[FailureKind::Protocol][..],
        ),
        (
            "h2-as-h1",
            H1().greeting(Step::Write(http2::settings(&[]))),
            &[FailureKind::Protocol],
        ),
        (
            "no-settings",
            H2().without_settings(),
            &[FailureKind::TimedOut],
        ),
        ("plain", plain, &[FailureKind::Tls]),
        (
            "ssh",
            Behaviour::tcp().greeting(Step::write("SSH-2.0-OpenSSH_9.9\r\n")),
            &[FailureKind::Tls],
        ),
    ] {
        let (key, _) = rig.add(name, behaviour);
        let error = rig.failed(&key).await;
        assert!(kinds.contains(&error.kind), "{name}: {error:?}");
        ears::shows(&error.message);
    }
    rig.end().await;
}

/// Answers pings, and nothing else: that can prove death only, so it is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_pings_and_nothing_else_is_down() {
    let mut rig = Rig::with(|deadlines, options| {
        deadlines.probe = Duration::from_secs(1);
        options.health.down_after = Duration::from_secs(2);
    })
    .await;
    let (never, _) = rig.add("never", H2());
    assert_eq!(rig.failed(&never).await.kind, FailureKind::TimedOut);
    let (later, server) = rig.add("later", healthy(H2));
    rig.connected(&later).await;
    server.behave(H2());
    let state = rig.until(&later, |state| state.phase == Phase::Down).await;
    assert_eq!(state.last_error.unwrap().kind, FailureKind::TimedOut);
    rig.end().await;
}
