//! Where requests go: the endpoint's authority and path prefix, which no request and no answer can change.

use clustercache::{AddressPolicy, ClusterAccess};
use http::{
    HeaderValue, Request, Uri, header,
    uri::{Authority, PathAndQuery, Scheme},
};

use super::{
    proxy::Via,
    tls::{AccessProblem, unbracketed},
};

pub(crate) struct Target {
    /// Without brackets, as it is resolved.
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// Which addresses may be dialled on the way.
    pub(crate) addresses: AddressPolicy,
    /// Boxed: most have none.
    pub(crate) via: Option<Box<Via>>,
    scheme: Scheme,
    authority: Authority,
    host_header: HeaderValue,
    /// The path below which the API lies; empty, or without a `/` at its end.
    prefix: Box<str>,
}

impl Target {
    pub(crate) fn new(access: &ClusterAccess) -> Result<Self, AccessProblem> {
        let endpoint = access.endpoint();
        let url = endpoint.url();
        let authority = url.authority().ok_or(AccessProblem::ServerName)?.clone();
        let scheme = url.scheme().cloned().unwrap_or(Scheme::HTTPS);
        let usual = if scheme == Scheme::HTTP { 80 } else { 443 };
        Ok(Self {
            host: unbracketed(authority.host()).into(),
            port: authority.port_u16().unwrap_or(usual),
            addresses: endpoint.addresses().clone(),
            via: Via::of(access)?.map(Box::new),
            scheme,
            host_header: HeaderValue::from_str(authority.as_str())
                .map_err(|_| AccessProblem::ServerName)?,
            authority,
            prefix: url.path().trim_end_matches('/').into(),
        })
    }

    /// Where it is, port included, as a proxy is told it.
    pub(crate) fn uri(&self) -> Uri {
        let authority = format!("{}:{}", self.authority.host(), self.port);
        let uri = Uri::builder().scheme(self.scheme.clone());
        let uri = uri.authority(authority).path_and_query("/").build();
        uri.expect("its parts come from a URL")
    }

    /// Puts the prefix before a request's path: once a request. Whatever else its URI says is dropped: it goes to our endpoint.
    pub(crate) fn place<B>(&self, request: &mut Request<B>) -> Result<(), http::Error> {
        let path = request.uri().path_and_query();
        let path = match (path, &*self.prefix) {
            (Some(path), "") => path.clone(),
            (path, prefix) => {
                let path = path.map_or("/", PathAndQuery::as_str);
                PathAndQuery::try_from(format!("{prefix}{path}"))?
            }
        };
        *request.uri_mut() = Uri::from(path);
        Ok(())
    }

    /// The form of a URI that HTTP/2 wants: scheme and authority are pseudo-headers.
    pub(crate) fn absolute<B>(&self, request: &mut Request<B>) {
        request.headers_mut().remove(header::HOST);
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        *request.uri_mut() = Uri::from_parts(parts).expect("a path was placed before");
    }

    /// The form that HTTP/1.1 wants: the path only, and a `Host`.
    pub(crate) fn origin<B>(&self, request: &mut Request<B>) {
        let host = self.host_header.clone();
        request.headers_mut().insert(header::HOST, host);
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    }
}

#[cfg(test)]
mod tests {
    use clustercache::ClusterAccess;

    use super::*;

    fn placed(endpoint: &str, uri: &str) -> (Request<()>, Target) {
        let access = ClusterAccess::builder(endpoint).build().unwrap();
        let target = Target::new(&access).unwrap();
        let mut request = Request::get(uri).body(()).unwrap();
        target.place(&mut request).unwrap();
        (request, target)
    }

    #[test]
    fn a_request_goes_below_the_prefix_of_its_own_endpoint_whatever_its_uri_says() {
        let (mut request, target) = placed("https://a:6443/k8s/c-1/", "https://evil/api?limit=5");
        target.absolute(&mut request);
        assert_eq!(*request.uri(), "https://a:6443/k8s/c-1/api?limit=5");
        target.origin(&mut request);
        assert_eq!(*request.uri(), "/k8s/c-1/api?limit=5");
        assert_eq!(request.headers()["host"], "a:6443");
        target.absolute(&mut request);
        assert_eq!(*request.uri(), "https://a:6443/k8s/c-1/api?limit=5");
        assert!(!request.headers().contains_key("host"));
    }

    #[test]
    fn an_ipv6_address_is_dialled_without_brackets_and_a_port_that_is_missing_is_443() {
        let (request, target) = placed("https://[::1]", "/version");
        assert_eq!((&*target.host, target.port), ("::1", 443));
        assert_eq!(*request.uri(), "/version");
    }
}
