//! Faults that are injected: what each does, and that nothing is left of it.

use std::{io::ErrorKind, time::Duration};

use clustercache_testkit::{
    api,
    fleet::{
        BadCertificate, ConnectionFault, FakeCluster, Fleet, FleetFault, Latency, PathClass, Then,
    },
    hostile::{Answer, Behaviour, Step},
};
use futures_util::poll;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::client::{Client, Http, connect, handshake, soon};

const PATH: &str = "/api/v1/namespaces";

/// All that one request got before its connection ended or fell silent for good.
async fn got(cluster: &FakeCluster, path: &str) -> (Vec<u8>, std::io::Result<()>) {
    let mut tls = handshake(&cluster.access(), &[b"http/1.1"]).await.unwrap();
    let token = cluster.token();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let end = soon(tls.read_to_end(&mut all)).await;
    (all, end.map(drop))
}

fn config(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("c{number}") },
    })
}

fn body_of(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    &answer[end.expect("a whole head") + 4..]
}

#[tokio::test]
async fn a_black_hole_is_for_old_connections_for_new_ones_or_for_both() {
    let cluster = FakeCluster::start("a").unwrap();
    for (fault, old_lives, new_lives) in [
        (ConnectionFault::black_hole().old_connections(), false, true),
        (ConnectionFault::black_hole().new_connections(), true, false),
        (ConnectionFault::black_hole(), false, false),
    ] {
        let mut old = connect(&cluster).await;
        assert_eq!(old.get(PATH).await.0, 200);
        let accepted = cluster.counters().connections_accepted;
        let injected = cluster.inject(fault);
        let access = cluster.access();
        let new = tokio::spawn(async move {
            let mut client = Client::connect(&access, Http::Two).await.ok()?;
            client.text(PATH).await.ok().map(|(code, _)| code.as_u16())
        });
        soon(cluster.when(|counters| counters.connections_accepted == accepted + 1)).await;
        let mut asked = Box::pin(old.text(PATH));
        if old_lives {
            assert_eq!(soon(&mut asked).await.unwrap().0, 200);
        } else {
            assert!(poll!(&mut asked).is_pending());
        }
        if new_lives {
            assert_eq!(soon(new).await.unwrap(), Some(200));
            injected.undo();
        } else {
            injected.undo();
            assert_eq!(soon(new).await.unwrap(), None, "it is reset");
        }
        if !old_lives {
            assert!(soon(&mut asked).await.is_err(), "it is reset");
        }
        drop(asked);
        drop(old);
        soon(cluster.connections_closed()).await;
    }
}

#[tokio::test]
async fn a_connection_stops_at_a_byte_below_tls() {
    let cluster = FakeCluster::start("a").unwrap();
    for bytes in [0, 1, 5, 100, 700] {
        let stop = |then| cluster.inject(ConnectionFault::stop_after(bytes, then));
        for then in [Then::Reset, Then::Close] {
            let before = cluster.counters().bytes_sent;
            let injected = stop(then);
            let failed = handshake(&cluster.access(), &[]).await.unwrap_err();
            let kind = match then {
                Then::Reset => ErrorKind::ConnectionReset,
                _ => ErrorKind::UnexpectedEof,
            };
            assert_eq!(failed.kind(), kind, "{failed}");
            soon(cluster.connections_closed()).await;
            assert_eq!(cluster.counters().bytes_sent - before, bytes);
            injected.undo();
        }
        let injected = stop(Then::Silence);
        let access = cluster.access();
        let dialling = tokio::spawn(async move { handshake(&access, &[]).await.map(drop) });
        soon(cluster.when(|counters| counters.connections_open == 1)).await;
        soon(cluster.when(|counters| counters.bytes_received > 0)).await;
        injected.undo();
        soon(dialling).await.unwrap().err();
        soon(cluster.connections_closed()).await;
    }
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn an_open_connection_stops_by_what_it_sends_from_then_on() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut old = connect(&cluster).await;
    assert_eq!(old.get(PATH).await.0, 200);
    let before = cluster.counters().bytes_sent;
    let injected = cluster.inject(ConnectionFault::stop_after(30, Then::Reset));
    assert!(soon(old.text(PATH)).await.is_err());
    soon(cluster.connections_closed()).await;
    assert_eq!(cluster.counters().bytes_sent - before, 30);
    injected.undo();
}

