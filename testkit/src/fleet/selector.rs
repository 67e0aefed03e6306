//! Label and field selectors of a list or a watch.

use super::{object::Object, status::Status};

/// Which objects a request is about, beyond its path.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Term>,
    fields: Vec<Term>,
}

#[derive(Clone, Debug)]
struct Term {
    key: String,
    wanted: Wanted,
}

#[derive(Clone, Debug)]
enum Wanted {
    Equal(String),
    NotEqual(String),
    Present,
    Absent,
}

impl Selector {
    /// Labels: `a=b`, `a==b`, `a!=b`, `a`, `!a`, joined by commas. Fields: `metadata.name`, `metadata.namespace`.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        let fields = terms(fields)?;
        for Term { key, wanted } in &fields {
            if !matches!(key.as_str(), "metadata.name" | "metadata.namespace") {
                return Err(Status::bad_request(format!(
                    "field label not supported: {key}"
                )));
            }
            if matches!(wanted, Wanted::Present | Wanted::Absent) {
                return Err(Status::bad_request(format!(
                    "invalid field selector at {key:?}"
                )));
            }
        }
        Ok(Self {
            labels: terms(labels)?,
            fields,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        let field = |key: &str| {
            Some(if key == "metadata.name" {
                &*object.key.name
            } else {
                &*object.key.namespace
            })
        };
        self.labels
            .iter()
            .all(|term| term.holds(object.labels.get(&term.key).map(String::as_str)))
            && self.fields.iter().all(|term| term.holds(field(&term.key)))
    }
}

impl Term {
    fn holds(&self, value: Option<&str>) -> bool {
        match &self.wanted {
            Wanted::Equal(wanted) => value == Some(wanted),
            Wanted::NotEqual(unwanted) => value != Some(unwanted),
            Wanted::Present => value.is_some(),
            Wanted::Absent => value.is_none(),
        }
    }
}

fn terms(text: &str) -> Result<Vec<Term>, Status> {
    text.split(',')
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .map(term)
        .collect()
}

fn term(text: &str) -> Result<Term, Status> {
    if text.contains(['(', ')', ' ', '<', '>']) {
        return Err(Status::bad_request(format!(
            "unable to parse requirement: {text:?} is not supported here"
        )));
    }
    let (key, wanted) = if let Some((key, value)) = text.split_once("!=") {
        (key, Wanted::NotEqual(value.to_owned()))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, Wanted::Equal(value.to_owned()))
    } else if let Some(key) = text.strip_prefix('!') {
        (key, Wanted::Absent)
    } else {
        (text, Wanted::Present)
    };
    Ok(Term {
        key: key.to_owned(),
        wanted,
    })
}
