//! One listener for a whole fleet, which tells clusters apart by the address that their clients dialled: so a cluster costs no
//! descriptor and no task.
//!
//! It is bound to the loopback device, where the system allows that; whoever comes from elsewhere all the same is dropped. That
//! there are many addresses on loopback is so on Linux.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{cluster::Inner, endpoint::Endpoint, serve};

/// As many as the kernel lets wait.
const BACKLOG: i32 = 4096;

/// The address of the first cluster.
const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 0]);

/// The last address of loopback is its broadcast address.
const LAST: u32 = u32::from_be_bytes([127, 255, 255, 254]);

/// A listener for many addresses. It ends with the last of them.
pub(super) struct SharedListener {
    port: u16,
    state: Mutex<State>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

struct State {
    /// Gone when it has ended.
    listener: Option<Arc<TcpListener>>,
    served: HashMap<Ipv4Addr, (Weak<Inner>, Weak<Endpoint>)>,
    dropped: BTreeSet<Ipv4Addr>,
}

impl SharedListener {
    /// Listens, and accepts on the runtime. An error is also that loopback has one address.
    pub(super) fn bind(runtime: &Handle) -> io::Result<Arc<Self>> {
        // Where loopback has one address, this fails.
        drop(std::net::TcpListener::bind((Ipv4Addr::from(FIRST), 0))?);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        bind_to_loopback(&socket);
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        socket.listen(BACKLOG)?;
        let _runtime = runtime.enter();
        let listener = Arc::new(TcpListener::from_std(socket.into())?);
        let shared = Arc::new(Self {
            port: listener.local_addr()?.port(),
            state: Mutex::new(State {
                listener: Some(listener.clone()),
                served: HashMap::new(),
                dropped: BTreeSet::new(),
            }),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        });
        let (accepting, ended) = (accept(Arc::downgrade(&shared), listener), &shared.ended);
        let accepting = ended.clone().run_until_cancelled_owned(accepting);
        shared.tasks.spawn_on(
            async move {
                accepting.await;
            },
            runtime,
        );
        shared.tasks.close();
        Ok(shared)
    }

    /// Where a cluster is, by its number.
    pub(super) fn addr(&self, number: usize) -> io::Result<SocketAddr> {
        let address = u32::try_from(number).ok();
        let address = address.and_then(|number| FIRST.checked_add(number));
        let address = address.filter(|address| *address <= LAST);
        let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok((Ipv4Addr::from(address), self.port).into())
    }

    /// From now on whoever dials its address comes to this endpoint.
    pub(super) fn serve(&self, cluster: &Arc<Inner>, endpoint: &Arc<Endpoint>) {
        if let Some(address) = v4(endpoint.addr) {
            let entry = (Arc::downgrade(cluster), Arc::downgrade(endpoint));
            self.state.lock().served.insert(address, entry);
        }
    }

    /// Nobody is at this address any more.
    pub(super) fn leave(&self, addr: SocketAddr) {
        let Some(address) = v4(addr) else { return };
        let mut state = self.state.lock();
        state.served.remove(&address);
        if state.dropped.remove(&address) {
            state.filter();
        }
        if state.served.is_empty() {
            state.listener = None;
            self.ended.cancel();
        }
    }

    /// Whether the kernel drops every SYN to this address.
    pub(super) fn drop_syns(&self, addr: SocketAddr, dropped: bool) {
        let Some(address) = v4(addr) else { return };
        let mut state = self.state.lock();
        let changed = if dropped {
            state.dropped.insert(address)
        } else {
            state.dropped.remove(&address)
        };
        if changed {
            state.filter();
        }
    }

    /// Ready when its task is gone, if no address is left.
    pub(super) async fn ended(&self) {
        if self.ended.is_cancelled() {
            self.tasks.wait().await;
        }
    }

