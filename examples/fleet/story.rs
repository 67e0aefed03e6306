//! Half a minute in the life of 50 fake clusters. The cache knows nothing of the story: it sees a file change, and servers fail.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail, ensure};
use clustercache::{Changes, ClusterCache, ClusterKey, ClusterState, GetError, Phase};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_kubeconfig::KubeconfigFile;
use clustercache_testkit::fleet::{FakeCluster, Fleet, OldEndpoint, ShownCredential};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::{screen::Screen, table::Rows};

const CLUSTERS: usize = 50;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// For whoever reads along.
const PAUSE: Duration = Duration::from_secs(2);

pub(crate) async fn run() -> anyhow::Result<()> {
    let screen = Screen::new();
    screen.say(&format!(
        "{CLUSTERS} fake API servers start, each with a CA of its own"
    ));
    let fleet = Fleet::start(CLUSTERS).await?;
    for (number, cluster) in fleet.clusters().iter().enumerate() {
        // Some are far away.
        cluster.latency(Duration::from_millis(number as u64 % 10 * 50));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let kubeconfig = folder.path().join("config");
    write(&kubeconfig, &fleet)?;
    let cache = crate::start(KubeconfigFile::at(&kubeconfig))?;
    let mut story = Story {
        fleet,
        kubeconfig,
        cache: cache.clone(),
        screen: screen.clone(),
    };
    story.all_connect().await?;
    let rows = Rows::follow(&cache, &screen);
    story.goes_on().await?;

    let states = cache.states()?;
    let connected = states.iter().filter(|state| state.phase.is_connected());
    let (clusters, connected) = (states.len(), connected.count());
    rows.abort(); // the table stays as it is
    let report = cache.shutdown().await?;
    ensure!(report.is_clean(), "the shutdown left behind: {report}");
    story.fleet.shutdown().await;
    ensure!(
        (clusters, connected) == (CLUSTERS - 1, CLUSTERS - 1),
        "{clusters} clusters, of which {connected} are connected, are not what there should be"
    );
    println!("fleet: {clusters} clusters, {connected} connected");
    Ok(())
}

/// As an editor does: whole, or not at all.
fn write(path: &PathBuf, fleet: &Fleet) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, fleet.kubeconfig_of_all())
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

struct Story {
    fleet: Fleet,
    kubeconfig: PathBuf,
    cache: ClusterCache,
    screen: Screen,
}

impl Story {
    async fn all_connect(&self) -> anyhow::Result<()> {
        let mut progress = self.screen.progress(CLUSTERS, "connected");
        let mut events = self.cache.subscribe();
        let mut connected = 0;
        let all = async {
            while connected < CLUSTERS {
                let event = events.next().await.context("the cache ended")?;
                connected += usize::from(event.changes().contains(Changes::CONNECTED));
                progress.at(connected);
            }
            anyhow::Ok(())
        };
        timeout(LIMIT, all).await.context("not all connected")??;
        drop(progress);
        self.screen.say("all are connected");
        Ok(())
    }

    async fn goes_on(&mut self) -> anyhow::Result<()> {
        sleep(PAUSE).await;
        let changes = async {
            sleep(PAUSE).await;
            self.rotates_its_token("fake-12").await?;
            sleep(PAUSE).await;
            self.moves_its_endpoint("fake-23").await?;
            sleep(PAUSE).await;
            self.is_replaced("fake-31").await
        };
        tokio::try_join!(self.is_lost_and_comes_back("fake-7"), changes)?;
        sleep(PAUSE).await;
        self.is_removed("fake-42").await?;
        sleep(PAUSE).await;
        Ok(())
    }

    async fn is_lost_and_comes_back(&self, name: &str) -> anyhow::Result<()> {
        let (key, cluster) = self.get(name)?;
        cluster.black_hole();
        self.say(
            name,
            "is a black hole now: it accepts connections, and answers nothing",
        );
        self.until(&key, |state| is(state, Phase::Down)).await?;
        if let Err(why) = self.cache.client(&key) {
            self.say(
                name,
                &format!("cannot be had, and the error says why: {why}"),
            );
        }
        sleep(PAUSE).await;
        cluster.heal();
        self.say(name, "answers again");
        self.until(&key, |state| is(state, Phase::Connected))
            .await?;
        self.say(name, "is back, without anybody's doing");
        Ok(())
    }

