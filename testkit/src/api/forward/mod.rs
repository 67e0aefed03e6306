//! `pods/portforward`: what a request for it is answered with, and which addresses stand for the ports of pods.
//!
//! The API server of a real cluster passes the bytes on to a kubelet, which dials within the pod. Here a test says who is dialled.
//! Two protocols reach a port: [`channels`] within a websocket is that of kube-rs and of the clients in Python and JavaScript; SPDY
//! ([`streams`]) is that of all that is written in Go, since kubectl 1.30 within a websocket.

mod carry;
mod channels;
mod spdy;
mod streams;

use std::{collections::HashMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{
    Sink, SinkExt as _, StreamExt as _,
    future::{self, Ready},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error, Message, handshake::derive_accept_key, protocol::Role},
};
use tokio_util::codec::{BytesCodec, Framed};

use super::{
    Shared,
    answer::{self, Body},
    ask::Ask,
    request::Place,
    status::Status,
};

/// Whoever is dialled for a pod answers within that.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
/// A client that was told that all is over closes within that.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Who is dialled for a port of a pod.
#[derive(Default)]
pub(super) struct Forwards(Mutex<HashMap<Port, SocketAddr>>);

/// Namespace, pod, port.
type Port = (String, String, u16);

impl Forwards {
    pub(super) fn set(&self, namespace: &str, pod: &str, port: u16, to: Option<SocketAddr>) {
        let port = (namespace.to_owned(), pod.to_owned(), port);
        let mut forwards = self.0.lock();
        match to {
            Some(to) => forwards.insert(port, to),
            None => forwards.remove(&port),
        };
    }
}

/// Ports of a pod that a client may reach from now on. The answer `101 Switching Protocols` to a request for `pods/portforward` has it
/// among its extensions; whoever serves that answer upgrades the connection, and [runs](Self::run) this over it. The fake fleet does.
#[derive(Clone)]
pub struct PortForward {
    shared: Arc<Shared>,
    namespace: String,
    pod: String,
    protocol: Protocol,
}

/// What was agreed on.
#[derive(Clone, Debug)]
enum Protocol {
    /// Two channels for each of these ports.
    Channels(Vec<u16>),
    /// SPDY; its streams say to which ports.
    Streams { within_websocket: bool },
}

impl fmt::Debug for PortForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            pod,
            protocol,
            ..
        } = self;
        write!(f, "PortForward({namespace}/{pod}, {protocol:?})")
    }
}

impl PortForward {
    /// Carries bytes between the client and whom it asked for, until either has ended. Dropped, it cuts both off.
    pub async fn run<I: AsyncRead + AsyncWrite + Unpin + Send>(self, mut upgraded: I) {
        match &self.protocol {
            Protocol::Streams {
                within_websocket: false,
            } => self.bare(&mut upgraded).await,
            _ => self.within_websocket(&mut upgraded).await,
        }
        // TLS has an end of its own, which clients miss where it does not come.
        let _ = timeout(CLOSE_WITHIN, upgraded.shutdown()).await;
    }

    async fn bare(&self, upgraded: &mut (impl AsyncRead + AsyncWrite + Unpin + Send)) {
        let (sink, stream) = Framed::new(upgraded, BytesCodec::new()).split();
        let stream = stream
            .take_while(|bytes| future::ready(bytes.is_ok()))
            .filter_map(|bytes| future::ready(bytes.ok().map(BytesMut::freeze)));
        streams::run(self, sink, stream).await;
    }

    async fn within_websocket(&self, upgraded: &mut (impl AsyncRead + AsyncWrite + Unpin + Send)) {
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
        let (sink, stream) = socket.split();
        let sink = sink
            .with(|bytes| -> Ready<Result<_, Error>> { future::ready(Ok(Message::Binary(bytes))) });
        // Pings are answered below this.
        let stream = stream
            .take_while(|message| future::ready(message.is_ok()))
            .filter_map(|message| {
                future::ready(match message {
                    Ok(Message::Binary(bytes)) => Some(bytes),
                    _ => None,
                })
            });
        match &self.protocol {
            Protocol::Channels(ports) => channels::run(self, ports, sink, stream).await,
            Protocol::Streams { .. } => streams::run(self, sink, stream).await,
        }
    }

    /// Dials who stands for a port; else says why not, as a kubelet does.
    async fn dial(&self, port: u16) -> Result<TcpStream, String> {
        let key = (self.namespace.clone(), self.pod.clone(), port);
        let to = self.shared.forwards.0.lock().get(&key).copied();
        let why = match to {
            None => "connect: connection refused".to_owned(),
            Some(to) => match timeout(DIAL_WITHIN, TcpStream::connect(to)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "i/o timeout".to_owned(),
            },
        };
        Err(format!(
            "error forwarding port {port} to pod {}, uid : failed to connect to localhost:{port} inside the pod: {why}",
            self.pod,
        ))
    }
}

