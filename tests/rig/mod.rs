//! Fake clusters over real TLS, a cache over them, and waits for what becomes of them.

use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use clustercache::{
    ClusterAccess, ClusterCache, ClusterKey, ClusterSource, ClusterState, Fingerprint, GetError,
    MemorySource, Upsert, options::Options,
};
use clustercache_client::{ClientExt, KubeClient};
use clustercache_kubeconfig::{Kubeconfig, KubeconfigFile, Policy};
use clustercache_testkit::{
    fleet::{FakeAccess, FakeCluster, FakeCredential, Fleet},
    guard::PanicGuard,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Only a fault takes this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) fleet: Fleet,
    pub(crate) source: MemorySource,
    pub(crate) cache: ClusterCache,
    _guard: PanicGuard,
}

impl Rig {
    /// So many clusters, none of which the cache knows yet.
    pub(crate) async fn start(clusters: usize) -> anyhow::Result<Self> {
        Self::with_options(clusters, |_| {}).await
    }

    /// The same with a health check that has its verdict sooner, where a test waits for that.
    pub(crate) async fn impatient(clusters: usize) -> anyhow::Result<Self> {
        let sooner = |options: &mut Options| {
            options.health.probe_after = Duration::from_secs(1);
            options.health.probe_timeout = Duration::from_secs(2);
            options.health.down_after = Duration::from_secs(2);
        };
        Self::with_options(clusters, sooner).await
    }

    /// The same with these options.
    pub(crate) async fn with_options(
        clusters: usize,
        options: impl FnOnce(&mut Options),
    ) -> anyhow::Result<Self> {
        let source = MemorySource::new("test");
        Self::with(clusters, source.clone(), source, options).await
    }

    /// The same over a source of the test's.
    pub(crate) async fn over(clusters: usize, source: impl ClusterSource) -> anyhow::Result<Self> {
        Self::with(clusters, source, MemorySource::new("unused"), |_| {}).await
    }

    async fn with(
        clusters: usize,
        used: impl ClusterSource,
        source: MemorySource,
        options: impl FnOnce(&mut Options),
    ) -> anyhow::Result<Self> {
        let cache = ClusterCache::builder()
            .source(used)
            .resource(KubeClient::new())
            .health_from::<KubeClient>()
            .configure(|all| {
                all.source.linger = Duration::from_millis(100);
                all.retry.most = Duration::from_secs(1);
                options(all);
            })
            .start()?;
        Ok(Self {
            fleet: Fleet::start(clusters).await?,
            source,
            _guard: PanicGuard::new(&cache),
            cache,
        })
    }

