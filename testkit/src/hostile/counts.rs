//! What a hostile server counts, and how a test waits for a count.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// What a hostile server saw and did since it started. `open` is of this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// TCP connections accepted.
    pub connections: u64,
    /// TCP connections that are open.
    pub open: u64,
    /// TLS handshakes that were completed.
    pub handshakes: u64,
    /// Requests whose head was read.
    pub requests: u64,
    /// Bytes received, on TCP.
    pub received: u64,
    /// Bytes sent, on TCP: what the kernel took.
    pub sent: u64,
    /// HTTP/2: answers to pings, that is, those of the client's.
    pub pongs: u64,
    /// HTTP/2: streams that the client reset.
    pub resets: u64,
    paths: BTreeMap<String, u64>,
}

impl Counts {
    /// Requests whose path begins so.
    pub fn requests_to(&self, prefix: &str) -> u64 {
        let from = self.paths.range(prefix.to_owned()..);
        from.take_while(|(path, _)| path.starts_with(prefix))
            .map(|(_, count)| count)
            .sum()
    }
}

#[derive(Default)]
pub(super) struct Counting(watch::Sender<Counts>);

impl Counting {
    pub(super) fn change(&self, change: impl FnOnce(&mut Counts)) {
        self.0.send_modify(change);
    }

    /// The number of a new connection.
    pub(super) fn accepted(&self) -> u64 {
        let mut number = 0;
        self.change(|counts| {
            counts.connections += 1;
            counts.open += 1;
            number = counts.connections;
        });
        number
    }

    pub(super) fn request(&self, path: &str) {
        self.change(|counts| {
            counts.requests += 1;
            *counts.paths.entry(path.to_owned()).or_default() += 1;
        });
    }

    pub(super) fn now(&self) -> Counts {
        self.0.borrow().clone()
    }

    pub(super) async fn when(&self, wanted: impl FnMut(&Counts) -> bool) -> Counts {
        let mut states = self.0.subscribe();
        let state = states.wait_for(wanted).await;
        state.expect("the sender lives as long as self").clone()
    }
}
