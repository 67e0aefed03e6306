//! Lists, whole or page by page. All pages of a list show the same version, as a real server's do.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut, BytesMut};
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::{
    Shared,
    answer::{self, Body, Form, Include, TableOptions},
    kind::Kind,
    object::{self, Object},
    query::{Match, Query},
    request::Place,
    selector::Selector,
    status::Status,
    store::State,
    table,
};

/// How long a server waits for a version that it has not seen yet.
const FRESH_WITHIN: Duration = Duration::from_secs(3);

/// Bytes after which a frame of a body is sent.
const FRAME: usize = 64 * 1024;

/// What a `continue` token says: the version of the list (-1: the newest), and the first key of its page.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: i64,
    start: String,
}

/// Lists the objects of a kind as a query asks.
pub(super) async fn list(
    shared: &Shared,
    place: &Place,
    query: &Query<'_>,
    form: Form,
) -> Result<Response<Body>, Status> {
    let selector = query.selector(&place.kind)?;
    let include = Include::parse(query.text("includeObject"))?;
    let page = find(shared, place, query, &selector).await?;
    if form == Form::Table {
        let options = TableOptions {
            now: shared.clock.now(),
            include,
            columns: true,
        };
        let mut table = table::of(&page.objects, &page.version.to_string(), options);
        table::name_columns(&mut table, &place.kind);
        if let Some(next) = &page.next {
            table["metadata"]["continue"] = next.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            table["metadata"]["remainingItemCount"] = remaining.into();
        }
        return Ok(answer::document(StatusCode::OK, &table));
    }
    let kind = place.kind.clone();
    Ok(answer::respond(
        StatusCode::OK,
        "application/json",
        page.body(&kind, form),
    ))
}

/// Objects at one version.
pub(super) struct Page {
    pub(super) version: u64,
    pub(super) objects: Vec<Arc<Object>>,
    next: Option<String>,
    remaining: Option<usize>,
}

/// What a list asks for.
struct Asked {
    after: Option<Continue>,
    /// This very version.
    exact: Option<u64>,
    limit: usize,
}

async fn find(
    shared: &Shared,
    place: &Place,
    query: &Query<'_>,
    selector: &Selector,
) -> Result<Page, Status> {
    let how = query.list_match()?;
    let version = query.list_version()?;
    let limit = query.number("limit")?.unwrap_or_default();
    let token = query.text("continue");
    let after = if token.is_empty() {
        None
    } else {
        Some(decode(token)?)
    };
    if after.is_some() && version.is_some_and(|version| version > 0) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(Status::bad_request(message));
    }
    let named = version.filter(|version| *version > 0);
    let asked = Asked {
        after,
        exact: named.filter(|_| how == Match::Exact || (how == Match::Unset && limit > 0)),
        // Version 0 is answered from the watch cache, which knows no pages.
        limit: if version == Some(0) {
            0
        } else {
            usize::try_from(limit).unwrap_or(usize::MAX)
        },
    };
    if let Some(version) = named {
        until(shared, place, version).await?;
    }
    shared
        .store
        .with(|state| asked.page(state, place, selector))
}

/// Waits until the server has seen `version`.
pub(super) async fn until(shared: &Shared, place: &Place, version: u64) -> Result<(), Status> {
    let deadline = Instant::now() + FRESH_WITHIN;
    loop {
        // Before the version is read: what changes after that wakes this.
        let mut changed = std::pin::pin!(shared.store.changed());
        changed.as_mut().enable();
        let newest = shared.store.with(|state| state.version());
        if newest >= version {
            return Ok(());
        }
        if timeout_at(deadline, changed).await.is_err() {
            tracing::debug!(kind = %place.kind.plural, version, newest, "a version did not come");
            return Err(Status::version_in_the_future(version, newest));
        }
    }
}

