//! One request as it is judged, recorded and spoilt: who asks for what.

use std::sync::Arc;

use http::Response;

use super::{
    answer::{self, Body},
    request::{Place, Target, Verb},
    status::Status,
};

/// Who asks, as an authenticator found out. A front inserts it into a request's extensions; without it, and without a
/// bearer token, it is [`Caller::admin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub user: Arc<str>,
    /// Groups that the user is in.
    pub groups: Arc<[Arc<str>]>,
    /// The user's UID, as a service account has one.
    pub uid: Option<Arc<str>>,
}

impl Caller {
    /// A user in a few groups, beside `system:authenticated`.
    pub fn new(user: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain(["system:authenticated"]);
        Self {
            user: user.into(),
            groups: groups.map(Arc::from).collect(),
            uid: None,
        }
    }

    /// `admin` in `system:masters`.
    pub fn admin() -> Self {
        Self::new("admin", &["system:masters"])
    }
}

/// A request without its body.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: Arc<str>,
    pub(crate) query: Arc<str>,
    /// What the client calls the server.
    pub(super) host: Arc<str>,
    pub(super) target: Target,
    pub(super) verb: Result<Verb, Status>,
    pub(crate) caller: Caller,
    /// From 0 to 1: faults for a share of requests meet those with less.
    pub(super) luck: f64,
}

/// What a request is about, for whoever counts it by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Health,
    Version,
    Discovery,
    Objects(Verb),
    Other,
}

impl Ask {
    pub(crate) fn about(&self) -> About {
        match (&self.target, &self.verb) {
            (Target::Health, _) => About::Health,
            (Target::Version, _) => About::Version,
            (Target::Discovery, _) => About::Discovery,
            (Target::Objects(_), Ok(verb)) => About::Objects(*verb),
            // A method that is not allowed counts as a write.
            (Target::Objects(_), Err(_)) => About::Objects(Verb::Update),
            (
                Target::WhoAmI | Target::NoSuchResource | Target::NoSuchPart(_) | Target::Nowhere,
                _,
            ) => About::Other,
        }
    }

    pub(super) fn place(&self) -> Option<&Place> {
        match &self.target {
            Target::Objects(place) => Some(place),
            _ => None,
        }
    }

    pub(crate) fn verb(&self) -> Verb {
        self.verb.as_ref().copied().unwrap_or(Verb::Get)
    }

    /// `pods`, `deployments.apps` or `pods/eviction`; empty for a path that is no object's.
    pub(crate) fn resource(&self) -> String {
        let Some(place) = self.place() else {
            return String::new();
        };
        let kind = place.kind.qualified();
        if place.part.is_empty() {
            kind
        } else {
            format!("{kind}/{}", place.part)
        }
    }

    /// The answer to who may not do this.
    pub(crate) fn refused(&self) -> Response<Body> {
        answer::refusal(&self.forbidden())
    }

    /// The answer to who is not known.
    pub(crate) fn unauthorized() -> Response<Body> {
        answer::refusal(&Status::unauthorized())
    }

    /// 403 as role-based access control says it.
    pub(super) fn forbidden(&self) -> Status {
        let user = &self.caller.user;
        let Some(place) = self.place() else {
            let message = format!(
                "forbidden: User {user:?} cannot {} path {:?}",
                self.verb(),
                self.path
            );
            return Status::new(403, "Forbidden", message).details(serde_json::json!({}));
        };
        let part = if place.part.is_empty() {
            String::new()
        } else {
            format!("/{}", place.part)
        };
        let within = if place.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", place.namespace)
        };
        let why = format!(
            "User {user:?} cannot {} resource \"{}{part}\" in API group {:?} {within}",
            self.verb(),
            place.kind.plural,
            place.kind.group,
        );
        Status::forbidden(&place.kind, &place.name, &why)
    }
}
