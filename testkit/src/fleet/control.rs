//! The faults of a fake cluster, as switches on its handle. All can be thrown at any time, and [`FakeCluster::heal`]
//! undoes them all.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;

use super::{
    ConnectionFault, FakeCluster, FleetError,
    endpoint::Endpoint,
    faults::{Fault, Faults},
    identity::url,
    serve,
};

/// What becomes of the endpoint that a cluster moves away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldEndpoint {
    /// It goes on serving the same cluster.
    Keep,
    /// Its connections are reset and its port refuses for ever. Nobody else gets the port while the cluster lives.
    Refuse,
}

/// Faults of the network. Of these one holds at a time, for all endpoints; each replaces the one before. Those that are
/// [injected](FakeCluster::inject) hold beside them, several at a time.
///
/// # Panics
/// All of these panic if the port cannot be listened on again. It is reserved, so the process must be out of
/// descriptors.
impl FakeCluster {
    /// A black hole: connections are accepted, what comes in is swallowed, nothing goes out, no FIN, no RST. Old ones
    /// turn silent where they are, also in the middle of an answer.
    ///
    /// When a client closes a swallowed connection it is gone here too, so that a test can see that it was closed.
    /// What was swallowed cannot come back: swallowed connections are reset when this ends, by whatever comes next.
    pub fn black_hole(&self) {
        self.throw(Some(ConnectionFault::black_hole()));
    }

    /// As if the cable were pulled: old connections are swallowed as by [`black_hole`](Self::black_hole), new ones
    /// are never established: the backlog is full and the kernel drops every SYN (on Linux).
    pub fn unplug(&self) {
        self.throw(Some(ConnectionFault::unplug()));
    }

    /// Connections are accepted and are silent from their first byte on, in the middle of the TLS handshake; those
    /// that are open go on.
    pub fn silence_new_connections(&self) {
        self.throw(Some(ConnectionFault::black_hole().new_connections()));
    }

    /// The port is closed (`ECONNREFUSED`) and open connections are reset. Where clusters share a listener, new ones are reset
    /// at once, see [`FleetBuilder::port_each`](super::FleetBuilder::port_each).
    pub fn refuse(&self) {
        self.throw(Some(ConnectionFault::refuse()));
    }

    /// As if the process were stopped (`SIGSTOP`): the kernel still takes connections and bytes, nothing is answered,
    /// nothing is lost.
    pub fn pause(&self) {
        self.throw(Some(ConnectionFault::pause()));
    }

    /// Ends [`pause`](Self::pause), or another fault of the network. What was held back is read and answered now, on
    /// the same connections.
    pub fn resume(&self) {
        self.throw(None);
    }

    /// Undoes all faults, injected ones too, on the same port. Connections that were swallowed are reset; others go on. The
    /// faults of what it serves are undone by [`FakeApi::undo_all`](crate::api::FakeApi::undo_all).
    pub fn heal(&self) {
        self.each_endpoint(Endpoint::undo_all);
        self.inner()
            .faults
            .change(|faults| *faults = Faults::default());
    }

    /// Closes all open connections by FIN, idle or not. New ones are accepted.
    pub fn close_connections(&self) {
        self.end_connections(false);
    }

    /// Closes all open connections by RST. New ones are accepted.
    pub fn reset_connections(&self) {
        self.end_connections(true);
    }

    fn end_connections(&self, reset: bool) {
        for endpoint in self.inner().endpoints.lock().iter() {
            endpoint.end_connections(reset);
        }
    }

    fn throw(&self, fault: Option<ConnectionFault>) {
        let fault = fault.map(Arc::new);
        self.each_endpoint(|endpoint| endpoint.switch(fault.clone()));
    }

    fn each_endpoint(&self, act: impl Fn(&Endpoint) -> io::Result<()>) {
        let _runtime = self.inner().runtime.enter();
        for endpoint in self.inner().endpoints.lock().iter() {
            act(endpoint).expect("a reserved port can be listened on again");
        }
    }

    /// Listens on another port, of its own, as the same cluster with the same CA, and returns the new address. The new endpoint
    /// has no fault of the network, whatever the old one has.
    pub fn move_endpoint(&self, old: OldEndpoint) -> Result<SocketAddr, FleetError> {
        let inner = self.inner();
        let _runtime = inner.runtime.enter();
        let endpoint = Endpoint::with_port().map_err(FleetError::Listen)?;
        if old == OldEndpoint::Refuse {
            self.endpoint().retire().map_err(FleetError::Listen)?;
        }
        inner.endpoints.lock().push(endpoint.clone());
        let addr = endpoint.addr;
        tracing::debug!(cluster = %inner.name, to = %url(addr), "moved");
        serve::begin(inner, endpoint);
        Ok(addr)
    }
}

/// Faults of the answers. They are told by the beginning of the path; `/` is every path. Of several that match, the one
/// that was set last counts. Watches that are open already go on.
impl FakeCluster {
    /// Answers matching requests with this status and body, before any authentication, as a proxy in front would. The
    /// body is sent as JSON if it begins with `{`, else as text.
    ///
    /// # Panics
    /// If `status` is not between 100 and 999.
    pub fn answer(&self, path_prefix: &str, status: u16, body: impl Into<Bytes>) {
        let status = StatusCode::from_u16(status).expect("a status is a number from 100 to 999");
        self.inner()
            .faults
            .add(path_prefix, Fault::Answer(status, body.into()));
    }

    /// Answers matching requests 403 with a `Status` body, as a real server without the role would.
    pub fn forbid(&self, path_prefix: &str) {
        self.inner().faults.add(path_prefix, Fault::Forbid);
    }

    /// Answers nothing to matching requests. When this ends, those that still wait are answered.
    pub fn hang(&self, path_prefix: &str) {
        self.inner().faults.add(path_prefix, Fault::Hang);
    }

    /// Answers each request that much later.
    pub fn latency(&self, latency: Duration) {
        self.inner()
            .faults
            .change(|faults| faults.latency = latency);
    }

    /// Tells clients to go away (GOAWAY) by chance, at each of their requests over HTTP/2, as `--goaway-chance` has it, from 0 to 1: they are
    /// answered, watches that are open go on, and what they ask next is asked on another connection. The seed of
    /// [`FakeApiBuilder::seed`](crate::api::FakeApiBuilder::seed) is its seed, too.
    pub fn goaway_chance(&self, chance: f64) {
        self.inner()
            .faults
            .change(|faults| faults.goaway_chance = chance);
    }

    /// Undoes all faults of the answers, those of the network not.
    pub fn answer_normally(&self) {
        self.inner()
            .faults
            .change(|faults| *faults = Faults::default());
    }
}