    /// Everything ends, and nothing is left behind.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let report = self.cache.shutdown().await?;
        ensure!(report.is_clean(), "{report}");
        let Self { fleet, .. } = self;
        fleet.shutdown().await;
        Ok(())
    }

    /// The source names the cluster as it is now, and it is connected.
    pub(crate) async fn connect(&self, cluster: &FakeCluster) -> anyhow::Result<ClusterKey> {
        self.say(cluster)?;
        let key = key_of(cluster);
        self.connected(&key).await?;
        Ok(key)
    }

    pub(crate) async fn connected(&self, key: &ClusterKey) -> anyhow::Result<()> {
        self.cache.wait_for(key, LIMIT).await?;
        Ok(())
    }

    /// The source names the cluster as it is now.
    pub(crate) fn say(&self, cluster: &FakeCluster) -> anyhow::Result<()> {
        let ready = Upsert::ready(key_of(cluster), access(&cluster.access())?);
        self.source.upsert(ready);
        Ok(())
    }

    /// The same with this credential.
    pub(crate) fn give(
        &self,
        cluster: &FakeCluster,
        credential: FakeCredential,
    ) -> anyhow::Result<()> {
        let with = access(&cluster.access_with(credential))?;
        self.source.upsert(Upsert::ready(key_of(cluster), with));
        Ok(())
    }

    /// As [`say`](Self::say), until the cache has taken the new credential.
    pub(crate) async fn change_access(&self, cluster: &FakeCluster) -> anyhow::Result<()> {
        let key = key_of(cluster);
        let old = self.cache.access(&key)?.credential().fingerprint();
        self.say(cluster)?;
        self.until_not(&key, old).await
    }

    /// Until the cache has another credential than this.
    pub(crate) async fn until_not(&self, key: &ClusterKey, old: Fingerprint) -> anyhow::Result<()> {
        let is_new = |state: &ClusterState| {
            let access = state.access.as_ref();
            access.is_some_and(|access| access.credential != old)
        };
        self.until(key, is_new).await?;
        Ok(())
    }

    /// The state for which `is` holds: looks at once, and at each change.
    pub(crate) async fn until(
        &self,
        key: &ClusterKey,
        is: impl Fn(&ClusterState) -> bool,
    ) -> anyhow::Result<ClusterState> {
        let mut events = self.cache.subscribe().key(key);
        let waited = async {
            loop {
                match self.cache.state(key) {
                    Ok(state) if is(&state) => return Ok(state),
                    _ if events.next().await.is_some() => {}
                    _ => bail!("the cache ended"),
                }
            }
        };
        match tokio::time::timeout(LIMIT, waited).await {
            Ok(state) => state,
            Err(_) => bail!(
                "{key} is not what it should be: {:#?}",
                self.cache.state(key)
            ),
        }
    }

    pub(crate) async fn until_unknown(&self, key: &ClusterKey) -> anyhow::Result<()> {
        let mut events = self.cache.subscribe().key(key);
        let waited = async {
            while !matches!(self.cache.state(key), Err(GetError::Unknown { .. })) {
                events.next().await;
            }
        };
        limited("its removal", waited).await
    }

    /// Calls the cluster again and again, with whatever client the cache has.
    pub(crate) fn reads_without_a_gap(&self, key: &ClusterKey) -> Reader {
        let (cache, key) = (self.cache.clone(), key.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut calls = 0;
            while !stopped.load(Ordering::Relaxed) {
                cache.client(&key).context("a time without a client")?;
                let client = cache.get::<KubeClient>(&key)?;
                // A call may fail if its client is retired before it is sent; then there is another.
                let called = client.client().apiserver_version().await;
                ensure!(called.is_ok() || !client.is_current(), "{called:?}");
                calls += 1;
            }
            Ok(calls)
        });
        Reader { stop, task }
    }
}

pub(crate) struct Reader {
    stop: Arc<AtomicBool>,
    task: JoinHandle<anyhow::Result<usize>>,
}

impl Reader {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let calls = self.task.await??;
        ensure!(calls > 0, "nothing was read");
        Ok(())
    }
}

/// A kubeconfig in a folder of its own.
pub(crate) struct KubeconfigOnDisk {
    path: PathBuf,
    source: KubeconfigFile,
    _folder: TempDir,
}

impl KubeconfigOnDisk {
    pub(crate) fn new(text: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("config");
        std::fs::write(&path, text)?;
        let source = KubeconfigFile::at(&path).poll_every(Duration::from_millis(500));
        Ok(Self {
            path,
            source,
            _folder: folder,
        })
    }

    pub(crate) fn source(&self) -> KubeconfigFile {
        self.source.clone()
    }

    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(&new, &self.path)?)
    }

    /// Until there is a problem with the file, or none. It has no event: it is asked again and again.
    pub(crate) async fn until_problem(&self, is: bool) -> anyhow::Result<()> {
        let waited = async {
            let mut again = tokio::time::interval(Duration::from_millis(20));
            while self.source.problems().is_empty() == is {
                again.tick().await;
            }
        };
        limited("the file's problem", waited).await
    }
}

pub(crate) async fn limited<T>(what: &str, wait: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(LIMIT, wait)
        .await
        .with_context(|| format!("{what} did not come"))
}

pub(crate) fn key_of(cluster: &FakeCluster) -> ClusterKey {
    ClusterKey::named(cluster.name())
}

/// As the kubeconfig of it is read.
pub(crate) fn access(access: &FakeAccess) -> anyhow::Result<ClusterAccess> {
    let kubeconfig = Kubeconfig::parse(access.kubeconfig().as_bytes(), &Policy::operator())?;
    let (_, access) = kubeconfig.current()?;
    Ok(access)
}

pub(crate) fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}
