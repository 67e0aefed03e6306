//! A port of its own: a listening socket that can refuse, fill up and listen again.
//!
//! The port is never lost, and takes one descriptor. To refuse, the listening socket is shut down and kept: it stays bound
//! to its port, which the kernel then gives to nobody who asks for any port, and it listens again when it is told to. A
//! shutdown, unlike a close, also works while a process that was just forked holds a copy of the descriptor. (So it is on
//! Linux. Elsewhere the socket is closed and bound again, and meanwhile the port can be lost.)

use std::{
    io, mem,
    net::{
        Ipv4Addr, Shutdown, SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream,
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

const BACKLOG: i32 = 1024;

/// What becomes of who knocks, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    Open,
    /// The kernel takes connections, and nobody accepts them.
    Held,
    /// The kernel drops every SYN.
    Dropped,
    Refused,
}

pub(super) struct Port {
    addr: SocketAddr,
    entry: Entry,
    door: Door,
    /// Fills a backlog of one, so that the kernel drops every further SYN.
    filler: Option<StdTcpStream>,
    acceptor: Option<Waker>,
}

impl Port {
    /// Listens on a port of `127.0.0.1` that is free. Needs a runtime's context.
    pub(super) fn bind() -> io::Result<Self> {
        // A port that the kernel chose would be given up at a shutdown, one that was asked for is not.
        let chooser = bound((Ipv4Addr::LOCALHOST, 0).into())?;
        let addr = local(&chooser)?;
        let mut door = Door::Shut(bound(addr)?.into());
        drop(chooser);
        door.open(addr, BACKLOG)?;
        Ok(Self {
            addr,
            entry: Entry::Open,
            door,
            filler: None,
            acceptor: None,
        })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The next connection, once one is let in.
    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        self.acceptor = Some(cx.waker().clone());
        match &self.door {
            Door::Open(listener) if self.entry == Entry::Open => {
                Poll::Ready(Ok(ready!(listener.poll_accept(cx))?.0))
            }
            _ => Poll::Pending,
        }
    }

    /// From now on this becomes of who knocks. Needs a runtime's context.
    pub(super) fn set(&mut self, entry: Entry) -> io::Result<()> {
        let before = mem::replace(&mut self.entry, entry);
        if before == entry {
            return Ok(());
        }
        if before == Entry::Dropped {
            self.door.shut()?;
            self.filler = None;
        }
        match entry {
            Entry::Refused => self.door.shut()?,
            Entry::Dropped => {
                self.door.shut()?;
                self.door.open(self.addr, 0)?;
                // If a client was faster, the backlog is full already and this one waits in vain.
                let patience = Duration::from_millis(50);
                self.filler = StdTcpStream::connect_timeout(&self.addr, patience).ok();
            }
            Entry::Open | Entry::Held => self.door.open(self.addr, BACKLOG)?,
        }
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.wake();
        }
        Ok(())
    }

    /// Closes it for good.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let shut = self.door.shut();
        (self.door, self.filler) = (Door::Closed, None);
        shut
    }
}

/// A listening socket.
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
