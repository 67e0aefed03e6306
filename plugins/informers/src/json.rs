//! What is read of an object's JSON on its arrival: who it is, where its managed fields are, and its values at some paths. One walk over the
//! text, which is checked on the way; nothing is decoded that nobody asked for.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::entry::DraftKeys;

/// An object as its server sent it.
pub(crate) struct Object<'a> {
    json: &'a str,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) version: Cow<'a, str>,
    /// The field, its name included, and one comma beside it.
    managed: Option<Range<usize>>,
    /// Its values at the paths that were asked for.
    pub(crate) values: DraftKeys,
}

impl<'a> Object<'a> {
    pub(crate) fn read(json: &'a str, paths: &Paths) -> Result<Self, serde_json::Error> {
        let mut object = Self {
            json,
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(""),
            uid: Cow::Borrowed(""),
            version: Cow::Borrowed(""),
            managed: None,
            values: DraftKeys::new(),
        };
        let mut text = serde_json::Deserializer::from_str(json);
        Whole(&mut object, paths).deserialize(&mut text)?;
        text.end()?;
        if object.name.is_empty() {
            return Err(serde_json::Error::custom("an object without metadata.name"));
        }
        Ok(object)
    }

    /// All of it.
    pub(crate) fn json(&self) -> &'a str {
        self.json
    }

    /// Without its managed fields.
    pub(crate) fn stripped(&self) -> Cow<'a, str> {
        let Some(managed) = &self.managed else {
            return Cow::Borrowed(self.json);
        };
        let (before, after) = (&self.json[..managed.start], &self.json[managed.end..]);
        let mut text = String::with_capacity(before.len() + after.len());
        text.push_str(before);
        text.push_str(after);
        Cow::Owned(text)
    }
}

