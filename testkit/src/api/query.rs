//! The query of a request, and what the real server refuses of it.

use std::{borrow::Cow, collections::HashMap};

use super::{
    kind::Kind,
    selector::Selector,
    status::{Cause, Status},
};

/// A query's parameters; of one that is given twice, the first.
pub(super) struct Query<'a>(HashMap<Cow<'a, str>, Cow<'a, str>>);

/// How a list or a watch is to relate to the version that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// None was given.
    Unset,
    Exact,
    NotOlderThan,
}

impl<'a> Query<'a> {
    pub(super) fn parse(query: &'a str) -> Self {
        let mut all = HashMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.entry(name).or_insert(value);
        }
        Self(all)
    }

    /// Empty if it is not given.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", Cow::as_ref)
    }

    /// As the real server reads a boolean: given without a value it holds.
    pub(super) fn flag(&self, name: &str) -> bool {
        let value = self.0.get(name).map(|value| value.to_ascii_lowercase());
        value.is_some_and(|value| !matches!(&*value, "false" | "0"))
    }

    pub(super) fn given(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse().map(Some);
        number.map_err(|_| {
            Status::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        })
    }

    /// The version that a list or a watch names; else what is wrong with it.
    fn version(&self) -> Result<Option<u64>, String> {
        let text = self.text("resourceVersion");
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
        })
    }

    pub(super) fn list_version(&self) -> Result<Option<u64>, Status> {
        self.version()
            .map_err(|wrong| Status::bad_request(format!("invalid resource version: {wrong}")))
    }

    /// Of a watch, or of one object.
    pub(super) fn watch_version(&self) -> Result<Option<u64>, Status> {
        self.version().map_err(|wrong| Status::new(500, "", wrong))
    }

    pub(super) fn selector(&self, kind: &Kind) -> Result<Selector, Status> {
        Selector::parse(self.text("labelSelector"), self.text("fieldSelector"), kind)
    }

    pub(super) fn dry_run(&self) -> Result<bool, Status> {
        match self.0.get("dryRun").map(Cow::as_ref) {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let cause = Cause::not_supported("dryRun", &serde_json::json!([other]), &["All"]);
                Err(Status::invalid_as(
                    "meta.k8s.io",
                    "CreateOptions",
                    "",
                    &[cause],
                ))
            }
        }
    }

    pub(super) fn list_match(&self) -> Result<Match, Status> {
        let asked = self.text("resourceVersionMatch");
        let field = "resourceVersionMatch";
        let mut causes = Vec::new();
        if !asked.is_empty() {
            if self.text("resourceVersion").is_empty() {
                causes.push(Cause::forbidden(
                    field,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.text("continue").is_empty() {
                causes.push(Cause::forbidden(
                    field,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(asked, "Exact" | "NotOlderThan") {
                causes.push(Cause::not_supported(
                    field,
                    &asked.into(),
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if asked == "Exact" && self.text("resourceVersion") == "0" {
                causes.push(Cause::forbidden(
                    field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.given("sendInitialEvents") {
            causes.push(Cause::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        options(&causes)?;
        Ok(match asked {
            "Exact" => Match::Exact,
            "NotOlderThan" => Match::NotOlderThan,
            _ => Match::Unset,
        })
    }

    /// Whether a watch is to begin with what there is, where it says so; and that its options go together.
    pub(super) fn initial_events(&self) -> Result<Option<bool>, Status> {
        let asked = self.text("resourceVersionMatch");
        let field = "resourceVersionMatch";
        let given = self.given("sendInitialEvents");
        let mut causes = Vec::new();
        if given && asked != "NotOlderThan" {
            causes.push(Cause::forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !asked.is_empty() {
            if !given {
                causes.push(Cause::forbidden(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
            }
            if asked != "NotOlderThan" {
                causes.push(Cause::not_supported(
                    field,
                    &asked.into(),
                    &["NotOlderThan"],
                ));
            }
        }
        options(&causes)?;
        Ok(given.then(|| self.flag("sendInitialEvents")))
    }
}

fn options(causes: &[Cause]) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid_as("meta.k8s.io", "ListOptions", "", causes))
}
