//! Questions of the health check: over the connection that calls use, or over one that is dialled for them and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::DropGuard;

use super::{
    Identity, Shared, Transport,
    body::{Listen, ResponseBody},
    call::{before, end_of_call, prepare},
    class::Class,
    dial::{PERMIT, dial},
    error::{TransportError, Wait},
    hooks::Gate,
    limit::Limit,
    link::{Link, Sent},
    refusal::Asked,
    tasks::Tasks,
};
use crate::check::Reply;

impl Transport {
    /// Asks for `path` over the connections that calls use.
    pub(crate) async fn ask(&self, path: &str, until: Instant) -> Result<Reply, TransportError> {
        let (mut parts, body) = self
            .send(question(path), Class::Probe(until))
            .await?
            .into_parts();
        let asked = parts.extensions.remove::<Asked>();
        let identity = asked.map(|asked| asked.identity);
        let identity = identity.unwrap_or_else(|| self.0.identity.load_full());
        let most = self.0.shared.limits.probe;
        Reply::read(parts.status, body, most, &identity).await
    }

    /// Dials a connection of its own for questions; it closes when it is dropped.
    pub(crate) async fn fresh(
        &self,
        gate: &dyn Gate,
        until: Instant,
    ) -> Result<Fresh, TransportError> {
        let shared = &self.0.shared;
        if shared.closing.is_cancelled() {
            return Err(TransportError::Retired);
        }
        let after = shared.deadlines.probe;
        let permit = timeout_at(until, gate.permit()).await;
        let busy = TransportError::Busy {
            what: PERMIT,
            after,
        };
        let permit = permit.map_err(|_| busy.clone())?;
        let identity = self.0.identity.load_full();
        let tasks = Tasks::new(&shared.tasks, shared.killed.child_token());
        let closed = tasks.killed.clone().drop_guard();
        let mut waits = false;
        let up = async {
            let dial = dial(shared, &identity.line.tls, permit, |now| waits = now);
            let (stream, _permit) = dial.await?;
            Link::begin(stream, shared, &tasks, || (), || ()).await
        };
        let stage = Wait::Connection;
        let link = match timeout_at(until, up).await {
            Ok(link) => link?,
            Err(_) if waits => return Err(busy),
            Err(_) => return Err(TransportError::Deadline { stage, after }),
        };
        Ok(Fresh {
            identity,
            link,
            shared: Arc::clone(shared),
            _closed: closed,
        })
    }
}

/// A connection for one probe.
pub(crate) struct Fresh {
    /// The one that it was dialled with: it sends no other.
    identity: Arc<Identity>,
    link: Link,
    shared: Arc<Shared>,
    _closed: DropGuard,
}

impl Fresh {
    pub(crate) async fn ask(
        &mut self,
        path: &str,
        until: Instant,
    ) -> Result<Reply, TransportError> {
        let after = self.shared.deadlines.probe;
        let mut end = end_of_call(until, after, self.shared.killed.clone());
        let mut request = question(path);
        prepare(&self.shared, &mut request)?;
        self.identity.sign(&mut request, None);
        match self.link {
            Link::H2(_) => self.shared.target.absolute(&mut request),
            Link::H1(_) => self.shared.target.origin(&mut request),
        }
        let sent = before(&mut end, self.link.send(request)).await;
        let response = match sent.map_err(|ending| ending.error(Wait::Head))? {
            Sent::Answered(response) => response,
            Sent::Failed(error) => return Err(error),
            Sent::Unsent(_) => {
                let source = Arc::new(std::io::Error::other("closed before the question left"));
                return Err(TransportError::Reset { source });
            }
        };
        let (parts, body) = response.into_parts();
        let signs = Arc::clone(&self.shared.hooks.signs);
        let body = ResponseBody::new(body, end, Limit::None, Listen::No, signs, None, None);
        Reply::read(parts.status, body, self.shared.limits.probe, &self.identity).await
    }
}

fn question(path: &str) -> Request<Body> {
    Request::get(path)
        .body(Body::empty())
        .expect("the paths of questions are constants")
}

impl Reply {
    /// Reads a body up to the limit of an answer to a question; what is beyond is not asked for.
    async fn read(
        status: StatusCode,
        mut body: ResponseBody,
        most: u64,
        identity: &Identity,
    ) -> Result<Self, TransportError> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let Some(frame) = body.frame().await else {
                break;
            };
            if let Ok(data) = frame?.into_data() {
                let room = most - bytes.len();
                bytes.extend_from_slice(&data[..data.len().min(room)]);
            }
        }
        // What is no success may be shown.
        let body = if status.is_success() {
            Bytes::from(bytes)
        } else {
            let text = String::from_utf8_lossy(&bytes);
            Bytes::from(identity.hidden(&text).into_owned())
        };
        Ok(Self { status, body })
    }
}
