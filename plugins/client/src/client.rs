//! What readers get of a connected cluster: a `kube::Client` that lives as long as the connection does.

use std::{fmt, sync::OnceLock};

use tokio::runtime::Handle;

use crate::transport::Transport;

/// A cluster's client. Its calls fail with [`TransportError::Retired`](crate::TransportError::Retired) when the connection that it
/// belongs to has been torn down: get it from the cache where you need it, and keep it no longer than that.
pub struct ClusterClient(Kind);

enum Kind {
    Ours {
        transport: Transport,
        /// Made when it is asked for first: its queue takes eleven kilobytes and a task, which a cluster that nobody asks does not need.
        client: OnceLock<kube::Client>,
        /// Where its task runs: whoever asks may be on no runtime.
        runtime: Handle,
    },
    Given(kube::Client),
}

impl ClusterClient {
    /// On the runtime of the caller.
    pub(crate) fn new(transport: Transport) -> Self {
        Self(Kind::Ours {
            transport,
            client: OnceLock::new(),
            runtime: Handle::current(),
        })
    }

    /// The client: a cheap clone. No call of it waits longer than its [deadline](crate::Deadlines).
    pub fn client(&self) -> kube::Client {
        self.as_ref().clone()
    }

    /// What is below it; `None` below one that was given.
    pub(crate) fn transport(&self) -> Option<&Transport> {
        match &self.0 {
            Kind::Ours { transport, .. } => Some(transport),
            Kind::Given(_) => None,
        }
    }
}

/// For unit tests: what readers get is this client, over whatever service a test has put below it.
///
/// ```
/// use clustercache_client::ClusterClient;
/// use http::{Request, Response};
/// use kube::client::Body;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let version = r#"{"major":"1","minor":"37","gitVersion":"v1.37.2","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
/// let service = tower::service_fn(move |_: Request<Body>| async move {
///     Ok::<_, std::convert::Infallible>(Response::new(Body::from(version.as_bytes().to_vec())))
/// });
/// let value = ClusterClient::from(kube::Client::new(service, "default"));
/// // With the testkit: test.put::<KubeClient>(&key, value).await;
/// assert_eq!(value.client().apiserver_version().await?.git_version, "v1.37.2");
/// # Ok(())
/// # }
/// ```
impl From<kube::Client> for ClusterClient {
    fn from(client: kube::Client) -> Self {
        Self(Kind::Given(client))
    }
}

impl AsRef<kube::Client> for ClusterClient {
    fn as_ref(&self) -> &kube::Client {
        match &self.0 {
            Kind::Ours {
                transport,
                client,
                runtime,
            } => client.get_or_init(|| {
                let _on = runtime.enter();
                kube::Client::new(transport.clone(), "default")
            }),
            Kind::Given(client) => client,
        }
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterClient")
    }
}
