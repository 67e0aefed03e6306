//! The health check's table, over the connection that calls use and over one of its own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clustercache::{Answer, FailureKind};
use clustercache_testkit::fleet::FakeCluster;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    raw::{RawServer, Then, answer},
    rig::{Open, Rig, access, soon, transport},
};
use crate::{
    check::check,
    provider::{Alone, Pooled},
    transport::{
        Transport,
        hooks::{Gate, Permit},
    },
};

const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1"}"#;

type Fault = fn(&FakeCluster);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Is {
    Ready,
    NotReady,
    Fails(FailureKind),
}
use Is::{Fails, NotReady, Ready};

async fn pooled(transport: &Transport) -> Is {
    let until = Instant::now() + transport.0.shared.deadlines.probe;
    judged(soon(check(&mut Pooled::new(transport, until))).await)
}

async fn fresh(transport: &Transport) -> Is {
    fresh_by(transport, &Open).await
}

async fn fresh_by(transport: &Transport, gate: &dyn Gate) -> Is {
    let until = Instant::now() + transport.0.shared.deadlines.probe;
    match soon(Box::pin(transport.fresh(gate, until))).await {
        Ok(fresh) => judged(soon(check(&mut Alone { fresh, until })).await),
        Err(error) => Fails(error.kind()),
    }
}

fn judged(answer: Result<Answer, clustercache::CheckError>) -> Is {
    match answer {
        Ok(Answer::Ready) => Ready,
        Ok(Answer::NotReady(_)) => NotReady,
        Err(error) => Fails(error.kind()),
    }
}

#[tokio::test]
async fn each_status_means_what_the_design_says_over_both_routes() {
    let status = |code| Fails(FailureKind::Status(code));
    let table = [
        (200, "", None, Ready),
        (200, "anything", None, Ready),
        (204, "", None, Ready),
        (301, "", None, status(301)),
        (302, STATUS, None, status(302)),
        (400, STATUS, None, Ready),
        (400, "<html>", None, status(400)),
        (401, STATUS, None, Fails(FailureKind::Unauthorized)),
        (403, STATUS, Some((200, "{}")), Ready),
        (403, "<html>", Some((200, "{}")), Ready),
        (403, STATUS, Some((403, STATUS)), Ready),
        (403, STATUS, Some((403, "<html>")), status(403)),
        (404, "", Some((200, "{}")), Ready),
        (404, "", Some((404, "")), status(404)),
        (405, STATUS, None, Ready),
        (429, "", Some((200, "{}")), NotReady),
        (429, "", Some((429, STATUS)), status(429)),
        (500, "[-]etcd failed", Some((200, "{}")), NotReady),
        (500, "", Some((403, STATUS)), NotReady),
        (
            500,
            "",
            Some((401, STATUS)),
            Fails(FailureKind::Unauthorized),
        ),
        (500, "", Some((500, "")), status(500)),
        (503, "", Some((200, "{}")), NotReady),
        (503, "", Some((503, "")), status(503)),
        (503, "", Some((302, "")), status(302)),
        (502, "", Some((200, "{}")), status(502)),
        (504, "", Some((200, "{}")), status(504)),
        (501, "", Some((200, "{}")), status(501)),
    ];
    let rig = Rig::new("table");
    for (code, body, version, expected) in table {
        rig.cluster.answer_normally();
        rig.cluster.answer("/readyz", code, body);
        if let Some((code, body)) = version {
            rig.cluster.answer("/version", code, body);
        }
        let versions = rig.cluster.counters().requests.version;
        assert_eq!(
            pooled(&rig.transport).await,
            expected,
            "{code} {body} {version:?}"
        );
        assert_eq!(
            fresh(&rig.transport).await,
            expected,
            "fresh {code} {body} {version:?}"
        );
        let asked = rig.cluster.counters().requests.version - versions;
        let asks = matches!(code, 403 | 404 | 429 | 500 | 503);
        assert_eq!(
            asked,
            if asks { 2 } else { 0 },
            "{code}: whether /version is asked"
        );
    }
    assert_eq!(rig.heard.all(), (0, 0, 0), "who asked judges the answer");
}

#[tokio::test]
async fn what_is_wrong_below_http_is_told_apart_over_both_routes() {
    let rig = Rig::with(FakeCluster::start("below").unwrap(), |deadlines| {
        deadlines.probe = Duration::from_millis(300);
    });
    let faults: [(Fault, FailureKind); 4] = [
        (FakeCluster::refuse, FailureKind::Refused),
        (FakeCluster::black_hole, FailureKind::TimedOut),
        (FakeCluster::silence_new_connections, FailureKind::TimedOut),
        (|cluster| cluster.hang("/readyz"), FailureKind::TimedOut),
    ];
    for (fault, kind) in faults {
        rig.transport.replace_pooled();
        fault(&rig.cluster);
        assert_eq!(pooled(&rig.transport).await, Fails(kind));
        assert_eq!(fresh(&rig.transport).await, Fails(kind));
        rig.cluster.heal();
    }
}