impl Asked {
    fn page(&self, state: &State, place: &Place, selector: &Selector) -> Result<Page, Status> {
        let prefix = place.prefix();
        let version = match &self.after {
            Some(after) => u64::try_from(after.rv).unwrap_or(state.version()),
            None => self.exact.unwrap_or(state.version()),
        };
        let mut objects =
            state
                .at(&place.kind, &prefix, version)
                .map_err(|_| match &self.after {
                    Some(after) => Status::continue_expired(&encode(-1, &after.start)),
                    None => Status::list_expired(),
                })?;
        let start = self.after.as_ref().map_or("", |after| &after.start);
        objects.retain(|object| &object.key[prefix.len()..] >= start && selector.matches(object));
        let all = objects.len();
        if self.limit > 0 {
            objects.truncate(self.limit);
        }
        let left = all - objects.len();
        let last = objects.last().filter(|_| left > 0);
        let next = last.map(|last| {
            let version = i64::try_from(version).unwrap_or(i64::MAX);
            encode(version, &format!("{}\0", &last.key[prefix.len()..]))
        });
        Ok(Page {
            version,
            next,
            remaining: (left > 0 && selector.is_empty()).then_some(left),
            objects,
        })
    }
}

impl Page {
    /// A list without further pages.
    pub(super) fn whole(version: u64, objects: Vec<Arc<Object>>) -> Self {
        Self {
            version,
            objects,
            next: None,
            remaining: None,
        }
    }

    /// What comes before the first item.
    fn head(&self, kind: &Kind, form: Form) -> BytesMut {
        let mut out = BytesMut::new();
        if form == Form::Metadata {
            out.put_slice(br#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","#);
        } else {
            let list = Kind {
                name: format!("{}List", kind.name).into(),
                ..kind.clone()
            };
            object::head(&mut out, &list);
        }
        out.put_slice(format!(r#""metadata":{{"resourceVersion":"{}""#, self.version).as_bytes());
        // Lists of custom resources say it also where there is none.
        if self.next.is_some() || kind.custom {
            let next = self.next.as_deref().unwrap_or_default();
            out.put_slice(format!(r#","continue":"{next}""#).as_bytes());
        }
        if let Some(remaining) = self.remaining {
            out.put_slice(format!(r#","remainingItemCount":{remaining}"#).as_bytes());
        }
        out.put_slice(br#"},"items":["#);
        out
    }

    /// The list, encoded as it is read.
    pub(super) fn body(self, kind: &Kind, form: Form) -> Body {
        let mut out = self.head(kind, form);
        let mut objects = self.objects.into_iter().peekable();
        let mut over = false;
        let frames = std::iter::from_fn(move || {
            if over {
                return None;
            }
            while out.len() < FRAME && !over {
                match objects.next() {
                    Some(object) => item(&mut out, &object, form),
                    None => over = true,
                }
                out.put_slice(match (over, objects.peek()) {
                    (true, _) => b"]}",
                    (false, Some(_)) => b",",
                    (false, None) => b"",
                });
            }
            Some(out.split().freeze())
        });
        StreamBody::new(stream::iter(frames.map(|frame| Ok(Frame::data(frame))))).boxed_unsync()
    }
}

fn item(out: &mut BytesMut, object: &Object, form: Form) {
    if form == Form::Metadata {
        out.put_slice(&answer::metadata_only(object));
    } else {
        out.put_u8(b'{');
        for part in object.item() {
            out.put_slice(part);
        }
    }
}

fn encode(version: i64, start: &str) -> String {
    let token = Continue {
        v: "meta.k8s.io/v1".to_owned(),
        rv: version,
        start: start.to_owned(),
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("strings and numbers are JSON"))
}

fn decode(token: &str) -> Result<Continue, Status> {
    let invalid = |why: &dyn std::fmt::Display| {
        Status::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(token)
        .map_err(|error| invalid(&error))?;
    let token: Continue = serde_json::from_slice(&bytes).map_err(|error| invalid(&error))?;
    if token.v != "meta.k8s.io/v1" {
        return Err(invalid(&"server does not recognize this encoded version"));
    }
    Ok(token)
}

/// All objects that a query selects, as they are now: for deletions of collections.
pub(super) fn selected(state: &State, place: &Place, selector: &Selector) -> Vec<Arc<Object>> {
    let prefix = place.prefix();
    let all = state.all(&place.kind, &prefix);
    all.filter(|object| selector.matches(object))
        .cloned()
        .collect()
}
