//! Faults of the network.

use std::io::ErrorKind;

use clustercache_testkit::fleet::{FakeCluster, OldEndpoint, PathClass};
use futures_util::poll;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::oneshot::{self, error::TryRecvError},
};

use crate::client::{Client, Http, connect, handshake, soon};

const PATH: &str = "/api/v1/nodes";

#[tokio::test]
async fn a_black_hole_swallows_old_connections_and_new_ones_and_resets_them_when_healed() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut old = handshake(&cluster.access(), &[b"http/1.1"]).await.unwrap();
    soon(cluster.when(|counters| counters.tls_handshakes == 1)).await;
    cluster.black_hole();
    old.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let access = cluster.access();
    let new = tokio::spawn(async move { Client::connect(&access, Http::Two).await.map(drop) });
    soon(cluster.when(|counters| counters.connections_open == 2)).await;

    cluster.heal();
    let error = soon(old.read_u8()).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::ConnectionReset,
        "not a byte, and no FIN, came before"
    );
    assert!(soon(new).await.unwrap().is_err());
    soon(cluster.connections_closed()).await;
    let counters = cluster.counters();
    assert_eq!((counters.requests.total(), counters.tls_handshakes), (0, 1));
    assert_eq!(
        connect(&cluster).await.get(PATH).await.0,
        200,
        "on the same port"
    );
}

#[tokio::test]
async fn a_black_hole_swallows_what_a_watch_would_have_said() {
    let cluster = FakeCluster::start("a").unwrap();
    for http in [Http::One, Http::Two] {
        let mut client = Client::connect(&cluster.access(), http).await.unwrap();
        let path = format!("{PATH}?watch=true&resourceVersion={}", cluster.version());
        let mut events = client.watch(&path).await;
        cluster.black_hole();
        cluster
            .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }))
            .unwrap();
        cluster.heal();
        assert!(soon(events.try_next()).await.is_err());
        soon(cluster.connections_closed()).await;
        assert_eq!(cluster.counters().watches_open, 0);
    }
}

#[tokio::test]
async fn a_black_hole_notices_that_its_client_closed() {
    let cluster = FakeCluster::start("a").unwrap();
    let client = connect(&cluster).await;
    cluster.black_hole();
    let silent = TcpStream::connect(cluster.addr()).await.unwrap();
    soon(cluster.when(|counters| counters.connections_open == 2)).await;
    drop(client);
    soon(cluster.when(|counters| counters.connections_open == 1)).await;
    drop(silent);
    soon(cluster.connections_closed()).await;
}

#[tokio::test]
async fn an_unplugged_server_establishes_no_connection() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut old = connect(&cluster).await;
    cluster.unplug();
    let mut dialling = Box::pin(TcpStream::connect(cluster.addr()));
    assert!(poll!(&mut dialling).is_pending());
    let mut request = Box::pin(old.text(PATH));
    assert!(poll!(&mut request).is_pending());
    // Had its SYN been answered, this would be a connection. The kernel sends it again a second later.
    cluster.refuse();
    assert_eq!(
        soon(dialling).await.unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert!(soon(request).await.is_err());
    cluster.heal();
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
    assert_eq!(cluster.counters().connections_accepted, 2);
}

#[tokio::test]
async fn new_connections_can_be_silent_while_old_ones_go_on() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut old = connect(&cluster).await;
    cluster.silence_new_connections();
    let access = cluster.access();
    let new = tokio::spawn(async move { Client::connect(&access, Http::Two).await.map(drop) });
    soon(cluster.when(|counters| counters.connections_open == 2)).await;
    assert_eq!(old.get(PATH).await.0, 200);
    cluster.heal();
    assert!(soon(new).await.unwrap().is_err());
    assert_eq!(old.get(PATH).await.0, 200);
    assert_eq!(cluster.counters().tls_handshakes, 1);
}

