//! Port-forward by websocket, by hand: what goes over the wire, and what a fault of the network does to it.

use bytes::Bytes;
use clustercache_testkit::{
    api::Fault,
    fleet::{FakeAccess, FakeCluster, FakeCredential},
};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{ClientRequestBuilder, Error, Message},
};

use crate::client::{Client, Http, handshake, soon};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

const CHANNELS: &str = "v4.channel.k8s.io";
const WEB: &str = "/api/v1/namespaces/default/pods/web/portforward";

/// Sends back what it is sent, until it is sent no more.
async fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                copy(&mut read, &mut write).await
            });
        }
    });
    address
}

/// Takes one connection, whose other end is returned.
async fn one(listener: TcpListener) -> TcpStream {
    soon(listener.accept()).await.unwrap().0
}

fn with_pods() -> FakeCluster {
    let cluster = FakeCluster::start("a").unwrap();
    for (name, node) in [("web", "here"), ("nowhere", "")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [] },
        });
        cluster.put(pod).unwrap();
    }
    cluster
}

async fn open(access: &FakeAccess, path: &str, protocol: Option<&str>) -> Result<Socket, Error> {
    let tls = soon(Box::pin(handshake(access, &[b"http/1.1"]))).await?;
    let uri = format!("wss://127.0.0.1{path}").parse().unwrap();
    let mut request = ClientRequestBuilder::new(uri);
    if let FakeCredential::Token(token) = &access.credential {
        request = request.with_header("authorization", format!("Bearer {token}"));
    }
    if let Some(protocol) = protocol {
        request = request.with_sub_protocol(protocol);
    }
    Ok(soon(Box::pin(client_async(request, tls))).await?.0)
}

async fn forwarded(cluster: &FakeCluster, ports: &str) -> Socket {
    let path = format!("{WEB}?ports={ports}");
    open(&cluster.access(), &path, Some(CHANNELS))
        .await
        .unwrap()
}

