//! The body of an answer that stops after some bytes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::futures::OwnedNotified;

use super::{
    spoken::{At, Cut},
    wire::Wire,
};
use crate::{
    api::{Body, Cut as BodyCut},
    hostile::Then,
};

pub(super) struct StoppedBody {
    body: Body,
    wire: Arc<Wire>,
    fault: u64,
    then: Then,
    left: u64,
    /// What came of a frame beyond the end.
    rest: Bytes,
    asked: bool,
    changed: Pin<Box<OwnedNotified>>,
}

impl StoppedBody {
    pub(super) fn new(body: Body, wire: Arc<Wire>, fault: u64, after: u64, then: Then) -> Self {
        let changed = Box::pin(wire.changed.clone().notified_owned());
        Self {
            body,
            wire,
            fault,
            then,
            left: after,
            rest: Bytes::new(),
            asked: false,
            changed,
        }
    }

    /// Whether the fault still holds; wakes the task at its next change.
    fn holds(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let told = self.changed.as_mut().poll(cx).is_ready();
            if !self.wire.terms().stop(self.fault) {
                return false;
            }
            if !told {
                return true;
            }
            self.changed = Box::pin(self.wire.changed.clone().notified_owned());
        }
    }

    /// The part of some bytes that may still come.
    fn allowed(&mut self, mut bytes: Bytes) -> Bytes {
        let room = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.rest = bytes.split_off(room);
        self.left -= room as u64;
        bytes
    }
}

impl http_body::Body for StoppedBody {
    type Data = Bytes;
    type Error = BodyCut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        let this = &mut *self;
        if this.left == 0 && this.holds(cx) {
            if this.then != Then::Silence && !std::mem::replace(&mut this.asked, true) {
                let (fault, then) = (this.fault, this.then);
                let at = At::Flushed { first: true };
                this.wire.ask_for(Cut { fault, then, at });
            }
            return Poll::Pending;
        }
        if this.left == 0 {
            // It is undone.
            this.left = u64::MAX;
        }
        if !this.rest.is_empty() {
            let rest = std::mem::take(&mut this.rest);
            return Poll::Ready(Some(Ok(Frame::data(this.allowed(rest)))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(bytes) => Frame::data(this.allowed(bytes)),
                Err(other) => other,
            })),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left > 0 && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // That of the whole: what comes is less than was said.
        self.body.size_hint()
    }
}
