//! Upgrades: a connection of its own each, that lives as long as a watch would.

use std::{sync::Arc, time::Duration};

use clustercache::{ClusterAccess, FailureKind, Refresh};
use clustercache_testkit::pki::{ClusterCa, Validity};
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::AttachParams, client::Body};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, split},
    net::TcpStream,
    sync::mpsc,
    task::yield_now,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_tungstenite::{accept_hdr_async, tungstenite};

use super::{
    peer::{Peer, config, head, leaf, mutual},
    raw::answer,
    rig::{Heard, Open, soon, transport, whole},
};
use crate::{
    Deadlines, TlsReason, TransportError, Wait,
    transport::{Transport, body::ResponseBody, class::Class},
};

const SHORT: Duration = Duration::from_millis(200);

/// What the server saw.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Head(String),
    /// The connection ended.
    Over,
}

struct Server {
    peer: Peer,
    ca: ClusterCa,
    seen: mpsc::Receiver<Seen>,
}

impl Server {
    /// Speaks HTTP/2 and HTTP/1.1, wants to be asked for an `echo` on the latter, and echoes then.
    async fn start() -> Self {
        let ca = ClusterCa::new("upgrades").unwrap();
        let mut config = config(&leaf(&ca), &ca, 0);
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (tell, seen) = mpsc::channel(16);
        let peer = Peer::start(move |tcp| {
            let (acceptor, tell) = (acceptor.clone(), tell.clone());
            async move {
                let stream = acceptor.accept(tcp).await.unwrap();
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
                serve(stream, &tell).await;
                let _ = tell.send(Seen::Over).await;
            }
        });
        Self {
            peer: peer.await,
            ca,
            seen,
        }
    }

    fn access(&self) -> clustercache::AccessBuilder {
        ClusterAccess::builder(self.peer.url())
            .ca_pem(self.ca.pem())
            .token("t")
    }

    fn transport(&self, change: impl FnOnce(&mut Deadlines)) -> Transport {
        let access = self.access().build().unwrap();
        transport(access, Box::new(Open), Arc::default(), change)
    }

    async fn head(&mut self) -> String {
        match soon(self.seen.recv()).await {
            Some(Seen::Head(head)) => head,
            other => panic!("{other:?}"),
        }
    }

    async fn over(&mut self) {
        assert_eq!(soon(self.seen.recv()).await, Some(Seen::Over));
    }
}

async fn serve(mut stream: TlsStream<TcpStream>, tell: &mpsc::Sender<Seen>) {
    let Some(head) = head(&mut stream).await else {
        return;
    };
    let _ = tell.send(Seen::Head(head.clone())).await;
    let answer = if head.starts_with("GET /hang") {
        return std::future::pending().await;
    } else if head.starts_with("GET /forbidden") {
        answer(403, r#"{"kind":"Status","code":403}"#)
    } else if head.starts_with("GET /moved") {
        answer(302, "")
    } else {
        "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n".into()
    };
    let _ = stream.write_all(answer.as_bytes()).await;
    if head.starts_with("GET /bye") {
        return;
    }
    let (mut read, mut write) = split(stream);
    let _ = copy(&mut read, &mut write).await;
}

async fn ask(transport: &Transport, path: &str) -> Result<Response<ResponseBody>, TransportError> {
    let request = Request::get(path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "echo")
        .body(Body::empty())
        .unwrap();
    let class = Class::of(&request);
    soon(transport.send(request, class)).await
}

async fn upgraded(transport: &Transport, path: &str) -> TokioIo<Upgraded> {
    let response = ask(transport, path).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap())
}

async fn echoes(stream: &mut TokioIo<Upgraded>, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    let (mut read, mut write) = split(stream);
    let (sent, received) = soon(async {
        tokio::join!(
            async {
                write.write_all(bytes).await?;
                write.flush().await
            },
            read.read_exact(&mut back)
        )
    })
    .await;
    sent.unwrap();
    received.unwrap();
    assert_eq!(back, bytes);
}

