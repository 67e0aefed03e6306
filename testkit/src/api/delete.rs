//! Deletions: at once, after a pod's grace, or when the last finalizer is gone.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Shared,
    clock::written,
    kind::Kind,
    list::{self, Page},
    object::Object,
    query::Query,
    request::Place,
    selector::Selector,
    status::Status,
    store::State,
    write::{self, Written},
};

/// What a pod is given that does not say.
const GRACE: u64 = 30;

/// How something is to be deleted: `DeleteOptions`, in the body or else in the query.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    grace: Option<u64>,
    propagation: String,
    uid: Option<String>,
    version: Option<String>,
    pub(super) dry_run: bool,
}

impl DeleteOptions {
    pub(super) fn of(body: &Value, query: &Query<'_>) -> Result<Self, Status> {
        if body.is_null() {
            return Ok(Self {
                grace: query.number("gracePeriodSeconds")?,
                propagation: query.text("propagationPolicy").to_owned(),
                dry_run: query.dry_run()?,
                ..Self::default()
            });
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let dry = body["dryRun"]
            .as_array()
            .is_some_and(|stages| !stages.is_empty());
        Ok(Self {
            // A negative one is taken for the least there is.
            grace: body["gracePeriodSeconds"]
                .as_i64()
                .map(|grace| u64::try_from(grace).unwrap_or(1)),
            propagation: text(&body["propagationPolicy"]).unwrap_or_default(),
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            dry_run: dry || query.dry_run()?,
        })
    }

    /// At once, as a kubelet does when a pod's containers are gone.
    pub(super) fn at_once() -> Self {
        Self {
            grace: Some(0),
            ..Self::default()
        }
    }

    fn check(&self, object: &Object) -> Result<(), Status> {
        let value = object.value();
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
        let version = object.version.to_string();
        for (what, wanted, found, then) in [
            ("UID", &self.uid, uid, "deleted and then recreated"),
            ("ResourceVersion", &self.version, &*version, "modified"),
        ] {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                     might have been {then}"
                );
                return Err(Status::precondition(&object.kind, object.name(), &why));
            }
        }
        Ok(())
    }
}

/// What became of an object that was to be deleted.
pub(super) enum Deleted {
    /// It is gone: how it is shown, and the object that it was.
    Gone(Value, Arc<Object>),
    /// It will go: what it is until then.
    Ending(Written),
}

/// Namespaces without which there is no cluster.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn delete(
    shared: &Shared,
    state: &mut State,
    kind: &Arc<Kind>,
    key: &str,
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    let name = key.split_once('/').map_or(key, |(_, name)| name);
    if kind.is("Namespace") && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(
            kind,
            name,
            "this namespace may not be deleted",
        ));
    }
    let now = state
        .get(kind, key)
        .cloned()
        .ok_or_else(|| Status::not_found(kind, name))?;
    options.check(&now)?;
    let old = now.value();
    let end = End::of(kind, &old, options);
    let marked = end.mark(&old, shared.clock.now());
    if end.at_once() {
        let shown = if kind.is("Pod") { marked } else { old };
        if !options.dry_run {
            // A pod is seen to end, also where it ends at once.
            if kind.is("Pod") && shown["metadata"] != now.value()["metadata"] {
                state.put(kind, key, shown.clone());
            }
            state.delete(kind, key);
        }
        return Ok(Deleted::Gone(shown, now));
    }
    if options.dry_run {
        return Ok(Deleted::Ending(Written::Dry(marked)));
    }
    if marked == old {
        return Ok(Deleted::Ending(Written::Stored(now)));
    }
    let until = deletion(&marked);
    let stored = state.put(kind, key, marked);
    if kind.is("Pod")
        && shared.pods_end
        && let Some(until) = until
    {
        state.ends_at(until, &stored.key);
    }
    Ok(Deleted::Ending(Written::Stored(stored)))
}

