//! The query of a list or a watch.

use std::{borrow::Cow, collections::HashMap};

use super::{selector::Selector, status::Status};

/// A query's parameters; of one that is given twice, the last.
pub(super) struct Query<'a>(HashMap<Cow<'a, str>, Cow<'a, str>>);

impl<'a> Query<'a> {
    pub(super) fn parse(query: &'a str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).collect())
    }

    /// Empty if it is not given.
    pub(super) fn text(&self, name: &str) -> Cow<'_, str> {
        self.0
            .get(name)
            .map_or("".into(), |value| value.as_ref().into())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(&*self.text(name), "true" | "1")
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("invalid value for {name}: {text:?}")))
    }

    pub(super) fn version(&self) -> Result<Option<u64>, Status> {
        self.number("resourceVersion")
    }

    pub(super) fn selector(&self) -> Result<Selector, Status> {
        Selector::parse(&self.text("labelSelector"), &self.text("fieldSelector"))
    }
}
