//! The transport belongs to its connection: when it is closed nothing of it is left, whoever holds what.

use std::time::Duration;

use clustercache_testkit::fleet::FakeCluster;
use http_body_util::BodyExt;

use super::rig::{Rig, soon};
use crate::TransportError;

#[tokio::test]
async fn close_ends_a_watch_that_somebody_reads_and_gives_its_descriptor_back() {
    let rig = Rig::new("read");
    let mut watch = rig.watch().await;
    let (frame, ()) = soon(async { tokio::join!(watch.frame(), rig.close()) }).await;
    assert!(
        matches!(frame, Some(Err(TransportError::Retired))),
        "{frame:?}"
    );
    assert_eq!(rig.transport.tasks(), 0);
    soon(rig.cluster.connections_closed()).await;
}

#[tokio::test]
async fn close_ends_a_watch_that_somebody_only_holds() {
    let rig = Rig::with(FakeCluster::start("held").unwrap(), |d| {
        d.close = Duration::from_secs(600);
    });
    let mut watch = rig.watch().await;
    soon(rig.close()).await;
    assert_eq!(rig.transport.tasks(), 0);
    soon(rig.cluster.connections_closed()).await;
    let frame = soon(watch.frame()).await;
    assert!(
        matches!(frame, Some(Err(TransportError::Retired))),
        "{frame:?}"
    );
    assert!(
        soon(watch.frame()).await.is_none(),
        "an error is the last thing"
    );
}

#[tokio::test]
async fn after_close_a_call_fails_at_once_as_retired_also_through_a_kube_client() {
    let rig = Rig::new("after");
    let client = kube::Client::new(rig.transport.clone(), "default");
    client.apiserver_version().await.unwrap();
    soon(rig.close()).await;
    for _ in 0..2 {
        let kube::Error::Service(error) = client.apiserver_version().await.unwrap_err() else {
            panic!("it is an error of ours")
        };
        assert!(
            matches!(error.downcast_ref(), Some(TransportError::Retired)),
            "{error}"
        );
    }
    assert_eq!(rig.cluster.counters().requests.total(), 1);
}

#[tokio::test]
async fn a_call_in_flight_has_its_grace() {
    let rig = Rig::with(FakeCluster::start("grace").unwrap(), |d| {
        d.close = Duration::from_secs(600);
    });
    rig.cluster.hang("/version");
    let (call, ()) = tokio::join!(rig.text("/version"), async {
        soon(rig.cluster.when(|counters| counters.requests.version == 1)).await;
        tokio::join!(soon(rig.close()), async {
            let late = rig.get("/livez").await.err();
            assert!(matches!(late, Some(TransportError::Retired)), "{late:?}");
            rig.cluster.answer_normally();
        });
    });
    call.unwrap();
    assert_eq!(rig.transport.tasks(), 0);
}

#[tokio::test]
async fn a_call_that_outlasts_its_grace_is_cut_as_retired() {
    let rig = Rig::with(FakeCluster::start("cut").unwrap(), |d| {
        d.close = Duration::from_millis(50);
    });
    rig.cluster.hang("/version");
    let (call, ()) = tokio::join!(rig.text("/version"), async {
        soon(rig.cluster.when(|counters| counters.requests.version == 1)).await;
        soon(rig.close()).await;
    });
    assert!(matches!(call, Err(TransportError::Retired)), "{call:?}");
    soon(rig.cluster.connections_closed()).await;
}

#[tokio::test]
async fn close_ends_a_dial_and_who_waits_for_it() {
    let rig = Rig::new("dial");
    rig.cluster.black_hole();
    let (call, ()) = tokio::join!(rig.get("/version"), async {
        soon(rig.cluster.when(|counters| counters.connections_open == 1)).await;
        soon(rig.close()).await;
    });
    assert!(matches!(call.err(), Some(TransportError::Retired)));
    assert_eq!(rig.transport.tasks(), 0);
    soon(rig.cluster.connections_closed()).await;
}

#[tokio::test]
async fn a_transport_that_is_dropped_leaves_nothing_either() {
    let rig = Rig::new("dropped");
    let mut watch = rig.watch().await;
    let Rig {
        cluster, transport, ..
    } = rig;
    drop(transport);
    soon(cluster.connections_closed()).await;
    assert!(matches!(
        soon(watch.frame()).await,
        Some(Err(TransportError::Retired))
    ));
}
