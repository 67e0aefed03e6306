//! The body of an answer: it ends with its call's deadline, with its watch's connection, and with the transport, and tells the health
//! check of signs of life on its way.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    error::{TransportError, Wait},
    hooks::Signs,
    lease::Lease,
    limit::Limit,
    link::Incoming,
};
use crate::status;

/// What ends a call or a watch from our side.
pub(crate) type End = Pin<Box<dyn Future<Output = Ending> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The deadline has passed.
    Deadline(Duration),
    /// The transport is closed.
    Retired,
    /// The connection of a watch goes away, and there is a newer one: the watch ends as if the server had ended it, and resumes.
    Drained,
}

impl Ending {
    pub(crate) fn error(self, stage: Wait) -> TransportError {
        match self {
            Self::Deadline(after) => TransportError::Deadline { stage, after },
            Self::Retired | Self::Drained => TransportError::Retired,
        }
    }
}

/// The body of an answer of our transport.
pub(crate) struct ResponseBody {
    /// None when it is over, however it was.
    rest: Option<Rest>,
    /// What was read of it already, and is all of it.
    said: Option<Bytes>,
}

struct Rest {
    incoming: Incoming,
    end: End,
    limit: Limit,
    listen: Listen,
    signs: Arc<dyn Signs>,
    /// An HTTP/1.1 connection, or a place on one of HTTP/2, which is ours until the end. Goes after what comes over it.
    lease: Option<Lease>,
    /// Counts as a call in flight.
    _call: Option<TaskTrackerToken>,
}

/// What the bytes of a body may say.
pub(crate) enum Listen {
    /// Nothing beyond the head.
    No,
    /// Each says that the server can be reached.
    Watch,
    /// All of them may be a `Status`, which says that it was an API server that refused.
    Refusal(Vec<u8>),
}

impl ResponseBody {
    pub(crate) fn new(
        incoming: Incoming,
        end: End,
        limit: Limit,
        listen: Listen,
        signs: Arc<dyn Signs>,
        lease: Option<Lease>,
        call: Option<TaskTrackerToken>,
    ) -> Self {
        let rest = Rest {
            incoming,
            end,
            limit,
            listen,
            signs,
            lease,
            _call: call,
        };
        let mut body = Self {
            rest: Some(rest),
            said: None,
        };
        body.end_if_over();
        body
    }

    /// A body that has been read, and this is it.
    pub(crate) fn said(all: Bytes) -> Self {
        let said = (!all.is_empty()).then_some(all);
        Self { rest: None, said }
    }

    /// Nobody has to ask for the end to have it: who knows the length does not.
    fn end_if_over(&mut self) {
        if self
            .rest
            .as_ref()
            .is_some_and(|rest| rest.incoming.is_end_stream())
        {
            self.over();
        }
    }

    fn over(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        if let Listen::Refusal(body) = &rest.listen
            && status::is_status(body)
        {
            rest.signs.answered();
        }
        if let Some(lease) = rest.lease {
            lease.finished();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(self.said.take().map(|all| Ok(Frame::data(all))));
        };
        if let Poll::Ready(ending) = rest.end.as_mut().poll(cx) {
            self.rest = None;
            return Poll::Ready(match ending {
                Ending::Drained => None,
                other => Some(Err(other.error(Wait::Body))),
            });
        }
        match ready!(rest.incoming.poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    if let Err(error) = rest.limit.take(data) {
                        self.rest = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                    match &mut rest.listen {
                        Listen::No => (),
                        Listen::Watch => rest.signs.bytes(),
                        Listen::Refusal(body) => status::gather(body, data),
                    }
                }
                self.end_if_over();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.rest = None;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.over();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.said.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Some(rest) => rest.incoming.size_hint(),
            None => SizeHint::with_exact(self.said.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
