//! One address of a fake cluster: the faults that hold there, and the connections that it accepted.
//!
//! It is a port of its own (`port.rs`), or an address of a listener that it shares with others (`shared.rs`).

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{
    connection_fault::{ConnectionFault, Effect},
    port::{Entry, Port},
    shared::SharedListener,
    terms::{Holding, Terms},
    wire::{Flow, Wire},
};

/// One accepted connection. Dropped after its socket, it is no longer counted as the endpoint's.
pub(super) struct Accepted {
    pub(super) number: u64,
    pub(super) wire: Arc<Wire>,
    pub(super) endpoint: Arc<Endpoint>,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.endpoint.state.lock().wires.remove(&self.number);
    }
}

pub(super) struct Endpoint {
    pub(super) addr: SocketAddr,
    /// None has a port of its own.
    shared: Option<Arc<SharedListener>>,
    state: Mutex<State>,
}

struct State {
    /// In the order in which they were injected.
    faults: Vec<Arc<Holding>>,
    injected: u64,
    port: Option<Port>,
    wires: HashMap<u64, Arc<Wire>>,
    accepted: u64,
    /// The cluster moved away or ended: nothing is let in again.
    retired: bool,
}

/// The id of the one fault that the methods of `control.rs` set; those that are injected have others.
pub(super) const SWITCH: u64 = 0;

/// Of most connections.
static NOTHING_WRONG: LazyLock<Arc<Terms>> = LazyLock::new(Arc::default);

impl State {
    fn new(port: Option<Port>) -> Mutex<Self> {
        Mutex::new(Self {
            faults: Vec::new(),
            injected: SWITCH,
            port,
            wires: HashMap::new(),
            accepted: 0,
            retired: false,
        })
    }

    fn terms(&self, connection: u64) -> Arc<Terms> {
        if self.faults.is_empty() {
            return NOTHING_WRONG.clone();
        }
        Arc::new(Terms::of(&self.faults, connection))
    }

    /// What becomes of who knocks now.
    fn entry(&self) -> Entry {
        let meeting = self.faults.iter().filter(|holding| holding.meets_new());
        let entries = meeting.map(|holding| match holding.fault.effect {
            Effect::Refuse => Entry::Refused,
            Effect::Unplug => Entry::Dropped,
            Effect::Pause => Entry::Held,
            _ => Entry::Open,
        });
        entries.max().unwrap_or(Entry::Open)
    }
}

impl Endpoint {
    /// A port of its own. Needs a runtime's context.
    pub(super) fn with_port() -> io::Result<Arc<Self>> {
        let port = Port::bind()?;
        Ok(Arc::new(Self {
            addr: port.addr(),
            shared: None,
            state: State::new(Some(port)),
        }))
    }

    /// An address of a listener that others share.
    pub(super) fn at(shared: &Arc<SharedListener>, number: usize) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            addr: shared.addr(number)?,
            shared: Some(shared.clone()),
            state: State::new(None),
        }))
    }

    /// The listener that it shares, if it does.
    pub(super) fn shared(&self) -> Option<&Arc<SharedListener>> {
        self.shared.as_ref()
    }

    /// The next connection on a port of its own, once one is let in.
    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let mut state = self.state.lock();
        match &mut state.port {
            Some(port) => port.poll_accept(cx),
            None => Poll::Pending,
        }
    }

    /// What holds for a new connection; nothing if it is refused. `ended` is the parent of the token that ends it.
    pub(super) fn admit(self: &Arc<Self>, ended: &CancellationToken) -> Option<Accepted> {
        let mut state = self.state.lock();
        let number = state.accepted;
        let terms = state.terms(number);
        if state.retired || terms.flow == Flow::Reset {
            return None;
        }
        state.accepted += 1;
        let wire = Arc::new(Wire::new(terms, ended.child_token()));
        state.wires.insert(number, wire.clone());
        Some(Accepted {
            number,
            wire,
            endpoint: self.clone(),
        })
    }

    /// Injects a fault, and returns its id. Needs a runtime's context.
    pub(super) fn inject(&self, fault: Arc<ConnectionFault>) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.injected += 1;
        let (id, since) = (state.injected, state.accepted);
        state.faults.push(Holding::new(id, fault, since));
        self.settle(&mut state)?;
        Ok(id)
    }

    /// Undoes a fault, if it still holds. Needs a runtime's context.
    pub(super) fn undo(&self, id: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.faults.retain(|holding| holding.id != id);
        self.settle(&mut state)
    }

    /// Undoes all faults. Needs a runtime's context.
    pub(super) fn undo_all(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.faults.clear();
        self.settle(&mut state)
    }

    /// Throws the switch: of those faults one holds at a time, or none. Needs a runtime's context.
    pub(super) fn switch(&self, fault: Option<Arc<ConnectionFault>>) -> io::Result<()> {
        let mut state = self.state.lock();
        let since = state.accepted;
        let thrown = state.faults.iter().find(|holding| holding.id == SWITCH);
        if let (Some(thrown), Some(fault)) = (thrown, &fault)
            && thrown.fault.is_like(fault)
        {
            return Ok(());
        }
        state.faults.retain(|holding| holding.id != SWITCH);
        let fault = fault.map(|fault| Holding::new(SWITCH, fault, since));
        state.faults.extend(fault);
        self.settle(&mut state)
    }

    /// The connections and the door become as the faults are now.
    fn settle(&self, state: &mut State) -> io::Result<()> {
        if state.retired {
            return Ok(());
        }
        for (number, wire) in &state.wires {
            wire.apply(state.terms(*number));
        }
        let entry = state.entry();
        if let Some(shared) = &self.shared {
            shared.drop_syns(self.addr, entry == Entry::Dropped);
        }
        match &mut state.port {
            Some(port) => port.set(entry),
            None => Ok(()),
        }
    }

    /// Refuses from now on, whatever is set later. The address stays ours.
    pub(super) fn retire(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let refuse = Arc::new(ConnectionFault::refuse());
        state.faults = vec![Holding::new(SWITCH, refuse, state.accepted)];
        self.settle(&mut state)?;
        state.retired = true;
        Ok(())
    }

    /// Ends all connections that are open: by FIN, or by RST.
    pub(super) fn end_connections(&self, reset: bool) {
        for wire in self.state.lock().wires.values() {
            if reset {
                wire.set(Flow::Reset);
            }
            wire.ended.cancel();
        }
    }

    /// Closes it for good. The connections end by the token that was given for them.
    pub(super) fn close(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.retired = true;
        if let Some(shared) = &self.shared {
            shared.leave(self.addr);
        }
        match &mut state.port {
            Some(port) => port.close(),
            None => Ok(()),
        }
    }
}
