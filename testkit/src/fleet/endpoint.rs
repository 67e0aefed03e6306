//! One address of a fake cluster: its port, its listener, and the connections that it accepted.
//!
//! The port is never lost, and takes one descriptor. To refuse, the listening socket is shut down and kept: it stays bound
//! to its port, which the kernel then gives to nobody who asks for any port, and it listens again when it is told to. A
//! shutdown, unlike a close, also works while a process that was just forked holds a copy of the descriptor. (So it is on
//! Linux. Elsewhere the socket is closed and bound again, and meanwhile the port can be lost.)

use std::{
    collections::HashMap,
    io, mem,
    net::{
        Ipv4Addr, Shutdown, SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream,
    },
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use parking_lot::Mutex;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::wire::{FaultIo, Flow, Wire};

const BACKLOG: i32 = 1024;

/// The state of the network in front of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Up,
    /// Accepts; connections old and new are swallowed.
    BlackHole,
    /// No connection is ever established, and the old ones are swallowed: as if the cable were pulled.
    Unplugged,
    /// Accepts, and swallows new connections from their first byte; old ones go on.
    SilentTls,
    /// Nothing is accepted, read or written until it is up again, and nothing is lost.
    Paused,
    /// The port is closed and the old connections are reset.
    Refusing,
}

impl Network {
    fn of_old(self) -> Flow {
        match self {
            Self::Up | Self::SilentTls => Flow::Open,
            Self::BlackHole | Self::Unplugged => Flow::Swallowed,
            Self::Paused => Flow::Paused,
            Self::Refusing => Flow::Reset,
        }
    }

    fn of_new(self) -> Flow {
        if self == Self::SilentTls {
            Flow::Swallowed
        } else {
            self.of_old()
        }
    }
}

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
    state: Mutex<State>,
}

struct State {
    network: Network,
    door: Door,
    /// Fills a backlog of one, so that the kernel drops every further SYN.
    filler: Option<StdTcpStream>,
    acceptor: Option<Waker>,
    wires: HashMap<u64, Arc<Wire>>,
    accepted: u64,
    /// The cluster moved away or ended: nothing opens the port again.
    retired: bool,
}

impl Endpoint {
    /// Listens on a port of the loopback device that is free. Needs a runtime's context.
    pub(super) fn bind() -> io::Result<Arc<Self>> {
        // A port that the kernel chose would be given up at a shutdown, one that was asked for is not.
        let chooser = bound((Ipv4Addr::LOCALHOST, 0).into())?;
        let addr = local(&chooser)?;
        let mut door = Door::Shut(bound(addr)?.into());
        drop(chooser);
        door.open(addr, BACKLOG)?;
        let state = State {
            network: Network::Up,
            door,
            filler: None,
            acceptor: None,
            wires: HashMap::new(),
            accepted: 0,
            retired: false,
        };
        Ok(Arc::new(Self {
            addr,
            state: Mutex::new(state),
        }))
    }

    /// The next connection, once the network lets one in. `ended` is the parent of the token that ends it.
    pub(super) fn poll_accept(
        self: &Arc<Self>,
        ended: &CancellationToken,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Accepted, FaultIo)>> {
        let mut state = self.state.lock();
        state.acceptor = Some(cx.waker().clone());
        let socket = match &state.door {
            Door::Open(listener)
                if !matches!(state.network, Network::Paused | Network::Unplugged) =>
            {
                ready!(listener.poll_accept(cx))?.0
            }
            _ => return Poll::Pending,
        };
        let number = state.accepted;
        state.accepted += 1;
        let wire = Arc::new(Wire::new(state.network.of_new(), ended.child_token()));
        state.wires.insert(number, wire.clone());
        drop(state);
        let accepted = Accepted {
            number,
            wire: wire.clone(),
            endpoint: self.clone(),
        };
        Poll::Ready(
            socket
                .set_nodelay(true)
                .map(|()| (accepted, FaultIo::new(socket, wire))),
        )
    }

    /// Changes the network. Needs a runtime's context.
    pub(super) fn set(&self, network: Network) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.retired || state.network == network {
            return Ok(());
        }
        let before = std::mem::replace(&mut state.network, network);
        for wire in state.wires.values() {
            wire.set(network.of_old());
        }
        if before == Network::Unplugged {
            state.door.shut()?;
            state.filler = None;
        }
        match network {
            Network::Refusing => state.door.shut()?,
            Network::Unplugged => {
                state.door.shut()?;
                state.door.open(self.addr, 0)?;
                // If a client was faster, the backlog is full already and this one waits in vain.
                let patience = Duration::from_millis(50);
                state.filler = StdTcpStream::connect_timeout(&self.addr, patience).ok();
            }
            _ => state.door.open(self.addr, BACKLOG)?,
        }
        if let Some(acceptor) = state.acceptor.take() {
            acceptor.wake();
        }
        Ok(())
    }

    /// Refuses from now on, whatever is set later. The port stays ours.
    pub(super) fn retire(&self) -> io::Result<()> {
        self.set(Network::Refusing)?;
        self.state.lock().retired = true;
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

    /// Closes the port for good. The connections end by the token that was given for them.
    pub(super) fn close(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.retired = true;
        let shut = state.door.shut();
        (state.door, state.filler) = (Door::Closed, None);
        shut
    }
}

/// The listening socket of an endpoint.
enum Door {
    Open(TcpListener),
    /// Bound, and not listening.
    Shut(StdTcpListener),
    Closed,
}

impl Door {
    /// Listens. Needs a runtime's context.
    fn open(&mut self, addr: SocketAddr, backlog: i32) -> io::Result<()> {
        let listener = match mem::replace(self, Self::Closed) {
            Self::Open(listener) => {
                *self = Self::Open(listener);
                return Ok(());
            }
            Self::Shut(listener) => listener,
            Self::Closed => bound(addr)?.into(),
        };
        SockRef::from(&listener).listen(backlog)?;
        *self = Self::Open(TcpListener::from_std(listener)?);
        Ok(())
    }

    /// Listens no more, and resets the connections that nobody has accepted yet.
    fn shut(&mut self) -> io::Result<()> {
        match mem::replace(self, Self::Closed) {
            Self::Open(listener) => {
                // Out of the runtime, which would take the shutdown for a state that never ends.
                let listener = listener.into_std()?;
                if SockRef::from(&listener).shutdown(Shutdown::Both).is_ok() {
                    *self = Self::Shut(listener);
                }
            }
            other => *self = other,
        }
        Ok(())
    }
}

fn bound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    let addr = socket.local_addr()?.as_socket();
    addr.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}
