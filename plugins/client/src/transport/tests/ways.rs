//! Ways to a cluster other than a name and TCP: a user's dialer, and proxies.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use clustercache::{
    AccessBuilder, AddressPolicy, ClusterAccess, ClusterKey, FailureKind, Forbidden,
};
use clustercache_testkit::{fleet::FakeCluster, pki::ClusterCa};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional, duplex},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    peer::{Peer, config, head, http, leaf},
    rig::{Open, access, dialled_by, get, soon, transport, whole},
};
use crate::{ByteStream, Deadlines, Destination, Dialer, TransportError, Wait};

/// A tunnel: what is written to it comes out at the cluster.
struct Tunnel {
    to: SocketAddr,
    dialled: Arc<AtomicUsize>,
}

#[async_trait]
impl Dialer for Tunnel {
    async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
        assert_eq!((to.host, to.port), ("localhost", 7));
        assert_eq!(*to.cluster, ClusterKey::named("rig"));
        self.dialled.fetch_add(1, Relaxed);
        let mut tcp = TcpStream::connect(self.to)
            .await
            .map_err(TransportError::dialer)?;
        // Small, so that nothing that is said fits into it at once.
        let (ours, mut theirs) = duplex(64);
        tokio::spawn(async move { copy_bidirectional(&mut theirs, &mut tcp).await });
        Ok(Box::new(ours))
    }
}

fn tunnelled(cluster: &FakeCluster) -> (ClusterAccess, SocketAddr) {
    let fake = cluster.access();
    let to = fake.url.trim_start_matches("https://").parse().unwrap();
    let mut moved = fake.clone();
    moved.url = "https://localhost:7".into();
    (access(&moved), to)
}

#[tokio::test]
async fn a_cluster_is_reached_through_a_users_own_dialer() {
    let cluster = FakeCluster::start("tunnel").unwrap();
    let (access, to) = tunnelled(&cluster);
    let dialled = Arc::<AtomicUsize>::default();
    let tunnel = Tunnel {
        to,
        dialled: dialled.clone(),
    };
    let transport = dialled_by(
        tunnel,
        access,
        Box::new(Open),
        Arc::default(),
        Deadlines::default(),
    );
    for _ in 0..3 {
        whole(get(&transport, "/version").await.unwrap())
            .await
            .unwrap();
    }
    assert_eq!(dialled.load(Relaxed), 1);
    soon(transport.close(Duration::ZERO)).await;
    soon(cluster.connections_closed()).await;
}

#[tokio::test]
async fn what_a_dialer_says_of_its_failure_is_told() {
    let cluster = FakeCluster::start("refused-tunnel").unwrap();
    let (access, to) = tunnelled(&cluster);
    cluster.refuse();
    let dialled = Arc::default();
    let tunnel = Tunnel { to, dialled };
    let transport = dialled_by(
        tunnel,
        access,
        Box::new(Open),
        Arc::default(),
        Deadlines::default(),
    );
    let error = get(&transport, "/version").await.err().unwrap();
    assert!(matches!(error, TransportError::Dialer { .. }), "{error}");
    assert_eq!(error.kind(), FailureKind::Refused);
}

struct Never;

#[async_trait]
impl Dialer for Never {
    async fn dial(&self, _: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_dialer_has_no_longer_than_its_deadlines() {
    let access = ClusterAccess::builder("https://a").ca_pem(ClusterCa::new("a").unwrap().pem());
    let deadlines = Deadlines {
        resolve: Duration::from_millis(10),
        connect: Duration::from_millis(10),
        ..Deadlines::default()
    };
    let access = access.build().unwrap();
    let transport = dialled_by(Never, access, Box::new(Open), Arc::default(), deadlines);
    let error = get(&transport, "/version").await.err().unwrap();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Connect,
                ..
            }
        ),
        "{error}"
    );
}