/// Gives leave, or a turn, as late as a busy fleet does.
#[derive(Clone, Copy)]
struct Late {
    permit: Duration,
    turn: Duration,
}

#[async_trait]
impl Gate for Late {
    async fn permit(&self) -> Box<dyn Permit> {
        tokio::time::sleep(self.permit).await;
        Box::new(*self)
    }
}

#[async_trait]
impl Permit for Late {
    async fn received(&mut self) {
        tokio::time::sleep(self.turn).await;
    }

    async fn evicted(&self) {
        std::future::pending().await
    }
}

/// The server had less than its time, by what is ours to give.
#[tokio::test]
async fn a_probe_that_was_let_out_late_and_found_no_answer_in_the_rest_of_its_time_is_no_failure() {
    let (probe, none) = (Duration::from_secs(1), Duration::ZERO);
    let silent: [Fault; 3] = [
        FakeCluster::black_hole,
        |cluster| cluster.hang("/readyz"),
        |cluster| {
            cluster.answer("/readyz", 503, "");
            cluster.hang("/version");
        },
    ];
    for (permit, turn, expected) in [
        (probe / 2, none, FailureKind::Busy),
        (none, probe / 2, FailureKind::Busy),
        (none, none, FailureKind::TimedOut),
    ] {
        let late = Late { permit, turn };
        let asked = silent.iter().enumerate().map(|(number, fault)| async move {
            let cluster = FakeCluster::start(format!("late-{number}")).unwrap();
            fault(&cluster);
            let access = access(&cluster.access());
            let transport = transport(access, Box::new(late), Arc::default(), |deadlines| {
                deadlines.probe = probe;
            });
            // Whoever says nothing needs no turn.
            let expected = match number {
                0 if permit.is_zero() => FailureKind::TimedOut,
                _ => expected,
            };
            let (pooled, fresh) = tokio::join!(pooled(&transport), fresh_by(&transport, &late));
            assert_eq!(pooled, Fails(expected), "{number} {permit:?} {turn:?}");
            assert_eq!(fresh, Fails(expected), "{number} {permit:?} {turn:?}");
        });
        join_all(asked).await;
    }
}

#[tokio::test]
async fn a_probe_that_was_let_out_late_and_is_answered_in_time_is_a_success() {
    let cluster = FakeCluster::start("late-and-well").unwrap();
    let late = Late {
        permit: Duration::from_secs(1),
        turn: Duration::ZERO,
    };
    let access = access(&cluster.access());
    let transport = transport(access, Box::new(late), Arc::default(), |_| ());
    let both = tokio::join!(pooled(&transport), fresh_by(&transport, &late));
    assert_eq!(both, (Ready, Ready));
}

#[tokio::test]
async fn a_strange_answer_is_a_failure_of_its_kind_over_both_routes() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_owned();
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(128 << 10));
    let table = [
        (String::new(), Then::Reset, Fails(FailureKind::Reset)),
        (String::new(), Then::Hang, Fails(FailureKind::TimedOut)),
        (
            "garbage\r\n\r\n".into(),
            Then::Hang,
            Fails(FailureKind::Protocol),
        ),
        (cut.clone(), Then::Reset, Fails(FailureKind::Reset)),
        (cut, Then::Hang, Fails(FailureKind::TimedOut)),
        (endless, Then::Hang, Ready),
        (answer(200, "ok"), Then::Next, Ready),
        (
            answer(503, "no"),
            Then::Next,
            Fails(FailureKind::Status(503)),
        ),
    ];
    for (answer, then, expected) in table {
        let server = RawServer::start(vec![(answer.clone(), then)]).await;
        let transport = transport(
            server.access(),
            Box::new(Open),
            Arc::default(),
            |deadlines| {
                deadlines.probe = Duration::from_millis(500);
            },
        );
        let begins: String = answer.chars().take(60).collect();
        assert_eq!(pooled(&transport).await, expected, "{begins:?} {then:?}");
        assert_eq!(
            fresh(&transport).await,
            expected,
            "fresh {begins:?} {then:?}"
        );
    }
}

#[tokio::test]
async fn a_probe_over_its_own_connection_leaves_nothing_and_touches_no_other() {
    let rig = Rig::new("alone");
    rig.text("/version").await.unwrap();
    assert_eq!(fresh(&rig.transport).await, Ready);
    soon(rig.cluster.when(|counters| counters.connections_open == 1)).await;
    rig.text("/version").await.unwrap();
    assert_eq!(rig.cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn what_a_server_says_is_not_shown_beyond_its_failed_checks_and_escaped() {
    let rig = Rig::new("said");
    rig.cluster.answer(
        "/readyz",
        500,
        "[+]ping ok\n[-]etcd \u{1b}[31mfailed\nhealthz check failed",
    );
    let until = Instant::now() + rig.transport.0.shared.deadlines.probe;
    let mut asked = Pooled::new(&rig.transport, until);
    let Ok(Answer::NotReady(text)) = check(&mut asked).await else {
        panic!("it is not ready")
    };
    assert_eq!(text, r"/readyz answered 500: [-]etcd \u{1b}[31mfailed");
}