/// The status and the body of what came in place of a websocket.
async fn refused(access: &FakeAccess, path: &str, protocol: Option<&str>) -> (StatusCode, String) {
    match open(access, path, protocol).await {
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            (response.status(), String::from_utf8(body).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

async fn send(socket: &mut Socket, channel: u8, bytes: &[u8]) {
    let frame = [&[channel], bytes].concat();
    soon(socket.send(Message::Binary(frame.into())))
        .await
        .unwrap();
}

/// The next channel that is heard of, and what.
async fn next(socket: &mut Socket) -> (u8, Bytes) {
    match soon(socket.next()).await.unwrap().unwrap() {
        Message::Binary(mut bytes) => (bytes.split_to(1)[0], bytes),
        other => panic!("{other:?}"),
    }
}

/// Each port begins with its number, in both of its channels.
async fn begun(socket: &mut Socket, ports: &[u16]) {
    let mut seen = Vec::new();
    for _ in 0..2 * ports.len() {
        let (channel, bytes) = next(socket).await;
        seen.push((channel, u16::from_le_bytes(bytes[..].try_into().unwrap())));
    }
    seen.sort_unstable();
    let wanted = (0..).zip(ports.iter().flat_map(|port| [*port; 2]));
    assert_eq!(seen, wanted.collect::<Vec<_>>());
}

async fn heard(socket: &mut Socket, channel: u8, bytes: &[u8]) {
    let mut all = Vec::new();
    while all.len() < bytes.len() {
        let (from, more) = next(socket).await;
        assert_eq!(from, channel);
        all.extend_from_slice(&more);
    }
    assert!(all == bytes);
}

async fn closed(socket: &mut Socket) {
    assert!(matches!(
        soon(socket.next()).await,
        Some(Ok(Message::Close(_)))
    ));
    assert!(soon(socket.next()).await.is_none());
}

#[tokio::test]
async fn ports_of_a_pod_lead_where_the_test_says_each_in_its_channel() {
    let cluster = with_pods();
    let idle = cluster.tasks();
    for port in [80, 443] {
        cluster
            .api()
            .forward_port("default", "web", port, echo().await);
    }
    let mut socket = forwarded(&cluster, "80,443").await;
    begun(&mut socket, &[80, 443]).await;
    let large = vec![7; 300_000];
    for (channel, bytes) in [(0, &b"hello"[..]), (2, b"world"), (0, &large), (2, &large)] {
        send(&mut socket, channel, bytes).await;
        heard(&mut socket, channel, bytes).await;
    }
    // What nobody listens to changes nothing.
    for channel in [1, 3, 4, 255] {
        send(&mut socket, channel, b"?").await;
    }
    send(&mut socket, 0, b"still here").await;
    heard(&mut socket, 0, b"still here").await;
    soon(socket.close(None)).await.unwrap();
    while soon(socket.next()).await.is_some() {}
    soon(cluster.connections_closed()).await;
    assert_eq!(cluster.tasks(), idle);
}

#[tokio::test]
async fn a_port_that_nobody_stands_for_says_so_and_the_others_go_on() {
    let cluster = with_pods();
    let api = cluster.api();
    api.forward_port("default", "web", 80, echo().await);
    // As a program that has ended: nobody listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    api.forward_port("default", "web", 81, gone.local_addr().unwrap());
    drop(gone);
    let mut socket = forwarded(&cluster, "80,81&ports=82").await;
    let mut errors = Vec::new();
    while errors.len() < 2 {
        let (channel, bytes) = next(&mut socket).await;
        if bytes.len() > 2 {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(text.starts_with("error forwarding port 8"), "{text}");
            assert!(text.to_lowercase().contains("refused"), "{text}");
            errors.push(channel);
        }
    }
    errors.sort_unstable();
    assert_eq!(errors, [3, 5]);
    send(&mut socket, 0, b"hello").await;
    heard(&mut socket, 0, b"hello").await;
    // From now on, and not for what is open.
    api.refuse_port("default", "web", 80);
    send(&mut socket, 0, b"hello").await;
    heard(&mut socket, 0, b"hello").await;
    let mut other = forwarded(&cluster, "80").await;
    begun(&mut other, &[80]).await;
    assert_eq!(next(&mut other).await.0, 1);
    closed(&mut other).await;
}

#[tokio::test]
async fn the_websocket_closes_when_all_of_its_ports_have_ended() {
    let cluster = with_pods();
    let mut ends = Vec::new();
    for port in [80, 81] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        cluster.api().forward_port("default", "web", port, address);
        ends.push(listener);
    }
    let mut socket = forwarded(&cluster, "80,81").await;
    begun(&mut socket, &[80, 81]).await;
    for (number, listener) in ends.into_iter().enumerate() {
        let mut end = one(listener).await;
        end.write_all(b"bye").await.unwrap();
        drop(end);
        heard(&mut socket, 2 * u8::try_from(number).unwrap(), b"bye").await;
    }
    closed(&mut socket).await;
    soon(cluster.connections_closed()).await;
}

#[tokio::test]
async fn whoever_is_dialled_sees_it_when_the_client_leaves() {
    let cluster = with_pods();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    cluster.api().forward_port("default", "web", 80, address);
    let socket = forwarded(&cluster, "80").await;
    let mut end = one(listener).await;
    drop(socket);
    assert_eq!(soon(end.read(&mut [0; 8])).await.unwrap(), 0);
    soon(cluster.connections_closed()).await;
}

#[tokio::test]
async fn what_cannot_be_forwarded_is_refused_before_any_websocket() {
    let cluster = with_pods();
    let access = cluster.access();
    let one = format!("{WEB}?ports=80");
    for (path, protocol, code, wanted) in [
        (&*one.replace("web", "none"), CHANNELS, 404, "not found"),
        (
            &*one.replace("web", "nowhere"),
            CHANNELS,
            400,
            "host assigned",
        ),
        (&*one.replace("80", "many"), CHANNELS, 400, "invalid syntax"),
        (&*one.replace("80", "70000"), CHANNELS, 400, "out of range"),
        (WEB, CHANNELS, 400, "is required"),
        (&*one, "v5.channel.k8s.io", 403, ""),
        (&*one, "SPDY/3.1+other.k8s.io", 403, ""),
    ] {
        let (status, body) = refused(&access, path, Some(protocol)).await;
        assert_eq!(status, code, "{path} {protocol} {body}");
        assert!(body.contains(wanted), "{path} {protocol} {body}");
    }
    let forbidden = cluster
        .api()
        .inject(Fault::forbidden().resource("pods/portforward"));
    assert_eq!(refused(&access, &one, Some(CHANNELS)).await.0, 403);
    cluster.api().undo(forbidden);
    let mut stranger = access.clone();
    stranger.credential = FakeCredential::Token("wrong".to_owned());
    assert_eq!(refused(&stranger, &one, Some(CHANNELS)).await.0, 401);
    for http in [Http::One, Http::Two] {
        let mut client = Client::connect(&access, http).await.unwrap();
        let (code, answer) = client.send(Method::POST, &one, &Value::Null).await;
        assert_eq!(
            (code, &answer["message"]),
            (400, &json!("Upgrade request required"))
        );
    }
    // Who names no protocol speaks the same.
    let mut socket = open(&access, &one, None).await.unwrap();
    begun(&mut socket, &[80]).await;
}

#[tokio::test]
async fn forwarded_ports_meet_the_faults_of_their_clusters_network() {
    let cluster = with_pods();
    cluster
        .api()
        .forward_port("default", "web", 80, echo().await);
    let mut socket = forwarded(&cluster, "80").await;
    begun(&mut socket, &[80]).await;
    cluster.pause();
    send(&mut socket, 0, b"hello").await;
    cluster.resume();
    heard(&mut socket, 0, b"hello").await;
    cluster.reset_connections();
    assert!(matches!(soon(socket.next()).await, Some(Err(_)) | None));
    soon(cluster.connections_closed()).await;

    let mut socket = forwarded(&cluster, "80").await;
    begun(&mut socket, &[80]).await;
    cluster.shutdown().await;
    assert!(matches!(soon(socket.next()).await, Some(Err(_)) | None));
}
