//! TCP to the first of several addresses that answers: RFC 8305 with two attempts at a time, so that a dial costs two descriptors at
//! most, and one where the first address answers soon.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::sleep};

use crate::{TransportError, Wait, transport::within};

/// How many addresses of a name are tried.
pub(super) const MOST: usize = 8;
/// How many of them at a time.
const ABREAST: usize = 2;
/// When the next one begins beside one that has not answered ("Connection Attempt Delay").
const STAGGER: Duration = Duration::from_millis(250);
/// A peer that is gone without a word is noticed by the kernel too, after a minute: some connections have no pings.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// The first to answer wins, and the others are dropped. `deadline` is for all of them.
pub(super) async fn connect(
    addresses: &[SocketAddr],
    deadline: Duration,
) -> Result<TcpStream, TransportError> {
    let waves = u32::try_from(addresses.len().div_ceil(ABREAST)).unwrap_or(u32::MAX);
    let share = deadline / waves.max(1);
    let race = async {
        let mut next = in_turn(addresses).into_iter();
        let mut attempts = FuturesUnordered::new();
        let mut last = TransportError::dialer(std::io::Error::other("there is no address to dial"));
        attempts.extend(next.next().map(|address| attempt(address, share)));
        while !attempts.is_empty() {
            tokio::select! {
                Some(done) = attempts.next() => match done {
                    Ok(tcp) => return Ok(tcp),
                    Err(error) => last = error,
                },
                () = sleep(STAGGER), if attempts.len() < ABREAST && next.len() > 0 => (),
            }
            // One has failed, or is late: that makes room for the next.
            if attempts.len() < ABREAST {
                attempts.extend(next.next().map(|address| attempt(address, share)));
            }
        }
        Err(last)
    };
    within(Wait::Connect, deadline, race).await?
}

async fn attempt(address: SocketAddr, share: Duration) -> Result<TcpStream, TransportError> {
    let tcp = within(Wait::Connect, share, TcpStream::connect(address)).await?;
    tcp.and_then(|tcp| {
        tcp.set_nodelay(true)?;
        let (time, interval, retries) = KEEPALIVE;
        let keepalive = TcpKeepalive::new()
            .with_time(time)
            .with_interval(interval)
            .with_retries(retries);
        SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
        Ok(tcp)
    })
    .map_err(|source| TransportError::Connect {
        address,
        source: Arc::new(source),
    })
}

/// Families in turn, beginning with the first one's; within a family in the order given.
fn in_turn(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else {
        return Vec::new();
    };
    let (ours, others): (Vec<_>, Vec<_>) = addresses
        .iter()
        .partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut others = others.into_iter();
    let mut turns = Vec::with_capacity(addresses.len());
    for address in ours {
        turns.push(address);
        turns.extend(others.next());
    }
    turns.extend(others);
    turns
}