#[tokio::test]
async fn a_refusing_server_resets_refuses_and_returns_on_its_port_as_often_as_told() {
    let cluster = FakeCluster::start("a").unwrap();
    let addr = cluster.addr();
    for _ in 0..20 {
        let mut raw = handshake(&cluster.access(), &[]).await.unwrap();
        let mut client = connect(&cluster).await;
        assert_eq!(client.get(PATH).await.0, 200);
        cluster.refuse();
        assert_eq!(
            soon(raw.read_u8()).await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        let refused = soon(TcpStream::connect(addr)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        soon(cluster.connections_closed()).await;
        let taken = TcpSocket::new_v4().unwrap().bind(addr).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse, "the port is still ours");
        cluster.heal();
    }
    assert_eq!(cluster.addr(), addr);
}

#[tokio::test]
async fn a_paused_server_loses_nothing() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut old = connect(&cluster).await;
    let path = format!("{PATH}?watch=true&resourceVersion={}", cluster.version());
    let mut events = old.watch(&path).await;
    cluster.pause();
    cluster
        .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }))
        .unwrap();
    let access = cluster.access();
    let new = tokio::spawn(async move {
        Client::connect(&access, Http::One)
            .await
            .unwrap()
            .get(PATH)
            .await
            .0
    });
    // The kernel takes the connection, the server does not.
    let third = TcpStream::connect(cluster.addr()).await.unwrap();
    let mut request = Box::pin(old.text(PATH));
    assert!(poll!(&mut request).is_pending());
    assert_eq!(cluster.counters().connections_accepted, 1);

    cluster.resume();
    assert_eq!(soon(request).await.unwrap().0, 200);
    assert_eq!(soon(new).await.unwrap(), 200);
    assert_eq!(events.change().await, ("ADDED".to_owned(), "n".to_owned()));
    soon(cluster.when(|counters| counters.connections_accepted == 3)).await;
    drop(third);
}

#[tokio::test]
async fn each_fault_gives_way_to_any_other_and_all_to_heal() {
    let cluster = FakeCluster::start("a").unwrap();
    let faults: [fn(&FakeCluster); 6] = [
        FakeCluster::black_hole,
        FakeCluster::unplug,
        FakeCluster::silence_new_connections,
        FakeCluster::refuse,
        FakeCluster::pause,
        FakeCluster::resume,
    ];
    for one in faults {
        for other in faults {
            one(&cluster);
            other(&cluster);
            cluster.heal();
            assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
        }
    }
    soon(cluster.connections_closed()).await;
}

#[tokio::test]
async fn connections_are_closed_by_fin_or_by_reset_and_new_ones_are_taken() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut raw = handshake(&cluster.access(), &[]).await.unwrap();
    soon(cluster.when(|counters| counters.tls_handshakes == 1)).await;
    cluster.close_connections();
    assert_eq!(
        soon(raw.read_u8()).await.unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    let mut raw = handshake(&cluster.access(), &[]).await.unwrap();
    soon(cluster.when(|counters| counters.tls_handshakes == 2)).await;
    cluster.reset_connections();
    assert_eq!(
        soon(raw.read_u8()).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    soon(cluster.connections_closed()).await;
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn a_cluster_that_moved_refuses_at_its_old_endpoint_for_ever() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut old = connect(&cluster).await;
    let before = cluster.addr();
    let after = cluster.move_endpoint(OldEndpoint::Refuse).unwrap();
    assert_ne!(before, after);
    soon(&mut old.connection).await.unwrap().ok();
    assert!(old.text(PATH).await.is_err());
    cluster.heal();
    assert_eq!(
        TcpStream::connect(before).await.unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(connect(&cluster).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn requests_are_counted_and_awaited_by_what_they_are() {
    let cluster = FakeCluster::start("a").unwrap();
    let mut client = connect(&cluster).await;
    let list = cluster.next_request(|request| request.class == PathClass::List);
    let dropped = cluster.next_request(|_| true);
    drop(dropped);
    client.get("/version").await;
    client.get("/api/v1/nodes?limit=7").await;
    let list = soon(list).await;
    assert_eq!(
        (&*list.path, &*list.query, list.connection),
        ("/api/v1/nodes", "limit=7", 0)
    );
    assert_eq!(list.protocol, http::Version::HTTP_2);
    let counters = cluster.counters();
    assert_eq!(
        (
            counters.requests.of(PathClass::List),
            counters.requests.version
        ),
        (1, 1)
    );
    assert_eq!(
        (
            counters.connections_accepted,
            counters.tls_handshakes,
            counters.tls_failures
        ),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_cluster() {
    let cluster = FakeCluster::start("a").unwrap();
    let addr = cluster.addr();
    let second = cluster.clone();
    drop(cluster);
    assert!(TcpStream::connect(addr).await.is_ok());
    drop(second);
    assert!(TcpStream::connect(addr).await.is_err());
}

/// A child holds copies of all descriptors between its fork and its exec: a close would take effect only after that.
#[tokio::test]
async fn a_port_refuses_at_once_also_while_processes_are_started() {
    let cluster = FakeCluster::start("a").unwrap();
    let (stop, mut stopped) = oneshot::channel::<()>();
    let starting = tokio::task::spawn_blocking(move || {
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            std::process::Command::new("true").status().unwrap();
        }
    });
    for _ in 0..200 {
        cluster.refuse();
        let refused = soon(TcpStream::connect(cluster.addr())).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        cluster.heal();
        soon(TcpStream::connect(cluster.addr())).await.unwrap();
    }
    stop.send(()).unwrap();
    starting.await.unwrap();
}
