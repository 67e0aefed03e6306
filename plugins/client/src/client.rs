//! What readers get of a connected cluster: a `kube::Client` that lives as long as the connection does, and what is known of its server.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use kube::{
    client::Body,
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource},
};
use tokio::runtime::Handle;
use tower::Service;

use crate::{
    Deadlines, Discovery, DiscoveryError, ServerVersion, TransportError,
    about::About,
    discovery::{Ask, Known},
    provider::Lasting,
    transport::{Bulk, Transport},
};

/// A cluster's client. Its calls fail with [`TransportError::Retired`](crate::TransportError::Retired) when the connection that it
/// belongs to has been torn down: get it from the cache where you need it, and keep it no longer than that.
pub struct ClusterClient {
    kind: Kind,
    lasting: Arc<Lasting>,
}

/// The body of an answer, as it comes.
pub type AnswerBody = UnsyncBoxBody<Bytes, kube::Error>;

enum Kind {
    Ours(Box<Ours>),
    Given(kube::Client),
}

struct Ours {
    transport: Transport,
    about: Arc<About>,
    /// Made when they are asked for first: the queue of each takes eleven kilobytes and a task, which a cluster that nobody asks does
    /// not need.
    client: OnceLock<kube::Client>,
    bulk: OnceLock<kube::Client>,
    /// Where their tasks run: whoever asks may be on no runtime.
    runtime: Handle,
}

impl ClusterClient {
    /// On the runtime of the caller.
    pub(crate) fn new(transport: Transport, about: Arc<About>, lasting: Arc<Lasting>) -> Self {
        let ours = Ours {
            transport,
            about,
            client: OnceLock::new(),
            bulk: OnceLock::new(),
            runtime: Handle::current(),
        };
        Self {
            kind: Kind::Ours(Box::new(ours)),
            lasting,
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

    /// Sends a request as it is, and hands its answer on as it comes: for those who read answers themselves, a piece at a time. It has the
    /// deadlines, limits and turns of every call, and takes no place in the queue of a `kube::Client`. An answer that is a refusal is an
    /// answer too.
    ///
    /// ```no_run
    /// # async fn example(client: &clustercache_client::ClusterClient) -> Result<(), Box<dyn std::error::Error>> {
    /// use http_body_util::BodyExt;
    /// use kube::client::Body;
    ///
    /// let request = http::Request::get("/api/v1/pods?watch=true").body(Body::empty())?;
    /// let mut body = client.send(request).await?.into_body();
    /// while let Some(frame) = body.frame().await {
    ///     println!("{:?}", frame?.data_ref().map(|data| data.len()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send(&self, request: Request<Body>) -> kube::Result<Response<AnswerBody>> {
        let failed = |error: TransportError| kube::Error::Service(Box::new(error));
        match &self.kind {
            Kind::Ours(ours) => {
                let answer = ours.transport.clone().call(request).await.map_err(failed)?;
                Ok(answer.map(|body| body.map_err(failed).boxed_unsync()))
            }
            Kind::Given(client) => {
                let answer = client.send(request).await?;
                Ok(answer.map(BodyExt::boxed_unsync))
            }
        }
    }

    /// The server's version. Asked in the background a few seconds after the connection came up, again where the server does not say, and
    /// every few hours: `None` as long as it has not said. Never waits.
    pub fn server_version(&self) -> Option<Arc<ServerVersion>> {
        self.ours()?.about.version()
    }

    /// The UID of the namespace `kube-system`, which is as good as one of the cluster. As [`server_version`](Self::server_version);
    /// `None` also if we may not read the namespace.
    pub fn kube_system_uid(&self) -> Option<String> {
        self.ours()?.about.kube_system_uid()
    }

    /// Which kinds the cluster serves: asked at the first call, once for all who wait, within [`Deadlines::list`](crate::Deadlines::list),
    /// and kept beyond the connection, for as long as the cluster's identity is known. Dropping the future leaves the request to the others. Typed calls need none of this.
    pub async fn discovery(&self) -> Result<Discovery, DiscoveryError> {
        self.known().newest(self.ask()).await
    }

    /// How to reach the objects of a kind that is not known at compile time. Asks as [`discovery`](Self::discovery) does; where the kind
    /// is missing, and after a call that found its kind gone, the cluster is asked again, every 5 s at most.
    ///
    /// ```no_run
    /// use clustercache_client::ClusterClient;
    /// use kube::{Api, core::{DynamicObject, GroupVersionKind}};
    ///
    /// # async fn example(client: &ClusterClient) -> Result<(), Box<dyn std::error::Error>> {
    /// let gvk = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
    /// let (resource, _) = client.resolve(&gvk).await?;
    /// let certificates = Api::<DynamicObject>::all_with(client.client(), &resource);
    /// println!("{}", certificates.list(&Default::default()).await?.items.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resolve(
        &self,
        gvk: &GroupVersionKind,
    ) -> Result<(ApiResource, ApiCapabilities), DiscoveryError> {
        self.known().resolve(gvk, self.ask()).await
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

    fn known(&self) -> &Arc<Known> {
        self.lasting.discovery()
    }

    fn ask(&self) -> Ask {
        let transport = self.transport();
        let deadline =
            transport.map_or_else(|| Deadlines::default().list, Transport::list_deadline);
        Ask {
            client: self.bulk(),
            deadline,
            doubted: transport.is_some_and(Transport::missed_a_kind),
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
            lasting: Arc::default(),
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
