//! Versions that are no longer known: pages, exact lists and watches from before a compaction. Of the real server the etcd is compacted, and
//! the server started again, since it remembers what its etcd has forgotten.

use clustercache_testkit::real_or_skip;
use serde_json::Value;

use crate::{
    access_to, alone,
    script::{Script, Step},
    scripts::{CONFIGS, NONE, at, clear, config, version},
};

/// What a client remembers of a time before.
struct Old {
    version: String,
    /// Of the second page.
    next: String,
}

async fn before(s: &mut Script) -> Old {
    let first = s.post(CONFIGS, &config("a", "x")).await;
    for name in ["b", "c", "d", "e", "f"] {
        s.post(CONFIGS, &config(name, "x")).await;
    }
    let page = s.get(&format!("{CONFIGS}?limit=2")).await;
    let next = page["metadata"]["continue"].as_str().unwrap().to_owned();
    s.delete(&at(CONFIGS, "d"), &NONE).await;
    s.post(CONFIGS, &config("g", "x")).await;
    Old {
        version: version(&first),
        next,
    }
}

async fn after(s: &mut Script, old: &Old) {
    let Old { version, next } = old;
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let page = format!("{CONFIGS}?limit=2&continue=");
    s.get_as(&format!("{page}{next}"), metadata).await;
    s.get_as(&format!("{page}{next}"), table).await;
    let refused = s.get(&format!("{page}{next}")).await;
    // The rest as it is now, at one version from here on.
    let offered = &refused["metadata"]["continue"];
    let rest = s.get(&format!("{page}{}", offered.as_str().unwrap())).await;
    let more = &rest["metadata"]["continue"];
    let last = s.get(&format!("{page}{}", more.as_str().unwrap())).await;
    let version_of = |list: &Value| list["metadata"]["resourceVersion"].clone();
    assert_eq!(version_of(&rest), version_of(&last));

    let exact = "resourceVersionMatch=Exact";
    s.get(&format!("{CONFIGS}?resourceVersion={version}&{exact}"))
        .await;
    s.get(&format!(
        "{CONFIGS}?resourceVersion={version}&{exact}&limit=2"
    ))
    .await;
    s.get(&format!("{CONFIGS}?resourceVersion={version}&limit=2"))
        .await;
    for how in ["", "&resourceVersionMatch=NotOlderThan"] {
        s.get(&format!("{CONFIGS}?resourceVersion={version}{how}"))
            .await;
    }
    let watch = format!("{CONFIGS}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    for accept in ["application/json", metadata, table] {
        s.get_as(&watch, accept).await;
    }
    s.get(&format!("{watch}&allowWatchBookmarks=true")).await;
    s.get(&format!("{watch}&labelSelector=app%3Dx")).await;
    s.get(&format!("{watch}&fieldSelector=metadata.name%3Da"))
        .await;
    let initial = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents";
    for with in [true, false] {
        s.get(&format!("{watch}&{initial}={with}")).await;
    }
    clear(s, CONFIGS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_refused_as_the_real_server_refuses_it() {
    let mut servers = real_or_skip!(1);
    let fake = alone();
    let mut ours = Script::new(&fake.access()).await;
    let mut theirs = Script::new(&access_to(&servers[0])).await;
    let (old, theirs_old) = tokio::join!(before(&mut ours), before(&mut theirs));
    let mut different = Step::differences("before", &ours.steps(), &theirs.steps());

    fake.compact();
    servers.etcd().compact().await.unwrap();
    servers[0].restart().await.unwrap();
    let mut theirs = Script::new(&access_to(&servers[0])).await;
    tokio::join!(after(&mut ours, &old), after(&mut theirs, &theirs_old));
    different.extend(Step::differences("after", &ours.steps(), &theirs.steps()));
    assert!(different.is_empty(), "{}", different.join("\n"));
}
