//! Follows the files: reads, tells what has changed, waits until something may have. The stream is all that there is: what runs beside
//! it ends with it, programs as well as its watch. Reading runs on a blocking thread, which ends by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clustercache::{ClusterKey, Identity, Labels, SourceError, SourceEvent, SourcedAccess, Upsert};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::{
    sync::watch::Receiver,
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    KubeconfigFile, RefusalReason,
    entry::Program,
    exec::{SpecId, Terms},
    file::Rereads,
    named,
    problem::StreamError,
    programs::{Outcome, Programs},
    state::{self, Clusters, Digests, Files, Said},
    watch::Watch,
};

/// For one reading of all files.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// An edit that does not end is taken as it is after so many times of quiet: 5 s by default.
const LOUDEST: u32 = 20;

pub(crate) fn events(
    source: KubeconfigFile,
) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
    let watch = Watch::new();
    let terms = Terms {
        deadline: source.exec_deadline,
        env: source.policy.env().clone(),
    };
    let rereads = source.shared.rereads.subscribe();
    let seen = rereads.borrow().turn;
    let follower = Follower {
        changes: watch.changes(),
        rereads,
        seen,
        watch: Some(watch),
        programs: Programs::new(terms, Arc::clone(&source.shared.kept)),
        next_poll: Instant::now(),
        read: None,
        told: Clusters::new(),
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
    rereads: Receiver<Rereads>,
    /// The turn up to which rereads have been taken.
    seen: u64,
    programs: Programs,
    next_poll: Instant,
    /// What the files said when they were last read.
    read: Option<Read>,
    /// What this stream has told.
    told: Clusters,
}

struct Read {
    digests: Digests,
    said: BTreeMap<ClusterKey, Said>,
    /// The clusters that ask a program.
    askers: BTreeMap<SpecId, Vec<ClusterKey>>,
}

/// What there is to do.
enum Due {
    Read,
    /// Something else can be said of this program.
    Tell(SpecId),
}

impl Follower {
    /// Everything at first, then what has changed since.
    async fn news(&mut self) -> Result<Vec<SourceEvent>, StreamError> {
        let first = self.read.is_none();
        let due = if first { Due::Read } else { self.wait().await };
        if let Due::Tell(id) = due {
            return Ok(self.tell(&id));
        }
        self.changes.borrow_and_update();
        self.take_rereads();
        self.next_poll = Instant::now() + self.source.poll;
        let Some(read) = self.read().await? else {
            return Ok(Vec::new());
        };
        let specs = read.said.values().filter_map(|said| match said {
            Said::Program(program) => Some(&program.spec),
            Said::Word(_) => None,
        });
        self.programs.want(specs);
        let now = read.said.iter();
        let now = now.map(|(key, said)| (key.clone(), self.word(key, said)));
        let now: Clusters = now.collect();
        let mut news = difference(&self.told, &now);
        if first {
            news.push(SourceEvent::Synced);
        }
        self.told = now;
        self.read = Some(read);
        Ok(news)
    }

    /// Until a file has been changed, somebody asks, or it is time; and then until all have been left alone: half of an edit could pair a
    /// new server with the old one's token, whoever asked. Or until a program has done something.
    async fn wait(&mut self) -> Due {
        tokio::select! {
            () = sleep_until(self.next_poll) => {}
            _ = self.rereads.changed() => {}
            _ = self.changes.changed() => {}
            id = self.programs.changed() => return Due::Tell(id),
        }
        // One who never stops writing must not keep the others from being read.
        let latest = self.source.quiet.saturating_mul(LOUDEST);
        let quiet = async {
            while let Ok(Ok(())) = timeout(self.source.quiet, self.changes.changed()).await {}
        };
        let _ = timeout(latest, quiet).await;
        Due::Read
    }

    /// Has the programs of those clusters run again that somebody asked for.
    fn take_rereads(&mut self) {
        let rereads = self.rereads.borrow_and_update();
        let since = std::mem::replace(&mut self.seen, rereads.turn);
        let asked: Vec<_> = rereads
            .asked
            .iter()
            .filter(|(_, turn)| **turn > since)
            .collect();
        let Some(read) = &self.read else { return };
        for (key, _) in asked {
            if let Some(Said::Program(program)) = read.said.get(key) {
                self.programs.ask(&program.spec.id);
            }
        }
        drop(rereads);
        // Of what is gone nothing is kept.
        self.source.shared.rereads.send_if_modified(|rereads| {
            rereads.asked.retain(|key, _| read.said.contains_key(key));
            false
        });
    }

    /// What has changed with what a program did.
    fn tell(&mut self, id: &SpecId) -> Vec<SourceEvent> {
        let Some(read) = &self.read else {
            return Vec::new();
        };
        let askers = read.askers.get(id).into_iter().flatten();
        let words = askers.filter_map(|key| Some(self.word(key, read.said.get(key)?)));
        let words: Vec<_> = words
            .filter(|word| !says_the_same(self.told.get(&word.key), word))
            .collect();
        for word in &words {
            self.told.insert(word.key.clone(), word.clone());
        }
        words.into_iter().map(SourceEvent::Upsert).collect()
    }