/// A proxy that lets `me:s@cret` through, by CONNECT, to wherever; what it was asked for it remembers.
async fn connect(mut client: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let head = head(&mut client).await.unwrap_or_default();
    let user = format!("Basic {}", BASE64_STANDARD.encode("me:s@cret"));
    if !head.contains(&user) {
        let refused = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        return client.write_all(refused).await;
    }
    let to = head.split(' ').nth(1).unwrap_or_default();
    let mut server = TcpStream::connect(to).await?;
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The same by SOCKS5 (RFC 1928, RFC 1929).
async fn socks5(mut client: TcpStream) -> io::Result<()> {
    let mut greeting = [0; 3];
    client.read_exact(&mut greeting).await?;
    if greeting[2] != 2 {
        return client.write_all(&[5, 0xff]).await;
    }
    client.write_all(&[5, 2]).await?;
    let mut user = [0; 2 + 2 + 1 + 6];
    client.read_exact(&mut user).await?;
    if user[2..] != *b"me\x06s@cret" {
        return client.write_all(&[1, 1]).await;
    }
    client.write_all(&[1, 0]).await?;
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    assert_eq!(request, [5, 1, 0, 1], "an IPv4 address is sent as one");
    let address: [u8; 4] = {
        let mut address = [0; 4];
        client.read_exact(&mut address).await?;
        address
    };
    let port = client.read_u16().await?;
    let mut server = TcpStream::connect((std::net::Ipv4Addr::from(address), port)).await?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn ask(access: AccessBuilder) -> Result<String, TransportError> {
    let transport = transport(
        access.build().unwrap(),
        Box::new(Open),
        Arc::default(),
        |_| (),
    );
    whole(get(&transport, "/version").await?).await
}

/// A cluster, and a proxy of each kind with its scheme. The https one is of the cluster's CA.
async fn behind_proxies() -> (Peer, ClusterCa, Vec<(&'static str, Peer)>) {
    let ca = ClusterCa::new("proxied").unwrap();
    let cluster = Peer::tls(config(&leaf(&ca), &ca, 0)).await;
    let acceptor = TlsAcceptor::from(Arc::new(config(&leaf(&ca), &ca, 0)));
    let plain = Peer::start(|tcp| async move {
        let _ = connect(tcp).await;
    });
    let https = Peer::start(move |tcp| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(tcp).await {
                let _ = connect(stream).await;
            }
        }
    });
    let socks = Peer::start(|tcp| async move {
        let _ = socks5(tcp).await;
    });
    let proxies = vec![
        ("http", plain.await),
        ("https", https.await),
        ("socks5", socks.await),
    ];
    (cluster, ca, proxies)
}

#[tokio::test]
async fn a_cluster_is_reached_through_a_proxy_of_each_kind() {
    let (cluster, ca, proxies) = behind_proxies().await;
    for (scheme, proxy) in &proxies {
        let through = |user: &str| {
            ClusterAccess::builder(cluster.url())
                .ca_pem(ca.pem())
                .proxy(format!("{scheme}://{user}@{}", proxy.address))
        };
        assert_eq!(ask(through("me:s%40cret")).await.unwrap(), "ok", "{scheme}");
        let error = ask(through("me:wrong-pass")).await.unwrap_err();
        assert!(
            matches!(error, TransportError::Proxy { .. }),
            "{scheme}: {error}"
        );
        let text = format!("{} {error:?}", error.text());
        assert!(text.contains(&proxy.address.to_string()), "{text}");
        assert!(!text.contains("wrong-pass"), "{text}");
    }
}

#[tokio::test]
async fn a_proxy_that_is_no_proxy_is_an_error_of_its_own() {
    let (cluster, ca, proxies) = behind_proxies().await;
    // One of another kind, which waits for what it knows; and one that answers something else.
    let (waits, answers) = (proxies[0].1.address, cluster.address);
    for url in [
        format!("https://{waits}"),
        format!("socks5://{waits}"),
        format!("http://{answers}"),
        format!("socks5://{answers}"),
    ] {
        let access = ClusterAccess::builder(cluster.url()).ca_pem(ca.pem());
        let access = access.proxy(url).build().unwrap();
        let transport = transport(access, Box::new(Open), Arc::default(), |deadlines| {
            deadlines.connect = Duration::from_millis(500);
            deadlines.tls = Duration::from_millis(500);
        });
        let error = get(&transport, "/version").await.err().unwrap();
        let stage = Wait::Proxy;
        assert!(
            matches!(error, TransportError::Proxy { .. })
                || matches!(error, TransportError::Deadline { stage: late, .. } if late == stage),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_proxys_address_and_an_endpoint_that_is_an_address_are_judged() {
    let (cluster, ca, proxies) = behind_proxies().await;
    let proxy = format!("http://me:s%40cret@{}", proxies[0].1.address);
    let through = |url: String, policy| {
        ClusterAccess::builder(url)
            .server_name("localhost")
            .ca_pem(ca.pem())
            .proxy(proxy.clone())
            .addresses(policy)
    };
    let forbidden = |error| match error {
        TransportError::Forbidden { host, source } => (host, source.reason),
        other => panic!("{other}"),
    };
    // The proxy is on loopback.
    let named = through("https://example.org".into(), AddressPolicy::tenant());
    let error = ask(named).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Forbidden);
    assert_eq!(forbidden(error), ("127.0.0.1".into(), Forbidden::Loopback));
    // The proxy may be dialled, and the endpoint not, in whatever spelling.
    let policy = AddressPolicy::tenant().allow("127.0.0.1/32".parse().unwrap());
    for host in ["169.254.169.254", "0xa9fea9fe", "127.0.0.2"] {
        let error = ask(through(format!("https://{host}"), policy.clone())).await;
        assert_eq!(forbidden(error.unwrap_err()).0, host);
    }
    let allowed = through(cluster.url(), policy);
    assert_eq!(ask(allowed).await.unwrap(), "ok");
}

/// What the documentation of `Policy::allow_proxy` says.
#[tokio::test]
async fn a_name_is_resolved_by_the_proxy_to_whatever_address_and_not_judged_here() {
    let ca = ClusterCa::new("inside").unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config(&leaf(&ca), &ca, 0)));
    let inside = Peer::at("127.0.0.2", move |tcp| {
        let acceptor = acceptor.clone();
        async move { http(acceptor.accept(tcp).await.unwrap()).await }
    })
    .await;
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let proxy = Peer::start({
        let (asked, inside) = (Arc::clone(&asked), inside.address);
        move |mut tcp| {
            let asked = Arc::clone(&asked);
            async move {
                let head = head(&mut tcp).await.unwrap();
                let to = head.split(' ').nth(1).unwrap();
                asked.lock().unwrap().push(to.to_owned());
                let mut server = TcpStream::connect(inside).await.unwrap();
                tcp.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .await
                    .unwrap();
                let _ = copy_bidirectional(&mut tcp, &mut server).await;
            }
        }
    })
    .await;
    // The proxy may be dialled; what is inside may not.
    let policy = AddressPolicy::tenant().allow("127.0.0.1/32".parse().unwrap());
    let at = |url: String| {
        ClusterAccess::builder(url)
            .server_name("localhost")
            .ca_pem(ca.pem())
            .addresses(policy.clone())
    };
    let through = |url: String| at(url).proxy(format!("http://{}", proxy.address));
    for access in [at(inside.url()), through(inside.url())] {
        let error = ask(access).await.unwrap_err();
        assert!(matches!(error, TransportError::Forbidden { .. }), "{error}");
    }
    let named = through("https://inside.example".into());
    assert_eq!(ask(named).await.unwrap(), "ok");
    assert_eq!(*asked.lock().unwrap(), ["inside.example:443"]);
}