/// Sends all frames, and says then that all is over.
async fn write(mut sink: impl Sink<Bytes> + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    let mut open = true;
    while let Some(frame) = frames.recv().await {
        // Of a connection that is gone whoever reads it makes an end.
        open = open && sink.send(frame).await.is_ok();
    }
    if open {
        let _ = sink.close().await;
    }
}

/// The answer to a request for the ports of a pod.
pub(super) fn forward(
    shared: &Arc<Shared>,
    ask: &Ask,
    place: &Place,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let ports = ports(&ask.query)?;
    let pod = shared
        .store
        .with(|state| state.get(&place.kind, &place.key()).cloned());
    let pod = pod.ok_or_else(|| Status::not_found(&place.kind, &place.name))?;
    let node = &pod.value()["spec"]["nodeName"];
    if node.as_str().unwrap_or_default().is_empty() {
        let why = format!("pod {} does not have a host assigned", place.name);
        return Err(Status::bad_request(why));
    }
    let asked = |upgrade: &str| {
        let named =
            |name, word: &str| words(headers, name).any(|one| one.eq_ignore_ascii_case(word));
        named(&CONNECTION, "upgrade") && named(&UPGRADE, upgrade)
    };
    let agreed = if asked("websocket") {
        websocket(headers, ports)
    } else if asked(streams::UPGRADE) {
        spdy(headers)
    } else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let (protocol, agreed) = match agreed {
        Ok(agreed) => agreed,
        Err(refusal) => return Ok(*refusal),
    };
    let mut response = answer::text(StatusCode::SWITCHING_PROTOCOLS, "");
    *response.headers_mut() = agreed;
    response.extensions_mut().insert(PortForward {
        shared: shared.clone(),
        namespace: place.namespace.clone(),
        pod: place.name.clone(),
        protocol,
    });
    Ok(response)
}

/// What is agreed on with a client, and the headers that say so; or what it is told instead.
type Agreed = Result<(Protocol, HeaderMap), Box<Response<Body>>>;

fn websocket(headers: &HeaderMap, ports: Vec<u16>) -> Agreed {
    let refused = |code, why: &'static str| Err(Box::new(answer::text(code, why)));
    let key = headers.get(SEC_WEBSOCKET_KEY);
    let Some(key) = key.filter(|_| words(headers, &SEC_WEBSOCKET_VERSION).any(|one| one == "13"))
    else {
        return refused(
            StatusCode::BAD_REQUEST,
            "this is no websocket of RFC 6455\n",
        );
    };
    let offered: Vec<_> = words(headers, &SEC_WEBSOCKET_PROTOCOL).collect();
    let (protocol, chosen) = if offered.contains(&streams::TUNNEL) {
        let within_websocket = true;
        (Protocol::Streams { within_websocket }, streams::TUNNEL)
    } else if ports.is_empty() {
        return refused(
            StatusCode::BAD_REQUEST,
            "query parameter \"port\" is required\n",
        );
    } else if offered.is_empty() {
        (Protocol::Channels(ports), "")
    } else if offered.contains(&channels::PROTOCOL) {
        (Protocol::Channels(ports), channels::PROTOCOL)
    } else {
        return refused(StatusCode::FORBIDDEN, "");
    };
    let mut agreed = switched("websocket");
    if let Ok(accept) = derive_accept_key(key.as_bytes()).parse() {
        agreed.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if !chosen.is_empty() {
        agreed.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
    }
    Ok((protocol, agreed))
}

fn spdy(headers: &HeaderMap) -> Agreed {
    if !words(headers, &streams::VERSIONS).any(|one| one == streams::PROTOCOL) {
        let why = "unable to upgrade: no protocol that is spoken here\n";
        return Err(Box::new(answer::text(StatusCode::FORBIDDEN, why)));
    }
    let mut agreed = switched(streams::UPGRADE);
    agreed.insert(
        streams::VERSIONS,
        HeaderValue::from_static(streams::PROTOCOL),
    );
    let within_websocket = false;
    Ok((Protocol::Streams { within_websocket }, agreed))
}

fn switched(to: &'static str) -> HeaderMap {
    let upgrade = HeaderValue::from_static("Upgrade");
    HeaderMap::from_iter([
        (CONNECTION, upgrade),
        (UPGRADE, HeaderValue::from_static(to)),
    ])
}

/// What a header lists.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
}

/// The ports that a query names, in its order.
fn ports(query: &str) -> Result<Vec<u16>, Status> {
    let named = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "ports");
    let mut ports = Vec::new();
    for (_, value) in named {
        for port in value.split(',') {
            ports.push(port.parse().map_err(|_| no_port(port))?);
        }
    }
    Ok(ports)
}

fn no_port(text: &str) -> Status {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if digits {
        "value out of range"
    } else {
        "invalid syntax"
    };
    Status::bad_request(format!(
        "cannot convert to []int32: strconv.ParseUint: parsing {text:?}: {why}"
    ))
}
