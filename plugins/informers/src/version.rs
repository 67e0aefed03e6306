//! What tells the states of an object, and of a collection, apart: the resource version and the UID, each in as few bytes as it needs.

use std::fmt;

/// A resource version. Those of Kubernetes are numbers that grow; whatever else a server may give is only equal or not.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    Number(u64),
    Other(Box<str>),
}

impl Version {
    pub(crate) fn of(text: &str) -> Self {
        match text.parse() {
            // As it would be written, so that it is sent back as it came.
            Ok(number) if is_plain(text) => Self::Number(number),
            _ => Self::Other(text.into()),
        }
    }

    /// No server gives an object this one: it stands for *any* in a request.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Other(text) => text.is_empty(),
        }
    }

    /// Whether it is known to be older. Of what is no number, nothing is known.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Number(one), Self::Number(other)) if one < other)
    }
}

fn is_plain(digits: &str) -> bool {
    !(digits.starts_with('+') || digits.starts_with('0') && digits.len() > 1)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Other(text) => write!(f, "{:?}", text.chars().take(64).collect::<String>()),
        }
    }
}

/// What makes an object this one, and no other of its name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Uid {
    /// As nearly all are.
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl Uid {
    pub(crate) fn of(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

/// In lower case and in five groups only: what else means the same number is another text, and so another UID.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    let dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = 0;
    for (at, &letter) in text.iter().enumerate() {
        let digit = match letter {
            b'-' if dash(at) => continue,
            _ if dash(at) => return None,
            b'0'..=b'9' => letter - b'0',
            b'a'..=b'f' => letter - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_sent_back_as_it_came() {
        for text in [
            "0",
            "7",
            "18446744073709551615",
            "18446744073709551616",
            "007",
            "+7",
            "",
            "a1",
        ] {
            assert_eq!(Version::of(text).to_string(), text);
        }
    }

    #[test]
    fn only_numbers_are_before_others() {
        assert!(Version::of("9").is_before(&Version::of("10")));
        assert!(!Version::of("10").is_before(&Version::of("10")));
        assert!(!Version::of("a9").is_before(&Version::of("b10")));
        assert!(!Version::of("9").is_before(&Version::of("b10")));
    }

    #[test]
    fn uids_are_the_same_if_their_texts_are() {
        let one = "0b5c1ffe-4a0d-4c0b-9f3a-2d1e5a7c9b10";
        assert!(matches!(Uid::of(one), Uid::Uuid(_)));
        assert!(Uid::of(one) == Uid::of(one));
        for other in [
            "0b5c1ffe-4a0d-4c0b-9f3a-2d1e5a7c9b11",
            "0B5C1FFE-4A0D-4C0B-9F3A-2D1E5A7C9B10",
            "0b5c1ffe4a0d4c0b9f3a2d1e5a7c9b10",
            "0b5c1ffe-4a0d-4c0b-9f3a-2d1e5a7c-b10",
            "",
        ] {
            assert!(Uid::of(other) == Uid::of(other));
            assert!(Uid::of(other) != Uid::of(one), "{other}");
        }
    }
}
