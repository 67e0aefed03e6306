//! What readers get of a connected cluster: a `kube::Client` that lives as long as the connection does.

use std::{fmt, sync::OnceLock};

use tokio::runtime::Handle;

use crate::transport::{Bulk, Transport};

/// A cluster's client. Its calls fail with [`TransportError::Retired`](crate::TransportError::Retired) when the connection that it
/// belongs to has been torn down: get it from the cache where you need it, and keep it no longer than that.
pub struct ClusterClient {
    kind: Kind,
}

enum Kind {
    Ours(Box<Ours>),
    Given(kube::Client),
}

struct Ours {
    transport: Transport,
    /// Made when they are asked for first: the queue of each takes eleven kilobytes and a task, which a cluster that nobody asks does
    /// not need.
    client: OnceLock<kube::Client>,
    bulk: OnceLock<kube::Client>,
    /// Where their tasks run: whoever asks may be on no runtime.
    runtime: Handle,
}

impl ClusterClient {
    /// On the runtime of the caller.
    pub(crate) fn new(transport: Transport) -> Self {
        let ours = Ours {
            transport,
            client: OnceLock::new(),
            bulk: OnceLock::new(),
            runtime: Handle::current(),
        };
        Self {
            kind: Kind::Ours(Box::new(ours)),
        }
    }

    /// The client: a cheap clone. No call of it waits longer than its [deadline](crate::Deadlines).
    pub fn client(&self) -> kube::Client {
        self.as_ref().clone()
    }

    /// The same client for work that can wait: its calls give way to others under a [`RateLimit`](crate::RateLimit). A cheap clone.
    /// (Lists and watches give way in any case.)
    pub fn bulk(&self) -> kube::Client {
        match &self.kind {
            Kind::Ours(ours) => ours.bulk().clone(),
            Kind::Given(client) => client.clone(),
        }
    }

    /// How many calls were sent again so far, because the server answered that it was too busy.
    pub fn retries(&self) -> u64 {
        self.transport().map_or(0, Transport::retries)
    }

    /// What is below it; `None` below one that was given.
    pub(crate) fn transport(&self) -> Option<&Transport> {
        Some(&self.ours()?.transport)
    }

    fn ours(&self) -> Option<&Ours> {
        match &self.kind {
            Kind::Ours(ours) => Some(ours),
            Kind::Given(_) => None,
        }
    }
}

impl Ours {
    fn client(&self) -> &kube::Client {
        self.client.get_or_init(|| {
            let _on = self.runtime.enter();
            kube::Client::new(self.transport.clone(), "default")
        })
    }

    fn bulk(&self) -> &kube::Client {
        self.bulk.get_or_init(|| {
            let _on = self.runtime.enter();
            kube::Client::new(Bulk(self.transport.clone()), "default")
        })
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
        Self {
            kind: Kind::Given(client),
        }
    }
}

impl AsRef<kube::Client> for ClusterClient {
    fn as_ref(&self) -> &kube::Client {
        match &self.kind {
            Kind::Ours(ours) => ours.client(),
            Kind::Given(client) => client,
        }
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterClient")
    }
}
