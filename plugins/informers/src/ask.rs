//! What is asked of an API server, as HTTP: a page, a stream of what there is, a watch.

use http::{HeaderValue, header};
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{kind::What, machine::Request};

const PAGE_OF_METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What a path or a query may hold as it is.
pub(crate) const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The request for what is to be asked.
pub(crate) fn of(what: &What, request: &Request) -> Result<http::Request<Body>, http::Error> {
    let accept = match (what.metadata, request) {
        (false, _) => JSON,
        (true, Request::Page { .. } | Request::Check) => PAGE_OF_METADATA,
        (true, Request::Stream { .. } | Request::Watch { .. }) => METADATA,
    };
    http::Request::get(uri(what, request))
        .header(header::ACCEPT, accept)
        .body(Body::empty())
}

fn uri(what: &What, request: &Request) -> String {
    let mut uri = path(what);
    let mut separator = '?';
    let mut ask = |name: &str, value: &str| {
        uri.extend([&*separator.to_string(), name, "="]);
        uri.extend(utf8_percent_encode(value, PLAIN));
        separator = '&';
    };
    if let Some(labels) = &what.labels {
        ask("labelSelector", labels);
    }
    if let Some(fields) = &what.fields {
        ask("fieldSelector", fields);
    }
    match request {
        Request::Page { limit, next } => {
            ask("limit", &limit.to_string());
            if let Some(next) = next {
                ask("continue", next);
            }
        }
        Request::Check => ask("limit", "1"),
        Request::Stream { lives } => {
            ask("watch", "true");
            ask("allowWatchBookmarks", "true");
            ask("sendInitialEvents", "true");
            ask("resourceVersionMatch", "NotOlderThan");
            ask("timeoutSeconds", &lives.as_secs().max(1).to_string());
        }
        Request::Watch { version, lives } => {
            ask("watch", "true");
            ask("allowWatchBookmarks", "true");
            ask("resourceVersion", &version.to_string());
            ask("timeoutSeconds", &lives.as_secs().max(1).to_string());
        }
    }
    uri
}

fn path(what: &What) -> String {
    let gvk = &what.gvk;
    let mut path = match &*gvk.group {
        "" => format!("/api/{}", gvk.version),
        group => format!("/apis/{group}/{}", gvk.version),
    };
    if let Some(namespace) = &what.namespace {
        path.push_str("/namespaces/");
        path.extend(utf8_percent_encode(namespace, PLAIN));
    }
    path.extend(["/", &what.plural]);
    path
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::GroupVersionKind;

    use super::*;
    use crate::version::Version;

    #[test]
    fn a_list_has_no_version_and_a_watch_the_last() {
        let mut what = What {
            gvk: GroupVersionKind::gvk("apps", "v1", "Deployment"),
            plural: "deployments".into(),
            metadata: false,
            namespace: Some("a".into()),
            labels: Some("app in (a, b)".into()),
            fields: None,
        };
        let page = Request::Page {
            limit: 500,
            next: Some("a+b".into()),
        };
        assert_eq!(
            uri(&what, &page),
            "/apis/apps/v1/namespaces/a/deployments?labelSelector=app%20in%20%28a%2C%20b%29&limit=500&continue=a%2Bb"
        );
        (what.gvk.group, what.namespace, what.labels) = (String::new(), None, None);
        let lives = Duration::from_secs(300);
        let watch = Request::Watch {
            version: Version::Number(7),
            lives,
        };
        assert_eq!(
            uri(&what, &watch),
            "/api/v1/deployments?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300"
        );
    }
}
