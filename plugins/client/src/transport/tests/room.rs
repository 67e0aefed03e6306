//! Who waits for room on a connection of HTTP/2 has it as soon as there is some, wherever that comes from.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use clustercache::FailureKind;
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    task::{JoinSet, yield_now},
};

use super::{
    frames::{END_HEADERS, HEADERS, OK, Peer, SETTINGS, answer, frame},
    raw::RawServer,
    rig::{Heard, Open, dialled_by, get, soon, transport, whole},
    streams::{ask, server, watches},
};
use crate::{
    ByteStream, Deadlines, Destination, Dialer, TcpDialer, TransportError, transport::Transport,
};

/// `SETTINGS_MAX_CONCURRENT_STREAMS`.
const fn allows(streams: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, streams]
}

#[tokio::test]
async fn no_more_calls_are_bound_to_a_connection_than_its_server_is_known_to_allow() {
    let (allowed, asked) = (
        watch::Sender::<u8>::default(),
        watch::Sender::<usize>::default(),
    );
    let server = RawServer::serving(&[b"h2"], {
        let (allowed, asked) = (allowed.clone(), asked.clone());
        move |nth, stream| {
            let (mut allowed, asked) = (allowed.subscribe(), asked.clone());
            async move {
                let mut peer = Peer::silent(stream).await;
                // Another says nothing at all.
                if nth > 0 {
                    return peer.drain().await;
                }
                loop {
                    tokio::select! {
                        Ok(()) = allowed.changed() => {
                            let settings = allows(*allowed.borrow());
                            peer.send(&frame(SETTINGS, 0, 0, &settings)).await;
                        }
                        stream = peer.request() => match stream {
                            Some(_) => asked.send_modify(|asked| *asked += 1),
                            None => return,
                        },
                    }
                }
            }
        }
    })
    .await;
    let transport = transport(server.access(), Box::new(Open), Arc::default(), |_| ());
    let line = transport.0.identity.load().line.clone();
    let mut calls = JoinSet::new();
    for _ in 0..9 {
        let transport = transport.clone();
        calls.spawn(async move { get(&transport, "/version").await.is_ok() });
    }
    let mut seen = asked.subscribe();
    let mut until = async |asked, waiting| {
        soon(seen.wait_for(|seen| *seen == asked)).await.unwrap();
        soon(async {
            while line.waiting() != waiting {
                yield_now().await;
            }
        })
        .await;
        line.connections()
    };
    // Nothing is known, and there may be room as soon as the server has said so.
    assert_eq!(until(1, 8).await, 1);
    // One of three is kept for a probe. The others have another connection, of which nothing is known.
    allowed.send_replace(3);
    assert_eq!(until(2, 6).await, 2);
    // Who waits for room has it when there is more.
    allowed.send_replace(10);
    assert_eq!(until(8, 0).await, 2);
    calls.shutdown().await;
}

/// Fails the second time.
struct Stumbles {
    tcp: TcpDialer,
    dials: Arc<AtomicUsize>,
}

#[async_trait]
impl Dialer for Stumbles {
    async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
        if self.dials.fetch_add(1, Relaxed) == 1 {
            let error = std::io::Error::other("the test says so");
            return Err(TransportError::dialer(error));
        }
        self.tcp.dial(to).await
    }
}

/// Of a server that allows a call and a probe on each connection, where a call has its place, and the dial for others fails.
async fn stumbles(server: &RawServer) -> (Transport, Arc<AtomicUsize>) {
    let dials = Arc::<AtomicUsize>::default();
    let dialer = Stumbles {
        tcp: TcpDialer::new(),
        dials: Arc::clone(&dials),
    };
    let deadlines = Deadlines {
        call: Duration::from_secs(20),
        ..Deadlines::default()
    };
    let (access, signs) = (server.access(), Arc::default());
    let transport = dialled_by(dialer, access, Box::new(Open), signs, deadlines);
    assert_eq!(ask(&transport).await.unwrap(), 200);
    (transport, dials)
}

#[tokio::test]
async fn a_dial_that_failed_is_tried_again_for_those_who_still_wait_beside_a_full_connection() {
    let (server, _) = server(2).await;
    let (transport, dials) = stumbles(&server).await;
    let watch = watches(&transport, 1).await;
    get(&transport, "/version").await.unwrap();
    assert_eq!(dials.load(Relaxed), 3);
    drop(watch);
}

/// As whoever drops it may be on none, while a dial may be wanted for others.
#[tokio::test]
async fn an_answer_that_is_dropped_on_no_runtime_makes_room_all_the_same() {
    let (server, _) = server(2).await;
    let (transport, dials) = stumbles(&server).await;
    let watch = watches(&transport, 1).await;
    let line = transport.0.identity.load().line.clone();
    let calls = join_all((0..2).map(|_| get(&transport, "/api/v1/pods?watch=true")));
    let drops = async {
        while line.waiting() < 2 || dials.load(Relaxed) < 2 || line.dials() > 0 {
            yield_now().await;
        }
        // One has its place; for the other there is a dial.
        let dropped = std::thread::spawn(move || drop(watch));
        assert!(dropped.join().is_ok());
    };
    let (calls, ()) = soon(async { tokio::join!(calls, drops) }).await;
    assert!(calls.iter().all(Result::is_ok));
}

/// A hung server behind a load balancer, while the one of the first connection is well: nobody but the watch would notice.
#[tokio::test]
async fn a_watch_on_a_connection_that_died_is_seen_by_a_probe_there_and_resumes_elsewhere() {
    let server = RawServer::serving(&[b"h2"], |nth, stream| async move {
        let mut peer = Peer::begin(stream, &allows(2)).await;
        for number in 1.. {
            let Some(stream) = peer.request().await else {
                return;
            };
            match (nth, number) {
                // A watch on each.
                (0, 2) | (1, 1) => {
                    peer.pongs = nth == 0;
                    peer.send(&frame(HEADERS, END_HEADERS, stream, OK)).await;
                }
                (1, _) => {}
                _ => drop(peer.send(&answer(stream, "ok")).await),
            }
        }
    })
    .await;
    let heard = Arc::<Heard>::default();
    let transport = transport(
        server.access(),
        Box::new(Open),
        heard.clone(),
        |deadlines| {
            deadlines.ping = Duration::from_millis(10);
            deadlines.probe = Duration::from_millis(500);
        },
    );
    assert_eq!(ask(&transport).await.unwrap(), 200);
    let mut watches = watches(&transport, 2).await;
    soon(async {
        while heard.all().2 == 0 {
            yield_now().await;
        }
    })
    .await;
    let error = ask(&transport).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::TimedOut, "{error}");
    // As the health check does where a fresh connection answers.
    transport.replace_pooled();
    for watch in watches.drain(..) {
        whole(watch).await.expect("it ends, to resume");
    }
    assert_eq!(ask(&transport).await.unwrap(), 200);
}
