//! The client against a real kube-apiserver, with the kubelet played here: exec and port-forward by websocket beside an HTTP/2 watch, and
//! acting as somebody else.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use clustercache::{
    AccessBuilder, ClusterAccess, ClusterCache, ClusterKey, Impersonation, MemorySource, Upsert,
};
use clustercache_client::{ClientExt, DiscoveryError, KubeClient};
use clustercache_testkit::{
    guard::PanicGuard,
    pki::{ClusterCa, Validity},
    real::{Caller, RealApiServer},
    real_or_skip,
};
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use http::header::SEC_WEBSOCKET_PROTOCOL;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{AttachParams, PostParams, WatchEvent, WatchParams},
    core::GroupVersionKind,
};
use rustls::{ServerConfig, crypto::ring};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
    },
};
use tokio_util::task::AbortOnDropHandle;

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 8080;

/// A kubelet with one pod: `exec` says which command it was given, a forwarded port sends back what it is sent.
struct Kubelet {
    port: u16,
    _accepting: AbortOnDropHandle<()>,
}

impl Kubelet {
    async fn start() -> anyhow::Result<Self> {
        let leaf = ClusterCa::new("kubelet")?.server(Validity::years())?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.certificate_der().clone()], leaf.key_der())?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let accepting = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(acceptor, tcp).await {
                        eprintln!("kubelet: {error:#}");
                    }
                });
            }
        });
        Ok(Self {
            port,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }
}

async fn serve(acceptor: TlsAcceptor, tcp: TcpStream) -> anyhow::Result<()> {
    let stream = acceptor.accept(tcp).await?;
    let mut uri = None;
    // The error is tungstenite's, and there is none.
    #[allow(clippy::result_large_err)]
    let choose = |request: &Request, mut response: Response| {
        uri = Some(request.uri().clone());
        // Of those that a client offers; a kubelet knows the fifth for exec only.
        let protocol = match request.uri().path() {
            "/exec/default/web/main" => "v5.channel.k8s.io",
            _ => "v4.channel.k8s.io",
        };
        let protocol = protocol.parse().expect("it is a header's value");
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, choose).await?;
    let uri = uri.context("a handshake has a request")?;
    if uri.path() == "/exec/default/web/main" {
        let said = format!("\x01{}", uri.query().unwrap_or_default());
        socket.send(Message::binary(said.into_bytes())).await?;
        let status = b"\x03{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Success\"}";
        socket.send(Message::binary(&status[..])).await?;
    } else {
        anyhow::ensure!(uri.path() == "/portForward/default/web", "{uri}");
        for channel in 0..2 {
            let [low, high] = PORT.to_le_bytes();
            socket
                .send(Message::binary(vec![channel, low, high]))
                .await?;
        }
        while let Some(message) = socket.next().await {
            match message? {
                message @ Message::Binary(_) => socket.send(message).await?,
                Message::Close(_) => break,
                _ => (),
            }
        }
    }
    socket.close(None).await?;
    while socket.next().await.is_some() {}
    Ok(())
}

fn admin(server: &RealApiServer) -> AccessBuilder {
    let admin = server.admin();
    ClusterAccess::builder(server.url())
        .ca_pem(server.ca_pem())
        .client_certificate_pem(admin.cert_pem.clone(), admin.key_pem.clone())
}

async fn connected(
    access: ClusterAccess,
) -> anyhow::Result<(ClusterCache, kube::Client, PanicGuard)> {
    let source = MemorySource::new("test");
    let key = ClusterKey::named("real");
    source.upsert(Upsert::ready(key.clone(), access));
    let cache = ClusterCache::builder()
        .source(source)
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .start()?;
    let guard = PanicGuard::new(&cache);
    cache.wait_for(&key, LIMIT).await?;
    let client = cache.client(&key)?;
    Ok((cache, client, guard))
}

