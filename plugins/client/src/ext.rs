//! `cache.client(&key)?`: the one line that most readers need.

use clustercache::{Cluster, ClusterCache, ClusterKey, ClusterSnapshot, GetError};

use crate::KubeClient;

/// Clients from a [`ClusterCache`].
///
/// ```no_run
/// use clustercache::{ClusterCache, ClusterKey, GetError};
/// use clustercache_client::ClientExt;
///
/// fn reconcile(cache: &ClusterCache, key: &ClusterKey) -> Result<(), GetError> {
///     let client = cache.client(key)?; // the error says why there is none, since when, and when it is tried next
///     # let _ = client;
///     Ok(())
/// }
/// # let _ = reconcile;
/// ```
pub trait ClientExt {
    /// The cluster's client, if it is connected: a cheap clone. Never waits. Ask for it where you need it: its calls fail
    /// [`Retired`](crate::TransportError::Retired) once the connection that it belongs to has been torn down.
    fn client(&self, key: &ClusterKey) -> Result<kube::Client, GetError>;
}

impl ClientExt for ClusterCache {
    fn client(&self, key: &ClusterKey) -> Result<kube::Client, GetError> {
        Ok(self.get::<KubeClient>(key)?.client())
    }
}

/// The client of one cluster, from a handle to it or from a snapshot of it.
pub trait ClusterClientExt {
    /// As [`ClientExt::client`].
    fn client(&self) -> Result<kube::Client, GetError>;
}

impl ClusterClientExt for Cluster {
    fn client(&self) -> Result<kube::Client, GetError> {
        Ok(self.borrow::<KubeClient>()?.client())
    }
}

impl ClusterClientExt for ClusterSnapshot {
    fn client(&self) -> Result<kube::Client, GetError> {
        Ok(self.get::<KubeClient>()?.client())
    }
}
