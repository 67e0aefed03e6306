//! A fleet behind one listener, where loopback has many addresses.

use std::{collections::BTreeSet, io::ErrorKind, net::SocketAddr};

use clustercache_testkit::{
    fleet::{ConnectionFault, FakeCluster, Fleet},
    pki::Validity,
};
use futures_util::poll;
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::client::{Client, Http, connect, soon};

const PATH: &str = "/api/v1/nodes";

/// The connection is reset before a byte comes.
async fn assert_reset(addr: SocketAddr) {
    let read = match TcpStream::connect(addr).await {
        Ok(mut socket) => soon(socket.read_u8()).await,
        Err(error) => Err(error),
    };
    let error = read.unwrap_err().kind();
    assert!(
        matches!(
            error,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
        ),
        "{error}"
    );
}

async fn kube_system(cluster: &FakeCluster) -> String {
    let (_, namespace) = connect(cluster)
        .await
        .get("/api/v1/namespaces/kube-system")
        .await;
    namespace["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn clusters_behind_one_listener_are_told_apart_by_the_address_that_is_dialled() {
    let fleet = Fleet::start(20).await.unwrap();
    let mut uids = BTreeSet::new();
    for cluster in fleet.clusters() {
        assert_eq!(connect(cluster).await.get(PATH).await.0, 200);
        uids.insert(kube_system(cluster).await);
        // The token of another one is no good here.
        let mut stranger = connect(cluster).await;
        stranger.show("fake-99.token");
        assert_eq!(stranger.get(PATH).await.0, 401);
    }
    assert_eq!(uids.len(), 20);
    let ports: BTreeSet<_> = fleet
        .clusters()
        .iter()
        .map(|cluster| cluster.addr().port())
        .collect();
    if cfg!(target_os = "linux") {
        assert_eq!(ports.len(), 1);
        let all = fleet.clusters().iter().map(FakeCluster::addr);
        assert_eq!(all.collect::<BTreeSet<_>>().len(), 20);
    }
    assert_eq!(fleet.counters().tls_handshakes, 60);
    fleet.shutdown().await;
}

#[tokio::test]
async fn what_is_wrong_with_one_cluster_is_not_wrong_with_its_neighbours() {
    let fleet = Fleet::start(4).await.unwrap();
    let faults: [fn() -> ConnectionFault; 4] = [
        ConnectionFault::black_hole,
        ConnectionFault::unplug,
        ConnectionFault::pause,
        ConnectionFault::refuse,
    ];
    for fault in faults {
        let mut before = connect(&fleet[2]).await;
        let injected = fleet[1].inject(fault());
        let access = fleet[1].access();
        let mut dialling = Box::pin(Client::connect(&access, Http::Two));
        assert!(!matches!(
            poll!(&mut dialling),
            std::task::Poll::Ready(Ok(_))
        ));
        assert_eq!(before.get(PATH).await.0, 200);
        for cluster in [&fleet[0], &fleet[2]] {
            assert_eq!(connect(cluster).await.get(PATH).await.0, 200);
        }
        injected.undo();
        drop(dialling);
        assert_eq!(connect(&fleet[1]).await.get(PATH).await.0, 200);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_unplugged_cluster_of_a_fleet_establishes_no_connection() {
    let fleet = Fleet::start(3).await.unwrap();
    fleet[1].unplug();
    let mut dialling = Box::pin(TcpStream::connect(fleet[1].addr()));
    assert!(poll!(&mut dialling).is_pending());
    // The neighbour's connection was asked for later, and is there.
    drop(TcpStream::connect(fleet[2].addr()).await.unwrap());
    assert!(poll!(&mut dialling).is_pending());
    assert_eq!(fleet[1].counters().connections_accepted, 0);
    fleet[1].heal();
    // The kernel sends the SYN again a second after the first.
    soon(dialling).await.unwrap();
    soon(fleet[1].when(|counters| counters.connections_accepted == 1)).await;
}

#[tokio::test]
async fn nobody_is_where_a_cluster_refuses_was_taken_out_or_never_was() {
    let mut fleet = Fleet::start(3).await.unwrap();
    fleet[0].refuse();
    assert_reset(fleet[0].addr()).await;
    assert_eq!(fleet[0].counters().connections_accepted, 0);
    fleet[0].heal();
    assert_eq!(connect(&fleet[0]).await.get(PATH).await.0, 200);

    let gone = fleet.remove("fake-1").unwrap();
    let addr = gone.addr();
    assert_eq!(connect(&gone).await.get(PATH).await.0, 200);
    drop(gone);
    assert_reset(addr).await;
    // At its own address, and at that of the machine.
    let port = fleet[0].addr().port();
    assert_reset(SocketAddr::from(([127, 9, 9, 9], port))).await;
    assert_eq!(connect(&fleet[1]).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn the_parts_of_a_fleet_have_names_and_addresses_of_their_own() {
    let whole = Fleet::start(4).await.unwrap();
    let part = Fleet::builder().first(2).clusters(2).start().await.unwrap();
    assert_eq!(part[0].name(), "fake-2");
    if cfg!(target_os = "linux") {
        assert_eq!(part[1].addr().ip(), whole[3].addr().ip());
    }
    assert_ne!(part[1].addr(), whole[3].addr());
    assert_eq!(connect(&part[1]).await.get(PATH).await.0, 200);
}

#[tokio::test]
async fn a_port_each_refuses_as_ports_do() {
    let fleet = Fleet::builder()
        .clusters(3)
        .port_each(true)
        .start()
        .await
        .unwrap();
    fleet[1].refuse();
    let refused = soon(TcpStream::connect(fleet[1].addr())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(connect(&fleet[0]).await.get(PATH).await.0, 200);
    assert_ne!(fleet[0].ca_pem(), fleet[1].ca_pem());
}

#[tokio::test]
async fn one_ca_can_be_that_of_all_until_a_cluster_is_replaced() {
    let fleet = Fleet::builder()
        .clusters(3)
        .one_ca(true)
        .start()
        .await
        .unwrap();
    assert_eq!(fleet[0].ca_pem(), fleet[1].ca_pem());
    let user = fleet[0]
        .client_certificate(FakeCluster::ADMIN, Validity::years())
        .unwrap();
    let access = fleet[1].access_with(user);
    let mut client = Client::connect(&access, Http::Two).await.unwrap();
    assert_eq!(client.get(PATH).await.0, 200);
    fleet[2].replace().unwrap();
    assert_ne!(fleet[0].ca_pem(), fleet[2].ca_pem());
    assert_eq!(connect(&fleet[2]).await.get(PATH).await.0, 200);
}