#[tokio::test]
async fn an_upgrade_has_our_credential_and_carries_bytes_both_ways() {
    let mut server = Server::start().await;
    let transport = server.transport(|_| ());
    let mut stream = upgraded(&transport, "/exec").await;
    let head = server.head().await.to_lowercase();
    assert!(head.contains("authorization: bearer t\r\n"), "{head}");
    assert!(
        head.contains(&format!("host: {}\r\n", server.peer.address)),
        "{head}"
    );
    echoes(&mut stream, b"hello").await;
    // More than any buffer on the way.
    echoes(&mut stream, &vec![7; 1 << 20]).await;
    drop(stream);
    server.over().await;
}

#[tokio::test]
async fn an_upgrade_has_a_deadline_until_its_head_only() {
    let server = Server::start().await;
    let transport = server.transport(|deadlines| deadlines.call = SHORT);
    let mut stream = upgraded(&transport, "/exec").await;
    let error = ask(&transport, "/hang").await.err().unwrap();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Head,
                ..
            }
        ),
        "{error}"
    );
    // Its own would have passed before that one's.
    echoes(&mut stream, b"still there").await;
}

#[tokio::test]
async fn an_upgrade_that_is_refused_is_an_answer_as_any_other() {
    let mut server = Server::start().await;
    let heard = Arc::<Heard>::default();
    let access = server.access().build().unwrap();
    let transport = transport(access, Box::new(Open), heard.clone(), |_| ());
    let response = ask(&transport, "/forbidden").await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(whole(response).await.unwrap().contains("Status"));
    assert_eq!(heard.all(), (1, 0, 0));
    server.head().await;
    server.over().await;
    let error = ask(&transport, "/moved").await.err().unwrap();
    assert!(matches!(error, TransportError::Redirect { .. }), "{error}");
}

#[tokio::test]
async fn a_closed_transport_cuts_its_upgrades_also_if_nobody_looks_at_them() {
    let mut server = Server::start().await;
    let transport = server.transport(|_| ());
    let mut stream = upgraded(&transport, "/exec").await;
    server.head().await;
    // A grace is for calls in flight, such as this one, and not for streams.
    let call = transport.0.shared.calls.token();
    let closing = transport.clone();
    let closed = tokio::spawn(async move { closing.close(Duration::from_secs(600)).await });
    server.over().await;
    assert!(!closed.is_finished());
    drop(call);
    soon(closed).await.unwrap();
    assert_eq!(transport.tasks(), 0);
    assert_eq!(soon(stream.read(&mut [0; 8])).await.unwrap(), 0);
    assert!(stream.write_all(b"x").await.is_err());
    let error = ask(&transport, "/exec").await.err().unwrap();
    assert!(matches!(error, TransportError::Retired), "{error}");
}

#[tokio::test]
async fn an_upgrade_ends_as_a_watch_does_when_the_client_certificate_is_replaced() {
    let mut server = Server::start().await;
    let as_user = |user: &str| {
        let user = server.ca.client(user, None, Validity::years()).unwrap();
        let access = server.access();
        access.client_certificate_pem(user.certificate_pem(), user.key_pem())
    };
    let (old, new) = (
        as_user("old").build().unwrap(),
        as_user("new").build().unwrap(),
    );
    let transport = transport(old, Box::new(Open), Arc::default(), |deadlines| {
        deadlines.drain = SHORT;
        // What is left then has this time; a stream has not.
        deadlines.close = Duration::from_secs(600);
    });
    let mut stream = upgraded(&transport, "/exec").await;
    server.head().await;
    assert_eq!(transport.refresh(&new), Refresh::InPlace);
    // For a while it goes on.
    echoes(&mut stream, b"hello").await;
    assert_eq!(soon(stream.read(&mut [0; 8])).await.unwrap(), 0);
    server.over().await;
    echoes(&mut upgraded(&transport, "/exec").await, b"hello").await;
}

