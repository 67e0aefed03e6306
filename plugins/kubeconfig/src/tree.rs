//! YAML (and so JSON) to a bare tree, within limits that are kept before anything is built: another party's document can neither
//! nest, repeat nor multiply itself. Scalars stay text; what they mean is for whoever reads the field.

use std::{collections::BTreeMap, sync::Arc};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};
use zeroize::Zeroizing;

use crate::{Refusal, RefusalReason, refusal::Place};

/// A kubeconfig has seven levels; an extension may have some more.
const MAX_DEPTH: usize = 32;
/// 3,000 contexts have 120,000.
const MAX_NODES: usize = 250_000;

/// A value. Has no `Debug`: it is full of secrets, which are wiped when it goes.
pub(crate) enum Node {
    /// A scalar; `plain` if it had no quotes, so that `null` and `false` can be told from text.
    Text {
        text: Zeroizing<String>,
        plain: bool,
    },
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
}

impl Node {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Text { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn is_false(&self) -> bool {
        matches!(self, Self::Text { text, plain: true } if matches!(text.as_str(), "false" | "False" | "FALSE"))
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Text { text, plain: true } if matches!(text.as_str(), "true" | "True" | "TRUE"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Text { text, .. } => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(fields) => fields.is_empty(),
        }
    }
}

/// Reads one document of at most `limit` bytes.
pub(crate) fn parse(
    bytes: &[u8],
    limit: usize,
    origin: Option<&Arc<str>>,
) -> Result<Node, Refusal> {
    let root = Place::root(origin);
    if bytes.len() > limit {
        return Err(root.refuse(RefusalReason::TooLarge { limit }));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| root.refuse(RefusalReason::NotUtf8))?;
    let options = granit_parser::options! {
        disallow_directives: true,
        // Whether the feature is on is decided by whoever else uses the crate.
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut growing = Growing {
        root: Place::root(origin),
        frames: Vec::new(),
        nodes: 0,
        done: None,
    };
    while let Some(event) = parser.next_event() {
        let (event, _) = event.map_err(|error| root.refuse(syntax(&error)))?;
        growing.take(event)?;
    }
    match growing.done {
        Some(node) if !node.is_null() => Ok(node),
        _ => Err(root.refuse(RefusalReason::Nothing)),
    }
}

/// Where it failed, and nothing of the parser's own words: they may quote the document.
fn syntax(error: &ScanError) -> RefusalReason {
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => RefusalReason::TooDeep { limit: MAX_DEPTH },
        ErrorKind::UnknownAnchor => RefusalReason::Alias,
        _ => RefusalReason::Syntax {
            line: error.marker().line(),
            column: error.marker().col() + 1,
        },
    }
}

/// A tree that is being built; `frames` are the collections that are still open.
struct Growing {
    root: Place,
    frames: Vec<Frame>,
    nodes: usize,
    done: Option<Node>,
}

enum Frame {
    List(Vec<Node>),
    Map(BTreeMap<String, Node>, Option<String>),
}

impl Growing {
    fn take(&mut self, event: Event<'_>) -> Result<(), Refusal> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                self.count(tag.as_deref())?;
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let text = Zeroizing::new(text.into_owned());
                self.add(Node::Text { text, plain })
            }
            Event::SequenceStart(_, _, tag) => self.open(Frame::List(Vec::new()), tag.as_deref()),
            Event::MappingStart(_, _, tag) => {
                self.open(Frame::Map(BTreeMap::new(), None), tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.frames.pop() {
                Some(Frame::List(items)) => self.add(Node::List(items)),
                Some(Frame::Map(fields, _)) => self.add(Node::Map(fields)),
                None => Ok(()),
            },
            Event::DocumentStart(..) if self.done.is_some() => {
                Err(self.root.refuse(RefusalReason::SecondDocument))
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd => Ok(()),
            // Aliases; what a later version of the parser may say beyond is not for us either.
            _ => Err(self.place().refuse(RefusalReason::Alias)),
        }
    }

    fn open(&mut self, frame: Frame, tag: Option<&Tag>) -> Result<(), Refusal> {
        self.count(tag)?;
        if let Some(Frame::Map(_, None)) = self.frames.last() {
            return Err(self.place().refuse(NAMES_ARE_TEXT));
        }
        if self.frames.len() == MAX_DEPTH {
            return Err(self
                .root
                .refuse(RefusalReason::TooDeep { limit: MAX_DEPTH }));
        }
        self.frames.push(frame);
        Ok(())
    }

    fn count(&mut self, tag: Option<&Tag>) -> Result<(), Refusal> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self
                .root
                .refuse(RefusalReason::TooMany { limit: MAX_NODES }));
        }
        if tag.is_none_or(|tag| tag.is_yaml_core_schema_tag("str")) {
            Ok(())
        } else {
            Err(self.place().refuse(RefusalReason::Tag))
        }
    }

    /// Puts a finished value into the innermost collection that is open.
    fn add(&mut self, node: Node) -> Result<(), Refusal> {
        match (self.frames.last_mut(), node) {
            (None, node) => self.done = Some(node),
            (Some(Frame::List(items)), node) => items.push(node),
            (Some(Frame::Map(fields, key @ None)), Node::Text { mut text, .. }) => {
                let name = std::mem::take(&mut *text);
                if fields.contains_key(&name) {
                    let place = self.place().field(&name);
                    return Err(place.refuse(RefusalReason::DuplicateField));
                }
                *key = Some(name);
            }
            (Some(Frame::Map(_, None)), _) => return Err(self.place().refuse(NAMES_ARE_TEXT)),
            (Some(Frame::Map(fields, key)), node) => {
                fields.insert(key.take().unwrap_or_default(), node);
            }
        }
        Ok(())
    }

    fn place(&self) -> Place {
        self.frames
            .iter()
            .fold(self.root.clone(), |place, frame| match frame {
                Frame::List(items) => place.item(items.len()),
                Frame::Map(_, Some(key)) => place.field(key),
                Frame::Map(_, None) => place,
            })
    }
}

const NAMES_ARE_TEXT: RefusalReason = RefusalReason::WrongType {
    expected: "a mapping whose names are text",
};
