//! A connection in the hands of one request. One of HTTP/1.1 goes back when its answer has been read to the end, and closes otherwise.

use std::sync::Arc;

use http::Request;
use kube::client::Body;

use super::{
    line::Line,
    link::{Link, Sent},
};

pub(crate) struct Lease {
    pub(crate) line: Arc<Line>,
    link: Option<Link>,
    /// Nothing is on its way: another request may use it.
    clean: bool,
}

impl Lease {
    pub(crate) fn new(of: &Arc<Line>, link: Link) -> Self {
        Self {
            line: Arc::clone(of),
            link: Some(link),
            clean: true,
        }
    }

    pub(crate) fn into_link(mut self) -> Link {
        self.link
            .take()
            .expect("a lease has its link until it is dropped")
    }

    /// Sends a request that was [placed](super::target::Target::place), in the form that the connection's protocol wants.
    pub(crate) async fn send(&mut self, mut request: Request<Body>) -> Sent {
        self.clean = false;
        let link = self
            .link
            .as_mut()
            .expect("a lease has its link until it is dropped");
        match link {
            Link::H2(_) => self.line.shared.target.absolute(&mut request),
            Link::H1(_) => self.line.shared.target.origin(&mut request),
        }
        link.send(request).await
    }

    /// The answer has been read to its end.
    pub(crate) fn finished(mut self) {
        self.clean = true;
    }

    /// Whether the answer needs the lease until it has been read.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.link, Some(Link::H1(_)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(link @ Link::H1(_)) = self.link.take()
            && self.clean
        {
            self.line.give_back(link);
        }
    }
}