    /// What there is to say of a cluster now. Where a program has said nothing yet, what was told before still holds.
    fn word(&self, key: &ClusterKey, said: &Said) -> Upsert {
        let program = match said {
            Said::Word(word) => return word.clone(),
            Said::Program(program) => program,
        };
        let access = match self.programs.outcome(&program.spec.id) {
            Outcome::Issued(issued) => program.access(issued),
            Outcome::Failed(failure) => Err(program.place().refuse(RefusalReason::ExecFailed {
                program: program.spec.command.clone(),
                failure: failure.clone(),
            })),
            Outcome::Waiting => {
                let told = self.told.get(key).cloned();
                return told.unwrap_or_else(|| waiting(key, program));
            }
        };
        match access {
            Ok(access) => Upsert::ready(key.clone(), access),
            Err(refusal) => Upsert::refused(key.clone(), refusal.to_string()),
        }
    }

    /// Reads all files; `None` if none says anything else than what was told.
    async fn read(&mut self) -> Result<Option<Read>, StreamError> {
        let stuck = |_| StreamError::Stuck(READ_DEADLINE);
        let shared = Arc::clone(&self.source.shared);
        let acquired = timeout(READ_DEADLINE, Arc::clone(&shared.reading).acquire_owned()).await;
        let permit = acquired.map_err(stuck)?;
        let policy = self.source.policy.clone();
        let known = self.read.as_ref().map(|read| read.digests.clone());
        let mut watch = self.watch.take().unwrap_or_else(Watch::new);
        let reading = spawn_blocking(move || {
            let _permit = permit;
            let order = &shared.paths;
            let before = shared.files();
            let mut paths: BTreeSet<_> = order.iter().chain(before.named.keys()).cloned().collect();
            watch.arm(&paths);
            let mut documents = before.documents;
            let reread = |path: &_| {
                let state = documents.remove(path).unwrap_or_default();
                (std::path::PathBuf::clone(path), state.reread(path, &policy))
            };
            let mut files = Files {
                documents: order.iter().map(reread).collect(),
                named: BTreeMap::new(),
            };
            let merged = files.merged(order);
            let named = merged
                .as_ref()
                .map(crate::Kubeconfig::files)
                .unwrap_or_default();
            let known_paths = paths.len();
            paths.extend(named.iter().cloned());
            if paths.len() > known_paths {
                watch.arm(&paths);
            }
            files.named = named::reread(before.named, named);
            let digests = files.digests(order);
            let news = match merged {
                None => Err(files.nothing(order)),
                Some(_) if known.as_ref() == Some(&digests) => Ok(None),
                Some(merged) => Ok(Some(Read::new(digests, &merged, &files))),
            };
            shared.keep(files);
            (watch, news)
        });
        let read = timeout(READ_DEADLINE, reading).await.map_err(stuck)?;
        let (watch, news) = read.map_err(|_| StreamError::Panicked)?;
        self.watch = Some(watch);
        news
    }
}

impl Read {
    fn new(digests: Digests, merged: &crate::Kubeconfig, files: &Files) -> Self {
        let said = state::said(merged, &named::contents(&files.named));
        let mut askers = BTreeMap::<_, Vec<_>>::new();
        for (key, said) in &said {
            if let Said::Program(program) = said {
                askers.entry(program.spec.id).or_default().push(key.clone());
            }
        }
        Self {
            digests,
            said,
            askers,
        }
    }
}

fn waiting(key: &ClusterKey, program: &Program) -> Upsert {
    let command = program.spec.command.escape_debug();
    let text = format!("{}: waiting for what `{command}` says", program.place());
    Upsert {
        key: key.clone(),
        identity: Identity::ByCa,
        labels: Labels::default(),
        access: SourcedAccess::Gated(text.into()),
    }
}

/// What leads from `told` to `now`; removals first, so that whoever counts never sees more than there are.
fn difference(told: &Clusters, now: &Clusters) -> Vec<SourceEvent> {
    let gone = told.values().filter(|old| !now.contains_key(&old.key));
    let gone = gone.map(|old| SourceEvent::Remove {
        key: old.key.clone(),
        identity: old.identity.clone(),
    });
    let changed = now
        .values()
        .filter(|new| !says_the_same(told.get(&new.key), new));
    gone.chain(changed.cloned().map(SourceEvent::Upsert))
        .collect()
}

/// Accesses are equal though their credentials end at different times; whoever looks at that time wants the newest.
fn says_the_same(told: Option<&Upsert>, new: &Upsert) -> bool {
    let end = |cluster: &Upsert| match &cluster.access {
        SourcedAccess::Ready(access) => access.credential().expires(),
        SourcedAccess::Refused(_) | SourcedAccess::Gated(_) => None,
    };
    told.is_some_and(|told| told == new && end(told) == end(new))
}
