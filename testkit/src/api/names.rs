//! What the names and labels of objects must look like.

use serde_json::Value;

use super::{kind::Kind, status::Cause};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                         and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with the name and the labels of an object.
pub(super) fn causes(kind: &Kind, value: &Value) -> Vec<Cause> {
    let metadata = &value["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    let labels_only = kind.is("Namespace") || kind.is("Service");
    if labels_only && name.contains('.') {
        causes.push(Cause::invalid(
            "metadata.name",
            &metadata["name"],
            "must not contain dots",
        ));
    } else if labels_only && !is_label(name) {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], LABEL));
    } else if !labels_only && !is_subdomain(name) {
        causes.push(Cause::invalid(
            "metadata.name",
            &metadata["name"],
            SUBDOMAIN,
        ));
    }
    for (_, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !value.as_str().is_some_and(is_label_value) {
            causes.push(Cause::invalid("metadata.labels", value, VALUE));
        }
    }
    causes
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name
            .split('.')
            .all(|part| framed(part, |letter| letter == b'-', u8::is_ascii_lowercase))
}

fn is_label(name: &str) -> bool {
    name.len() <= 63 && framed(name, |letter| letter == b'-', u8::is_ascii_lowercase)
}

fn is_label_value(value: &str) -> bool {
    let inner = |letter| matches!(letter, b'-' | b'_' | b'.');
    value.is_empty() || (value.len() <= 63 && framed(value, inner, u8::is_ascii_alphabetic))
}

/// Not empty; letters and digits, and between them what `inner` allows.
fn framed(text: &str, inner: impl Fn(u8) -> bool, letter: impl Fn(&u8) -> bool) -> bool {
    let edge = |byte: &u8| byte.is_ascii_digit() || letter(byte);
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&edge)
        && bytes.last().is_some_and(&edge)
        && bytes.iter().all(|byte| edge(byte) || inner(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_rfc_1123_has_it() {
        for (name, subdomain, label) in [
            ("a", true, true),
            ("a-1", true, true),
            ("a.b-c", true, false),
            ("", false, false),
            ("A", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("a_b", false, false),
        ] {
            assert_eq!(
                (is_subdomain(name), is_label(name)),
                (subdomain, label),
                "{name}"
            );
        }
        for (value, valid) in [("", true), ("A_b.c-1", true), ("_a", false), ("a b", false)] {
            assert_eq!(is_label_value(value), valid, "{value}");
        }
    }
}
