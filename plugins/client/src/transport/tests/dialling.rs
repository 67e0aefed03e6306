//! Dialling: once for all who wait, to its end, with leave.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use clustercache::FailureKind;
use clustercache_testkit::fleet::FakeCluster;
use futures_util::{FutureExt, future::join_all};
use tokio::{sync::Semaphore, time::Instant};

use super::rig::{Rig, access, get, readyz, soon, transport, whole};
use crate::{
    TransportError,
    transport::hooks::{Gate, Permit},
};

#[tokio::test]
async fn all_who_wait_for_a_connection_share_one_dial() {
    let rig = Rig::new("one");
    let answers = join_all((0..20).map(|_| rig.text("/version"))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(rig.cluster.counters().connections_accepted, 1);
}

#[tokio::test]
async fn a_dial_that_fails_fails_all_who_wait_and_nobody_after() {
    let rig = Rig::new("fails");
    rig.cluster.refuse();
    let answers = join_all((0..5).map(|_| rig.text("/version"))).await;
    for answer in answers {
        assert_eq!(answer.unwrap_err().kind(), FailureKind::Refused);
    }
    rig.cluster.heal();
    rig.text("/version").await.unwrap();
}

#[tokio::test]
async fn a_caller_that_gives_up_cancels_no_dial() {
    let rig = Rig::new("gives-up");
    rig.cluster.pause();
    assert!(rig.get("/version").now_or_never().is_none());
    assert_eq!(rig.transport.tasks(), 1, "the dial goes on");
    rig.cluster.resume();
    soon(rig.cluster.when(|counters| counters.tls_handshakes == 1)).await;
    rig.text("/version").await.unwrap();
    let counters = rig.cluster.counters();
    assert_eq!(
        (counters.connections_accepted, counters.requests.total()),
        (1, 1)
    );
}

/// Counts what dials tell it, and evicts and lets through on command.
struct Told {
    permits: AtomicUsize,
    received: AtomicUsize,
    returned: AtomicUsize,
    turn: Semaphore,
    evict: Semaphore,
}

#[derive(Clone)]
struct Strict(Arc<Told>);

impl Strict {
    fn new() -> Self {
        let count = AtomicUsize::default;
        Self(Arc::new(Told {
            permits: count(),
            received: count(),
            returned: count(),
            turn: Semaphore::new(0),
            evict: Semaphore::new(0),
        }))
    }
}

struct StrictPermit(Arc<Told>);

#[async_trait]
impl Gate for Strict {
    async fn permit(&self) -> Box<dyn Permit> {
        self.0.permits.fetch_add(1, Relaxed);
        Box::new(StrictPermit(self.0.clone()))
    }
}

#[async_trait]
impl Permit for StrictPermit {
    async fn received(&mut self) {
        self.0.received.fetch_add(1, Relaxed);
        self.0.turn.acquire().await.unwrap().forget();
    }

    async fn evicted(&self) {
        self.0.evict.acquire().await.unwrap().forget();
    }
}

impl Drop for StrictPermit {
    fn drop(&mut self) {
        self.0.returned.fetch_add(1, Relaxed);
    }
}

#[tokio::test]
async fn a_dial_has_leave_and_waits_for_its_turn_when_the_server_speaks() {
    let cluster = FakeCluster::start("turn").unwrap();
    let gate = Strict::new();
    let told = gate.0.clone();
    let transport = transport(
        access(&cluster.access()),
        Box::new(gate),
        Arc::default(),
        |_| (),
    );
    let (answer, ()) = tokio::join!(
        async { whole(get(&transport, "/version").await?).await },
        async {
            soon(async {
                while told.received.load(Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            // The server has spoken; its handshake cannot go on before we read what it said.
            assert_eq!(cluster.counters().tls_handshakes, 0);
            assert_eq!(told.returned.load(Relaxed), 0);
            told.turn.add_permits(1);
        }
    );
    answer.unwrap();
    let counts = [&told.permits, &told.received, &told.returned].map(|count| count.load(Relaxed));
    assert_eq!(counts, [1, 1, 1]);
}

#[tokio::test]
async fn a_silent_dial_is_given_up_when_it_is_evicted_and_says_nothing_of_the_cluster() {
    let cluster = FakeCluster::start("evicted").unwrap();
    cluster.black_hole();
    let gate = Strict::new();
    let told = gate.0.clone();
    let transport = transport(
        access(&cluster.access()),
        Box::new(gate),
        Arc::default(),
        |_| (),
    );
    let (answer, ()) = tokio::join!(get(&transport, "/version"), async {
        soon(cluster.when(|counters| counters.connections_open == 1)).await;
        told.evict.add_permits(1);
    });
    let error = answer.err().unwrap();
    assert!(matches!(error, TransportError::Evicted));
    assert_eq!(error.kind(), FailureKind::Busy);
    soon(cluster.connections_closed()).await;
    assert_eq!(told.returned.load(Relaxed), 1);
}

/// Never gives leave.
struct Shut;

#[async_trait]
impl Gate for Shut {
    async fn permit(&self) -> Box<dyn Permit> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_waits_for_leave_until_its_deadline_says_nothing_of_the_cluster() {
    let cluster = FakeCluster::start("leave").unwrap();
    let transport = transport(
        access(&cluster.access()),
        Box::new(Shut),
        Arc::default(),
        |d| {
            d.call = Duration::from_millis(50);
        },
    );
    let error = get(&transport, "/version").await.err().unwrap();
    assert!(matches!(error, TransportError::Busy { .. }), "{error}");
}

#[tokio::test]
async fn a_probe_that_waits_for_its_turn_until_its_deadline_says_nothing_of_the_cluster() {
    let cluster = FakeCluster::start("its-turn").unwrap();
    let gate = Strict::new();
    let transport = transport(
        access(&cluster.access()),
        Box::new(gate.clone()),
        Arc::default(),
        |_| (),
    );
    let until = Instant::now() + transport.0.shared.deadlines.probe;
    let (pooled, fresh) = tokio::join!(
        readyz(&transport, until),
        Box::pin(transport.fresh(&gate, until))
    );
    assert_eq!(gate.0.received.load(Relaxed), 2, "the server has spoken");
    for error in [pooled.err().unwrap(), fresh.err().unwrap()] {
        assert!(matches!(error, TransportError::Busy { .. }), "{error}");
    }
}