#[tokio::test]
async fn a_connection_stops_within_the_head_of_an_answer() {
    let cluster = FakeCluster::start("a").unwrap();
    for bytes in [0, 1, 40] {
        let fault = ConnectionFault::stop_in_head(bytes, Then::Close).path_prefix(PATH);
        let injected = cluster.inject(fault);
        let (head, _) = got(&cluster, PATH).await;
        assert_eq!(head.len() as u64, bytes);
        assert!(b"HTTP/1.1 200 OK\r\n".starts_with(&head[..head.len().min(17)]));
        // Another path is none of its business, over HTTP/2 neither.
        let mut client = connect(&cluster).await;
        assert_eq!(client.get("/version").await.0, 200);
        assert!(soon(client.text(PATH)).await.is_err());
        injected.undo();
    }
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn a_connection_is_reset_or_closed_in_the_middle_of_a_body() {
    let cluster = FakeCluster::start("a").unwrap();
    for then in [Then::Reset, Then::Close] {
        for bytes in [0, 1, 100] {
            let injected = cluster.inject(ConnectionFault::stop_in_body(bytes, then));
            // Not in chunks, so that bytes of the body are bytes of the answer.
            let (answer, end) = got(&cluster, &format!("{PATH}/default")).await;
            assert_eq!(body_of(&answer).len() as u64, bytes);
            let kind = end.unwrap_err().kind();
            match then {
                Then::Reset => assert_eq!(kind, ErrorKind::ConnectionReset),
                _ => assert_eq!(kind, ErrorKind::UnexpectedEof, "TLS was not ended"),
            }
            let mut client = connect(&cluster).await;
            let answer = soon(client.open(http::Method::GET, PATH, ""))
                .await
                .unwrap();
            let mut body = answer.into_body();
            let mut read = 0;
            let error = loop {
                match soon(body.frame()).await.expect("it has no end") {
                    Ok(frame) => read += frame.into_data().unwrap().len() as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(read, bytes, "{error}");
            injected.undo();
        }
    }
    soon(cluster.connections_closed()).await;
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn a_body_that_falls_silent_goes_on_when_its_fault_is_undone() {
    let cluster = FakeCluster::start("a").unwrap();
    for http in [Http::One, Http::Two] {
        let injected = cluster.inject(ConnectionFault::stop_in_body(10, Then::Silence));
        let mut client = Client::connect(&cluster.access(), http).await.unwrap();
        let answer = soon(client.open(http::Method::GET, PATH, ""))
            .await
            .unwrap();
        let mut body = answer.into_body();
        let first = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(first.data_ref().unwrap().len(), 10);
        assert!(poll!(body.frame()).is_pending());
        injected.undo();
        let rest = soon(body.collect()).await.unwrap().to_bytes();
        let whole = [&first.data_ref().unwrap()[..], &rest].concat();
        let list: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(list["kind"], "NamespaceList");
    }
}

#[tokio::test]
async fn watches_stop_at_a_byte_and_other_answers_do_not() {
    let cluster = FakeCluster::start("a").unwrap();
    let injected = cluster.inject(ConnectionFault::stop_in_watch(900, Then::Reset));
    let mut client = connect(&cluster).await;
    assert_eq!(client.get(PATH).await.0, 200);
    let mut events = client
        .watch("/api/v1/configmaps?watch=1&resourceVersion=0")
        .await;
    for number in 0..20 {
        cluster.put(config(number)).unwrap();
    }
    let mut seen = 0;
    while soon(events.try_next())
        .await
        .is_ok_and(|event| event.is_some())
    {
        seen += 1;
    }
    assert!((1..20).contains(&seen), "{seen} events in 900 bytes");
    soon(cluster.connections_closed()).await;
    injected.undo();
}

#[tokio::test]
async fn what_is_sent_late_comes_in_order_and_at_once_when_its_fault_is_undone() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let ms = Duration::from_millis;
    let spread = Latency::between(ms(1), ms(20));
    let injected = cluster.inject(ConnectionFault::latency(spread).seed(7));
    assert_eq!(client.get(PATH).await.0, 200);
    let mut watch = client
        .watch("/api/v1/configmaps?watch=1&resourceVersion=0")
        .await;
    for number in 0..5 {
        cluster.put(config(number)).unwrap();
    }
    for number in 0..5 {
        assert_eq!(watch.change().await.1, format!("c{number}"));
    }
    injected.undo();

    for fault in [
        ConnectionFault::latency(Latency::fixed(Duration::from_secs(3600))),
        ConnectionFault::bandwidth(1),
    ] {
        let injected = cluster.inject(fault);
        let asked = cluster.next_request(|request| request.class == PathClass::List);
        let mut late = Box::pin(client.text(PATH));
        tokio::select! {
            _ = &mut late => panic!("its time has not come"),
            _ = asked => {}
        }
        injected.undo();
        assert_eq!(soon(late).await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn a_certificate_is_expired_of_another_name_or_foreign_to_new_handshakes() {
    let fleet = Fleet::start(2).await.unwrap();
    for (bad, reason) in [
        (BadCertificate::Expired, "Expired"),
        (BadCertificate::WrongName, "NotValidForName"),
        (BadCertificate::Foreign, "BadSignature"),
    ] {
        let mut old = connect(&fleet[0]).await;
        let injected = fleet.inject(ConnectionFault::certificate(bad));
        for cluster in fleet.clusters() {
            let error = handshake(&cluster.access(), &[]).await.unwrap_err();
            let text = format!("{error:?}");
            assert!(text.contains(reason), "{bad:?}: {text}");
        }
        assert_eq!(old.get(PATH).await.0, 200);
        injected.undo();
        for cluster in fleet.clusters() {
            assert_eq!(connect(cluster).await.get(PATH).await.0, 200);
        }
    }
}

#[tokio::test]
async fn a_hostile_behaviour_can_be_behind_any_cluster() {
    let fleet = Fleet::start(2).await.unwrap();
    let mut old = connect(&fleet[1]).await;
    let hostile = Behaviour::http2().on("/", Answer::new(418).body("teapot"));
    let injected = fleet.inject(ConnectionFault::hostile(hostile));
    let mut client = connect(&fleet[1]).await;
    let (code, text) = soon(client.text(PATH)).await.unwrap();
    assert_eq!((code.as_u16(), &*text), (418, "teapot"));
    assert_eq!(old.get(PATH).await.0, 200, "open ones go on");
    injected.undo();
    assert!(soon(&mut client.connection).await.is_ok());
    assert_eq!(old.get(PATH).await.0, 200);
    assert_eq!(connect(&fleet[1]).await.get(PATH).await.0, 200);

    let raw = Behaviour::tcp().greeting(Step::write("no TLS"));
    let injected = fleet[0].inject(ConnectionFault::hostile(raw));
    let mut socket = TcpStream::connect(fleet[0].addr()).await.unwrap();
    let mut said = [0; 6];
    soon(socket.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"no TLS");
    injected.undo();
    assert_eq!(soon(socket.read(&mut said)).await.unwrap(), 0);
    soon(fleet[0].connections_closed()).await;
}

#[tokio::test]
async fn the_faults_of_answers_can_be_those_of_a_whole_fleet() {
    let fleet = Fleet::start(3).await.unwrap();
    let busy = fleet.inject(
        api::Fault::status(429)
            .retry_after(1)
            .resource("namespaces"),
    );
    for cluster in fleet.clusters() {
        assert_eq!(connect(cluster).await.get(PATH).await.0, 429);
        assert_eq!(connect(cluster).await.get("/api/v1/nodes").await.0, 200);
    }
    busy.undo();
    for cluster in fleet.clusters() {
        assert_eq!(connect(cluster).await.get(PATH).await.0, 200);
    }
    fleet.history().code(429).assert_count(3);
}

#[tokio::test]
async fn several_faults_hold_at_a_time_and_each_is_undone_alone() {
    let cluster = FakeCluster::start("a").unwrap();
    let slow = cluster.inject(ConnectionFault::latency(Latency::fixed(
        Duration::from_millis(1),
    )));
    let hole = cluster.inject(ConnectionFault::black_hole());
    let pause = cluster.inject(ConnectionFault::pause());
    hole.undo();
    let access = cluster.access();
    let mut dialling = Box::pin(Client::connect(&access, Http::Two));
    assert!(poll!(&mut dialling).is_pending());
    pause.undo();
    assert_eq!(soon(dialling).await.unwrap().get(PATH).await.0, 200);
    // The switch of the handle and injected ones do not know each other; to heal undoes all.
    cluster.refuse();
    let expired = cluster.inject(ConnectionFault::certificate(BadCertificate::Expired));
    cluster.heal();
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
    expired.undo();
    slow.undo();
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

/// What a client does while a fault holds: nothing must be left of it, however it goes.
async fn meet(cluster: &FakeCluster, old: &mut Client) {
    let access = cluster.access();
    let patience = Duration::from_millis(5);
    // Most that are silent are silent for ever.
    let _ = tokio::time::timeout(patience, old.text(PATH)).await;
    let dialling = async {
        let mut new = Client::connect(&access, Http::One).await.ok()?;
        let path = format!("{PATH}?watch=1");
        let answer = new.open(http::Method::GET, &path, "").await.ok()?;
        answer.into_body().frame().await
    };
    let _ = tokio::time::timeout(patience, dialling).await;
}

fn all_faults() -> Vec<FleetFault> {
    let mut all: Vec<FleetFault> = Vec::new();
    for make in [
        ConnectionFault::black_hole,
        ConnectionFault::unplug,
        ConnectionFault::pause,
        ConnectionFault::refuse,
    ] {
        all.push(make().into());
        all.push(make().old_connections().into());
        all.push(make().new_connections().into());
    }
    for then in [Then::Silence, Then::Close, Then::Reset] {
        all.push(ConnectionFault::stop_after(40, then).into());
        all.push(ConnectionFault::stop_in_head(4, then).into());
        all.push(ConnectionFault::stop_in_body(4, then).into());
        all.push(ConnectionFault::stop_in_watch(4, then).into());
    }
    for bad in [
        BadCertificate::Expired,
        BadCertificate::WrongName,
        BadCertificate::Foreign,
    ] {
        all.push(ConnectionFault::certificate(bad).into());
    }
    let ms = Duration::from_millis;
    all.push(ConnectionFault::latency(Latency::between(ms(0), ms(9))).into());
    all.push(ConnectionFault::bandwidth(10_000).into());
    let hostile = Behaviour::http1().on("/", Step::Silence);
    all.push(ConnectionFault::hostile(hostile).into());
    for fault in [
        api::Fault::status(503),
        api::Fault::status(500).verb(api::Verb::List),
        api::Fault::unauthorized(),
        api::Fault::forbidden(),
        api::Fault::gone(),
        api::Fault::hang(),
        api::Fault::without_aggregated_discovery(),
        api::Fault::watch_expired(),
        api::Fault::watch_ended(),
        api::Fault::watch_stalled(),
        api::Fault::watch_without_bookmarks(),
        api::Fault::watch_cut_after_events(1),
        api::Fault::watch_cut_after(ms(1)),
    ] {
        all.push(fault.into());
    }
    all
}

/// 100 times with `CLUSTERCACHE_FLEET=whole`.
#[tokio::test]
async fn each_fault_on_and_off_again_and_again_leaves_nothing_behind() {
    let times = if crate::whole() { 100 } else { 2 };
    let fleet = Fleet::start(2).await.unwrap();
    let cluster = &fleet[0];
    let own = FakeCluster::start("own").unwrap();
    for fault in all_faults() {
        for _ in 0..times {
            for cluster in [cluster, &own] {
                let idle = usize::from(cluster.name() == "own");
                let mut old = connect(cluster).await;
                assert_eq!(old.get(PATH).await.0, 200);
                let injected = cluster.inject(fault.clone());
                meet(cluster, &mut old).await;
                injected.undo();
                drop(old);
                let (code, list) = connect(cluster).await.get(PATH).await;
                assert_eq!((code, &list["kind"]), (200, &json!("NamespaceList")));
                let mut watching = connect(cluster).await;
                let mut events = watching.watch(&format!("{PATH}?watch=1")).await;
                assert_eq!(events.change().await.1, "default", "{fault:?}");
                drop((events, watching));
                soon(cluster.connections_closed()).await;
                assert_eq!(cluster.counters().watches_open, 0);
                // A task says that its connection is closed, and is gone then.
                soon(async {
                    while cluster.tasks() > idle {
                        tokio::task::yield_now().await;
                    }
                })
                .await;
            }
        }
    }
    fleet.shutdown().await;
}
