//! Loopback ports that stay ours while their server is down.
//!
//! They are taken from below what systems give to outgoing connections: a client that dials a dead server could
//! otherwise be given the server's own port, and connect to itself.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use super::RealError;

const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

/// A loopback address that nobody listens on, and that this process gives out only once in 15,000 turns.
pub(super) fn free() -> Result<SocketAddr, RealError> {
    static START: OnceLock<u16> = OnceLock::new();
    static TURN: AtomicU16 = AtomicU16::new(0);

    // Processes that run side by side start at different places.
    let start = *START.get_or_init(|| {
        let random = RandomState::new().hash_one(std::process::id()) % u64::from(COUNT);
        u16::try_from(random).unwrap_or(0)
    });
    for _ in 0..COUNT {
        let turn = TURN.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + start.wrapping_add(turn) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(RealError::io("find a free port on loopback")(
        io::ErrorKind::AddrInUse.into(),
    ))
}
