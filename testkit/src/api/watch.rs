//! A watch: the events after a version, for as long as the client, the deadline, the history and the faults let it.

use std::{collections::VecDeque, sync::Arc, time::Duration, vec};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    Shared,
    answer::{self, Body, Cut, Form, Include, TableOptions},
    ask::Ask,
    faults::Spoilt,
    kind::Kind,
    list,
    object::{Change, Object},
    query::Query,
    request::Place,
    selector::Selector,
    status::Status,
    store::{Event, Signal},
    table,
};

/// Events that are taken out of the store at a time.
const BATCH: usize = 128;

/// Time between bookmarks, and how long before the end the last one is sent: as the real server has it.
const BOOKMARKS: Duration = Duration::from_secs(60);
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Seconds that a watch lives which asks for nothing else.
const LIFE: std::ops::Range<u64> = 1800..3600;

struct Watch {
    shared: Arc<Shared>,
    ask: Ask,
    kind: Arc<Kind>,
    prefix: String,
    selector: Selector,
    view: View,
    /// All up to here was taken out of the store.
    version: u64,
    /// What there was at the beginning, where that was asked for and not sent yet.
    initial: vec::IntoIter<Arc<Object>>,
    ready: VecDeque<Line>,
    news: Arc<Notify>,
    signal: Signal,
    bookmarks: Option<Instant>,
    /// The version that it began with: of that a bookmark says nothing new.
    first: u64,
    initial_bookmark: bool,
    began: Instant,
    deadline: Instant,
    sent: u64,
    over: bool,
}

/// What is to be sent.
enum Line {
    /// Encoded when it is sent: an object is kept once, for however many who watch.
    Event(Change, Arc<Object>),
    Text(Bytes),
}

/// Starts a watch. An error is for a query that makes no sense, or a version that does not come; one that is too old is an
/// event of the watch.
pub(super) async fn watch(
    shared: &Arc<Shared>,
    ask: &Ask,
    place: &Place,
    query: &Query<'_>,
    form: Form,
) -> Result<Response<Body>, Status> {
    let selector = query.selector(&place.kind)?;
    let include = Include::parse(query.text("includeObject"))?;
    let initial_events = query.initial_events()?;
    let asked = query.watch_version()?.filter(|version| *version > 0);
    let bookmarks = query.flag("allowWatchBookmarks");
    let seconds = query
        .number("timeoutSeconds")?
        .filter(|seconds| *seconds > 0);
    let seconds = seconds.unwrap_or_else(|| shared.dice.within(LIFE));
    let mut refused = None;
    if let Some(asked) = asked.filter(|_| initial_events == Some(true)) {
        refused = list::until(shared, place, asked).await.err();
    }
    let prefix = place.prefix();
    // A watch without a version begins with what there is, unless it says that it does not want that.
    let with_initial = initial_events.unwrap_or(asked.is_none());
    let from = asked.filter(|_| initial_events != Some(true));
    let begin = shared.store.with(|state| {
        let news = state.news(&place.kind);
        let version = from.unwrap_or(state.version());
        let too_old = state.since(&place.kind, version).err();
        let initial = if with_initial {
            list::selected(state, place, &selector)
        } else {
            Vec::new()
        };
        (news, version, too_old, initial, state.signal)
    });
    let (news, version, too_old, initial, signal) = begin;
    let now = Instant::now();
    let deadline = now + Duration::from_secs(seconds);
    let mut watch = Watch {
        view: View::new(form, include),
        shared: shared.clone(),
        ask: ask.clone(),
        kind: place.kind.clone(),
        prefix,
        selector,
        version,
        initial: initial.into_iter(),
        ready: VecDeque::new(),
        news,
        signal,
        bookmarks: bookmarks.then(|| next_bookmark(now, deadline)),
        first: version,
        initial_bookmark: initial_events == Some(true) && bookmarks,
        began: now,
        deadline,
        sent: 0,
        over: false,
    };
    let too_old = too_old.map(|too_old| Status::too_old(version, too_old.oldest));
    if let Some(status) = refused.or(too_old) {
        watch.refuse(&status);
    }
    let frames = stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await? {
            Ok(line) => Some((Ok(Frame::data(line)), Some(watch))),
            Err(cut) => Some((Err(cut), None)),
        }
    });
    let body = StreamBody::new(frames).boxed_unsync();
    Ok(answer::respond(StatusCode::OK, "application/json", body))
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).unwrap_or(deadline);
    let next = now + BOOKMARKS;
    // After the last one there is none before the end.
    if last > now { next.min(last) } else { next }
}