/// Deletes what a query selects; answers with a list of that.
pub(super) fn delete_collection(
    shared: &Shared,
    place: &Place,
    selector: &Selector,
    options: &DeleteOptions,
) -> Result<Page, Status> {
    shared.store.with(|state| {
        let objects = list::selected(state, place, selector);
        for object in &objects {
            delete(shared, state, &place.kind, &object.key, options)?;
        }
        Ok(Page::whole(state.version(), objects))
    })
}

/// How an object ends.
struct End {
    kind: Arc<Kind>,
    /// Seconds that it lives on.
    grace: u64,
    finalizers: Vec<String>,
    /// A namespace, which a controller empties first.
    emptied_first: bool,
}

impl End {
    fn of(kind: &Arc<Kind>, old: &Value, options: &DeleteOptions) -> Self {
        let mut finalizers = write::finalizers(old);
        if !options.propagation.is_empty() {
            finalizers.retain(|one| !matches!(&**one, "orphan" | "foregroundDeletion"));
        }
        match &*options.propagation {
            "Orphan" => finalizers.push("orphan".to_owned()),
            "Foreground" => finalizers.push("foregroundDeletion".to_owned()),
            _ => {}
        }
        Self {
            kind: kind.clone(),
            grace: grace(kind, old, options),
            finalizers,
            emptied_first: old["spec"]["finalizers"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
                && kind.is("Namespace"),
        }
    }

    fn at_once(&self) -> bool {
        self.grace == 0 && self.finalizers.is_empty() && !self.emptied_first
    }

    fn mark(&self, old: &Value, now: Timestamp) -> Value {
        let mut new = old.clone();
        if !self.finalizers.is_empty() {
            new["metadata"]["finalizers"] = self.finalizers.clone().into();
        }
        let metadata = &mut new["metadata"];
        if self.emptied_first {
            if metadata["deletionTimestamp"].is_null() {
                metadata["deletionTimestamp"] = written(now).into();
                new["status"]["phase"] = "Terminating".into();
            }
            return new;
        }
        let before = metadata["deletionGracePeriodSeconds"].as_u64();
        let begun = deletion(old)
            .zip(before)
            .map(|(until, grace)| until - Duration::from_secs(grace));
        // A later deletion can only hasten the end.
        if before.is_some_and(|before| before <= self.grace) {
            return new;
        }
        let until = begun.unwrap_or(now) + Duration::from_secs(self.grace);
        metadata["deletionTimestamp"] = written(until).into();
        metadata["deletionGracePeriodSeconds"] = self.grace.into();
        if self.kind.rules.generation && before.is_none() {
            let generation = metadata["generation"].as_u64().unwrap_or(1);
            metadata["generation"] = json!(generation + 1);
        }
        new
    }
}

/// Only pods that a kubelet has are given time.
fn grace(kind: &Kind, old: &Value, options: &DeleteOptions) -> u64 {
    let runs = old["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty())
        && !matches!(
            old["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
    if !kind.is("Pod") || !runs {
        return 0;
    }
    let own = || {
        old["spec"]["terminationGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(GRACE)
    };
    options.grace.unwrap_or_else(own)
}

fn deletion(value: &Value) -> Option<Timestamp> {
    value["metadata"]["deletionTimestamp"]
        .as_str()?
        .parse()
        .ok()
}

/// What the controller of namespaces does: everything in it goes, finalizers or not, and then itself.
pub(super) fn finish_namespace(state: &mut State, namespaces: &Arc<Kind>, name: &str) -> bool {
    let prefix = format!("{name}/");
    let kinds: Vec<_> = state
        .kinds()
        .filter(|kind| kind.namespaced)
        .cloned()
        .collect();
    for kind in kinds {
        let keys: Vec<_> = state
            .all(&kind, &prefix)
            .map(|object| object.key.clone())
            .collect();
        for key in keys {
            state.delete(&kind, &key);
        }
    }
    state.delete(namespaces, name).is_some()
}
