//! Follows the files: reads, tells what has changed, waits until something may have. The stream is all that there is: no task runs
//! beside it, and with it goes its watch. Reading runs on a blocking thread, which ends by itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clustercache::{SourceError, SourceEvent};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::{
    sync::watch::Receiver,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{
    KubeconfigFile,
    problem::StreamError,
    state::{self, Clusters},
    watch::Watch,
};

/// For one reading of all files.
const READ_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn events(
    source: KubeconfigFile,
) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
    let watch = Watch::new();
    let follower = Follower {
        changes: watch.changes(),
        nudges: source.shared.nudges.subscribe(),
        watch: Some(watch),
        told: None,
        source,
    };
    stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        Some(match follower.news().await {
            Ok(news) => (news.into_iter().map(Ok).collect(), Some(follower)),
            Err(error) => (vec![Err(SourceError::from(error))], None),
        })
    })
    .flat_map(stream::iter)
    .boxed()
}

struct Follower {
    source: KubeconfigFile,
    /// Away only while a blocking thread has it.
    watch: Option<Watch>,
    changes: Receiver<u64>,
    nudges: Receiver<u64>,
    /// What this stream has told; nothing before its `Synced`.
    told: Option<Told>,
}

struct Told {
    /// The files that it comes from.
    digests: Digests,
    clusters: Clusters,
}

/// One for each file, in their order.
type Digests = Vec<Option<[u8; 32]>>;

impl Follower {
    /// Everything at first, then what has changed since.
    async fn news(&mut self) -> Result<Vec<SourceEvent>, StreamError> {
        if self.told.is_some() {
            self.wait().await;
        }
        self.changes.borrow_and_update();
        self.nudges.borrow_and_update();
        let Some(now) = self.read().await? else {
            return Ok(Vec::new());
        };
        let before = self.told.as_ref().map(|told| &told.clusters);
        let mut news = difference(before.unwrap_or(&Clusters::new()), &now.clusters);
        if before.is_none() {
            news.push(SourceEvent::Synced);
        }
        self.told = Some(now);
        Ok(news)
    }

    /// Until a file has been changed, somebody asks, or it is time; and then until all have been left alone: half of an edit could pair a
    /// new server with the old one's token, whoever asked.
    async fn wait(&mut self) {
        tokio::select! {
            () = sleep(self.source.poll) => {}
            _ = self.nudges.changed() => {}
            _ = self.changes.changed() => {}
        }
        while let Ok(Ok(())) = timeout(self.source.quiet, self.changes.changed()).await {}
    }

    /// Reads all files; `None` if none says anything else than what was told.
    async fn read(&mut self) -> Result<Option<Told>, StreamError> {
        let stuck = |_| StreamError::Stuck(READ_DEADLINE);
        let shared = Arc::clone(&self.source.shared);
        let acquired = timeout(READ_DEADLINE, Arc::clone(&shared.reading).acquire_owned()).await;
        let permit = acquired.map_err(stuck)?;
        let policy = self.source.policy.clone();
        let known = self.told.as_ref().map(|told| told.digests.clone());
        let mut watch = self.watch.take().unwrap_or_else(Watch::new);
        let reading = spawn_blocking(move || {
            let _permit = permit;
            watch.arm(&shared.paths);
            let mut before = shared.files();
            let mut files = BTreeMap::new();
            for path in &shared.paths {
                let state = before.remove(path).unwrap_or_default();
                files.insert(path.clone(), state.reread(path, &policy));
            }
            let digests = shared.paths.iter();
            let digests: Digests = digests.map(|path| files.get(path)?.digest()).collect();
            let news = (known.as_ref() != Some(&digests))
                .then(|| state::clusters(&files, &shared.paths))
                .transpose()
                .map(|clusters| clusters.map(|clusters| Told { digests, clusters }));
            shared.keep(files);
            (watch, news)
        });
        let read = timeout(READ_DEADLINE, reading).await.map_err(stuck)?;
        let (watch, news) = read.map_err(|_| StreamError::Panicked)?;
        self.watch = Some(watch);
        news
    }
}

/// What leads from `told` to `now`; removals first, so that whoever counts never sees more than there are.
fn difference(told: &Clusters, now: &Clusters) -> Vec<SourceEvent> {
    let gone = told.values().filter(|old| !now.contains_key(&old.key));
    let gone = gone.map(|old| SourceEvent::Remove {
        key: old.key.clone(),
        identity: old.identity.clone(),
    });
    let changed = now.values().filter(|new| told.get(&new.key) != Some(new));
    gone.chain(changed.cloned().map(SourceEvent::Upsert))
        .collect()
}
