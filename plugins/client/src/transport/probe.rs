//! Questions of the health check: over the connection that calls use, or over one that is dialled for them and nothing else.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::DropGuard;

use super::{
    Identity, Shared, Transport,
    body::{Listen, ResponseBody},
    call::{Sends, before, end_of_call, prepare},
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
    /// Asks for `path` over the connections that calls use. `withheld` is what of the time until then this and earlier questions have
    /// waited for what is ours to give.
    pub(crate) async fn ask(
        &self,
        path: &str,
        until: Instant,
        withheld: &mut Duration,
    ) -> Result<Reply, TransportError> {
        let mut sends = Sends {
            withheld: *withheld,
            ..Sends::default()
        };
        let answer = self.answer(path, until, &mut sends).await;
        *withheld = sends.withheld;
        answer.map_err(|error| error.after_waiting(*withheld))
    }

    async fn answer(
        &self,
        path: &str,
        until: Instant,
        sends: &mut Sends,
    ) -> Result<Reply, TransportError> {
        let sent = self.send_until(question(path), Class::Probe(until), until, sends);
        let (mut parts, body) = sent.await?.into_parts();
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
        let mut withheld = Withheld::default();
        withheld.waits(true);
        let permit = timeout_at(until, gate.permit()).await;
        withheld.waits(false);
        let busy = TransportError::Busy {
            what: PERMIT,
            after,
        };
        let permit = permit.map_err(|_| busy.clone())?;
        let identity = self.0.identity.load_full();
        let tasks = Tasks::new(&shared.tasks, shared.killed.child_token());
        let closed = tasks.killed.clone().drop_guard();
        let up = async {
            let tls = &identity.line.tls;
            let dial = dial(shared, tls, permit, |waits| withheld.waits(waits));
            let (stream, _permit) = dial.await?;
            Link::begin(stream, shared, &tasks, || (), || ()).await
        };
        let stage = Wait::Connection;
        let link = match timeout_at(until, up).await {
            Ok(link) => link?,
            Err(_) if withheld.since.is_some() => return Err(busy),
            Err(_) => {
                let late = TransportError::Deadline { stage, after };
                return Err(late.after_waiting(withheld.so_far));
            }
        };
        Ok(Fresh {
            identity,
            link,
            withheld: withheld.so_far,
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
    /// What of the probe's time went by before it was let out.
    withheld: Duration,
    shared: Arc<Shared>,
    _closed: DropGuard,
}

/// How long a dial waits for its permit or its turn.
#[derive(Default)]
struct Withheld {
    so_far: Duration,
    since: Option<Instant>,
}

impl Withheld {
    fn waits(&mut self, waits: bool) {
        let since = std::mem::replace(&mut self.since, waits.then(Instant::now));
        self.so_far += since.map_or(Duration::ZERO, |since| since.elapsed());
    }
}

impl Fresh {
    pub(crate) async fn ask(
        &mut self,
        path: &str,
        until: Instant,
    ) -> Result<Reply, TransportError> {
        let answer = self.answer(path, until).await;
        answer.map_err(|error| error.after_waiting(self.withheld))
    }

    async fn answer(&mut self, path: &str, until: Instant) -> Result<Reply, TransportError> {
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
