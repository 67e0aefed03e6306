//! A server that goes away is no loss: what it has not looked at is sent again on another connection, what it has goes on, and nobody
//! hears of it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use clustercache::{ClusterAccess, FailureKind, Refresh};
use clustercache_testkit::pki::{ClusterCa, Validity};
use futures_util::future::join_all;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::sync::Notify;

use super::{
    frames::{DATA, END_HEADERS, END_STREAM, HEADERS, OK, Peer, RESET, answer, frame, goaway},
    raw::RawServer,
    rig::{Heard, Open, get, soon, transport, whole},
};
use crate::transport::{Class, Transport};

const NO_ERROR: u32 = 0;
const REFUSED: u32 = 7;
const CALM: u32 = 11;
const LAST: u32 = (1 << 31) - 1;

fn on(server: &RawServer) -> (Transport, Arc<Heard>) {
    let heard = Arc::<Heard>::default();
    let transport = transport(server.access(), Box::new(Open), heard.clone(), |_| ());
    (transport, heard)
}

async fn text(transport: &Transport, path: &str) -> String {
    whole(get(transport, path).await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn what_the_server_did_not_look_at_is_sent_again_on_another_connection() {
    for (reason, closes) in [(NO_ERROR, false), (NO_ERROR, true), (CALM, true)] {
        let server = RawServer::serving(&[b"h2"], move |nth, stream| async move {
            let mut peer = Peer::begin(stream, &[]).await;
            if nth > 0 {
                return peer.serve("second").await;
            }
            while let Some(stream) = peer.request().await {
                if stream == 3 {
                    peer.send(&goaway(0, reason)).await;
                    if closes {
                        return;
                    }
                }
            }
        })
        .await;
        let (transport, heard) = on(&server);
        let answers = join_all((0..2).map(|_| text(&transport, "/version"))).await;
        assert_eq!(answers, ["second", "second"]);
        assert_eq!(heard.all(), (2, 0, 0));
    }
}

#[tokio::test]
async fn what_the_server_looked_at_goes_on_while_new_requests_use_a_new_connection() {
    let (gone, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = RawServer::serving(&[b"h2"], {
        let (gone, finish) = (gone.clone(), finish.clone());
        move |nth, stream| {
            let (gone, finish) = (gone.clone(), finish.clone());
            async move {
                let mut peer = Peer::begin(stream, &[]).await;
                if nth > 0 {
                    return peer.serve("second").await;
                }
                let watch = peer.request().await.unwrap();
                peer.send(&frame(HEADERS, END_HEADERS, watch, OK)).await;
                let call = peer.request().await.unwrap();
                // As servers do that go away in good order: first of all, then of what they have.
                peer.send(&goaway(LAST, NO_ERROR)).await;
                peer.send(&goaway(call, NO_ERROR)).await;
                peer.send(&frame(DATA, 0, watch, b"event\n")).await;
                gone.notify_one();
                finish.notified().await;
                peer.send(&answer(call, "first")).await;
                peer.send(&frame(DATA, END_STREAM, watch, b"last\n")).await;
                peer.drain().await;
            }
        }
    })
    .await;
    let (transport, _) = on(&server);
    let mut watch = get(&transport, "/api/v1/pods?watch=true").await.unwrap();
    let (first, ()) = tokio::join!(text(&transport, "/version"), async {
        soon(gone.notified()).await;
        let event = soon(watch.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(event.into_data().unwrap(), "event\n");
        assert_eq!(text(&transport, "/version").await, "second");
        finish.notify_one();
    });
    assert_eq!(first, "first");
    assert_eq!(whole(watch).await.unwrap(), "last\n");
}

#[tokio::test]
async fn a_server_that_goes_away_with_every_answer_costs_no_call() {
    let connections = Arc::new(AtomicUsize::new(0));
    let server = RawServer::serving(&[b"h2"], {
        let connections = connections.clone();
        move |_, stream| {
            connections.fetch_add(1, Relaxed);
            async move {
                let mut peer = Peer::begin(stream, &[]).await;
                let Some(stream) = peer.request().await else {
                    return;
                };
                peer.send(&[goaway(stream, NO_ERROR), answer(stream, "ok")].concat())
                    .await;
                peer.drain().await;
            }
        }
    })
    .await;
    let (transport, heard) = on(&server);
    for _ in 0..10 {
        assert_eq!(text(&transport, "/version").await, "ok");
    }
    assert_eq!(heard.all(), (10, 0, 0));
    assert_eq!(connections.load(Relaxed), 10);
}

#[tokio::test]
async fn a_server_that_looks_at_nothing_is_asked_a_few_times_only() {
    for before in [true, false] {
        let connections = Arc::new(AtomicUsize::new(0));
        let server = RawServer::serving(&[b"h2"], {
            let connections = connections.clone();
            move |_, stream| {
                connections.fetch_add(1, Relaxed);
                async move {
                    let mut peer = Peer::begin(stream, &[]).await;
                    if !before {
                        peer.request().await;
                    }
                    peer.send(&goaway(0, NO_ERROR)).await;
                    peer.drain().await;
                }
            }
        })
        .await;
        let (transport, _) = on(&server);
        let error = get(&transport, "/version").await.err().unwrap();
        assert_eq!(error.kind(), FailureKind::Reset, "{error}");
        let connections = connections.load(Relaxed);
        assert!(connections <= 3, "{connections}");
    }
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_with_its_body() {
    let server = RawServer::serving(&[b"h2"], move |_, stream| async move {
        let mut peer = Peer::begin(stream, &[]).await;
        let first = peer.request().await.unwrap();
        peer.send(&frame(RESET, 0, first, &REFUSED.to_be_bytes()))
            .await;
        let second = peer.request().await.unwrap();
        let mut body = Vec::new();
        loop {
            let frame = peer.next().await.unwrap();
            if frame.kind == DATA && frame.stream == second {
                body.extend(frame.payload);
                if frame.flags & END_STREAM != 0 {
                    break;
                }
            }
        }
        let body = String::from_utf8(body).unwrap();
        peer.send(&answer(second, &body)).await;
        peer.drain().await;
    })
    .await;
    let (transport, _) = on(&server);
    let body = Body::from(b"what is written".to_vec());
    let request = Request::post("/api/v1/pods").body(body).unwrap();
    let class = Class::of(&request);
    let response = soon(transport.send(request, class)).await.unwrap();
    assert_eq!(whole(response).await.unwrap(), "what is written");
}

#[tokio::test]
async fn a_request_that_is_sent_again_has_the_credential_of_then_and_nothing_of_before() {
    let (arrived, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = RawServer::serving(&[b"h2"], {
        let (arrived, go_on) = (arrived.clone(), go_on.clone());
        move |_, stream| {
            let (arrived, go_on) = (arrived.clone(), go_on.clone());
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let sent = request.headers().get(header::AUTHORIZATION);
                    let sent = sent.map_or("none", |sent| sent.to_str().unwrap());
                    if sent == "Bearer t" {
                        arrived.notify_one();
                        go_on.notified().await;
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    }
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    let sent = Bytes::from(sent.to_owned());
                    body.send_data(sent, true).unwrap();
                }
            }
        }
    })
    .await;
    let user = ClusterCa::new("users").unwrap();
    let leaf = user.client("new", None, Validity::years()).unwrap();
    for theirs in [None, Some("Basic theirs")] {
        let (transport, _) = on(&server);
        let token = server.access();
        let certificate = ClusterAccess::builder(token.endpoint().url().to_string())
            .ca_pem(server.ca())
            .client_certificate_pem(leaf.certificate_pem(), leaf.key_pem())
            .build()
            .unwrap();
        let mut request = Request::get("/version").body(Body::empty()).unwrap();
        if let Some(theirs) = theirs {
            let value = theirs.parse().unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let (answer, ()) = tokio::join!(soon(transport.send(request, Class::Call)), async {
            soon(arrived.notified()).await;
            assert_eq!(transport.refresh(&certificate), Refresh::InPlace);
            go_on.notify_one();
        });
        let sent = whole(answer.unwrap()).await.unwrap();
        assert_eq!(sent, theirs.unwrap_or("none"));
    }
}
