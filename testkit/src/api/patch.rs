//! Patches: JSON patch, merge patch, and strategic merge patch of built-in kinds.

use http::{HeaderMap, header::CONTENT_TYPE};
use json_patch::Patch;
use serde_json::Value;

use super::{
    Shared,
    kind::Kind,
    request::Place,
    status::Status,
    strategic,
    write::{self, Written},
};

/// How a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl PatchType {
    pub(super) fn of(headers: &HeaderMap, kind: &Kind) -> Result<Self, Status> {
        let sent = headers
            .get(CONTENT_TYPE)
            .and_then(|sent| sent.to_str().ok());
        let media = sent
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        match media.trim() {
            JSON => Ok(Self::Json),
            MERGE => Ok(Self::Merge),
            STRATEGIC if !kind.custom => Ok(Self::Strategic),
            STRATEGIC => Err(Status::unsupported_media_type(&[JSON, MERGE])),
            _ => Err(Status::unknown_patch_type()),
        }
    }

    fn apply(self, old: &Value, patch: &Value) -> Result<Value, Status> {
        let mut new = old.clone();
        match self {
            Self::Json => {
                let patch: Patch = serde_json::from_value(patch.clone()).map_err(|error| {
                    Status::bad_request(format!("error decoding patch: {error}"))
                })?;
                json_patch::patch(&mut new, &patch).map_err(|error| {
                    tracing::debug!(%error, "a JSON patch does not fit");
                    let message = "the server rejected our request due to an error in our request";
                    Status::unfit_patch(message)
                })?;
            }
            Self::Merge if patch.is_object() => json_patch::merge(&mut new, patch),
            Self::Strategic if patch.is_object() => strategic::merge(&mut new, patch)?,
            Self::Merge | Self::Strategic => {
                return Err(Status::bad_request("the patch is no JSON object"));
            }
        }
        Ok(new)
    }
}

pub(super) fn patch(
    shared: &Shared,
    place: &Place,
    how: PatchType,
    patch: &Value,
    dry_run: bool,
) -> Result<Written, Status> {
    shared.store.with(|state| {
        write::replace(state, place, dry_run, |old| {
            let mut new = how.apply(old, patch)?;
            write::check_shape(&place.kind, &new)?;
            write::check_namespace(&place.kind, &mut new, &place.namespace)?;
            match new["metadata"]["name"].as_str().unwrap_or_default() {
                name if name != place.name => return Err(write::other_name(name, &place.name)),
                _ => {}
            }
            Ok(new)
        })
    })
}
