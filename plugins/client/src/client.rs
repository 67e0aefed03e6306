//! What readers get of a connected cluster: a `kube::Client` that lives as long as the connection does.

use std::{fmt, sync::OnceLock};

use tokio::runtime::Handle;

use crate::transport::Transport;

/// A cluster's client. Its calls fail with [`TransportError::Retired`](crate::TransportError::Retired) when the connection that it
/// belongs to has been torn down: get it from the cache where you need it, and keep it no longer than that.
pub struct ClusterClient {
    pub(crate) transport: Transport,
    /// Made when it is asked for first: its queue takes eleven kilobytes and a task, which a cluster that nobody asks does not need.
    client: OnceLock<kube::Client>,
    /// Where its task runs: whoever asks may be on no runtime.
    runtime: Handle,
}

impl ClusterClient {
    /// On the runtime of the caller.
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            client: OnceLock::new(),
            runtime: Handle::current(),
        }
    }

    /// The client: a cheap clone. No call of it waits longer than its [deadline](crate::Deadlines).
    pub fn client(&self) -> kube::Client {
        self.as_ref().clone()
    }
}

impl AsRef<kube::Client> for ClusterClient {
    fn as_ref(&self) -> &kube::Client {
        self.client.get_or_init(|| {
            let _on = self.runtime.enter();
            kube::Client::new(self.transport.clone(), "default")
        })
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterClient")
    }
}