#[tokio::test]
async fn an_upgrade_goes_on_when_the_pooled_connection_is_replaced() {
    let server = Server::start().await;
    let transport = server.transport(|_| ());
    let mut stream = upgraded(&transport, "/exec").await;
    transport.replace_pooled();
    soon(async {
        // What ends the old line's streams is over; one task carries the bytes.
        while transport.tasks() > 1 {
            yield_now().await;
        }
    })
    .await;
    echoes(&mut stream, b"still there").await;
}

#[tokio::test]
async fn what_the_server_ends_is_over() {
    let mut server = Server::start().await;
    let transport = server.transport(|_| ());
    let mut stream = upgraded(&transport, "/bye").await;
    server.head().await;
    server.over().await;
    assert_eq!(soon(stream.read(&mut [0; 8])).await.unwrap(), 0);
    let tasks = &transport.0.shared.tasks;
    tasks.close();
    soon(tasks.wait()).await;
}

#[tokio::test]
async fn an_upgrade_that_cannot_be_dialled_says_why() {
    let server = Server::start().await;
    let stranger = ClusterCa::new("stranger").unwrap();
    let access = ClusterAccess::builder(server.peer.url()).ca_pem(stranger.pem());
    let access = access.build().unwrap();
    let strange = transport(access, Box::new(Open), Arc::default(), |_| ());
    let error = ask(&strange, "/exec").await.err().unwrap();
    assert_eq!(error.kind(), FailureKind::Tls, "{error}");
    drop(server);
}

#[tokio::test]
async fn an_upgrade_whose_client_certificate_is_refused_says_so() {
    let ca = ClusterCa::new("mutual").unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let peer = Peer::tls(mutual(&ca, version)).await;
        let access = ClusterAccess::builder(peer.url()).ca_pem(ca.pem());
        let nobody = transport(
            access.build().unwrap(),
            Box::new(Open),
            Arc::default(),
            |_| (),
        );
        let error = ask(&nobody, "/exec").await.err().unwrap();
        let reason = TlsReason::ClientCertificateRefused;
        assert!(
            matches!(&error, TransportError::Tls { reason: why, .. } if *why == reason),
            "{error}"
        );
    }
}

/// Accepts websockets, and is a container that says `hi` and exits.
async fn container(tcp: TcpStream, acceptor: TlsAcceptor) {
    let stream = acceptor.accept(tcp).await.unwrap();
    // The error is tungstenite's, and there is none.
    #[allow(clippy::result_large_err)]
    let choose = |request: &tungstenite::handshake::server::Request,
                  mut response: tungstenite::handshake::server::Response| {
        assert!(request.uri().path().ends_with("/pods/web/exec"));
        let protocol = "v5.channel.k8s.io".parse().unwrap();
        response
            .headers_mut()
            .insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, choose).await.unwrap();
    for message in [
        &b"\x01hi"[..],
        b"\x03{\"kind\":\"Status\",\"status\":\"Success\"}",
    ] {
        socket.send(message.to_vec().into()).await.unwrap();
    }
    let _ = socket.close(None).await;
    while let Some(Ok(_)) = socket.next().await {}
}

#[tokio::test]
async fn kube_execs_over_it() {
    let ca = ClusterCa::new("exec").unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config(&leaf(&ca), &ca, 0)));
    let peer = Peer::start(move |tcp| container(tcp, acceptor.clone())).await;
    let access = ClusterAccess::builder(peer.url()).ca_pem(ca.pem());
    let transport = transport(
        access.build().unwrap(),
        Box::new(Open),
        Arc::default(),
        |_| (),
    );
    let client = kube::Client::new(transport.clone(), "default");
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut process = soon(pods.exec("web", ["hi"], &AttachParams::default()))
        .await
        .unwrap();
    let mut said = String::new();
    let mut out = process.stdout().unwrap();
    soon(out.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "hi");
    let status = soon(process.take_status().unwrap()).await.unwrap();
    assert_eq!(status.status.as_deref(), Some("Success"));
    soon(process.join()).await.unwrap();
}
