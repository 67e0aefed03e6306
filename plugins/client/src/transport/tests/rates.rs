//! A rate limit on a cluster: waiting for a turn is part of the call, and no health check does.

use std::{sync::Arc, time::Duration};

use clustercache_testkit::fleet::FakeCluster;
use futures_util::poll;
use http::{Request, header};
use kube::client::Body;
use tokio::time::Instant;

use super::rig::{Rig, readyz, soon};
use crate::{
    Deadlines, RateLimit, TransportError,
    transport::{Class, Limiter},
};

/// One call an hour.
fn slow(burst: u32) -> Arc<Limiter> {
    Arc::new(Limiter::new(&RateLimit::new(1.0 / 3600.0, burst)))
}

#[tokio::test]
async fn a_hundred_calls_that_wait_in_the_bulk_lane_delay_no_probe() {
    let rig = Rig::paced(FakeCluster::start("lanes").unwrap(), slow(1), |_| ());
    let mut lists: Vec<_> = (0..100)
        .map(|_| {
            let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
            Box::pin(rig.transport.call_as(request, Class::List))
        })
        .collect();
    for list in &mut lists {
        assert!(poll!(list).is_pending());
    }
    let until = Instant::now() + Deadlines::default().probe;
    let reply = readyz(&rig.transport, until).await.unwrap();
    assert!(reply.status.is_success());
    soon(&mut lists[0]).await.unwrap();
    for list in &mut lists[1..] {
        assert!(poll!(list).is_pending());
    }
    let requests = rig.cluster.counters().requests;
    assert_eq!((requests.list, requests.health), (1, 1));
}

#[tokio::test]
async fn a_turn_that_does_not_come_in_time_is_a_lack_of_ours_and_says_so() {
    let rig = Rig::paced(FakeCluster::start("turn").unwrap(), slow(1), |deadlines| {
        deadlines.call = Duration::from_millis(200);
    });
    rig.text("/version").await.unwrap();
    let error = rig.get("/version").await.err().unwrap();
    let TransportError::Busy { what, .. } = error else {
        panic!("{error}")
    };
    assert!(what.contains("rate limit"), "{what}");
    assert_eq!(rig.cluster.counters().requests.total(), 1);
}

#[tokio::test]
async fn an_upgrade_takes_a_turn_as_a_call_does() {
    let rig = Rig::paced(FakeCluster::start("exec").unwrap(), slow(1), |deadlines| {
        deadlines.call = Duration::from_millis(200);
    });
    rig.text("/version").await.unwrap();
    let before = rig.cluster.counters().connections_accepted;
    let request = Request::get("/api/v1/namespaces/a/pods/b/exec")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .body(Body::empty())
        .unwrap();
    let error = soon(rig.transport.call_as(request, Class::Call)).await;
    assert!(
        matches!(error.err(), Some(TransportError::Busy { what, .. }) if what.contains("rate limit"))
    );
    assert_eq!(
        rig.cluster.counters().connections_accepted,
        before,
        "nobody was dialled"
    );
}

#[tokio::test]
async fn close_ends_a_wait_for_a_turn() {
    let rig = Rig::paced(FakeCluster::start("turns").unwrap(), slow(1), |_| ());
    rig.text("/version").await.unwrap();
    let mut waiting = Box::pin(rig.get("/version"));
    assert!(poll!(&mut waiting).is_pending());
    // It has the grace of a call in flight; there is none.
    rig.transport.close(Duration::ZERO).await;
    assert!(matches!(
        soon(waiting).await.err(),
        Some(TransportError::Retired)
    ));
}
