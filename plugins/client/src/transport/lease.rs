//! A connection, or a stream of one, in the hands of one request. One of HTTP/1.1 goes back when its answer has been read to the end,
//! and closes otherwise; a stream of HTTP/2 makes room for another when it is over, however it was.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use http::Request;
use kube::client::Body;

use super::{
    body::Ending,
    class::Class,
    error::{TransportError, Wait},
    http2::{Http2, Load},
    line::{Line, STREAM},
    link::{Link, Sent},
};

pub(crate) struct Lease {
    pub(crate) line: Arc<Line>,
    link: Option<Link>,
    /// Nothing is on its way: another request may use it.
    clean: bool,
    /// On HTTP/2.
    _place: Option<Place>,
}

impl Lease {
    /// A connection of HTTP/1.1.
    pub(crate) fn whole(of: &Arc<Line>, link: Link) -> Self {
        Self {
            line: Arc::clone(of),
            link: Some(link),
            clean: true,
            _place: None,
        }
    }

    /// A stream on a connection of HTTP/2. Under the lock of the line's pool: whoever counts streams sees it.
    pub(crate) fn stream(of: &Arc<Line>, link: &Http2, class: Class) -> Self {
        link.load.streams.fetch_add(1, Relaxed);
        if let Some(count) = link.load.of(class) {
            count.fetch_add(1, Relaxed);
        }
        let place = Place {
            line: Arc::clone(of),
            load: Arc::clone(&link.load),
            class,
        };
        Self {
            line: Arc::clone(of),
            link: Some(Link::H2(link.clone())),
            clean: false,
            _place: Some(place),
        }
    }

    pub(crate) fn into_link(mut self) -> Link {
        self.link
            .take()
            .expect("a lease has its link until it is dropped")
    }

    /// Sends a request that was [placed](super::target::Target::place), in the form that the connection's protocol wants.
    pub(crate) fn send(&mut self, mut request: Request<Body>) -> impl Future<Output = Sent> {
        self.clean = false;
        let link = self
            .link
            .as_mut()
            .expect("a lease has its link until it is dropped");
        match link {
            Link::H2(_) => self.line.shared.target.absolute(&mut request),
            Link::H1(_) => self.line.shared.target.origin(&mut request),
        }
        link.send(request)
    }

    /// Why there is no head, after a [`send`](Self::send) that was ended.
    pub(crate) fn ended(&self, ending: Ending) -> TransportError {
        match (&self.link, ending) {
            (Some(Link::H2(link)), Ending::Deadline(after)) if link.is_opening() => busy(after),
            _ => ending.error(Wait::Head),
        }
    }

    /// The head of the answer is here. HTTP/2 shares its connection, which must be free to close behind a watch.
    pub(crate) fn answered(mut self) -> Self {
        if let Some(Link::H2(_)) = self.link {
            self.link = None;
        }
        self
    }

    /// The answer has been read to its end.
    pub(crate) fn finished(mut self) {
        self.clean = true;
    }
}

fn busy(after: Duration) -> TransportError {
    TransportError::Busy {
        what: STREAM,
        after,
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

/// A stream's place on its connection.
struct Place {
    line: Arc<Line>,
    load: Arc<Load>,
    class: Class,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(count) = self.load.of(self.class) {
            count.fetch_sub(1, Relaxed);
        }
        self.load.streams.fetch_sub(1, Relaxed);
        self.line.made_room();
    }
}
