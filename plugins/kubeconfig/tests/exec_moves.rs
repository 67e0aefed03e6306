//! A context that an edit moves to another cluster, whose program has yet to answer: what the cache serves of it meanwhile.
#![cfg(target_os = "linux")]

use std::time::Duration;

use async_trait::async_trait;
use clustercache::{
    Answer, CheckContext, CheckError, ClusterAccess, ClusterCache, ClusterKey, ClusterResource,
    ClusterState, HealthCheck, InitContext, InitError, Phase, Refresh, Requires,
};
use futures_util::StreamExt;

mod support;
use support::{Parts, events::replace, programs};

const LIMIT: Duration = Duration::from_secs(60);

/// Knows where its cluster is, and says that all is well.
struct Host;

#[async_trait]
impl ClusterResource for Host {
    type Value = String;

    fn name(&self) -> &'static str {
        "host"
    }

    fn requires(&self) -> Requires {
        Requires::nothing().access()
    }

    async fn init(&self, cx: &InitContext) -> Result<String, InitError> {
        let access = cx.access()?;
        Ok(access
            .endpoint()
            .url()
            .host()
            .unwrap_or_default()
            .to_owned())
    }

    fn refresh(&self, _: &String, _: &ClusterAccess) -> Refresh {
        Refresh::InPlace
    }
}

#[async_trait]
impl HealthCheck for Host {
    async fn check(&self, _: &String, _: &CheckContext) -> Result<Answer, CheckError> {
        Ok(Answer::Ready)
    }
}

async fn until(cache: &ClusterCache, key: &ClusterKey, is: impl Fn(&ClusterState) -> bool) {
    let mut events = cache.subscribe().key(key);
    let so = async {
        while !cache.state(key).is_ok_and(|state| is(&state)) {
            events.next().await.expect("the cache runs");
        }
    };
    let so = tokio::time::timeout(LIMIT, so).await;
    so.unwrap_or_else(|_| panic!("{:?}", cache.state(key)));
}

#[tokio::test]
async fn nothing_of_the_old_cluster_is_served_while_the_new_ones_program_has_not_answered() {
    let programs = programs::Programs::new();
    let source = programs.source(&[("a", 1, &programs.user("old", &programs::token("old")))]);
    let cache = ClusterCache::builder()
        .source(source)
        .resource(Host)
        .health_from::<Host>()
        .start()
        .unwrap();
    let key = ClusterKey::named("a");
    let host = || cache.get::<Host>(&key).map(|host| host.to_string());
    cache.wait_for(&key, LIMIT).await.unwrap();
    assert_eq!(host().unwrap(), "10.0.0.1");

    let waits = format!(
        "until [ -e $DIR/go ]; do sleep 0.05; done\n{}",
        programs::token("new")
    );
    let waits = programs.user("new", &waits);
    let moved = |octet, ca: &str| {
        let fleet = programs.parts.fleet(&[("a", octet, "REPLACED")]);
        let fleet = fleet.replace(&programs.parts.ca, ca);
        replace(
            &programs.path("config"),
            &fleet.replace("token: REPLACED", &waits),
        );
    };
    // The same cluster at another server: its connection stays until there is another.
    moved(2, &programs.parts.ca);
    until(&cache, &key, |state| state.gate.is_some()).await;
    assert_eq!(host().unwrap(), "10.0.0.1");
    // Another cluster.
    moved(3, &Parts::new().ca);
    until(&cache, &key, |state| state.phase == Phase::Gated).await;
    host().unwrap_err();

    std::fs::write(programs.path("go"), "").unwrap();
    cache.wait_for(&key, LIMIT).await.unwrap();
    assert_eq!(host().unwrap(), "10.0.0.3");
    cache.shutdown().await.unwrap();
    assert_eq!(cache.counters().panics(), [].into());
}
