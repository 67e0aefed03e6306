//! Streams of HTTP/2: where those of one connection are used there is another, and who does not read stalls nobody.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clustercache::FailureKind;
use futures_util::future::{join_all, poll_fn};
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::{sync::watch, time::Instant};

use super::{
    raw::RawServer,
    rig::{Heard, Open, get, limited, readyz, soon, transport, whole},
};
use crate::{
    Limits, Part, TransportError,
    transport::{Class, Transport, http2::STREAMS},
};

/// What a server has seen and done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) connections: usize,
    lists_stalled: usize,
}

/// Allows so many streams. Answers a watch with one event and no end, a list with all that may be sent without its being read, a write
/// with what was written, and everything else with `ok`.
pub(super) async fn server(streams: u32) -> (RawServer, watch::Sender<Seen>) {
    let seen = watch::Sender::<Seen>::default();
    let tell = seen.clone();
    let server = RawServer::serving(&[b"h2"], move |_, stream| {
        tell.send_modify(|seen| seen.connections += 1);
        let tell = tell.clone();
        async move {
            let mut builder = h2::server::Builder::new();
            let begun = builder.max_concurrent_streams(streams).handshake(stream);
            let mut connection = begun.await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::spawn(answer(request, respond, tell.clone()));
            }
        }
    });
    (server.await, seen)
}

async fn answer(
    mut request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    tell: watch::Sender<Seen>,
) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    let uri = request.uri().to_string();
    if uri.contains("watch") {
        let _ = body.send_data("event\n".into(), false);
        poll_fn(|cx| body.poll_reset(cx)).await.ok();
    } else if uri.ends_with("/pods") && request.method() == "GET" {
        stall(&mut body, &tell).await;
    } else if request.method() == "POST" {
        let mut length = 0;
        while let Some(Ok(data)) = request.body_mut().data().await {
            length += data.len();
            let _ = request
                .body_mut()
                .flow_control()
                .release_capacity(data.len());
        }
        let _ = body.send_data(length.to_string().into(), true);
    } else {
        let _ = body.send_data("ok".into(), true);
    }
}

/// Sends as much as fits into a stream that nobody reads.
async fn stall(body: &mut SendStream<Bytes>, tell: &watch::Sender<Seen>) {
    const WINDOW: usize = 1 << 20;
    let mut sent = 0;
    body.reserve_capacity(WINDOW * 2);
    while let Some(Ok(room)) = poll_fn(|cx| body.poll_capacity(cx)).await {
        let _ = body.send_data(vec![b'x'; room].into(), false);
        sent += room;
        body.reserve_capacity(WINDOW * 2 - sent);
        if sent == WINDOW {
            tell.send_modify(|seen| seen.lists_stalled += 1);
        }
    }
}

fn on(server: &RawServer) -> Transport {
    transport(server.access(), Box::new(Open), Arc::default(), |_| ())
}

pub(super) async fn ask(transport: &Transport) -> Result<u16, TransportError> {
    let until = Instant::now() + transport.0.shared.deadlines.probe;
    let reply = soon(readyz(transport, until)).await?;
    Ok(reply.status.as_u16())
}

pub(super) async fn watches(
    transport: &Transport,
    count: usize,
) -> Vec<Response<crate::transport::body::ResponseBody>> {
    let opened = (0..count).map(|_| get(transport, "/api/v1/pods?watch=true"));
    join_all(opened)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

#[tokio::test]
async fn where_a_server_allows_one_stream_each_probes_have_a_connection_that_nobody_else_has() {
    let (server, seen) = server(1).await;
    let transport = transport(
        server.access(),
        Box::new(Open),
        Arc::default(),
        |deadlines| {
            deadlines.call = Duration::from_millis(100);
        },
    );
    let held = watches(&transport, 64).await;
    for _ in 0..2 {
        assert_eq!(ask(&transport).await.unwrap(), 200);
        let error = get(&transport, "/version").await.err().unwrap();
        assert!(matches!(error, TransportError::Busy { .. }), "{error}");
    }
    assert!(seen.borrow().connections >= 65);
    drop(held);
    soon(async { while get(&transport, "/version").await.is_err() {} }).await;
}

#[tokio::test]
async fn lists_that_nobody_reads_stall_no_watch_no_call_and_no_probe() {
    let (server, seen) = server(250).await;
    let transport = on(&server);
    let mut watch = watches(&transport, 1).await.remove(0);
    let lists = join_all((0..STREAMS - 4).map(|_| get(&transport, "/api/v1/pods"))).await;
    assert!(lists.iter().all(Result::is_ok));
    let all = lists.len();
    let mut stalled = seen.subscribe();
    soon(stalled.wait_for(|seen| seen.lists_stalled == all))
        .await
        .unwrap();
    assert_eq!(seen.borrow().connections, 1);
    assert_eq!(ask(&transport).await.unwrap(), 200);
    let text = whole(get(&transport, "/version").await.unwrap()).await;
    assert_eq!(text.unwrap(), "ok");
    let event = soon(watch.body_mut().frame()).await.unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "event\n");
}