/// Where the field of this value is in the object around it: from its name to its end, with the comma after it, else that before it.
fn field(json: &str, value: &str, name: &str) -> Option<Range<usize>> {
    let at = (value.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let before = json.get(..at)?.trim_end().strip_suffix(':')?.trim_end();
    // A name that is written with escapes is left where it is.
    let before = before
        .strip_suffix('"')?
        .strip_suffix(name)?
        .strip_suffix('"')?;
    let after = json.get(at + value.len()..)?;
    if let Some(rest) = after.trim_start().strip_prefix(',') {
        return Some(before.len()..json.len() - rest.len());
    }
    let before = before.trim_end();
    let before = before.strip_suffix(',').unwrap_or(before);
    Some(before.len()..json.len() - after.len())
}

/// Text that is part of the JSON unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Whole<'o, 'a>(&'o mut Object<'a>, &'o Paths);

impl<'a> DeserializeSeed<'a> for Whole<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Whole<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(object, paths) = self;
        while let Some(Text(field)) = map.next_key()? {
            let step = paths.step(&field);
            if field == "metadata" {
                let none = Paths::default();
                let below = step.map_or(&none, |step| &step.below);
                map.next_value_seed(Metadata(object, below))?;
            } else if let Some(step) = step {
                map.next_value_seed(Values(step, &mut object.values))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Metadata<'o, 'a>(&'o mut Object<'a>, &'o Paths);

impl<'a> DeserializeSeed<'a> for Metadata<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Metadata<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(object, paths) = self;
        while let Some(Text(field)) = map.next_key()? {
            let step = paths.step(&field);
            let ours = match &*field {
                "namespace" => &mut object.namespace,
                "name" => &mut object.name,
                "uid" => &mut object.uid,
                "resourceVersion" => &mut object.version,
                "managedFields" => {
                    let value: &'a RawValue = map.next_value()?;
                    object.managed = self::field(object.json, value.get(), "managedFields");
                    continue;
                }
                _ => {
                    if let Some(step) = step {
                        map.next_value_seed(Values(step, &mut object.values))?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    continue;
                }
            };
            if let Some(Text(text)) = map.next_value()? {
                *ours = text;
                let ends = step.iter().flat_map(|step| &step.ends);
                let values = ends.map(|index| (*index, ours.to_string()));
                object.values.extend(values);
            }
        }
        Ok(())
    }
}

/// Paths of fields, as a tree: `spec.nodeName`. Where there is an array, each of its elements counts.
#[derive(Default)]
pub(crate) struct Paths(Vec<Step>);

struct Step {
    field: Box<str>,
    /// The indexes whose path ends here.
    ends: Vec<u16>,
    below: Paths,
}

impl Paths {
    /// Values at `path` are keys of this index.
    pub(crate) fn add(&mut self, path: &str, index: u16) {
        let (field, rest) = match path.split_once('.') {
            Some((field, rest)) => (field, Some(rest)),
            None => (path, None),
        };
        let known = self.0.iter().position(|step| *step.field == *field);
        let at = known.unwrap_or_else(|| {
            self.0.push(Step {
                field: field.into(),
                ends: Vec::new(),
                below: Self::default(),
            });
            self.0.len() - 1
        });
        match rest {
            Some(rest) => self.0[at].below.add(rest, index),
            None => self.0[at].ends.push(index),
        }
    }

    fn step(&self, field: &str) -> Option<&Step> {
        self.0.iter().find(|step| *step.field == *field)
    }
}

struct Values<'o>(&'o Step, &'o mut DraftKeys);

impl Values<'_> {
    fn push(self, text: &str) {
        let values = self.0.ends.iter().map(|index| (*index, text.to_owned()));
        self.1.extend(values);
    }
}

impl<'a> DeserializeSeed<'a> for Values<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Values<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.push(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.push(&value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.push(&value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.push(&value.to_string());
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.push(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Values(self.0, self.1))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(field)) = map.next_key()? {
            if let Some(step) = self.0.below.step(&field) {
                map.next_value_seed(Values(step, self.1))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(json: &str) -> Object<'_> {
        Object::read(json, &Paths::default()).expect("an object")
    }

    #[test]
    fn managed_fields_are_cut_out_wherever_they_are() {
        for (before, after) in [
            (
                r#"{"metadata":{"managedFields":[{"a":"}"}],"name":"x"}}"#,
                r#"{"metadata":{"name":"x"}}"#,
            ),
            (
                r#"{"metadata":{"name":"x","managedFields":[1,2]}}"#,
                r#"{"metadata":{"name":"x"}}"#,
            ),
            (
                r#"{"metadata":{"name":"x" , "managedFields" : [ ] , "uid":"u"}}"#,
                r#"{"metadata":{"name":"x" ,  "uid":"u"}}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"managedFields":[]}"#,
                r#"{"metadata":{"name":"x"},"managedFields":[]}"#,
            ),
        ] {
            assert_eq!(read(before).stripped(), after);
        }
    }

    #[test]
    fn values_are_found_at_their_paths_and_nowhere_else() {
        let mut paths = Paths::default();
        for (index, path) in [
            "spec.nodeName",
            "spec.a.b",
            "metadata.name",
            "metadata.labels.app",
            "n",
        ]
        .iter()
        .enumerate()
        {
            paths.add(path, u16::try_from(index).unwrap());
        }
        let json = json!({
            "metadata": { "name": "x", "labels": { "app": "web", "b": "c" }, "nodeName": "no" },
            "spec": { "nodeName": "node-1", "a": [{ "b": 1 }, { "b": [true, null, "z"] }, "b"], "containers": [{ "nodeName": "no" }] },
            "n": -1.5,
        });
        let json = json.to_string();
        let object = Object::read(&json, &paths).unwrap();
        let mut values: Vec<_> = object
            .values
            .iter()
            .map(|(index, text)| (*index, &**text))
            .collect();
        values.sort_unstable();
        // The "b" is an element of the array `spec.a`, not a field of it.
        assert_eq!(
            values,
            [
                (0, "node-1"),
                (1, "1"),
                (1, "true"),
                (1, "z"),
                (2, "x"),
                (3, "web"),
                (4, "-1.5")
            ]
        );
    }

    #[test]
    fn what_is_no_object_with_a_name_is_an_error() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"name":7}}"#,
            r#"{"metadata":{"name":"x"}"#,
            r#"{"metadata":{"name":"x"}} {}"#,
        ] {
            assert!(Object::read(json, &Paths::default()).is_err(), "{json}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\{}\\[\\],: é]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d\"]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_cut_is_the_managed_fields_and_nothing_else(spec in value(), managed in value(), labels in value(), pretty in any::<bool>()) {
            let mut whole = json!({ "metadata": { "labels": labels, "managedFields": managed, "name": "x" }, "spec": spec });
            let text = if pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) }.unwrap();
            let object = Object::read(&text, &Paths::default()).unwrap();
            let stripped: Value = serde_json::from_str(&object.stripped()).unwrap();
            whole["metadata"].as_object_mut().unwrap().remove("managedFields");
            prop_assert_eq!(stripped, whole);
        }
    }
}
