//! What a hostile server can do, one thing after the other.

use std::{fmt, time::Duration};

use bytes::Bytes;

/// One thing that a hostile server does. Steps of one HTTP/1.1 connection follow each other; over HTTP/2 each request plays its own.
#[derive(Clone)]
#[non_exhaustive]
pub enum Step {
    /// Writes these bytes as they are, above TLS. Over HTTP/2 they are frames, see [`http2`](super::http2).
    Write(Bytes),
    /// Writes these bytes so many times.
    Repeat(Bytes, u64),
    /// Writes these bytes one by one, each after this time.
    Drip(Bytes, Duration),
    /// Answers the request, in whatever protocol it came.
    Answer(Answer),
    /// Writes these bytes so many times as the body of an answer that is [unfinished](Answer::unfinished): as they are over HTTP/1.1, as
    /// DATA within the client's windows over HTTP/2.
    Body(Bytes, u64),
    /// Ends an unfinished answer over HTTP/2; nothing over HTTP/1.1.
    End,
    /// Waits.
    Wait(Duration),
    /// Nothing more for this request; the connection stays open, what comes is read. Over HTTP/1.1 no further request is answered.
    Silence,
    /// Ends its side of TLS and TCP as it should be ended, and reads on.
    HalfClose,
    /// Ends its side of TCP in the midst of TLS, and reads on.
    Cut,
    /// Resets the connection.
    Reset,
}

impl Step {
    /// Writes these bytes as they are, above TLS.
    pub fn write(bytes: impl Into<Bytes>) -> Self {
        Self::Write(bytes.into())
    }

    /// Writes these bytes for ever.
    pub fn for_ever(bytes: impl Into<Bytes>) -> Self {
        Self::Repeat(bytes.into(), u64::MAX)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(bytes) => write!(f, "Write({} bytes)", bytes.len()),
            Self::Repeat(bytes, times) => write!(f, "Repeat({} bytes, {times})", bytes.len()),
            Self::Drip(bytes, pace) => write!(f, "Drip({} bytes, {pace:?})", bytes.len()),
            Self::Answer(answer) => answer.fmt(f),
            Self::Body(bytes, times) => write!(f, "Body({} bytes, {times})", bytes.len()),
            Self::End => f.write_str("End"),
            Self::Wait(time) => write!(f, "Wait({time:?})"),
            Self::Silence => f.write_str("Silence"),
            Self::HalfClose => f.write_str("HalfClose"),
            Self::Cut => f.write_str("Cut"),
            Self::Reset => f.write_str("Reset"),
        }
    }
}

/// An answer that is proper HTTP, of whatever protocol the request came in; its headers say what a test likes.
#[derive(Clone)]
#[must_use]
pub struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Bytes)>,
    pub(super) body: Bytes,
    pub(super) finished: bool,
}

impl Answer {
    /// An answer without a body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
            finished: true,
        }
    }

    /// With a body that is JSON.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// Adds a header; nothing checks it.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Its head says no length of its own, and its body has no end: what comes of it is for the next steps.
    pub fn unfinished(mut self) -> Self {
        self.finished = false;
        self
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, headers, body) = (self.status, self.headers.len(), self.body.len());
        write!(f, "Answer({status}, {headers} headers, {body} bytes")?;
        f.write_str(if self.finished { ")" } else { " so far)" })
    }
}