#[tokio::test]
async fn beyond_what_a_server_allows_there_is_another_connection_and_it_closes_when_it_is_not_used()
{
    let (server, seen) = server(4).await;
    let transport = on(&server);
    // What the server allows is known from then on.
    assert_eq!(ask(&transport).await.unwrap(), 200);
    let watches = watches(&transport, 10).await;
    // One stream of each is kept for a probe.
    assert_eq!(seen.borrow().connections, 4);
    assert_eq!(ask(&transport).await.unwrap(), 200);
    assert_eq!(
        whole(get(&transport, "/version").await.unwrap())
            .await
            .unwrap(),
        "ok"
    );
    assert_eq!(seen.borrow().connections, 4);
    drop(watches);
    let line = transport.0.identity.load().line.clone();
    assert_eq!(line.connections(), 1);
}

#[tokio::test]
async fn who_gets_no_stream_waits_for_one_and_says_nothing_of_the_cluster() {
    let (server, _) = server(1).await;
    let transport = transport(
        server.access(),
        Box::new(Open),
        Arc::default(),
        |deadlines| {
            deadlines.list = Duration::from_millis(100);
        },
    );
    let mut watches = watches(&transport, 64).await;
    let error = get(&transport, "/api/v1/pods").await.err().unwrap();
    assert!(matches!(error, TransportError::Busy { .. }), "{error}");
    let (answer, ()) = tokio::join!(get(&transport, "/version"), async {
        watches.pop();
    });
    answer.unwrap();
}

#[tokio::test]
async fn a_server_that_allows_no_streams_is_at_fault_itself() {
    let (server, seen) = server(0).await;
    let transport = transport(
        server.access(),
        Box::new(Open),
        Arc::default(),
        |deadlines| {
            deadlines.call = Duration::from_millis(100);
            deadlines.probe = Duration::from_millis(100);
        },
    );
    for _ in 0..3 {
        let error = get(&transport, "/version").await.err().unwrap();
        assert_eq!(error.kind(), FailureKind::TimedOut, "{error}");
        assert_eq!(
            ask(&transport).await.unwrap_err().kind(),
            FailureKind::TimedOut
        );
    }
    assert_eq!(seen.borrow().connections, 1);
}

#[tokio::test]
async fn a_body_of_any_size_is_sent_as_the_server_takes_it() {
    let (server, _) = server(250).await;
    let transport = on(&server);
    for length in [0, 1, 3 << 20] {
        let body = Body::from(vec![b'x'; length]);
        let request = Request::post("/api/v1/pods").body(body).unwrap();
        let response = soon(transport.send(request, Class::Call)).await.unwrap();
        assert_eq!(whole(response).await.unwrap(), length.to_string());
    }
}

#[tokio::test]
async fn an_answer_over_http2_has_its_limit_too() {
    let (server, _) = server(250).await;
    let limits = Limits {
        list: 1000,
        line: 4,
        ..Limits::default()
    };
    let transport = limited(
        server.access(),
        Box::new(Open),
        Arc::<Heard>::default(),
        |_| (),
        limits,
    );
    for (path, part) in [
        ("/api/v1/pods", Part::List),
        ("/api/v1/pods?watch=true", Part::Line),
    ] {
        let response = get(&transport, path).await.unwrap();
        let error = whole(response).await.unwrap_err();
        assert!(
            matches!(error, TransportError::TooLarge { what, .. } if what == part),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_is_reset_and_leaves_room() {
    let counts = watch::Sender::<(usize, usize)>::default();
    let server = RawServer::serving(&[b"h2"], {
        let counts = counts.clone();
        move |_, stream| {
            let counts = counts.clone();
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let counts = counts.clone();
                    counts.send_modify(|(asked, _)| *asked += 1);
                    tokio::spawn(async move {
                        if let Ok(h2::Reason::CANCEL) = poll_fn(|cx| respond.poll_reset(cx)).await {
                            counts.send_modify(|(_, resets)| *resets += 1);
                        }
                    });
                }
            }
        }
    })
    .await;
    let transport = on(&server);
    // One stream is kept for a probe.
    let calls = STREAMS - 1;
    let mut seen = counts.subscribe();
    for round in 1..=2 {
        tokio::select! {
            _ = join_all((0..calls).map(|_| get(&transport, "/version"))) => unreachable!(),
            all = soon(seen.wait_for(|(asked, _)| *asked == calls * round)) => drop(all.unwrap()),
        }
        soon(seen.wait_for(|(_, resets)| *resets == calls * round))
            .await
            .unwrap();
    }
    assert_eq!(transport.0.identity.load().line.connections(), 1);
}