    fn at(&self, address: Ipv4Addr) -> Option<(Arc<Inner>, Arc<Endpoint>)> {
        let state = self.state.lock();
        let (cluster, endpoint) = state.served.get(&address)?;
        Some((cluster.upgrade()?, endpoint.upgrade()?))
    }
}

impl Drop for SharedListener {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

fn v4(addr: SocketAddr) -> Option<Ipv4Addr> {
    match addr.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

async fn accept(shared: Weak<SharedListener>, listener: Arc<TcpListener>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                take(&shared, socket);
            }
            // Out of descriptors, most likely; the kernel tells nobody when there are some again.
            Err(error) => {
                tracing::warn!(%error, "a fleet cannot accept");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}

fn take(shared: &SharedListener, socket: TcpStream) {
    let dialled = socket.local_addr().ok().and_then(v4);
    // Whoever dials another address of the machine comes from anywhere.
    let dialled = dialled.filter(Ipv4Addr::is_loopback);
    match dialled.and_then(|address| shared.at(address)) {
        Some((cluster, endpoint)) => serve::admit(&cluster, &endpoint, socket),
        None => refuse(&socket),
    }
}

/// The socket's close will be a RST.
pub(super) fn refuse(socket: &TcpStream) {
    // It fails only on a socket that is gone already.
    let _ = socket.set_zero_linger();
}

#[cfg(target_os = "linux")]
fn bind_to_loopback(socket: &Socket) {
    // Not all systems allow it; those who come from elsewhere are dropped anyway.
    if let Err(error) = socket.bind_device(Some(b"lo")) {
        tracing::debug!(%error, "a fleet's listener is not bound to the loopback device");
    }
}

#[cfg(not(target_os = "linux"))]
fn bind_to_loopback(_: &Socket) {}

impl State {
    /// Has the kernel drop what is dropped now.
    #[cfg(target_os = "linux")]
    fn filter(&self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let socket = SockRef::from(&**listener);
        let filter = syn_filter::of(&self.dropped);
        let filtered = if self.dropped.is_empty() {
            socket.detach_filter()
        } else {
            socket.attach_filter(&filter)
        };
        // Then their connections are swallowed, once they are established.
        if let Err(error) = filtered {
            tracing::warn!(%error, addresses = self.dropped.len(), "SYNs to unplugged clusters are not dropped");
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn filter(&self) {}
}

/// A program for the kernel's packet filter, which drops what goes to some addresses.
#[cfg(target_os = "linux")]
mod syn_filter {
    use std::{collections::BTreeSet, net::Ipv4Addr};

    use socket2::SockFilter;

    /// The instructions, and where the header of IP begins: see the kernel's `filter.h` and `bpf_common.h`.
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_GREATER: u16 = 0x25;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const NETWORK_HEADER: u32 = 0xfff0_0000;
    const DESTINATION: u32 = NETWORK_HEADER + 16;
    const DROP: u32 = 0;
    const PASS: u32 = u32::MAX;

    pub(super) fn of(dropped: &BTreeSet<Ipv4Addr>) -> Vec<SockFilter> {
        let mut program = vec![SockFilter::new(LOAD_WORD, 0, 0, DESTINATION)];
        for (first, last) in ranges(dropped) {
            program.extend([
                SockFilter::new(JUMP_IF_AT_LEAST, 0, 2, first),
                SockFilter::new(JUMP_IF_GREATER, 1, 0, last),
                SockFilter::new(RETURN, 0, 0, DROP),
            ]);
        }
        program.push(SockFilter::new(RETURN, 0, 0, PASS));
        program
    }

    /// Neighbours go together, so that programs stay short: the kernel takes 4,096 instructions.
    fn ranges(addresses: &BTreeSet<Ipv4Addr>) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for address in addresses.iter().copied().map(u32::from) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == address => *last = address,
                _ => ranges.push((address, address)),
            }
        }
        ranges
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn neighbours_are_one_range() {
            let addresses = [
                [127, 1, 0, 9],
                [127, 1, 0, 255],
                [127, 1, 1, 0],
                [127, 1, 1, 1],
            ];
            let addresses = addresses.map(Ipv4Addr::from).into();
            let number = |address: [u8; 4]| u32::from_be_bytes(address);
            assert_eq!(
                ranges(&addresses),
                [
                    (number([127, 1, 0, 9]), number([127, 1, 0, 9])),
                    (number([127, 1, 0, 255]), number([127, 1, 1, 1])),
                ]
            );
        }
    }
}
