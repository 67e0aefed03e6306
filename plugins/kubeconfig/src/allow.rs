//! The allow-list: which fields a mapping may have, and what is said of the others (rule 17 of the design). A field that is not
//! listed is refused whatever it says, so one that is new upstream is refused until somebody has thought about it.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use crate::{Refusal, RefusalReason, refusal::Place, tree::Node};

/// What is done about a field.
pub(crate) enum Rule {
    /// Read by us.
    Read,
    /// Harmless, of no use to us, and must be of the type that it is.
    Text,
    /// Refused with this reason, unless it says what leaving it out would say.
    Refuse(Unset, RefusalReason),
}

/// The value with which a refused field is as good as not there: the zero value of its type in client-go, which some tools write
/// out. `null` always is.
pub(crate) enum Unset {
    Text,
    False,
    Collection,
    /// `{}` is a value of these, not none.
    Null,
}

pub(crate) type Rules = [(&'static str, Rule)];

use Rule::{Read, Refuse, Text};

pub(crate) static DOCUMENT: &Rules = &[
    ("apiVersion", Read),
    ("kind", Read),
    ("clusters", Read),
    ("users", Read),
    ("contexts", Read),
    ("current-context", Read),
    (
        "preferences",
        Refuse(Unset::Collection, RefusalReason::Preferences),
    ),
    EXTENSIONS,
];

pub(crate) static CLUSTER: &Rules = &[
    ("server", Read),
    ("certificate-authority-data", Read),
    ("tls-server-name", Read),
    ("certificate-authority", file("certificate-authority-data")),
    (
        "insecure-skip-tls-verify",
        Refuse(Unset::False, RefusalReason::InsecureSkipTlsVerify),
    ),
    ("proxy-url", Refuse(Unset::Text, RefusalReason::Proxy)),
    (
        "disable-compression",
        Refuse(Unset::False, RefusalReason::DisableCompression),
    ),
    EXTENSIONS,
];

pub(crate) static USER: &Rules = &[
    ("client-certificate-data", Read),
    ("client-key-data", Read),
    ("token", Read),
    ("client-certificate", file("client-certificate-data")),
    ("client-key", file("client-key-data")),
    ("tokenFile", file("token")),
    ("exec", Refuse(Unset::Null, RefusalReason::Exec)),
    (
        "auth-provider",
        Refuse(Unset::Null, RefusalReason::AuthProvider),
    ),
    ("as", Refuse(Unset::Text, RefusalReason::Impersonation)),
    ("as-uid", Refuse(Unset::Text, RefusalReason::Impersonation)),
    (
        "as-groups",
        Refuse(Unset::Collection, RefusalReason::Impersonation),
    ),
    (
        "as-user-extra",
        Refuse(Unset::Collection, RefusalReason::Impersonation),
    ),
    ("username", Refuse(Unset::Text, RefusalReason::Password)),
    ("password", Refuse(Unset::Text, RefusalReason::Password)),
    EXTENSIONS,
];

pub(crate) static CONTEXT: &Rules = &[
    ("cluster", Read),
    ("user", Read),
    ("namespace", Text),
    EXTENSIONS,
];

const EXTENSIONS: (&str, Rule) = (
    "extensions",
    Refuse(Unset::Collection, RefusalReason::Extensions),
);

const fn file(inline: &'static str) -> Rule {
    Refuse(Unset::Text, RefusalReason::File { inline })
}

/// The fields of a mapping that passed its rules. A field that is `null` is not there.
pub(crate) struct Fields {
    place: Place,
    fields: BTreeMap<String, Node>,
}

impl Fields {
    /// Judges every field of `node`; `null` is a mapping without any.
    pub(crate) fn judge(node: Node, rules: &Rules, place: Place) -> Result<Self, Refusal> {
        let node_is_null = node.is_null();
        let fields = match node {
            Node::Map(fields) => fields,
            _ if node_is_null => BTreeMap::new(),
            _ => return Err(wrong(&place, "a mapping")),
        };
        for (name, value) in &fields {
            let here = || place.field(name);
            match rules.iter().find(|(known, _)| known == name) {
                None => return Err(here().refuse(RefusalReason::UnknownField)),
                Some((_, Refuse(unset, reason))) if !value.is_unset(unset) => {
                    return Err(here().refuse(reason.clone()));
                }
                Some((_, Text)) if !matches!(value, Node::Text { .. }) => {
                    return Err(wrong(&here(), "text"));
                }
                Some(_) => {}
            }
        }
        Ok(Self { place, fields })
    }

    pub(crate) fn place(&self, name: &str) -> Place {
        self.place.field(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Takes out a field as text; it may be empty.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<Zeroizing<String>>, Refusal> {
        match self.fields.remove(name) {
            None => Ok(None),
            Some(node) if node.is_null() => Ok(None),
            Some(Node::Text { text, .. }) => Ok(Some(text)),
            Some(_) => Err(wrong(&self.place(name), "text")),
        }
    }

    /// Takes out a field as text that says something, if it is there.
    pub(crate) fn filled(&mut self, name: &str) -> Result<Option<Zeroizing<String>>, Refusal> {
        match self.text(name)? {
            Some(text) if text.is_empty() => Err(self.place(name).refuse(RefusalReason::Empty)),
            text => Ok(text),
        }
    }

    /// Takes out a field as text that must be there and say something.
    pub(crate) fn needed(&mut self, name: &str) -> Result<Zeroizing<String>, Refusal> {
        self.filled(name)?
            .ok_or_else(|| self.place(name).refuse(RefusalReason::Missing))
    }

    /// Takes out a field as a list, which is empty where it is not there.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Node>, Refusal> {
        match self.fields.remove(name) {
            None => Ok(Vec::new()),
            Some(node) if node.is_null() => Ok(Vec::new()),
            Some(Node::List(items)) => Ok(items),
            Some(_) => Err(wrong(&self.place(name), "a list")),
        }
    }
}

impl Node {
    fn is_unset(&self, unset: &Unset) -> bool {
        self.is_null()
            || match (unset, self) {
                (Unset::Text, Self::Text { .. })
                | (Unset::Collection, Self::List(_) | Self::Map(_)) => self.is_empty(),
                (Unset::False, Self::Text { .. }) => self.is_false(),
                _ => false,
            }
    }
}

pub(crate) fn wrong(place: &Place, expected: &'static str) -> Refusal {
    place.refuse(RefusalReason::WrongType { expected })
}
