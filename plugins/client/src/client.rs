//! What readers get of a connected cluster: a `kube::Client` that lives as long as the connection does.

use std::fmt;

use crate::transport::Transport;

/// A cluster's client. Its calls fail with [`TransportError::Retired`](crate::TransportError::Retired) when the connection that it
/// belongs to has been torn down: get it from the cache where you need it, and keep it no longer than that.
pub struct ClusterClient {
    client: kube::Client,
    pub(crate) transport: Transport,
}

impl ClusterClient {
    pub(crate) fn new(transport: Transport) -> Self {
        let client = kube::Client::new(transport.clone(), "default");
        Self { client, transport }
    }

    /// The client: a cheap clone. No call of it waits longer than its [deadline](crate::Deadlines).
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }
}

impl AsRef<kube::Client> for ClusterClient {
    fn as_ref(&self) -> &kube::Client {
        &self.client
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterClient")
    }
}
