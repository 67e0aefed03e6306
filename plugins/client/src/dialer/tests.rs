//! Names and addresses: lookups that hang, policies, and addresses that do not answer. A resolver here is a function; TCP is real.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use clustercache::{AddressPolicy, ClusterKey, FailureKind, Forbidden};
use futures_util::future::join_all;
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::{ByteStream, Destination, Dialer, TcpDialer, connect::connect, names::Names};
use crate::{TransportError, Wait};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// The limit under which a test waits for what must happen.
async fn soon<T>(event: impl Future<Output = T>) -> T {
    timeout(LONG, event).await.expect("it happens in time")
}

/// Holds lookups until it is opened, and counts who came.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    opened: Condvar,
    came: AtomicUsize,
}

impl Door {
    fn wait(&self) {
        self.came.fetch_add(1, Relaxed);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    async fn until(&self, came: usize) {
        let came = async {
            while self.came.load(Relaxed) < came {
                tokio::task::yield_now().await;
            }
        };
        soon(came).await;
    }
}

/// Names that begin with `hang` wait at the door; all others have an address.
fn names(door: &Arc<Door>) -> Names {
    let door = door.clone();
    Names::by(move |host| {
        if host.starts_with("hang") {
            door.wait();
        }
        Ok(vec!["10.0.0.1:0".parse().unwrap()])
    })
}

#[tokio::test]
async fn lookups_of_one_name_at_one_time_are_one() {
    let door = Arc::<Door>::default();
    let names = names(&door);
    let all = join_all((0..100).map(|_| names.lookup("hang", 443, LONG)));
    let (all, ()) = tokio::join!(all, async {
        door.until(1).await;
        door.open();
    });
    for found in all {
        assert_eq!(found.unwrap(), ["10.0.0.1:443".parse().unwrap()]);
    }
    assert_eq!(door.came.load(Relaxed), 1);
    // There is no cache: the next asks again.
    names.lookup("hang", 443, LONG).await.unwrap();
    assert_eq!(door.came.load(Relaxed), 2);
}

#[tokio::test]
async fn a_lookup_that_hangs_ends_at_its_deadline_and_says_so() {
    let door = Arc::<Door>::default();
    let error = names(&door).lookup("hang", 443, SHORT).await.unwrap_err();
    assert!(
        matches!(
            error,
            TransportError::Deadline {
                stage: Wait::Resolve,
                ..
            }
        ),
        "{error}"
    );
    door.open();
}

#[tokio::test]
async fn names_that_hung_share_some_threads_and_delay_no_other_name() {
    let door = Arc::<Door>::default();
    let names = names(&door);
    let hanging: Vec<_> = (0..40).map(|number| format!("hang-{number}")).collect();
    let ask = || join_all(hanging.iter().map(|name| names.lookup(name, 443, SHORT)));
    assert!(ask().await.iter().all(Result::is_err));
    door.open();
    // Their threads have come back when they are known.
    soon(async {
        while names.hanging() < 40 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    *door.open.lock().unwrap() = false;
    assert!(ask().await.iter().all(Result::is_err));
    assert_eq!(door.came.load(Relaxed), 40 + 16);
    let others: Vec<_> = (0..48).map(|number| format!("other-{number}")).collect();
    for found in join_all(others.iter().map(|name| names.lookup(name, 443, LONG))).await {
        found.unwrap();
    }
    door.open();
}

#[tokio::test]
async fn a_lookup_that_finds_no_thread_says_nothing_of_the_cluster() {
    let door = Arc::<Door>::default();
    let names = names(&door);
    let hanging: Vec<_> = (0..48).map(|number| format!("hang-{number}")).collect();
    let hang = join_all(hanging.iter().map(|name| names.lookup(name, 443, LONG)));
    let ((), _) = tokio::join!(
        async {
            door.until(48).await;
            let error = names.lookup("other", 443, SHORT).await.unwrap_err();
            assert_eq!(error.kind(), FailureKind::Busy, "{error}");
            door.open();
        },
        hang
    );
    names.lookup("other", 443, LONG).await.unwrap();
}

#[tokio::test]
async fn a_name_without_an_address_and_one_that_is_unknown_are_errors_of_dns() {
    let none = Names::by(|_| Ok(Vec::new()));
    let unknown = Names::by(|_| Err(io::Error::other("no such name")));
    for names in [none, unknown] {
        let error = names.lookup("a", 443, LONG).await.unwrap_err();
        assert_eq!(error.kind(), FailureKind::Dns, "{error}");
    }
}

/// Answers each lookup with the next of these.
fn dialer(answers: Vec<Vec<SocketAddr>>) -> (TcpDialer, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let counted = count.clone();
    let names = Names::by(move |_| {
        let nth = counted.fetch_add(1, Relaxed);
        Ok(answers[nth.min(answers.len() - 1)].clone())
    });
    (TcpDialer { names }, count)
}

async fn dial(
    dialer: &TcpDialer,
    host: &str,
    port: u16,
    policy: &AddressPolicy,
    connect: Duration,
) -> Result<Box<dyn ByteStream>, TransportError> {
    let to = Destination {
        cluster: &ClusterKey::named("a"),
        host,
        port,
        addresses: policy,
        resolve: LONG,
        connect,
    };
    dialer.dial(to).await
}

/// Dials, and is accepted there.
async fn both(
    dialled: impl Future<Output = Result<Box<dyn ByteStream>, TransportError>>,
    accepted: impl Future<Output = io::Result<(TcpStream, SocketAddr)>>,
) {
    let (dialled, accepted) = soon(async { tokio::join!(dialled, accepted) }).await;
    dialled.unwrap();
    accepted.unwrap();
}

fn addresses(all: &[&str]) -> Vec<SocketAddr> {
    all.iter()
        .map(|address| SocketAddr::new(address.parse().unwrap(), 0))
        .collect()
}

#[tokio::test]
async fn the_address_that_was_judged_is_dialled_and_the_name_is_not_asked_for_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // What a rebinding name would answer to a second question is not allowed.
    let (dialer, asked) = dialer(vec![
        addresses(&["127.0.0.1"]),
        addresses(&["169.254.169.254"]),
    ]);
    let policy = AddressPolicy::tenant().allow("127.0.0.1/32".parse().unwrap());
    both(
        dial(&dialer, "rebinds", port, &policy, LONG),
        listener.accept(),
    )
    .await;
    assert_eq!(asked.load(Relaxed), 1);
    // And the other way round: each dial judges what its own lookup says.
    let error = dial(&dialer, "rebinds", port, &policy, LONG)
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&error, TransportError::Forbidden { source, .. } if source.reason == Forbidden::LinkLocal),
        "{error}"
    );
    assert_eq!(error.kind(), FailureKind::Forbidden);
}

