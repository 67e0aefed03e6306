//! The scripts: what is asked of both servers. Each leaves nothing behind that another one meets.

mod access;
mod deletions;
mod kinds;
mod reads;
mod selectors;
mod watches;
mod writes;

use serde_json::{Value, json};

use crate::script::{Running, Script};

pub(crate) type Named = (&'static str, fn(&mut Script) -> Running<'_>);

macro_rules! scripts {
    ($($of:ident::$name:ident),* $(,)?) => {
        pub(crate) const ALL: &[Named] = &[$((stringify!($name), |script| Box::pin($of::$name(script)))),*];
    };
}

scripts![
    writes::objects,
    writes::names,
    writes::updates,
    writes::statuses,
    writes::patches,
    deletions::deletions,
    deletions::finalizers,
    deletions::collections,
    selectors::selectors,
    selectors::fields,
    selectors::values,
    reads::lists,
    reads::gets,
    reads::pages,
    watches::watches,
    watches::bookmarks,
    reads::forms,
    kinds::custom,
    kinds::plain,
    access::evictions,
    access::forwards,
    access::tokens,
    access::reviews,
    deletions::namespaces,
    reads::documents,
    reads::paths,
    writes::dry_runs,
    writes::generations,
    kinds::defaults,
    kinds::nodes,
];

pub(crate) const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub(crate) const NONE: Value = Value::Null;

pub(crate) fn config(name: &str, app: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": app } }, "data": { "a": "1" } })
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i:1" }] },
    })
}

fn unscheduled(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}

pub(crate) fn version(answer: &Value) -> String {
    answer["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

pub(crate) fn at(path: &str, name: &str) -> String {
    format!("{path}/{name}")
}

pub(crate) async fn clear(s: &mut Script, path: &str) {
    s.delete(path, &json!({ "gracePeriodSeconds": 0 })).await;
}
