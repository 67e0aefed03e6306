//! Label selectors: as text in a query, and as a field of an object (of a budget, say).

use std::{collections::BTreeMap, iter::Peekable};

use serde_json::Value;

use super::{fields::FieldSelector, kind::Kind, object::Object, status::Status};

/// Which objects a request is about, beyond its path.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
}

impl Selector {
    pub(super) fn parse(labels: &str, fields: &str, kind: &Kind) -> Result<Self, Status> {
        Ok(Self {
            labels: LabelSelector::parse(labels)?,
            fields: FieldSelector::parse(fields, kind)?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.0.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.fields.matches(object)
            && (self.labels.0.is_empty() || self.labels.matches(object.labels()))
    }
}

/// All of its requirements must hold; without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    In(Vec<String>),
    /// An object without the label is selected, too.
    NotIn(Vec<String>),
    Present,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// `a=b`, `a==b`, `a!=b`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`, `a>1`, `a<1`, joined by commas.
    pub(super) fn parse(text: &str) -> Result<Self, Status> {
        let mut tokens = Tokens(text).peekable();
        let mut requirements = Vec::new();
        while tokens.peek().is_some() {
            let requirement = requirement(&mut tokens).ok_or_else(|| misread(text))?;
            requirements.push(requirement);
            match tokens.next() {
                None => break,
                Some(",") if tokens.peek().is_some() => {}
                Some(_) => return Err(misread(text)),
            }
        }
        Ok(Self(requirements))
    }

    /// A `metav1.LabelSelector`; nothing if there is none, which selects nothing.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let value = value.as_object()?;
        let mut requirements = Vec::new();
        for (key, wanted) in value
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            requirements.push(Requirement {
                key: key.clone(),
                wanted: Wanted::In(vec![wanted.as_str()?.to_owned()]),
            });
        }
        for expression in value
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let values = || {
                let values = expression["values"].as_array().into_iter().flatten();
                values
                    .filter_map(|value| value.as_str().map(str::to_owned))
                    .collect()
            };
            let wanted = match expression["operator"].as_str()? {
                "In" => Wanted::In(values()),
                "NotIn" => Wanted::NotIn(values()),
                "Exists" => Wanted::Present,
                "DoesNotExist" => Wanted::Absent,
                _ => return None,
            };
            requirements.push(Requirement {
                key: expression["key"].as_str()?.to_owned(),
                wanted,
            });
        }
        Some(Self(requirements))
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.holds(labels.get(&requirement.key).map(String::as_str)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.wanted {
            Wanted::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Wanted::NotIn(values) => {
                value.is_none_or(|value| values.iter().all(|one| one != value))
            }
            Wanted::Present => value.is_some(),
            Wanted::Absent => value.is_none(),
            Wanted::Greater(limit) => number().is_some_and(|number| number > *limit),
            Wanted::Less(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

fn misread(text: &str) -> Status {
    Status::bad_request(format!(
        "unable to parse requirement: {text:?} is no label selector"
    ))
}

/// One requirement; nothing if the tokens make none.
fn requirement(tokens: &mut Peekable<Tokens<'_>>) -> Option<Requirement> {
    let first = tokens.next()?;
    if first == "!" {
        let key = tokens.next().filter(|key| is_key(key))?.to_owned();
        return Some(Requirement {
            key,
            wanted: Wanted::Absent,
        });
    }
    let key = Some(first).filter(|key| is_key(key))?.to_owned();
    if matches!(tokens.peek(), None | Some(&",")) {
        return Some(Requirement {
            key,
            wanted: Wanted::Present,
        });
    }
    let operator = tokens.next()?;
    let wanted = match operator {
        "in" => Wanted::In(several(tokens)?),
        "notin" => Wanted::NotIn(several(tokens)?),
        "=" | "==" => Wanted::In(vec![value(tokens)?]),
        "!=" => Wanted::NotIn(vec![value(tokens)?]),
        ">" => Wanted::Greater(value(tokens)?.parse().ok()?),
        "<" => Wanted::Less(value(tokens)?.parse().ok()?),
        _ => return None,
    };
    Some(Requirement { key, wanted })
}

/// `a=` is a value, too: the empty one.
fn value(tokens: &mut Peekable<Tokens<'_>>) -> Option<String> {
    match tokens.peek() {
        None | Some(&",") => Some(String::new()),
        Some(_) => tokens
            .next()
            .filter(|value| is_value(value))
            .map(str::to_owned),
    }
}

fn several(tokens: &mut Peekable<Tokens<'_>>) -> Option<Vec<String>> {
    tokens.next().filter(|token| *token == "(")?;
    let mut values = Vec::new();
    loop {
        match tokens.next()? {
            ")" => return Some(values),
            "," => {}
            value if is_value(value) => values.push(value.to_owned()),
            _ => return None,
        }
    }
}

fn is_key(text: &str) -> bool {
    let name = text.rsplit_once('/').map_or(text, |(_, name)| name);
    !name.is_empty() && is_value(name)
}

fn is_value(text: &str) -> bool {
    let inner = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
    let (bytes, edge) = (text.as_bytes(), u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && bytes.iter().all(|letter| inner(*letter))
        && bytes.first().is_none_or(edge)
        && bytes.last().is_none_or(edge)
}

/// Words and signs of a label selector.
#[derive(Clone)]
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];
        let text = self.0.trim_start();
        let length = SIGNS
            .iter()
            .find(|sign| text.starts_with(**sign))
            .map_or_else(|| word(text), |sign| sign.len());
        let (token, rest) = text.split_at(length);
        self.0 = rest;
        Some(token).filter(|token| !token.is_empty())
    }
}

fn word(text: &str) -> usize {
    text.find(|letter: char| letter.is_whitespace() || "=!(),<>".contains(letter))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn each_operator_selects_as_the_real_one_does() {
        let web = labels(&[("app", "web"), ("n", "5"), ("example.com/x", "")]);
        for (text, wanted) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("gone", false),
            ("! gone", true),
            ("app=web", true),
            ("app == db", false),
            ("app!=db", true),
            ("gone!=db", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("gone notin (db)", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>1", false),
            ("example.com/x=", true),
            ("app=web,example.com/x", true),
            ("app=web,gone", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&web), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in [
            "=",
            "app in",
            "app in (",
            "app in db",
            "a b",
            "a=b c",
            ",",
            "a,",
            "a=_",
            "/",
            "n>x",
            "!",
        ] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_selector_of_an_object_selects_like_one_of_a_query_and_none_selects_nothing() {
        let written = json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "tier", "operator": "NotIn", "values": ["a", "b"] },
                { "key": "gone", "operator": "DoesNotExist" },
            ],
        });
        let parsed = LabelSelector::parse("app=web,tier notin (a,b),!gone").unwrap();
        assert_eq!(LabelSelector::of(&written), Some(parsed));
        assert_eq!(
            LabelSelector::of(&json!({})),
            Some(LabelSelector::default())
        );
        assert_eq!(LabelSelector::of(&Value::Null), None);
    }
}
