//! Credentials that are refused to everybody at once: few requests, nothing torn down, and back as soon as there is a good one.

use std::time::Duration;

use clustercache::{ClusterState, Verdict, options::Options};
use clustercache_client::KubeClient;

use crate::{
    Tested,
    rig::{Rig, key_of, limited},
};

/// A minute of the defaults, as these have it.
const MINUTE: Duration = Duration::from_secs(3);

/// All that a 401 goes by, twenty times as fast. How long one probe may take is not: a slow machine is no slow cluster.
fn twentyfold(options: &mut Options) {
    let health = &mut options.health;
    let times = [
        &mut health.probe_after,
        &mut health.suspect_interval,
        &mut health.held_interval,
        &mut health.authenticate_every,
        &mut health.down_after,
    ];
    let retries = health.unauthorized_retries.iter_mut();
    times
        .into_iter()
        .chain(retries)
        .for_each(|time| *time /= 20);
    options.brake.up_since = Duration::from_millis(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_401_for_everybody_for_a_minute_costs_12_requests_a_cluster_and_tears_nothing_down()
-> Tested {
    // As many as the fleet brake needs.
    let rig = Rig::with_options(10, twentyfold).await?;
    let mut held = Vec::new();
    for cluster in rig.fleet.clusters() {
        let key = rig.connect(cluster).await?;
        held.push(rig.cache.get::<KubeClient>(&key)?);
    }
    for cluster in rig.fleet.clusters() {
        cluster.revoke_token(&cluster.token());
    }
    let mut before = Vec::new();
    for cluster in rig.fleet.clusters() {
        let refused = cluster.when(|now| now.auth_failures > 0);
        let refused = limited("a 401", refused).await?;
        before.push(refused.requests.total() - 1);
    }
    tokio::time::sleep(MINUTE).await;
    for ((cluster, before), held) in rig.fleet.clusters().iter().zip(before).zip(&held) {
        let requests = cluster.counters().requests.total() - before;
        assert!(requests <= 12, "{requests} requests");
        assert!(
            requests >= 5,
            "only {requests} requests: it was not tried again"
        );
        assert!(held.is_current(), "it was torn down");
        let state = rig.cache.state(&key_of(cluster))?;
        assert!(state.held_by_brake, "{state:?}");
    }
    assert_eq!(rig.cache.counters().brakes(), 1);

    for cluster in rig.fleet.clusters() {
        cluster.add_token();
        rig.say(cluster)?;
    }
    for (cluster, held) in rig.fleet.clusters().iter().zip(&held) {
        let healthy =
            |state: &ClusterState| state.health == Verdict::Healthy && !state.held_by_brake;
        rig.until(&key_of(cluster), healthy).await?;
        assert!(held.is_current(), "it was made anew");
    }
    assert_eq!(rig.cache.counters().connects(), 10);
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_mended_after_the_first_401_is_recovered_in_place() -> Tested {
    let rig = Rig::start(1).await?;
    let cluster = &rig.fleet[0];
    let key = rig.connect(cluster).await?;
    let held = rig.cache.get::<KubeClient>(&key)?;
    cluster.rotate_token();
    // Whoever calls is told, and the cluster is asked at once.
    assert!(held.client().apiserver_version().await.is_err());
    rig.until(&key, |state| state.health == Verdict::Suspect)
        .await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    rig.say(cluster)?;
    rig.until(&key, |state| state.health == Verdict::Healthy)
        .await?;
    held.client().apiserver_version().await?;
    assert!(held.is_current(), "it was made anew");
    assert_eq!(rig.cache.counters().connects(), 1);
    rig.end().await
}