async fn soon<T>(event: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(LIMIT, event)
        .await
        .context("it happens in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_and_port_forward_work_beside_a_watch() -> anyhow::Result<()> {
    let servers = real_or_skip!(1, Ok(()));
    let server = &servers[0];
    let kubelet = Kubelet::start().await?;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "here" },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.port } },
            // So that the API server passes websockets on, instead of turning them into SPDY.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "nodeName": "here", "containers": [{ "name": "main", "image": "none" }] },
    });
    for (path, object) in [
        ("/api/v1/nodes", node),
        ("/api/v1/namespaces/default/pods", pod),
    ] {
        server.post(Caller::Admin, path, &object).await?.success()?;
    }

    let (cache, client, _guard) = connected(admin(server).build()?).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let mut watch = nodes.watch(&WatchParams::default(), "0").await?.boxed();
    let named = async |watch: &mut futures_util::stream::BoxStream<'_, _>, name| loop {
        match soon(watch.try_next()).await?? {
            Some(WatchEvent::Added(node) | WatchEvent::Modified(node)) => {
                let node: Node = node;
                if node.metadata.name.as_deref() == Some(name) {
                    return anyhow::Ok(());
                }
            }
            // Whenever the server has the time for one.
            Some(WatchEvent::Bookmark(_)) => (),
            other => anyhow::bail!("{other:?}"),
        }
    };
    named(&mut watch, "here").await?;

    let pods: Api<Pod> = Api::default_namespaced(client);
    let command = ["echo", "a b"];
    let mut process = soon(pods.exec("web", command, &AttachParams::default())).await??;
    let mut said = String::new();
    let mut stdout = process.stdout().context("it was asked for")?;
    soon(stdout.read_to_string(&mut said)).await??;
    assert!(said.contains("command=echo&command=a+b"), "{said}");
    let status = process.take_status().context("nobody took it")?;
    let status = soon(status).await?.context("it exits")?;
    assert_eq!(status.status.as_deref(), Some("Success"));
    soon(process.join()).await??;

    let mut forwarded = soon(pods.portforward("web", &[PORT])).await??;
    let mut stream = forwarded.take_stream(PORT).context("it was asked for")?;
    let sent = vec![7; 100_000];
    let mut back = vec![0; sent.len()];
    soon(async {
        stream.write_all(&sent).await?;
        stream.read_exact(&mut back).await
    })
    .await??;
    assert_eq!(sent, back);

    // The watch beside them goes on.
    let other = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "other" } });
    server
        .post(Caller::Admin, "/api/v1/nodes", &other)
        .await?
        .success()?;
    named(&mut watch, "other").await?;

    // What is open is cut when the cache ends.
    let report = cache.shutdown().await?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(soon(stream.read(&mut back)).await??, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_us_for_whom_the_access_says() -> anyhow::Result<()> {
    let servers = real_or_skip!(1, Ok(()));
    let mut who = Impersonation::user("jane");
    who.uid = Some("7".into());
    // A group that may ask who it is, as everybody may.
    who.groups = vec!["ops".into(), "system:masters".into()];
    who.extra
        .insert("example.org/why not".into(), vec!["a".into(), "b".into()]);
    let access = admin(&servers[0]).impersonate(who).build()?;
    let (cache, client, _guard) = connected(access).await?;
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let (params, review) = (PostParams::default(), SelfSubjectReview::default());
    let review = soon(reviews.create(&params, &review)).await??;
    let user = review.status.and_then(|status| status.user_info);
    let user = user.context("a review says who")?;
    assert_eq!(user.username.as_deref(), Some("jane"));
    assert_eq!(user.uid.as_deref(), Some("7"));
    let groups = user.groups.unwrap_or_default();
    assert!(groups.contains(&"ops".to_owned()), "{groups:?}");
    let extra = BTreeMap::from([(
        "example.org/why not".to_owned(),
        vec!["a".to_owned(), "b".to_owned()],
    )]);
    assert_eq!(user.extra, Some(extra));
    cache.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_servers_kinds_version_and_uid_are_read() -> anyhow::Result<()> {
    let servers = real_or_skip!(1, Ok(()));
    let (cache, _, _guard) = connected(admin(&servers[0]).build()?).await?;
    let client = cache.get::<KubeClient>(&ClusterKey::named("real"))?;
    let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let (resource, capabilities) = soon(client.resolve(&gvk)).await??;
    assert_eq!(resource.plural, "deployments");
    assert!(capabilities.supports_operation("watch"));
    let mut subresources = capabilities.subresources.iter();
    let scale = subresources.find(|(resource, _)| resource.plural == "scale");
    let (scale, _) = scale.context("deployments scale")?;
    assert_eq!(scale.api_version, "autoscaling/v1");
    let missing = GroupVersionKind::gvk("apps", "v1", "Missing");
    let missing = soon(client.resolve(&missing)).await?;
    assert!(matches!(missing, Err(DiscoveryError::NoSuchKind { .. })));
    // It comes by itself, and nobody is told.
    soon(async {
        while client.server_version().is_none() || client.kube_system_uid().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await?;
    assert_eq!(client.server_version().context("it is known")?.major, 1);
    cache.shutdown().await?;
    Ok(())
}
