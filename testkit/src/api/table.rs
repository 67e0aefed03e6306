//! `Table`: what `kubectl get` shows, as the server lays it out.

use std::{borrow::Borrow, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    answer::{self, Include, TableOptions},
    cells, columns,
    kind::Kind,
    object::Object,
};

/// A table of objects of one kind.
pub(super) fn of<O: Borrow<Arc<Object>>>(
    objects: impl IntoIterator<Item = O>,
    version: &str,
    options: TableOptions,
) -> Value {
    let mut kind = None;
    let rows: Vec<_> = objects
        .into_iter()
        .map(|object| {
            let object: &Arc<Object> = object.borrow();
            kind = Some(object.kind.clone());
            row(object, options)
        })
        .collect();
    let definitions = kind
        .filter(|_| options.columns)
        .map(|kind| definitions(&kind));
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": version },
        "columnDefinitions": definitions, "rows": rows,
    })
}

/// A table without rows, for the list of a kind that has no objects, names its columns all the same.
pub(super) fn name_columns(table: &mut Value, kind: &Kind) {
    table["columnDefinitions"] = definitions(kind);
}

/// The table of a bookmark: a row of an object that is nothing but its metadata.
pub(super) fn bookmark(kind: &Kind, metadata: &Value) -> Value {
    let object = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "resourceVersion": metadata["resourceVersion"] }, "columnDefinitions": null,
        "rows": [{ "cells": cells::cells(kind, &object, Timestamp::UNIX_EPOCH), "object": object }],
    })
}

fn definitions(kind: &Kind) -> Value {
    let columns = columns::of(kind).iter();
    columns
        .map(|column| {
            let format = if matches!(column.name, "Name" | "Attacher") {
                "name"
            } else {
                ""
            };
            json!({
                "name": column.name, "type": column.values, "format": format, "description": "",
                "priority": column.priority,
            })
        })
        .collect()
}

fn row(object: &Object, options: TableOptions) -> Value {
    let value = object.value();
    let mut row = json!({ "cells": cells::cells(&object.kind, &value, options.now) });
    match options.include {
        Include::Nothing => {}
        Include::Object => row["object"] = value,
        Include::Metadata => {
            let metadata = answer::metadata_only(object);
            row["object"] = serde_json::from_slice(&metadata).expect("it was made of JSON");
        }
    }
    row
}

/// How long ago something was, as kubectl says it: two units at most.
pub(super) fn age(since: &Value, now: Timestamp) -> Value {
    let Some(since) = since
        .as_str()
        .and_then(|since| since.parse::<Timestamp>().ok())
    else {
        return "<unknown>".into();
    };
    let seconds = now.duration_since(since).as_secs();
    human(seconds).into()
}

fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let both = |large: i64, letter: char, small: i64, other: char| {
        let (whole, rest) = (seconds / large, seconds % large / small);
        if rest == 0 {
            format!("{whole}{letter}")
        } else {
            format!("{whole}{letter}{rest}{other}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => both(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => both(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => both(DAY, 'd', HOUR, 'h'),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => both(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_said_as_kubectl_says_them() {
        for (seconds, said) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (86_400 * 30, "30d"),
            (86_400 * 365 * 3, "3y"),
        ] {
            assert_eq!(human(seconds), said);
        }
    }
}
