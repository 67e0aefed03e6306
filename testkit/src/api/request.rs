//! What a request asks for, as the real server's `RequestInfo` says it: verb, kind, namespace, name, subresource.

use std::{borrow::Cow, fmt, sync::Arc};

use http::Method;
use percent_encoding::percent_decode_str;

use super::{builtin::BUILT_IN, kind::Kind, query::Query, status::Status, store::State};

/// What is done, as roles name it. Of a path that is no object's, `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the words of the field")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
    ];

    /// As roles write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// `/readyz` and the like.
    Health,
    Version,
    /// `/api`, `/apis` and the documents below them; `/openapi/v3`.
    Discovery,
    /// Objects of a kind that is served.
    Objects(Place),
    /// `SelfSubjectReview`.
    WhoAmI,
    /// A path of a group, a version or a kind that is not served.
    NoSuchResource,
    /// A part that objects of this custom kind have not.
    NoSuchPart(Place),
    Nowhere,
}

/// Some objects of a kind: all, those of a namespace, one, or a part of one.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) kind: Arc<Kind>,
    /// Empty where the path names none.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    /// `status`, `eviction` and so on; empty for the object itself.
    pub(super) part: String,
}

impl Place {
    pub(super) fn key(&self) -> String {
        self.kind.key(&self.namespace, &self.name)
    }

    /// How the keys of a collection begin.
    pub(super) fn prefix(&self) -> String {
        if self.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", self.namespace)
        }
    }
}

impl Target {
    pub(super) fn of(path: &str, state: &State) -> Self {
        let parts: Vec<_> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode_str(part).decode_utf8_lossy())
            .collect();
        let parts: Vec<&str> = parts.iter().map(Cow::as_ref).collect();
        let (group, version, rest) = match &*parts {
            ["readyz" | "livez" | "healthz", ..] => return Self::Health,
            ["version"] => return Self::Version,
            ["openapi", "v3", ..] | ["api" | "apis"] | ["api" | "apis", _] | ["apis", _, _] => {
                return Self::Discovery;
            }
            ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"] => return Self::WhoAmI,
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::Nowhere,
        };
        let (namespace, plural, name, part) = match rest {
            // Namespaces stand in paths as objects, and as where others are.
            ["namespaces", name, part @ ("status" | "finalize")] => {
                ("", "namespaces", *name, *part)
            }
            ["namespaces", namespace, plural] => (*namespace, *plural, "", ""),
            ["namespaces", namespace, plural, name] => (*namespace, *plural, *name, ""),
            ["namespaces", namespace, plural, name, part] => (*namespace, *plural, *name, *part),
            [plural] => ("", *plural, "", ""),
            [plural, name] => ("", *plural, *name, ""),
            [plural, name, part] => ("", *plural, *name, *part),
            _ => return Self::NoSuchResource,
        };
        let Some(kind) = state.kind_at(group, version, plural) else {
            // The real server has handlers for groups that are built in, and none at all for others.
            let built_in = group.is_empty() || BUILT_IN.iter().any(|kind| kind.group == group);
            return if built_in {
                Self::NoSuchResource
            } else {
                Self::Nowhere
            };
        };
        let scoped = match (kind.namespaced, namespace.is_empty(), name.is_empty()) {
            // Over all namespaces there are only collections.
            (true, true, one) => one,
            (false, false, _) => false,
            _ => true,
        };
        // What serves custom kinds has no answer of the API where their scope is another.
        if !scoped {
            return if kind.custom {
                Self::Nowhere
            } else {
                Self::NoSuchResource
            };
        }
        let place = Place {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part: part.to_owned(),
        };
        match (has_part(&place.kind, part), place.kind.custom) {
            (true, _) => Self::Objects(place),
            (false, true) => Self::NoSuchPart(place),
            (false, false) => Self::NoSuchResource,
        }
    }
}

fn has_part(kind: &Kind, part: &str) -> bool {
    match part {
        "" => true,
        "status" => kind.status,
        "eviction" | "portforward" => kind.is("Pod"),
        "token" => kind.is("ServiceAccount"),
        "finalize" => kind.is("Namespace"),
        _ => false,
    }
}

/// The verb of a request, or that its target knows no such method.
pub(super) fn verb(method: &Method, target: &Target, query: &Query<'_>) -> Result<Verb, Status> {
    let place = match target {
        Target::Objects(place) => place,
        // What is not there is not there for any method, and health is told whoever asks how.
        Target::NoSuchResource | Target::NoSuchPart(_) | Target::Nowhere | Target::Health => {
            return Ok(Verb::Get);
        }
        Target::WhoAmI if *method == Method::POST => return Ok(Verb::Create),
        Target::Version | Target::Discovery if matches!(*method, Method::GET | Method::HEAD) => {
            return Ok(Verb::Get);
        }
        _ => return Err(Status::method_not_allowed()),
    };
    let one = !place.name.is_empty();
    let created_at = matches!(&*place.part, "eviction" | "token");
    let verb = match (method, one) {
        (_, true) if created_at => Some(Verb::Create).filter(|_| *method == Method::POST),
        (_, true) if place.part == "portforward" => match *method {
            Method::GET => Some(Verb::Get),
            Method::POST => Some(Verb::Create),
            _ => None,
        },
        (&Method::GET | &Method::HEAD, true) => Some(Verb::Get),
        (&Method::GET | &Method::HEAD, false) if query.flag("watch") => Some(Verb::Watch),
        (&Method::GET | &Method::HEAD, false) => Some(Verb::List),
        (&Method::POST, false) => {
            let homeless = place.kind.namespaced && place.namespace.is_empty();
            Some(Verb::Create).filter(|_| !homeless)
        }
        (&Method::PUT, true) => Some(Verb::Update),
        (&Method::PATCH, true) => Some(Verb::Patch),
        (&Method::DELETE, true) if place.part.is_empty() => Some(Verb::Delete),
        (&Method::DELETE, false) => {
            let homeless = place.kind.namespaced && place.namespace.is_empty();
            // Not all namespaces at once.
            Some(Verb::DeleteCollection).filter(|_| !homeless && !place.kind.is("Namespace"))
        }
        _ => None,
    };
    verb.ok_or_else(Status::method_not_allowed)
}