#[tokio::test]
async fn of_several_addresses_the_forbidden_ones_are_left_out() {
    // Something listens at each of them.
    let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = good.local_addr().unwrap().port();
    let _bad = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let (dialer, _) = dialer(vec![addresses(&["127.0.0.2", "::1", "127.0.0.1"])]);
    let policy = AddressPolicy::tenant().allow("127.0.0.1/32".parse().unwrap());
    both(dial(&dialer, "a", port, &policy, LONG), good.accept()).await;
}

#[tokio::test]
async fn an_endpoint_that_is_a_forbidden_address_is_not_dialled_in_whatever_spelling() {
    let dialer = TcpDialer::new();
    for host in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "localhost",
    ] {
        let error = dial(&dialer, host, 1, &AddressPolicy::tenant(), LONG)
            .await
            .err()
            .unwrap();
        assert!(
            matches!(error, TransportError::Forbidden { .. }),
            "{host}: {error}"
        );
    }
}

/// An address at which nothing answers: its backlog is full, so a SYN is dropped.
async fn silent(on: &str) -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{on}:0").parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fill = Vec::new();
    while let Ok(filled) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        fill.push(filled.unwrap());
    }
    (listener, fill, address)
}

#[tokio::test]
async fn an_address_that_does_not_answer_does_not_keep_the_next_from_being_tried() {
    let (_listener, _fill, hole) = silent("127.0.0.1").await;
    let port = hole.port();
    let good = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    // Also beyond the two that are tried at a time.
    for holes in [1, 2, 5] {
        let mut all = vec!["127.0.0.1"; holes];
        all.push("127.0.0.2");
        let (dialer, _) = dialer(vec![addresses(&all)]);
        let (connect, any) = (Duration::from_secs(3), AddressPolicy::any());
        both(dial(&dialer, "a", port, &any, connect), good.accept()).await;
    }
}

#[tokio::test]
async fn addresses_that_refuse_are_all_tried_and_the_last_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (dialer, _) = dialer(vec![addresses(&["127.0.0.1", "127.0.0.2", "127.0.0.3"])]);
    let error = dial(&dialer, "a", port, &AddressPolicy::any(), LONG)
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), FailureKind::Refused);
    assert!(
        matches!(&error, TransportError::Connect { address, .. } if address.ip().is_loopback()),
        "{error}"
    );
}

#[tokio::test]
async fn the_kernel_looks_after_a_peer_that_is_gone_without_a_word() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tcp = connect(&[address], LONG).await.unwrap();
    let socket = SockRef::from(&tcp);
    assert!(socket.keepalive().unwrap());
    let secs = Duration::from_secs;
    assert_eq!(socket.tcp_keepalive_time().unwrap(), secs(30));
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), secs(10));
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
}
