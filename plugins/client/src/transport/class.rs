//! Which kind of call a request is, and so which deadline it has: told from its method, path and query, before anything is sent.

use std::time::Duration;

use http::{Method, Request, Uri};
use tokio::time::Instant;

use crate::Deadlines;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// One object, discovery, everything else.
    Call,
    /// A whole collection.
    List,
    /// A watch, or a log that is followed: only its head has a deadline.
    Stream,
    /// A question of the health check, which ends at this time and is no sign of life itself: who asked judges the answer.
    Probe(Instant),
}

impl Class {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let (uri, method) = (request.uri(), request.method());
        let whole = || *method == Method::GET || *method == Method::DELETE;
        let asked = |name: &str| query(uri, name).is_some_and(is_true);
        if *method == Method::GET
            && (asked("watch") || asked("follow") && uri.path().ends_with("/log"))
        {
            Self::Stream
        } else if whole() && is_collection(uri.path()) {
            Self::List
        } else {
            Self::Call
        }
    }

    /// How long all of it may take; of a stream, until its head.
    pub(crate) fn deadline(self, deadlines: &Deadlines) -> Duration {
        match self {
            Self::Call => deadlines.call,
            Self::Stream => deadlines.watch,
            Self::List => deadlines.list,
            Self::Probe(_) => deadlines.probe,
        }
    }
}

fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let pairs = uri.query()?.split('&');
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "true")))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// As API servers read a boolean.
fn is_true(value: &str) -> bool {
    !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

/// `/api/v1/pods`, `/apis/apps/v1/deployments`, and the same below `namespaces/NAME/`.
fn is_collection(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let skip = match segments.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return false,
    };
    let rest: Vec<_> = segments.skip(skip).take(4).collect();
    matches!(&rest[..], [_] | ["namespaces", _, _])
        && !matches!(&rest[..], ["namespaces", _, "status" | "finalize"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_lists_and_streams_are_told_apart() {
        let class = |method: Method, uri: &str| {
            Class::of(&Request::builder().method(method).uri(uri).body(()).unwrap())
        };
        for (uri, expected) in [
            ("/api/v1/pods?", Class::List),
            ("/api/v1/pods?limit=500", Class::List),
            ("/api/v1/namespaces", Class::List),
            ("/api/v1/namespaces/a", Class::Call),
            ("/api/v1/namespaces/a/status", Class::Call),
            ("/api/v1/namespaces/a/pods", Class::List),
            ("/api/v1/namespaces/a/pods/b", Class::Call),
            ("/api/v1/namespaces/a/pods/b/log", Class::Call),
            (
                "/api/v1/namespaces/a/pods/b/log?follow=true&tailLines=1",
                Class::Stream,
            ),
            ("/api/v1/nodes/a", Class::Call),
            ("/apis/apps/v1/deployments", Class::List),
            ("/apis/apps/v1", Class::Call),
            (
                "/apis/apps/v1/namespaces/a/deployments?watch=true&resourceVersion=7",
                Class::Stream,
            ),
            ("/api/v1/pods?&watch=false", Class::List),
            ("/api/v1/pods?watch=1", Class::Stream),
            ("/version", Class::Call),
        ] {
            assert_eq!(class(Method::GET, uri), expected, "{uri}");
        }
        assert_eq!(
            class(Method::POST, "/api/v1/namespaces/a/pods"),
            Class::Call
        );
        assert_eq!(
            class(Method::DELETE, "/api/v1/namespaces/a/pods"),
            Class::List
        );
    }
}
