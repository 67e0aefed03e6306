//! What is counted of requests, over all clusters: how many of each class ended how. Two atomic numbers a class and a result, whoever sends
//! and however many clusters there are.

use std::sync::atomic::{AtomicU64, Ordering};

use clustercache::FailureKind;
use http::{Response, StatusCode};

use crate::{TransportError, transport::Class};

/// The kinds of call, by the words of their labels.
const CLASSES: [&str; 3] = ["call", "list", "stream"];

/// How many requests of a [`KubeClient`](crate::KubeClient)'s clients ended how, over all clusters, since it was made. They only grow.
///
/// A request counts when the head of its answer is there or it has failed. One whose future was dropped before does not, and neither does a
/// health probe, which the cache counts itself.
#[derive(Debug)]
pub struct RequestCounts {
    /// By class, then by result.
    counts: Vec<[AtomicU64; CLASSES.len()]>,
    retries: AtomicU64,
}

impl RequestCounts {
    pub(crate) fn new() -> Self {
        let results = 1 + FailureKind::labels().len();
        Self {
            counts: std::iter::repeat_with(Default::default)
                .take(results)
                .collect(),
            retries: AtomicU64::new(0),
        }
    }

    /// How many, by class (`call`, `list` or `stream`: a watch, a followed log) and by result: `success`, or the
    /// [label](FailureKind::label) of the failure, of which a status is one.
    pub fn iter(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> + '_ {
        let results = std::iter::once("success").chain(FailureKind::labels().iter().copied());
        results.zip(&self.counts).flat_map(|(result, by_class)| {
            let classes = CLASSES.into_iter().zip(by_class);
            classes.map(move |(class, count)| ([class, result], count.load(Ordering::Relaxed)))
        })
    }

    /// How many calls were sent again, because a server answered that it was too busy. Each of them counts above once, by how it ended.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn sent_again(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count<B>(&self, class: Class, result: &Result<Response<B>, TransportError>) {
        let class = match class {
            Class::Call => 0,
            Class::List => 1,
            Class::Stream => 2,
            Class::Probe(_) => return,
        };
        let failure = match result {
            Ok(response) => failure(response.status()),
            Err(error) => Some(error.kind()),
        };
        let labels = FailureKind::labels().iter();
        let index = failure.map_or(0, |kind| {
            let place = labels.take_while(|label| **label != kind.label());
            1 + place.count()
        });
        if let Some(by_class) = self.counts.get(index) {
            by_class[class].fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn failure(status: StatusCode) -> Option<FailureKind> {
    match status {
        StatusCode::UNAUTHORIZED => Some(FailureKind::Unauthorized),
        _ if status.is_success() || status.is_informational() => None,
        _ => Some(FailureKind::Status(status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_request_counts_once_by_its_class_and_its_result() {
        let counts = RequestCounts::new();
        let all = counts.iter().count();
        let answered = |status| Ok(Response::builder().status(status).body(()).unwrap());
        for status in [200, 201, 404, 401, 503, 999] {
            counts.count(Class::Call, &answered(status));
        }
        counts.count(Class::Stream, &answered(101));
        counts.count::<()>(Class::List, &Err(TransportError::Retired));
        let probe = Class::Probe(tokio::time::Instant::now());
        counts.count(probe, &answered(200));
        let moved: BTreeMap<_, _> = counts.iter().filter(|(_, count)| *count > 0).collect();
        let expected = [
            (["call", "http_4xx"], 1),
            (["call", "http_5xx"], 1),
            (["call", "http_other"], 1),
            (["call", "success"], 2),
            (["call", "unauthorized"], 1),
            (["list", "busy"], 1),
            (["stream", "success"], 1),
        ];
        assert_eq!(moved, expected.into());
        assert_eq!(counts.iter().count(), all, "no label comes by use");
    }
}
