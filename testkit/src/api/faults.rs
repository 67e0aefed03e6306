//! What a server does wrong on command, by verb and resource. Each fault can be undone, and leaves nothing behind.
//!
//! They are met after authentication, as what the server itself or something behind it does; `fleet/faults.rs` has those of
//! whatever stands in front.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::Response;
use tokio::sync::Notify;

use super::{
    answer::{self, Body},
    ask::Ask,
    request::Verb,
    status::Status,
};

/// Something that a server does wrong: what, to which requests, and to what share of them.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use clustercache_testkit::api::{Fault, Verb};
///
/// // Every third list of pods is told to come again in 2 seconds.
/// let busy = Fault::status(429).retry_after(2).verb(Verb::List).resource("pods").share(1.0 / 3.0);
/// // The watches of one kind break after a second.
/// let cut = Fault::watch_cut_after(Duration::from_secs(1)).resource("deployments.apps");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Fault {
    verb: Option<Verb>,
    resource: Option<String>,
    namespace: Option<String>,
    user: Option<String>,
    share: f64,
    effect: Effect,
}

#[derive(Clone, Debug)]
enum Effect {
    Status {
        code: u16,
        retry_after: Option<u32>,
    },
    Unauthorized,
    Forbidden,
    Gone,
    Hang,
    /// Discovery is told a document a group and version only.
    OldDiscovery,
    Watch(Spoilt),
}

/// What is wrong with a watch now.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "several faults can hold at a time"
)]
pub(super) struct Spoilt {
    pub(super) ended: bool,
    pub(super) expired: bool,
    pub(super) stalled: bool,
    pub(super) without_bookmarks: bool,
    pub(super) cut_after_events: Option<u64>,
    pub(super) cut_after: Option<Duration>,
}

/// What requests get.
impl Fault {
    fn new(effect: Effect) -> Self {
        Self {
            verb: None,
            resource: None,
            namespace: None,
            user: None,
            share: 1.0,
            effect,
        }
    }

    fn watch(spoilt: Spoilt) -> Self {
        Self::new(Effect::Watch(spoilt)).verb(Verb::Watch)
    }

    /// This status, with a `Status` body that says the same.
    pub fn status(code: u16) -> Self {
        Self::new(Effect::Status {
            code,
            retry_after: None,
        })
    }

    /// With this `Retry-After`, in seconds. It means something for [`status`](Self::status) only.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Effect::Status { retry_after, .. } = &mut self.effect {
            *retry_after = Some(seconds);
        }
        self
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(Effect::Unauthorized)
    }

    /// 403, as role-based access control says it.
    pub fn forbidden() -> Self {
        Self::new(Effect::Forbidden)
    }

    /// 410 as HTTP status, as aggregated servers and proxies answer a version that is too old. For a watch that is
    /// answered as the real server does, see [`watch_expired`](Self::watch_expired).
    pub fn gone() -> Self {
        Self::new(Effect::Gone)
    }

    /// Nothing, until this is undone; then what they asked for.
    pub fn hang() -> Self {
        Self::new(Effect::Hang)
    }

    /// Discovery knows no document of all groups, as servers before 1.26: who asks for it is told as ever.
    pub fn without_aggregated_discovery() -> Self {
        Self::new(Effect::OldDiscovery)
    }

    /// Watches, open or new, end with an `ERROR` event that says 410.
    pub fn watch_expired() -> Self {
        Self::watch(Spoilt {
            expired: true,
            ..Spoilt::default()
        })
    }

    /// Watches, open or new, end cleanly at once.
    pub fn watch_ended() -> Self {
        Self::watch(Spoilt {
            ended: true,
            ..Spoilt::default()
        })
    }

    /// Watches, open or new, say nothing more and stay open. When this is undone, they go on where they were.
    pub fn watch_stalled() -> Self {
        Self::watch(Spoilt {
            stalled: true,
            ..Spoilt::default()
        })
    }

    /// Watches get no bookmarks but the one after the initial events.
    pub fn watch_without_bookmarks() -> Self {
        Self::watch(Spoilt {
            without_bookmarks: true,
            ..Spoilt::default()
        })
    }

    /// Watches break off, without an end, after so many events (bookmarks count).
    pub fn watch_cut_after_events(events: u64) -> Self {
        Self::watch(Spoilt {
            cut_after_events: Some(events),
            ..Spoilt::default()
        })
    }

    /// Watches break off, without an end, when they are so old.
    pub fn watch_cut_after(life: Duration) -> Self {
        Self::watch(Spoilt {
            cut_after: Some(life),
            ..Spoilt::default()
        })
    }
}

