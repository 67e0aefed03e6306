//! What a hostile server does, as one value that can be replaced while it runs.

use std::{fmt, sync::Arc, time::Duration};

use super::{Answer, Step, http2::frames, wire::Then};

/// What a [`HostileServer`](super::HostileServer) does. The first rule whose prefix a request's path has is its answer; a request without
/// one is counted and gets none. Without more, HTTP/2 is spoken as it should be: settings and pings are answered, and windows kept.
#[derive(Clone)]
#[must_use]
pub struct Behaviour {
    pub(super) speaks: Speaks,
    stop: Option<Arc<Stop>>,
    pub(super) pace: Option<Duration>,
    pub(super) settings: Option<Vec<(u16, u32)>>,
    pub(super) greeting: Vec<Step>,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Tcp,
    Http1,
    Http2,
}

#[derive(Clone, Debug)]
struct Rule {
    prefix: String,
    steps: Steps,
}

type Stop = dyn Fn(u64) -> (u64, Then) + Send + Sync;
type Make = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

#[derive(Clone)]
enum Steps {
    Fixed(Vec<Step>),
    Made(Arc<Make>),
}

/// A request that a hostile server has read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub path: String,
    /// Which connection of the server it came on, from 1.
    pub connection: u64,
    /// Which request of its connection it is, from 1.
    pub number: u64,
    /// Its HTTP/2 stream; 0 over HTTP/1.1.
    pub stream: u32,
}

impl Behaviour {
    /// No TLS: the greeting is said on TCP as it stands, and whatever comes is read and dropped.
    pub fn tcp() -> Self {
        Self::new(Speaks::Tcp)
    }

    /// HTTP/1.1 over TLS.
    pub fn http1() -> Self {
        Self::new(Speaks::Http1)
    }

    /// HTTP/2 over TLS.
    pub fn http2() -> Self {
        let settings = vec![(frames::MAX_CONCURRENT_STREAMS, 100)];
        Self::new(Speaks::Http2).settings(settings)
    }

    fn new(speaks: Speaks) -> Self {
        Self {
            speaks,
            stop: None,
            pace: None,
            settings: None,
            greeting: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// A request whose path begins with `prefix` gets these steps.
    pub fn on(mut self, prefix: impl Into<String>, steps: impl Into<Vec<Step>>) -> Self {
        self.rules.push(Rule {
            prefix: prefix.into(),
            steps: Steps::Fixed(steps.into()),
        });
        self
    }

    /// A request whose path begins with `prefix` gets the steps that `steps` makes for it: frames of its own stream, or another answer
    /// each time.
    pub fn on_each(
        mut self,
        prefix: impl Into<String>,
        steps: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        self.rules.push(Rule {
            prefix: prefix.into(),
            steps: Steps::Made(Arc::new(steps)),
        });
        self
    }

    /// What is said on a new connection before any request: over TCP at once, over HTTP after TLS, over HTTP/2 after the settings.
    pub fn greeting(mut self, steps: impl Into<Vec<Step>>) -> Self {
        self.greeting = steps.into();
        self
    }

    /// The settings of HTTP/2, each an identifier and a value, in place of 100 streams at once.
    pub fn settings(mut self, settings: impl Into<Vec<(u16, u32)>>) -> Self {
        self.settings = Some(settings.into());
        self
    }

    /// HTTP/2 without the settings that must come first.
    pub fn without_settings(mut self) -> Self {
        self.settings = None;
        self
    }

    /// On each connection only the first `bytes` that it would write leave, counted on TCP, so below TLS. Then it stops as `then` says.
    pub fn stop_after(self, bytes: u64, then: Then) -> Self {
        self.stop_each(move |_| (bytes, then))
    }

    /// As [`stop_after`](Self::stop_after), for each connection by its number, from 1: so that one server stops at every offset.
    pub fn stop_each(mut self, stop: impl Fn(u64) -> (u64, Then) + Send + Sync + 'static) -> Self {
        self.stop = Some(Arc::new(stop));
        self
    }

    /// Each byte leaves that long after the last, counted on TCP, so below TLS.
    pub fn byte_every(mut self, pace: Duration) -> Self {
        self.pace = Some(pace);
        self
    }

    pub(super) fn stop_of(&self, connection: u64) -> Option<(u64, Then)> {
        self.stop.as_ref().map(|stop| stop(connection))
    }

    pub(super) fn steps(&self, seen: &Seen) -> Vec<Step> {
        let rule = self
            .rules
            .iter()
            .find(|rule| seen.path.starts_with(&rule.prefix));
        match rule.map(|rule| &rule.steps) {
            Some(Steps::Fixed(steps)) => steps.clone(),
            Some(Steps::Made(make)) => make(seen),
            None => Vec::new(),
        }
    }
}

impl From<Answer> for Vec<Step> {
    fn from(answer: Answer) -> Self {
        vec![Step::Answer(answer)]
    }
}

impl From<Step> for Vec<Step> {
    fn from(step: Step) -> Self {
        vec![step]
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour")
            .field("speaks", &self.speaks)
            .field("stops", &self.stop.is_some())
            .field("pace", &self.pace)
            .field("settings", &self.settings)
            .field("greeting", &self.greeting)
            .field("rules", &self.rules)
            .finish()
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(steps) => steps.fmt(f),
            Self::Made(_) => f.write_str("made for each request"),
        }
    }
}
