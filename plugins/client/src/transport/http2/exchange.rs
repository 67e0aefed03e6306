//! One request and its answer on a stream: driven by whoever waits for it, in both directions at once.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, client};
use http::{HeaderMap, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use kube::client::Body;

use crate::transport::{error::TransportError, link::INFORMATIONAL, wire::Record};

pub(super) enum Broken {
    H2(h2::Error),
    Other(TransportError),
}

/// A request whose answer's head has not come.
pub(super) struct Exchange {
    answer: client::ResponseFuture,
    upload: Option<Box<Upload>>,
    informational: usize,
}

impl Exchange {
    /// Of a request whose body, if it has one, goes on `upload`.
    pub(super) fn new(
        answer: client::ResponseFuture,
        upload: Option<(SendStream<Bytes>, Body)>,
    ) -> Self {
        Self {
            answer,
            upload: upload.map(|(stream, body)| Box::new(Upload::new(stream, body))),
            informational: 0,
        }
    }
}

impl Future for Exchange {
    type Output = Result<(Response<RecvStream>, Option<Box<Upload>>), Broken>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(Err(error)) = poll_upload(&mut this.upload, cx) {
            return Poll::Ready(Err(Broken::Other(error)));
        }
        while let Poll::Ready(Some(Ok(_))) = this.answer.poll_informational(cx) {
            this.informational += 1;
            if this.informational > INFORMATIONAL {
                let error = TransportError::informational();
                return Poll::Ready(Err(Broken::Other(error)));
            }
        }
        let response = ready!(Pin::new(&mut this.answer).poll(cx)).map_err(Broken::H2)?;
        Poll::Ready(Ok((response, this.upload.take())))
    }
}

/// A request's body on its way. A server may answer before it has all of it.
pub(super) struct Upload {
    stream: SendStream<Bytes>,
    body: Body,
    next: Bytes,
}

/// Fails if the body does; what becomes of the stream is known to whoever waits for the answer.
fn poll_upload(
    upload: &mut Option<Box<Upload>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), TransportError>> {
    let Some(going) = upload else {
        return Poll::Ready(Ok(()));
    };
    let done = ready!(going.poll(cx));
    *upload = None;
    Poll::Ready(done)
}

impl Upload {
    fn new(stream: SendStream<Bytes>, body: Body) -> Self {
        Self {
            stream,
            body,
            next: Bytes::new(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        loop {
            if self.next.is_empty() {
                match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => self.next = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => {
                        self.stream.send_reset(Reason::CANCEL);
                        let source = Arc::new(error);
                        return Poll::Ready(Err(TransportError::Protocol { source }));
                    }
                    None => {
                        let _ = self.stream.send_data(Bytes::new(), true);
                        return Poll::Ready(Ok(()));
                    }
                }
                continue;
            }
            self.stream.reserve_capacity(self.next.len());
            let Some(Ok(room)) = ready!(self.stream.poll_capacity(cx)) else {
                return Poll::Ready(Ok(()));
            };
            let part = self.next.split_to(room.min(self.next.len()));
            let last = self.next.is_empty() && self.body.is_end_stream();
            if self.stream.send_data(part, last).is_err() || last {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// The body of an answer.
pub(crate) struct Received {
    stream: RecvStream,
    upload: Option<Box<Upload>>,
    record: Arc<Record>,
    /// What is still to come, if the server has said.
    announced: Option<u64>,
}

impl Received {
    pub(super) fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        upload: Option<Box<Upload>>,
        record: Arc<Record>,
    ) -> Self {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.filter(|_| !stream.is_end_stream());
        Self {
            announced: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            stream,
            upload,
            record,
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        // What becomes of the rest of a request that is answered is the server's business.
        let _ = poll_upload(&mut self.upload, cx);
        loop {
            return Poll::Ready(match ready!(self.stream.poll_data(cx)) {
                // What comes next, by whoever reads this.
                Some(Ok(data)) if data.is_empty() && !self.stream.is_end_stream() => continue,
                Some(Ok(data)) => {
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    if let Some(left) = &mut self.announced {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    Some(Ok(Frame::data(data)))
                }
                // It has said all, and does not want the rest of the request.
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => None,
                Some(Err(error)) => Some(Err(TransportError::from_h2(error, &self.record))),
                None => None,
            });
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.announced
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
