//! The default way: the name is resolved, each address is judged, and the address that was judged is dialled. There is no second
//! resolution between the two, so a name that changes its mind gains nothing.

use std::net::SocketAddr;

use async_trait::async_trait;

use super::{ByteStream, Destination, Dialer, connect::connect, names::Names};
use crate::TransportError;

/// Names by the system's resolver, then TCP.
///
/// - *Names* are looked up as everything else on the machine does: `/etc/hosts`, search domains, `ndots` and the rest of the system's
///   configuration hold, so that what `kubectl` reaches is reached. Lookups run on threads of their own, at most 64, not on tokio's, and
///   those of one name at one time are one. A name whose lookup hangs holds one thread, and when it is asked for again it waits for
///   one of the sixteen that are left to such names: it delays no other.
/// - *Addresses* are tried in the order that the system gives, families in turn (RFC 8305). The next begins after 250 ms or when the
///   last has failed, two at a time at most, each with its share of the deadline, so that all are tried. Of more than eight the first eight are.
/// - *The policy* of the access judges each address; those that it forbids are left out, and if none is left it is a
///   [`TransportError::Forbidden`].
///
/// Clones share their threads.
#[derive(Clone, Default)]
pub struct TcpDialer {
    pub(super) names: Names,
}

impl TcpDialer {
    /// With the system's resolver.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Dialer for TcpDialer {
    async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
        let mut addresses = match to.host.parse() {
            Ok(address) => vec![SocketAddr::new(address, to.port)],
            Err(_) => self.names.lookup(to.host, to.port, to.resolve).await?,
        };
        let mut forbidden = None;
        addresses.retain(|address| match to.addresses.check(address.ip()) {
            Ok(()) => true,
            Err(why) => {
                forbidden = Some(why);
                false
            }
        });
        match forbidden {
            Some(source) if addresses.is_empty() => {
                let host = to.host.into();
                Err(TransportError::Forbidden { host, source })
            }
            _ => Ok(Box::new(connect(&addresses, to.connect).await?)),
        }
    }
}