/// Which requests meet it: by default all (of the faults of watches: all watches).
impl Fault {
    /// Only requests of this verb.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only requests for this resource: `pods`, `deployments.apps`, `pods/eviction`.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only requests to this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only requests of this user.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Only a share of those, from 0 to 1, by chance.
    pub fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    fn meets(&self, ask: &Ask) -> bool {
        let is = |wanted: &Option<String>, found: &dyn Fn() -> String| {
            wanted.as_ref().is_none_or(|wanted| *wanted == found())
        };
        let namespace = || {
            ask.place()
                .map_or(String::new(), |place| place.namespace.clone())
        };
        ask.luck < self.share
            && self.verb.is_none_or(|verb| verb == ask.verb())
            && is(&self.resource, &|| ask.resource())
            && is(&self.namespace, &namespace)
            && is(&self.user, &|| ask.caller.user.to_string())
    }
}

/// A fault that holds, to be undone by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

/// The faults of one server. Of several that meet a request, the one that was injected last counts; of those of watches, all.
#[derive(Default)]
pub(super) struct Faults {
    now: ArcSwap<Injected>,
    changed: Notify,
}

#[derive(Clone, Default)]
struct Injected {
    all: Vec<(FaultId, Arc<Fault>)>,
    next: u64,
}

impl Faults {
    pub(super) fn inject(&self, fault: Fault) -> FaultId {
        let fault = Arc::new(fault);
        let mut id = FaultId(0);
        self.now.rcu(|now| {
            let mut now = Injected::clone(now);
            id = FaultId(now.next);
            now.next += 1;
            now.all.push((id, fault.clone()));
            now
        });
        self.changed.notify_waiters();
        id
    }

    /// Those that are undone no longer hold; the others do.
    pub(super) fn undo(&self, undone: impl Fn(FaultId) -> bool) {
        self.now.rcu(|now| {
            let mut now = Injected::clone(now);
            now.all.retain(|(id, _)| !undone(*id));
            now
        });
        self.changed.notify_waiters();
    }

    pub(super) fn of_watch(&self, ask: &Ask) -> Spoilt {
        let mut spoilt = Spoilt::default();
        for (_, fault) in &self.now.load().all {
            if let Effect::Watch(one) = &fault.effect
                && fault.meets(ask)
            {
                spoilt.add(one);
            }
        }
        spoilt
    }

    /// What a request gets in place of its answer, once it hangs no more.
    pub(super) async fn met(&self, ask: &Ask) -> Option<Response<Body>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the faults are looked at: what changes after that wakes this.
            changed.as_mut().enable();
            match self.of_request(ask)? {
                Effect::Hang => changed.await,
                effect => return Some(answer::refusal(&effect.status(ask)?)),
            }
        }
    }

    fn of_request(&self, ask: &Ask) -> Option<Effect> {
        let answers = |effect: &Effect| !matches!(effect, Effect::Watch(_) | Effect::OldDiscovery);
        let now = self.now.load();
        let mut met = now.all.iter().rev().map(|(_, fault)| fault);
        let met = met.find(|fault| answers(&fault.effect) && fault.meets(ask));
        met.map(|fault| fault.effect.clone())
    }

    /// Whether the document of all groups is not known.
    pub(super) fn discovery_is_old(&self, ask: &Ask) -> bool {
        let now = self.now.load();
        let old = |fault: &Fault| matches!(fault.effect, Effect::OldDiscovery) && fault.meets(ask);
        now.all.iter().any(|(_, fault)| old(fault))
    }
}

impl Effect {
    fn status(&self, ask: &Ask) -> Option<Status> {
        match self {
            Self::Status { code, retry_after } => {
                let status = injected(*code);
                Some(retry_after.map_or(status.clone(), |seconds| status.retry_after(seconds)))
            }
            Self::Unauthorized => Some(Status::unauthorized()),
            Self::Forbidden => Some(ask.forbidden()),
            Self::Gone => Some(Status::gone()),
            Self::Hang | Self::OldDiscovery | Self::Watch(_) => None,
        }
    }
}

/// A `Status` that says as much as the real one of that code.
fn injected(code: u16) -> Status {
    let reason = match code {
        400 => "BadRequest",
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    Status::new(code, reason, "a fault of the test")
}

impl Spoilt {
    fn add(&mut self, other: &Self) {
        self.ended |= other.ended;
        self.expired |= other.expired;
        self.stalled |= other.stalled;
        self.without_bookmarks |= other.without_bookmarks;
        self.cut_after_events = least(self.cut_after_events, other.cut_after_events);
        self.cut_after = least(self.cut_after, other.cut_after);
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}
