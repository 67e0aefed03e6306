//! Which kinds a cluster serves. Asked only when somebody wants to know, once a cluster and by all who wait together; what many clusters
//! serve alike is one copy. What could not be asked is an error, and never "there is no such kind".

mod document;
mod fetch;
mod known;
mod said;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use kube::{
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource},
};

use self::document::{Document, Found};
#[cfg(test)]
pub(crate) use self::known::AGAIN_AFTER;
pub(crate) use self::known::{Ask, Known};

/// Which kinds a cluster served when it was asked last. Cheap to clone; equal ones of many clusters are one copy.
///
/// ```no_run
/// use clustercache_client::ClusterClient;
///
/// # async fn example(client: &ClusterClient) -> Result<(), Box<dyn std::error::Error>> {
/// let discovery = client.discovery().await?;
/// for gvk in discovery.kinds() {
///     println!("{} {}", gvk.api_version(), gvk.kind);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Discovery(Arc<Document>);

impl Discovery {
    /// How to reach the objects of a kind, and what can be done with them; `None` if this document does not have it.
    /// [`ClusterClient::resolve`](crate::ClusterClient::resolve) also asks anew, and tells what could not be asked.
    pub fn resolve(&self, gvk: &GroupVersionKind) -> Option<(ApiResource, ApiCapabilities)> {
        match self.0.find(gvk) {
            Found::Kind(kind) => Some(*kind),
            Found::Nothing | Found::CannotSay => None,
        }
    }

    /// All kinds of objects, in the server's order, each version of a kind for itself.
    pub fn kinds(&self) -> impl Iterator<Item = GroupVersionKind> {
        self.0.kinds()
    }

    /// The version of a group that the server prefers; the core group is the empty one.
    pub fn preferred_version(&self, group: &str) -> Option<&str> {
        self.0.preferred_version(group)
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery")
            .field("kinds", &self.kinds().count())
            .finish()
    }
}

/// Why it is not known which kinds a cluster serves, or that it does not serve one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The cluster serves no such kind: it said so a few seconds ago, or now.
    #[error(
        "the cluster serves no kind {kind} of {api_version}; install its CustomResourceDefinition, or ask for a version that it serves"
    )]
    NoSuchKind {
        /// The group and version, such as `apps/v1`.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The server could not say what it serves of this group and version: most likely the extension server behind it is down.
    #[error("the cluster cannot say what it serves of {api_version}; look at its APIService")]
    CannotSay {
        /// The group and version.
        api_version: String,
    },
    /// A request failed below HTTP.
    #[error("asking for {path} failed")]
    Request {
        /// What was asked for.
        path: String,
        /// Holds a [`TransportError`](crate::TransportError).
        #[source]
        source: Arc<kube::Error>,
    },
    /// The server answered otherwise than with a document.
    #[error("{path} answered {status}; discovery needs the role system:discovery")]
    Answered {
        /// What was asked for.
        path: String,
        /// The status.
        status: u16,
    },
    /// A document is not what it should be.
    #[error("{path} answered what is no discovery document: {what}")]
    Malformed {
        /// What was asked for.
        path: String,
        /// What is wrong, in our words.
        what: String,
    },
    /// A document is larger than anything that a cluster could serve.
    #[error("{path} answered more than is read of a discovery document ({limit})")]
    TooLarge {
        /// What was asked for.
        path: String,
        /// Of what there was too much.
        limit: &'static str,
    },
    /// All of it took too long.
    #[error("discovery took longer than {after:?}")]
    Deadline {
        /// [`Deadlines::list`](crate::Deadlines::list).
        after: Duration,
    },
}
