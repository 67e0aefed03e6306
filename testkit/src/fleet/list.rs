//! Lists, whole or page by page. All pages of a list show the same version, as a real server's do.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::{
    kinds::Kind, object::Object, query::Query, selector::Selector, status::Status, store::Store,
};

/// What a `continue` token says: the version of the list, and the last object of the page before.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    namespace: String,
    name: String,
}

/// Lists the objects of a kind as a query asks.
pub(super) fn list(
    store: &Store,
    kind: &'static Kind,
    namespace: Option<&str>,
    query: &Query<'_>,
) -> Result<Bytes, Status> {
    let selector = query.selector()?;
    let asked = query.version()?;
    let token = query.text("continue");
    // A real server answers version 0 from its watch cache, which knows no pages.
    let limit = if asked == Some(0) {
        0
    } else {
        query.number("limit")?.unwrap_or_default()
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let after = if token.is_empty() {
        None
    } else {
        Some(decode(&token)?)
    };
    let (version, objects) = store.with(|state| {
        let now = state.version();
        if let Some(asked) = asked.filter(|asked| *asked > now && after.is_none()) {
            return Err(Status::version_in_the_future(asked, now));
        }
        let version = after.as_ref().map_or(now, |after| after.rv);
        let objects = state
            .at(version, kind, namespace)
            .map_err(|_| Status::continue_expired())?;
        Ok((version, objects))
    })?;
    let page = Page::cut(objects, &selector, after.as_ref(), limit);
    Ok(page.write(kind, version, selector.is_empty()))
}

struct Page {
    objects: Vec<Arc<Object>>,
    /// How many more there are.
    remaining: usize,
}

impl Page {
    fn cut(
        mut objects: Vec<Arc<Object>>,
        selector: &Selector,
        after: Option<&Continue>,
        limit: usize,
    ) -> Self {
        objects.retain(|object| {
            let place = (&*object.key.namespace, &*object.key.name);
            after.is_none_or(|after| place > (&after.namespace, &after.name))
                && selector.matches(object)
        });
        let all = objects.len();
        if limit > 0 {
            objects.truncate(limit);
        }
        Self {
            remaining: all - objects.len(),
            objects,
        }
    }

    fn write(&self, kind: &Kind, version: u64, count_remaining: bool) -> Bytes {
        let mut out = BytesMut::with_capacity(
            128 + self
                .objects
                .iter()
                .map(|object| object.json.len() + 1)
                .sum::<usize>(),
        );
        let head = format!(
            r#"{{"kind":"{}List","apiVersion":"{}","metadata":{{"resourceVersion":"{version}""#,
            kind.name,
            kind.api_version()
        );
        out.put_slice(head.as_bytes());
        if let Some(last) = self.objects.last().filter(|_| self.remaining > 0) {
            out.put_slice(format!(r#","continue":"{}""#, encode(version, last)).as_bytes());
            if count_remaining {
                out.put_slice(format!(r#","remainingItemCount":{}"#, self.remaining).as_bytes());
            }
        }
        out.put_slice(br#"},"items":["#);
        for (place, object) in self.objects.iter().enumerate() {
            if place > 0 {
                out.put_u8(b',');
            }
            out.put_slice(&object.json);
        }
        out.put_slice(b"]}");
        out.freeze()
    }
}

fn encode(version: u64, last: &Object) -> String {
    let token = Continue {
        v: "meta.k8s.io/v1".to_owned(),
        rv: version,
        namespace: last.key.namespace.to_string(),
        name: last.key.name.to_string(),
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("strings and numbers are JSON"))
}

fn decode(token: &str) -> Result<Continue, Status> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    token.ok_or_else(|| Status::bad_request("continue key is not valid"))
}
