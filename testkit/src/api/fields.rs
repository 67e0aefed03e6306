//! Field selectors: what they may name of each kind, and what that is of an object.

use serde_json::Value;

use super::{kind::Kind, object::Object, status::Status};

/// The selectable fields of one object, in the order of [`Rules::fields`](super::kind::Rules).
#[derive(Debug)]
pub(super) struct Fields(Box<[Box<str>]>);

impl Fields {
    pub(super) fn of(kind: &Kind, object: &Value) -> Self {
        let values = kind.rules.fields.iter();
        Self(
            values
                .map(|field| text(kind, object, field).into())
                .collect(),
        )
    }
}

fn text(kind: &Kind, object: &Value, field: &str) -> String {
    let at = |path: &str| match path
        .split('.')
        .try_fold(object, |value, part| value.get(part))
    {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let or = |text: String, other: &str| {
        if text.is_empty() {
            other.to_owned()
        } else {
            text
        }
    };
    match (&*kind.name, field) {
        ("Node", "spec.unschedulable") | ("Pod", "spec.hostNetwork") => or(at(field), "false"),
        ("Event", "source") => or(at("source.component"), &at("reportingComponent")),
        _ => at(field),
    }
}

/// Which objects a request is about, by their fields.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug)]
struct Term {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Name,
    Namespace,
    /// The place in [`Fields`].
    Other(usize),
}

impl FieldSelector {
    /// `a=b`, `a==b` and `a!=b`, joined by commas; `\` escapes `\`, `,` and `=` in values.
    pub(super) fn parse(text: &str, kind: &Kind) -> Result<Self, Status> {
        let mut selector = Vec::new();
        for term in split(text).filter(|term| !term.is_empty()) {
            let (name, equal, value) = operator(&term).ok_or_else(|| {
                Status::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                ))
            })?;
            let field = field(name, kind).ok_or_else(|| unknown(name, kind))?;
            selector.push(Term {
                field,
                value: unescaped(value),
                equal,
            });
        }
        Ok(Self(selector))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|term| {
            let value = match term.field {
                Field::Name => object.name(),
                Field::Namespace => object.namespace(),
                Field::Other(place) => &object.fields().0[place],
            };
            (value == term.value) == term.equal
        })
    }
}

fn field(name: &str, kind: &Kind) -> Option<Field> {
    match name {
        "metadata.name" => Some(Field::Name),
        "metadata.namespace" if kind.namespaced || kind.custom => Some(Field::Namespace),
        // Kinds without fields of their own take it, whatever their scope.
        "metadata.namespace" if kind.rules.fields.is_empty() => Some(Field::Namespace),
        _ => {
            let mut fields = kind.rules.fields.iter();
            fields.position(|field| *field == name).map(Field::Other)
        }
    }
}

fn unknown(name: &str, kind: &Kind) -> Status {
    if kind.custom || !kind.rules.fields.is_empty() {
        return Status::bad_request(format!("field label not supported: {name}"));
    }
    let known = r#"is not a known field selector: only "metadata.name", "metadata.namespace""#;
    Status::bad_request(format!("{name:?} {known}"))
}

/// Terms between commas that are not escaped.
fn split(text: &str) -> impl Iterator<Item = String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        match letter {
            ',' if !escaped => terms.push(String::new()),
            _ => terms.last_mut().expect("it begins with one").push(letter),
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.into_iter()
}

/// The first operator that is not escaped.
fn operator(term: &str) -> Option<(&str, bool, &str)> {
    let mut escaped = false;
    for (place, letter) in term.char_indices() {
        if !escaped {
            let (name, rest) = term.split_at(place);
            for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
                if let Some(value) = rest.strip_prefix(sign) {
                    return Some((name, equal, value));
                }
            }
        }
        escaped = letter == '\\' && !escaped;
    }
    None
}

fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            text.extend(letters.next());
        } else {
            text.push(letter);
        }
    }
    text
}