impl Watch {
    /// The next line; nothing at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            let news = self.news.clone();
            let mut changed = std::pin::pin!(news.notified());
            // Before the store and the faults are looked at: what changes after that wakes this.
            changed.as_mut().enable();
            let spoilt = self.shared.faults.of_watch(&self.ask);
            if spoilt.ended {
                return None;
            }
            if spoilt.expired {
                self.refuse(&Status::too_old(self.version, self.version + 1));
            }
            if self.is_cut(&spoilt) {
                return Some(Err(Cut));
            }
            let mut due = None;
            if !spoilt.stalled {
                if let Some(line) = self.line() {
                    self.sent += 1;
                    return Some(Ok(line));
                }
                if self.over {
                    return None;
                }
                due = self.look(&spoilt);
                if self.over || !self.ready.is_empty() {
                    // What came before the end is sent before it.
                    continue;
                }
                due = due.into_iter().chain([self.deadline]).min();
            }
            let cut = spoilt.cut_after.map(|life| self.began + life);
            match due.into_iter().chain(cut).min() {
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
                None => changed.await,
            }
        }
    }

    fn is_cut(&self, spoilt: &Spoilt) -> bool {
        let by_events = spoilt
            .cut_after_events
            .is_some_and(|events| self.sent >= events);
        let by_time = spoilt
            .cut_after
            .is_some_and(|life| self.began.elapsed() >= life);
        by_events || by_time
    }

    /// A line that is there already.
    fn line(&mut self) -> Option<Bytes> {
        if let Some(object) = self.initial.next() {
            return Some(self.view.event(Change::Added, &object, &self.shared));
        }
        if std::mem::take(&mut self.initial_bookmark) {
            return Some(self.bookmark(true));
        }
        Some(match self.ready.pop_front()? {
            Line::Event(change, object) => self.view.event(change, &object, &self.shared),
            Line::Text(line) => line,
        })
    }

    /// Takes what is new out of the store, and says when to look again if nothing comes.
    fn look(&mut self, spoilt: &Spoilt) -> Option<Instant> {
        let now = Instant::now();
        let shared = self.shared.clone();
        let mut events = Vec::new();
        let (newest, signal, due, served) = shared.store.with(|state| {
            match state.since(&self.kind, self.version) {
                Ok(later) => events.extend(later.take(BATCH).cloned()),
                // It was too slow. A real server ends such a watch, and tells who resumes that it is too late.
                Err(_) => self.over = true,
            }
            let served = state.serves(&self.kind);
            (state.version(), state.signal, state.next_due(), served)
        });
        if self.over {
            return None;
        }
        for event in &events {
            self.version = event.version;
            if let Some((change, object)) = self.seen(event) {
                self.ready.push_back(Line::Event(change, object));
            }
        }
        if events.len() < BATCH {
            self.over = !served || signal.ends != self.signal.ends || now >= self.deadline;
            self.version = newest.max(self.version);
            let asked = signal.bookmarks != self.signal.bookmarks;
            self.signal = signal;
            let due = self.bookmarks.is_some_and(|due| due <= now);
            let wanted = asked || (due && self.version > self.first);
            if self.bookmarks.is_some() && wanted && !spoilt.without_bookmarks {
                let bookmark = self.bookmark(false);
                self.ready.push_back(Line::Text(bookmark));
            }
            if due {
                self.bookmarks = Some(next_bookmark(now, self.deadline));
            }
        }
        let due = due.map(|due| shared.clock.instant(due));
        due.into_iter().chain(self.bookmarks).min()
    }

    /// What an event is to this watch, if anything.
    fn seen(&self, event: &Event) -> Option<(Change, Arc<Object>)> {
        if !event.after.key.starts_with(&self.prefix) {
            return None;
        }
        if self.selector.is_empty() {
            return Some((event.change, event.after.clone()));
        }
        let before = event
            .before
            .as_ref()
            .filter(|before| self.selector.matches(before));
        let is = event.change != Change::Deleted && self.selector.matches(&event.after);
        match (before, is) {
            (None, true) => Some((Change::Added, event.after.clone())),
            (Some(_), true) => Some((Change::Modified, event.after.clone())),
            (Some(_), false) if event.change == Change::Deleted => {
                Some((Change::Deleted, event.after.clone()))
            }
            // It is no longer selected: what it was, as of now.
            (Some(before), false) => {
                let gone = before.as_of(Change::Deleted, event.version);
                Some((Change::Deleted, Arc::new(gone)))
            }
            (None, false) => None,
        }
    }

    /// The last line of the watch.
    fn refuse(&mut self, status: &Status) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.initial = Vec::new().into_iter();
        self.initial_bookmark = false;
        let event = json!({ "type": "ERROR", "object": status.body() });
        self.ready = [Line::Text(format!("{event}\n").into())].into();
    }

    fn bookmark(&self, initial: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": self.version.to_string() });
        if initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.view.form {
            Form::Table => table::bookmark(&self.kind, &metadata),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            Form::Whole | Form::AllGroups => json!({
                "kind": self.kind.name, "apiVersion": self.kind.api_version(), "metadata": metadata,
            }),
        };
        format!("{}\n", json!({ "type": "BOOKMARK", "object": object })).into()
    }
}

/// The form in which a watch shows objects.
struct View {
    form: Form,
    include: Include,
    /// Tables name their columns once.
    columns: bool,
}

impl View {
    fn new(form: Form, include: Include) -> Self {
        Self {
            form,
            include,
            columns: true,
        }
    }

    fn event(&mut self, change: Change, object: &Arc<Object>, shared: &Shared) -> Bytes {
        match self.form {
            Form::Whole | Form::AllGroups => object.line(change),
            Form::Metadata => answer::line(change.head(), &answer::metadata_only(object)),
            Form::Table => {
                let columns = std::mem::take(&mut self.columns);
                let options = TableOptions {
                    now: shared.clock.now(),
                    include: self.include,
                    columns,
                };
                let table: Value = table::of([object], &object.version.to_string(), options);
                answer::line(change.head(), table.to_string().as_bytes())
            }
        }
    }
}
