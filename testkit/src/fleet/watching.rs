//! A watch: the events after a version, for as long as the client, the deadline and the history let it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Body, Inner,
    kinds::Kind,
    object::Object,
    query::Query,
    selector::Selector,
    status::Status,
    store::{Event, Signal},
};

/// Bytes after which a frame is sent, although there is more.
const FRAME: usize = 64 * 1024;

/// Time between bookmarks, about that of a real server.
const BOOKMARKS: Duration = Duration::from_secs(60);

struct Watch {
    _open: Open,
    cluster: Arc<Inner>,
    kind: &'static Kind,
    namespace: Option<String>,
    selector: Selector,
    /// All up to here was sent.
    version: u64,
    signals: watch::Receiver<Signal>,
    seen: Signal,
    /// What there was when it began, if that was asked for.
    first: Option<BytesMut>,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Option<Instant>,
    done: bool,
}

/// A watch that is counted as open.
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0
            .counting
            .change(|counters| counters.watches_open -= 1);
    }
}

/// Starts a watch. An error is for a query that makes no sense; one about its version is an event of the watch.
pub(super) fn watch(
    cluster: &Arc<Inner>,
    kind: &'static Kind,
    namespace: Option<&str>,
    query: &Query<'_>,
) -> Result<Body, Status> {
    let selector = query.selector()?;
    let asked = query.version()?.filter(|version| *version > 0);
    let initial = query.flag("sendInitialEvents");
    let bookmarks = query.flag("allowWatchBookmarks");
    let deadline = query
        .number("timeoutSeconds")?
        .filter(|seconds| *seconds > 0);
    // Before the state is read, so that no event falls between the two.
    let mut signals = cluster.store.signals();
    let seen = *signals.borrow_and_update();
    let (version, first) = match asked.filter(|_| !initial) {
        Some(version) => (version, None),
        None => cluster.store.with(|state| {
            let version = state.version();
            let objects = state.at(version, kind, namespace)?;
            let mut out = BytesMut::new();
            for object in objects.iter().filter(|object| selector.matches(object)) {
                line(&mut out, "ADDED", object);
            }
            if initial && bookmarks {
                bookmark(&mut out, kind, version, true);
            }
            Ok::<_, Status>((version, Some(out)))
        })?,
    };
    cluster
        .counting
        .change(|counters| counters.watches_open += 1);
    let watch = Watch {
        _open: Open(cluster.clone()),
        cluster: cluster.clone(),
        kind,
        namespace: namespace.map(str::to_owned),
        selector,
        version,
        signals,
        seen,
        first,
        bookmarks,
        next_bookmark: Instant::now() + BOOKMARKS,
        deadline: deadline.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        done: false,
    };
    let frames = stream::unfold(watch, |mut watch| async move {
        let frame = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(frame)), watch))
    });
    Ok(StreamBody::new(frames).boxed_unsync())
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(first.freeze());
        }
        while !self.done {
            // Before the history is read: what changes after this wakes `wait`.
            let signal = *self.signals.borrow_and_update();
            let mut out = BytesMut::new();
            let more = self.collect(&mut out);
            if !more && !self.done {
                self.done = self.ended(signal, &mut out);
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if !more && !self.done {
                self.wait().await;
            }
        }
        None
    }

    /// Writes the events since the last time; true if there are more.
    fn collect(&mut self, out: &mut BytesMut) -> bool {
        let cluster = self.cluster.clone();
        let expired = cluster.store.with(|state| {
            for event in state.since(self.version)? {
                if out.len() > FRAME {
                    return Ok(true);
                }
                self.write(out, event);
                self.version = event.version;
            }
            Ok(false)
        });
        expired.unwrap_or_else(|status: Status| {
            out.put_slice(
                format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.body()).as_bytes(),
            );
            self.done = true;
            false
        })
    }

    fn write(&self, out: &mut BytesMut, event: &Event) {
        let key = &event.after.key;
        if key.kind != self.kind
            || self
                .namespace
                .as_ref()
                .is_some_and(|namespace| **namespace != *key.namespace)
        {
            return;
        }
        let was = event
            .before
            .as_ref()
            .is_some_and(|before| self.selector.matches(before));
        let is = !event.deleted && self.selector.matches(&event.after);
        match (was, is) {
            (false, true) => line(out, "ADDED", &event.after),
            (true, true) => line(out, "MODIFIED", &event.after),
            (true, false) => line(out, "DELETED", &event.after),
            (false, false) => {}
        }
    }

    /// Writes a bookmark if one is due; true if the watch is over.
    fn ended(&mut self, signal: Signal, out: &mut BytesMut) -> bool {
        let now = Instant::now();
        let over =
            signal.ends != self.seen.ends || self.deadline.is_some_and(|deadline| deadline <= now);
        let asked = signal.bookmarks != self.seen.bookmarks || self.next_bookmark <= now;
        self.seen = signal;
        if self.bookmarks && (over || asked) {
            bookmark(out, self.kind, self.version, false);
            self.next_bookmark = now + BOOKMARKS;
        }
        over
    }

    async fn wait(&mut self) {
        let bookmark = self.bookmarks.then_some(self.next_bookmark);
        let until = self.deadline.into_iter().chain(bookmark).min();
        tokio::select! {
            // Never an error: the store, and with it the sender, lives as long as the cluster, which this holds.
            _ = self.signals.changed() => {}
            () = async { if let Some(until) = until { sleep_until(until).await } else { std::future::pending().await } } => {}
        }
    }
}

fn line(out: &mut BytesMut, change: &str, object: &Object) {
    out.put_slice(br#"{"type":""#);
    out.put_slice(change.as_bytes());
    out.put_slice(br#"","object":"#);
    object.write(out);
    out.put_slice(b"}\n");
}

fn bookmark(out: &mut BytesMut, kind: &Kind, version: u64, initial: bool) {
    let annotations = if initial {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    let text = format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{\
         \"resourceVersion\":\"{version}\",\"creationTimestamp\":null{annotations}}}}}}}\n",
        kind.name,
        kind.api_version()
    );
    out.put_slice(text.as_bytes());
}
