//! The allow-list: which fields a mapping may have, and what is said of the others (rule 17 of the design). A field that is not
//! listed is refused whatever it says, so one that is new upstream is refused until somebody has thought about it.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use crate::{
    Refusal, RefusalReason,
    policy::{Grants, Need, OptIn},
    refusal::Place,
    tree::Node,
};

/// What is done about a field.
pub(crate) enum Rule {
    /// Read by us.
    Read,
    /// Harmless, of no use to us, and must be of the type that it is.
    Text,
    /// Refused with this reason, unless it says what leaving it out would say.
    Refuse(Unset, RefusalReason),
    /// Read by us where the policy grants it; else as `Refuse`. One that is unset counts as not there.
    If(Need, Unset, RefusalReason),
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

use Rule::{If, Read, Refuse, Text};

pub(crate) static DOCUMENT: &Rules = &[
    ("apiVersion", Read),
    ("kind", Read),
    ("clusters", Read),
    ("users", Read),
    ("contexts", Read),
    ("current-context", Read),
    (
        "preferences",
        If(
            Need::Operator,
            Unset::Collection,
            RefusalReason::Preferences,
        ),
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
        If(
            Need::OptIn(OptIn::InsecureSkipTlsVerify),
            Unset::False,
            RefusalReason::InsecureSkipTlsVerify,
        ),
    ),
    (
        "proxy-url",
        If(Need::Proxy, Unset::Text, RefusalReason::Proxy),
    ),
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
    ("exec", If(Need::Exec, Unset::Null, RefusalReason::Exec)),
    (
        "auth-provider",
        Refuse(Unset::Null, RefusalReason::AuthProvider),
    ),
    ("as", impersonation(Unset::Text)),
    ("as-uid", impersonation(Unset::Text)),
    ("as-groups", impersonation(Unset::Collection)),
    ("as-user-extra", impersonation(Unset::Collection)),
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

pub(crate) static EXEC: &Rules = &[
    ("apiVersion", Read),
    ("command", Read),
    ("args", Read),
    ("env", Read),
    ("installHint", Read),
    ("provideClusterInfo", Read),
    ("interactiveMode", Read),
];

pub(crate) static VARIABLE: &Rules = &[("name", Read), ("value", Read)];

/// Of a cluster, one of them is handed on to programs; nothing else is read of any.
const EXTENSIONS: (&str, Rule) = (
    "extensions",
    If(Need::Operator, Unset::Collection, RefusalReason::Extensions),
);

const fn file(inline: &'static str) -> Rule {
    If(Need::File, Unset::Text, RefusalReason::File { inline })
}

const fn impersonation(unset: Unset) -> Rule {
    If(
        Need::OptIn(OptIn::Impersonation),
        unset,
        RefusalReason::Impersonation,
    )
}

/// The fields of a mapping that passed its rules. A field that is `null` is not there.
pub(crate) struct Fields {
    place: Place,
    fields: BTreeMap<String, Node>,
}

impl Fields {
    /// Judges every field of `node`; `null` is a mapping without any.
    pub(crate) fn judge(
        node: Node,
        rules: &Rules,
        grants: Grants<'_>,
        place: Place,
    ) -> Result<Self, Refusal> {
        let node_is_null = node.is_null();
        let mut fields = match node {
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
                Some((_, If(need, unset, reason)))
                    if !grants.has(*need) && !value.is_unset(unset) =>
                {
                    return Err(here().refuse(reason.clone()));
                }
                Some((_, Text)) if !matches!(value, Node::Text { .. }) => {
                    return Err(wrong(&here(), "text"));
                }
                Some(_) => {}
            }
        }
        fields.retain(|name, value| {
            let rule = rules.iter().find(|(known, _)| known == name);
            !matches!(rule, Some((_, If(_, unset, _))) if value.is_unset(unset))
        });
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

    /// Takes out a field that says `true` or `false`; the latter where it is not there.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.fields.remove(name) {
            None => Ok(false),
            Some(node) if node.is_null() || node.is_false() => Ok(false),
            Some(node) if node.is_true() => Ok(true),
            Some(_) => Err(wrong(&self.place(name), "true or false")),
        }
    }

    /// Takes out a field as a list of texts.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<Zeroizing<String>>, Refusal> {
        let place = self.place(name);
        texts(self.list(name)?, &place)
    }

    /// Takes out a field, whatever it is.
    pub(crate) fn node(&mut self, name: &str) -> Option<Node> {
        self.fields.remove(name)
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

/// The items of a list that has texts only.
pub(crate) fn texts(items: Vec<Node>, place: &Place) -> Result<Vec<Zeroizing<String>>, Refusal> {
    let text = |(index, item): (usize, Node)| match item {
        item if item.is_null() => Ok(Zeroizing::default()),
        Node::Text { text, .. } => Ok(text),
        _ => Err(wrong(&place.item(index), "text")),
    };
    items.into_iter().enumerate().map(text).collect()
}

pub(crate) fn wrong(place: &Place, expected: &'static str) -> Refusal {
    place.refuse(RefusalReason::WrongType { expected })
}
