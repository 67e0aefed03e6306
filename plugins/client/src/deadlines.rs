//! How long anything on the outside may take: every wait has a deadline.

use std::time::Duration;

/// The deadlines of a client. Each covers what its words say, waiting included.
///
/// ```
/// use std::time::Duration;
/// use clustercache_client::{Deadlines, KubeClient};
///
/// let mut deadlines = Deadlines::default();
/// deadlines.list = Duration::from_secs(120);
/// let provider = KubeClient::new().deadlines(deadlines);
/// # let _ = provider;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlines {
    /// A read or write of one object: from the call to the last byte of the answer. Default 10 s.
    pub call: Duration,
    /// A list of a collection, or the deletion of one: from the call to the last byte. Default 30 s.
    pub list: Duration,
    /// A watch, or a log that is followed: from the call to the head of the answer; what follows has none. Default 10 s.
    pub watch: Duration,
    /// One health check, all its questions together. Default 3 s.
    pub probe: Duration,
    /// A dial: resolving the endpoint's name. Default 3 s.
    pub resolve: Duration,
    /// A dial: TCP, all addresses together; and what a proxy takes to let us through. Default 5 s.
    pub connect: Duration,
    /// A dial: TLS until the server's first byte, from that to its end, and the beginning of HTTP; and TLS to a proxy; each. Default 5 s.
    pub tls: Duration,
    /// While calls wait and nothing comes on their HTTP/2 connection for so long, a ping is sent; if nothing comes for as long again, the
    /// health check asks at once. Default 1 s.
    pub ping: Duration,
    /// What calls in flight get when the connection is torn down; half of it when the cache shuts down. Default 5 s.
    pub close: Duration,
    /// How long a watch stays on the old connection after the client certificate was replaced; it ends sooner if the old
    /// certificate does. Default 10 min.
    pub drain: Duration,
}

/// One that is longer is a mistake, and could not be added to the time.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

impl Deadlines {
    /// Every mistake, as text that says which deadline, what was wrong and what to give instead.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self {
            call,
            list,
            watch,
            probe,
            resolve,
            connect,
            tls,
            ping,
            close,
            drain,
        } = *self;
        let all: [(&str, Duration); 10] = [
            ("call", call),
            ("list", list),
            ("watch", watch),
            ("probe", probe),
            ("resolve", resolve),
            ("connect", connect),
            ("tls", tls),
            ("ping", ping),
            ("close", close),
            ("drain", drain),
        ];
        // A connection may well be cut, and a watch end, at once.
        let may_be_zero = |name: &str| matches!(name, "close" | "drain");
        let mistake = |(name, time): (&str, Duration)| {
            if time.is_zero() && !may_be_zero(name) {
                Some(format!("deadlines.{name} is zero; give a longer time"))
            } else if time > LONGEST {
                Some(format!(
                    "deadlines.{name} is longer than a year; give a shorter time"
                ))
            } else {
                None
            }
        };
        all.into_iter().filter_map(mistake).collect()
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            call: secs(10),
            list: secs(30),
            watch: secs(10),
            probe: secs(3),
            resolve: secs(3),
            connect: secs(5),
            tls: secs(5),
            ping: secs(1),
            close: secs(5),
            drain: secs(600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_that_are_documented() {
        let Deadlines {
            call,
            list,
            watch,
            probe,
            resolve,
            connect,
            tls,
            ping,
            close,
            drain,
        } = Deadlines::default();
        for (name, deadline, seconds) in [
            ("call", call, 10),
            ("list", list, 30),
            ("watch", watch, 10),
            ("probe", probe, 3),
            ("resolve", resolve, 3),
            ("connect", connect, 5),
            ("tls", tls, 5),
            ("ping", ping, 1),
            ("close", close, 5),
            ("drain", drain, 600),
        ] {
            assert_eq!(deadline, Duration::from_secs(seconds), "{name}");
        }
    }
}