    async fn rotates_its_token(&self, name: &str) -> anyhow::Result<()> {
        let (key, cluster) = self.get(name)?;
        let before = self.cache.get::<KubeClient>(&key)?;
        let handshakes = cluster.counters().tls_handshakes;
        let old = cluster.token();
        let new = ShownCredential::Token(cluster.add_token());
        let shown = cluster.next_request(move |request| request.credential == new);
        let fingerprint = self.cache.access(&key)?.credential().fingerprint();
        self.changed(name, "gets another token")?;
        self.until(&key, |state| {
            let access = state.as_ref().ok().and_then(|state| state.access.as_ref());
            access.is_some_and(|access| access.credential != fingerprint)
        })
        .await?;
        self.cache.client(&key)?.apiserver_version().await?;
        timeout(LIMIT, shown)
            .await
            .context("the new token was not used")?;
        cluster.revoke_token(&old);
        let same = before.is_current() && cluster.counters().tls_handshakes == handshakes;
        ensure!(same, "{name}: a new token cost a connection");
        self.say(
            name,
            "has been shown the new token, over the same connection",
        );
        Ok(())
    }

    async fn moves_its_endpoint(&self, name: &str) -> anyhow::Result<()> {
        let (key, cluster) = self.get(name)?;
        let before = self.cache.get::<KubeClient>(&key)?;
        let to = cluster.move_endpoint(OldEndpoint::Keep)?;
        self.changed(name, &format!("moves to {to}"))?;
        let mut gap = false;
        self.until(&key, |_| {
            gap |= self.cache.client(&key).is_err();
            !before.is_current()
        })
        .await?;
        ensure!(!gap, "{name}: there was a time without a client");
        self.say(
            name,
            "has a connection there, and lost the old one only then",
        );
        Ok(())
    }

    async fn is_replaced(&self, name: &str) -> anyhow::Result<()> {
        let (key, cluster) = self.get(name)?;
        let old = self.cache.cluster(&key)?;
        cluster.replace()?;
        self.changed(
            name,
            "is another cluster of the same name: its CA is another",
        )?;
        self.until(&key, |_| {
            matches!(old.state(), Err(GetError::Replaced { .. }))
        })
        .await?;
        self.say(
            name,
            "does not answer for the old one any more: whoever held that is told",
        );
        self.until(&key, |state| is(state, Phase::Connected))
            .await?;
        self.say(name, "is connected, the new one, with everything made anew");
        Ok(())
    }

    async fn is_removed(&mut self, name: &str) -> anyhow::Result<()> {
        let (key, _) = self.get(name)?;
        let cluster = self.fleet.remove(name);
        self.changed(
            name,
            "is taken out; for 5 s it is served still, lest that was a mistake",
        )?;
        self.until(&key, |state| matches!(state, Err(GetError::Unknown { .. })))
            .await?;
        self.say(name, "is gone, and its connection with it");
        drop(cluster);
        Ok(())
    }

    fn get(&self, name: &str) -> anyhow::Result<(ClusterKey, &FakeCluster)> {
        let Some(cluster) = self.fleet.get(name) else {
            bail!("there is no {name}")
        };
        Ok((ClusterKey::named(name), cluster))
    }

    fn say(&self, name: &str, what: &str) {
        self.screen.say(&format!("{name} {what}"));
    }

    /// The kubeconfig says what is so now.
    fn changed(&self, name: &str, what: &str) -> anyhow::Result<()> {
        self.say(name, what);
        write(&self.kubeconfig, &self.fleet)
    }

    /// Looks at once, and at each change of the cluster.
    async fn until(
        &self,
        key: &ClusterKey,
        mut is: impl FnMut(&Result<ClusterState, GetError>) -> bool,
    ) -> anyhow::Result<()> {
        let mut events = self.cache.subscribe().key(key);
        let so = async { while !is(&self.cache.state(key)) && events.next().await.is_some() {} };
        timeout(LIMIT, so).await.with_context(|| {
            format!(
                "{key} did not become what it should: {:?}",
                self.cache.state(key)
            )
        })
    }
}

fn is(state: &Result<ClusterState, GetError>, phase: Phase) -> bool {
    state.as_ref().is_ok_and(|state| state.phase == phase)
}
