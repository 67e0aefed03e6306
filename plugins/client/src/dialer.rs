//! How an API server is reached below TLS: the trait, for tunnels and simulated networks, and what a dial is told. The default is
//! [`TcpDialer`]: the system's resolver, the address policy, TCP.

mod connect;
mod names;
mod tcp;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use clustercache::{AddressPolicy, ClusterKey};
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::tcp::TcpDialer;
use crate::TransportError;

/// Opens a stream of bytes to an API server. TLS and HTTP are spoken on it: whoever is at its other end has to have the certificate
/// that the cluster's access asks for.
///
/// It stands for name resolution and TCP together: with one of your own, the names of endpoints mean what it makes of them.
///
/// The future is dropped when the dial is given up: after the `resolve` and `connect` [deadlines](crate::Deadlines) together, when the
/// connection is torn down, and when another cluster needs the descriptor.
///
/// A tunnel that each cluster's agent has opened to us:
///
/// ```
/// use std::{collections::HashMap, io, sync::Mutex};
/// use async_trait::async_trait;
/// use clustercache::ClusterKey;
/// use clustercache_client::{ByteStream, Destination, Dialer, KubeClient, TransportError};
/// use tokio::io::DuplexStream;
///
/// struct Tunnels {
///     waiting: Mutex<HashMap<ClusterKey, Vec<DuplexStream>>>,
/// }
///
/// #[async_trait]
/// impl Dialer for Tunnels {
///     async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError> {
///         let stream = self.waiting.lock().unwrap().get_mut(to.cluster).and_then(Vec::pop);
///         let none = || TransportError::dialer(io::Error::other("the cluster's agent has no tunnel open"));
///         Ok(Box::new(stream.ok_or_else(none)?))
///     }
/// }
///
/// let provider = KubeClient::new().dialer(Tunnels { waiting: Mutex::default() });
/// # let _ = provider;
/// ```
#[async_trait]
pub trait Dialer: Send + Sync + 'static {
    /// Opens one stream. Errors of your own become one by [`TransportError::dialer`].
    async fn dial(&self, to: Destination<'_>) -> Result<Box<dyn ByteStream>, TransportError>;
}

/// Where a dial goes, and how long it may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// The cluster that it is for.
    pub cluster: &'a ClusterKey,
    /// The host of the access's endpoint, or of its proxy: a name, or an address without brackets.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// Which addresses may be dialled, as the access says. [`TcpDialer`] asks it; one of your own knows what it stands for there.
    pub addresses: &'a AddressPolicy,
    /// How long resolving the host may take.
    pub resolve: Duration,
    /// How long connecting may take, all addresses together.
    pub connect: Duration,
}

/// What a [`Dialer`] opens: anything that reads and writes bytes.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for S {}
