//! What a server says in a list or a watch, taken apart: a line of a watch, a page of a list, a refusal. Another party's text (rule 18).

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{error::Misplaced, version::Version};

/// One line of a watch.
pub(crate) enum Line<'a> {
    /// An object is there, as it is now: its JSON.
    Changed(&'a str),
    /// An object is gone: its JSON.
    Deleted(&'a str),
    Bookmark {
        version: Version,
        /// All that was there at the beginning has been sent.
        ends_initial: bool,
    },
    Error(Status),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("a line is no event of a watch")]
    Json(#[from] Misplaced),
    #[error("a line is not UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    #[error("an event of an unknown type, {0:?}")]
    Type(String),
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark<'a> {
    #[serde(borrow)]
    metadata: BookmarkMetadata<'a>,
}

#[derive(Deserialize)]
struct BookmarkMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    version: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<Annotations<'a>>,
}

#[derive(Deserialize)]
struct Annotations<'a> {
    #[serde(borrow, default, rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<Cow<'a, str>>,
}

impl<'a> Line<'a> {
    pub(crate) fn read(line: &'a [u8]) -> Result<Self, LineError> {
        let line = std::str::from_utf8(line)?.trim_ascii();
        if let Some(line) = Self::at_a_glance(line) {
            return Ok(line);
        }
        let event: Event<'a> = read(line)?;
        let json = event.object.get();
        match &*event.r#type {
            "ADDED" | "MODIFIED" => Ok(Self::Changed(json)),
            "DELETED" => Ok(Self::Deleted(json)),
            "BOOKMARK" => {
                let Bookmark { metadata } = read(json)?;
                let end = metadata.annotations.and_then(|all| all.initial_events_end);
                Ok(Self::Bookmark {
                    version: Version::of(&metadata.version),
                    ends_initial: end.is_some_and(|end| end == "true"),
                })
            }
            "ERROR" => Ok(Self::Error(read(json)?)),
            other => Err(LineError::Type(other.chars().take(64).collect())),
        }
    }

    /// An event as API servers write it. Whether what is taken for the object's JSON is that shows when it is read.
    fn at_a_glance(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix(r#"{"type":""#)?.strip_suffix('}')?;
        let (kind, json) = rest.split_once(r#"","object":"#)?;
        match kind {
            "ADDED" | "MODIFIED" => Some(Self::Changed(json)),
            "DELETED" => Some(Self::Deleted(json)),
            _ => None,
        }
    }
}

fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Misplaced> {
    Ok(serde_json::from_str(json)?)
}

/// One page of a list.
pub(crate) struct Page<'a> {
    pub(crate) version: Version,
    /// Where the next one begins, if there is one.
    pub(crate) next: Option<String>,
    /// Each object's JSON.
    pub(crate) items: Vec<&'a str>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: ListMetadata<'a>,
    /// An empty one may be null.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct ListMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    version: Cow<'a, str>,
    #[serde(default)]
    r#continue: Option<String>,
}

impl<'a> Page<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, LineError> {
        let List { metadata, items } = read(std::str::from_utf8(body)?)?;
        Ok(Self {
            version: Version::of(&metadata.version),
            next: metadata.r#continue.filter(|next| !next.is_empty()),
            items: items.into_iter().flatten().map(RawValue::get).collect(),
        })
    }
}

/// What a server refuses with.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    details: Option<Details>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Option<Vec<Cause>>,
    #[serde(rename = "retryAfterSeconds")]
    retry_after: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

impl Status {
    /// The answer to a request: its own status counts, whatever its body says.
    pub(crate) fn of(code: u16, body: &[u8]) -> Self {
        let said = serde_json::from_slice::<Self>(body);
        Self {
            code,
            ..said.unwrap_or_default()
        }
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.code == 410 || matches!(&*self.reason, "Expired" | "Gone")
    }

    /// The version is not there yet: as a cause, and before 1.17 in words only.
    pub(crate) fn is_too_large(&self) -> bool {
        let causes = self
            .details
            .iter()
            .filter_map(|details| details.causes.as_ref())
            .flatten();
        let mut causes = causes.map(|cause| &*cause.reason);
        causes.any(|reason| reason == "ResourceVersionTooLarge")
            || self.message.contains("Too large resource version")
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.as_ref()?.retry_after;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(line: &str) -> Option<String> {
        match Line::read(line.as_bytes()).ok()? {
            Line::Changed(json) => Some(format!("+{json}")),
            Line::Deleted(json) => Some(format!("-{json}")),
            Line::Bookmark {
                version,
                ends_initial,
            } => Some(format!("={version} {ends_initial}")),
            Line::Error(status) => Some(format!("!{} {}", status.code, status.is_expired())),
        }
    }

    #[test]
    fn lines_are_read_however_they_are_written() {
        for (line, expected) in [
            (r#"{"type":"ADDED","object":{"a":1}}"#, "+{\"a\":1}"),
            (
                r#"{"type":"MODIFIED","object":{"a":"}"}}"#,
                "+{\"a\":\"}\"}",
            ),
            (r#"{"type":"DELETED","object":{}}"#, "-{}"),
            (
                r#" { "object" : {"a":1} , "type" : "ADDED" } "#,
                "+{\"a\":1}",
            ),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#,
                "=7 false",
            ),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
                "=7 true",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#,
                "!410 true",
            ),
        ] {
            assert_eq!(json(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            "",
            "{}",
            "null",
            r#"{"type":"NEW","object":{}}"#,
            r#"{"type":"BOOKMARK","object":{}}"#,
        ] {
            assert!(json(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_page_says_where_the_next_begins() {
        let body = br#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"x"},"items":[{"a":1},{"b":2}]}"#;
        let page = Page::read(body).unwrap();
        assert_eq!(
            (page.version, page.next.as_deref()),
            (Version::Number(9), Some("x"))
        );
        assert_eq!(page.items, [r#"{"a":1}"#, r#"{"b":2}"#]);
        let page =
            Page::read(br#"{"metadata":{"resourceVersion":"9","continue":""},"items":null}"#)
                .unwrap();
        assert!(page.next.is_none() && page.items.is_empty());
        // Without items it is no empty list.
        assert!(Page::read(br#"{"kind":"Status"}"#).is_err());
    }

    #[test]
    fn refusals_are_told_apart() {
        let too_large = br#"{"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}}"#;
        let status = Status::of(504, too_large);
        assert!(status.is_too_large() && status.retry_after() == Some(Duration::from_secs(1)));
        assert!(!Status::of(504, b"<html>").is_too_large());
        assert!(Status::of(410, b"").is_expired() && !Status::of(500, b"").is_expired());
    }
}
