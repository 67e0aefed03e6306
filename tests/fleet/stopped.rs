//! A process that is really stopped, and goes on later: nobody is declared down by the time in which it did not run.

use std::{env, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use clustercache::{Changes, ClusterCache, ClusterKey, ClusterState, Verdict};
use clustercache_client::KubeClient;
use clustercache_kubeconfig::{KubeconfigFile, Policy};
use clustercache_testkit::{
    fleet::{FakeCluster, Fleet},
    guard::PanicGuard,
};
use futures_util::{FutureExt, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::{
    Tested,
    rig::{LIMIT, limited},
};

/// Where the child finds the kubeconfig of its parent's clusters.
const CHILD: &str = "CLUSTERCACHE_TEST_STOPPED";

const CLUSTERS: usize = 3;

/// As many failures as a verdict needs come sooner than it; and the process is stopped for longer than that takes.
const DOWN_AFTER: Duration = Duration::from_secs(8);
const STOPPED: Duration = Duration::from_secs(9);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_and_continued_declares_nobody_down_because_of_it() -> Tested {
    if let Some(kubeconfig) = env::var_os(CHILD) {
        return child(kubeconfig.as_ref()).await;
    }
    let fleet = Fleet::start(CLUSTERS).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, fleet.kubeconfig_of_all())?;
    let test =
        "stopped::a_process_that_is_stopped_and_continued_declares_nobody_down_because_of_it";
    let mut child = Command::new(env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, &kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let pid = pid.context("it runs")?;
    let mut lines = BufReader::new(child.stdout.take().context("it has one")?).lines();
    let mut says = async |what: &str| {
        while let Some(line) = lines.next_line().await? {
            if line.ends_with(what) {
                return Ok(());
            }
        }
        anyhow::bail!("it ended, and did not say {what:?}")
    };

    limited("its connections", says(CONNECTED)).await??;
    // One fails as often as it takes, and is not down only because that takes time.
    fails(&fleet[0], 4).await?;
    kill_process(pid, Signal::STOP)?;
    tokio::time::sleep(STOPPED).await;
    kill_process(pid, Signal::CONT)?;
    // Now it fails again, and that time must not count.
    fails(&fleet[0], 1).await?;
    fleet[0].answer_normally();
    limited("its verdict", says(WELL)).await??;
    ensure!(limited("its end", child.wait()).await??.success());
    fleet.shutdown().await;
    Ok(())
}

/// Until so many rounds of probes have failed. Eight may be under way, and each asks twice.
async fn fails(cluster: &FakeCluster, rounds: u64) -> Tested {
    let before = cluster.counters().requests.health;
    cluster.hang("/");
    let sent = 2 * (8 + rounds);
    let enough = cluster.when(|now| now.requests.health > before + sent);
    limited("probes in vain", enough).await?;
    Ok(())
}

const CONNECTED: &str = "all are connected";
const WELL: &str = "nobody was down";

async fn child(kubeconfig: &Path) -> Tested {
    let cache = ClusterCache::builder()
        .source(KubeconfigFile::at(kubeconfig).policy(Policy::operator()))
        .resource(KubeClient::new())
        .health_from::<KubeClient>()
        .configure(|options| {
            options.health.probe_after = Duration::from_millis(200);
            options.health.probe_timeout = Duration::from_millis(500);
            options.health.suspect_interval = Duration::from_millis(100);
            options.health.down_after = DOWN_AFTER;
        })
        .start()?;
    let _guard = PanicGuard::new(&cache);
    ensure!(cache.wait_for_start(LIMIT).await?);
    let keys = cache.keys()?;
    ensure!(keys.len() == CLUSTERS);
    let mut held = Vec::new();
    for key in &keys {
        held.push(cache.wait_for(key, LIMIT).await?.get::<KubeClient>()?);
    }
    let mut losses = cache.subscribe().only(Changes::DISCONNECTED);
    while losses.next().now_or_never().is_some() {}
    println!("{CONNECTED}");

    let suspect = |state: &ClusterState| state.health == Verdict::Suspect;
    let suspect = some(&cache, &keys, suspect).await?;
    let well = |state: &ClusterState| state.health == Verdict::Healthy;
    some(&cache, &[suspect], well).await?;
    ensure!(cache.counters().stalls() > 0, "it was not stopped");
    for client in &held {
        client.client().apiserver_version().await?;
        ensure!(client.is_current(), "{client:?} was torn down");
    }
    ensure!(losses.next().now_or_never().is_none());
    ensure!(cache.counters().connects() == keys.len() as u64);
    cache.shutdown().await?;
    println!("{WELL}");
    Ok(())
}

/// The first cluster of which this holds.
async fn some(
    cache: &ClusterCache,
    keys: &[ClusterKey],
    is: impl Fn(&ClusterState) -> bool,
) -> anyhow::Result<ClusterKey> {
    let mut events = cache.subscribe();
    let found = async {
        loop {
            let mut states = keys.iter().filter_map(|key| cache.state(key).ok());
            if let Some(state) = states.find(|state| is(state)) {
                return Ok(state.key);
            }
            events.next().await.context("the cache ended")?;
        }
    };
    limited("such a cluster", found).await?
}
