//! Follows the files: reads, tells what has changed, waits until something may have. The stream is all that there is: what runs beside
//! it ends with it, programs as well as its watch. Reading runs on a blocking thread, which ends by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use clustercache::{AccessChange, ClusterKey, SourceError, SourceEvent, SourcedAccess, Upsert};
use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::{
    sync::watch::Receiver,
    task::{spawn_blocking, yield_now},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    Kubeconfig, KubeconfigFile, Policy, RefusalReason,
    entry::Program,
    exec::{SpecId, Terms},
    file::{Rereads, Shared},
    named,
    problem::StreamError,
    programs::{Outcome, Programs},
    state::{self, Clusters, Digests, Files, Said},
    watch::Watch,
};

#[cfg(test)]
mod tests;

/// So many accesses are made in one turn.
const A_TURN: usize = 64;

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
        reading: None,
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
    /// Away only while somebody reads.
    watch: Option<Watch>,
    changes: Receiver<u64>,
    rereads: Receiver<Rereads>,
    /// The turn up to which rereads have been taken.
    seen: u64,
    programs: Programs,
    reading: Option<Reading>,
    next_poll: Instant,
    /// What the files said when they were last read.
    read: Option<Read>,
    /// What this stream has told.
    told: Clusters,
}

/// Reading all files, for as long as that takes: a file system that hangs must not keep programs from being heard.
struct Reading {
    result: BoxFuture<'static, Result<(Watch, News), StreamError>>,
    late_at: Instant,
    late: bool,
}

/// What the files say now; `None` if nothing else than what was told.
type News = Result<Option<Read>, StreamError>;

struct Read {
    digests: Digests,
    said: BTreeMap<ClusterKey, Said>,
    /// The clusters that ask a program.
    askers: BTreeMap<SpecId, Vec<ClusterKey>>,
}

/// What there is to do.
enum Due {
    Read,
    Take(Option<Read>),
    /// Something else can be said of this program.
    Tell(SpecId),
}

impl Follower {
    /// Everything at first, then what has changed since.
    async fn news(&mut self) -> Result<Vec<SourceEvent>, StreamError> {
        if self.read.is_none() && self.reading.is_none() {
            self.begin();
        }
        match self.wait().await? {
            Due::Read => self.begin(),
            Due::Tell(id) => return Ok(self.tell(&id).await),
            Due::Take(Some(read)) => return Ok(self.take(read).await),
            Due::Take(None) => {}
        }
        Ok(Vec::new())
    }

    /// Until a file has been changed, somebody asks, or it is time; and then until all have been left alone: half of an edit could pair a
    /// new server with the old one's token, whoever asked. Or until the files have been read, or a program has done something.
    async fn wait(&mut self) -> Result<Due, StreamError> {
        loop {
            let (reads, late_at) = match &self.reading {
                Some(reading) => (true, Some(reading.late_at).filter(|_| !reading.late)),
                None => (false, None),
            };
            tokio::select! {
                read = finished(&mut self.reading), if reads => return Ok(Due::Take(self.end(read)?)),
                () = sleep_until(late_at.unwrap_or_else(Instant::now)), if late_at.is_some() => self.late()?,
                changed = self.rereads.changed() => match changed {
                    // Its program need not wait for files that are being read; the files are read once more after that.
                    Ok(()) if reads => {
                        self.take_rereads();
                        self.next_poll = Instant::now();
                    }
                    _ => break,
                },
                () = sleep_until(self.next_poll), if !reads => break,
                _ = self.changes.changed(), if !reads => break,
                id = self.programs.changed() => return Ok(Due::Tell(id)),
            }
        }
        // One who never stops writing must not keep the others from being read.
        let latest = self.source.quiet.saturating_mul(LOUDEST);
        let quiet = async {
            while let Ok(Ok(())) = timeout(self.source.quiet, self.changes.changed()).await {}
        };
        let _ = timeout(latest, quiet).await;
        Ok(Due::Read)
    }

    /// Begins to read all files.
    fn begin(&mut self) {
        self.changes.borrow_and_update();
        self.take_rereads();
        let now = Instant::now();
        self.next_poll = now + self.source.poll;
        self.reading = Some(Reading {
            result: self.read().boxed(),
            late_at: now + self.source.read_deadline,
            late: false,
        });
    }

    /// What was read. Only while there is nothing else to tell does the stream end with what went wrong.
    fn end(&mut self, read: Result<(Watch, News), StreamError>) -> News {
        let was_late = self.reading.take().is_some_and(|reading| reading.late);
        let (watch, news) = read?;
        self.watch = Some(watch);
        if was_late {
            tracing::info!("the kubeconfig's files are read again");
        }
        news
    }

    /// What the files said before holds until they have been read, if they ever have.
    fn late(&mut self) -> Result<(), StreamError> {
        let problem = {
            let (shared, kept) = (&self.source.shared, self.read.is_some());
            shared.is_late(self.source.read_deadline, kept)
        };
        if self.read.is_none() {
            return Err(StreamError::Nothing(problem.into()));
        }
        tracing::warn!(%problem, "kubeconfig not taken");
        if let Some(reading) = &mut self.reading {
            reading.late = true;
        }
        Ok(())
    }

    async fn take(&mut self, read: Read) -> Vec<SourceEvent> {
        let specs = read.said.values().filter_map(|said| match said {
            Said::Program(program) => Some(&program.spec),
            Said::Word(_) => None,
        });
        self.programs.want(specs);
        let mut now = Clusters::new();
        for (index, (key, said)) in read.said.iter().enumerate() {
            breathe(index).await;
            now.insert(key.clone(), self.word(key, said));
        }
        let mut news = difference(&self.told, &now);
        if self.read.is_none() {
            news.push(SourceEvent::Synced);
        }
        self.told = now;
        self.read = Some(read);
        news
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
    async fn tell(&mut self, id: &SpecId) -> Vec<SourceEvent> {
        let Some(read) = &self.read else {
            return Vec::new();
        };
        let mut words = Vec::new();
        for (index, key) in read.askers.get(id).into_iter().flatten().enumerate() {
            breathe(index).await;
            let word = read.said.get(key).map(|said| self.word(key, said));
            words.extend(word.filter(|word| !says_the_same(self.told.get(key), word)));
        }
        for word in &words {
            self.told.insert(word.key.clone(), word.clone());
        }
        words.into_iter().map(SourceEvent::Upsert).collect()
    }

    /// What there is to say of a cluster now. While only its credential is waited for, what was told before still holds; where it is told
    /// to be somewhere else, that is told at once: nothing of another cluster may be served a moment longer.
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
                let told = self.told.get(key).filter(|told| leads_to(told, program));
                return told.cloned().unwrap_or_else(|| waiting(key, program));
            }
        };
        match access {
            Ok(access) => Upsert::ready(key.clone(), access),
            Err(refusal) => {
                Upsert::refused(key.clone(), refusal.to_string()).leading_to(program.site.clone())
            }
        }
    }

    /// Reads all files, whoever waits for it. Its thread ends by itself.
    fn read(&mut self) -> impl Future<Output = Result<(Watch, News), StreamError>> + use<> {
        let shared = Arc::clone(&self.source.shared);
        let policy = self.source.policy.clone();
        let known = self.read.as_ref().map(|read| read.digests.clone());
        let mut watch = self.watch.take().unwrap_or_else(Watch::new);
        async move {
            let permit = Arc::clone(&shared.reading).acquire_owned().await;
            let reading = spawn_blocking(move || {
                let _permit = permit;
                let news = read(&shared, &policy, &mut watch, known.as_ref());
                shared.is_read();
                (watch, news)
            });
            reading.await.map_err(|_| StreamError::Panicked)
        }
    }
}

/// Reads all files. Blocks.
fn read(shared: &Shared, policy: &Policy, watch: &mut Watch, known: Option<&Digests>) -> News {
    let order = &shared.paths;
    let before = shared.files();
    let mut paths: BTreeSet<_> = order.iter().chain(before.named.keys()).cloned().collect();
    watch.arm(&paths, |path| shared.reads(path));
    let mut documents = before.documents;
    let reread = |path: &PathBuf| {
        shared.reads(path);
        let state = documents.remove(path).unwrap_or_default();
        (path.clone(), state.reread(path, policy))
    };
    let mut files = Files {
        documents: order.iter().map(reread).collect(),
        named: BTreeMap::new(),
    };
    let merged = files.merged(order);
    let named = merged.as_ref().map(Kubeconfig::files).unwrap_or_default();
    let known_paths = paths.len();
    paths.extend(named.iter().cloned());
    if paths.len() > known_paths {
        watch.arm(&paths, |path| shared.reads(path));
    }
    files.named = named::reread(before.named, named, |path| shared.reads(path));
    let digests = files.digests(order);
    let news = match merged {
        None => Err(files.nothing(order)),
        Some(_) if known == Some(&digests) => Ok(None),
        Some(merged) => Ok(Some(Read::new(digests, &merged, &files))),
    };
    shared.keep(files);
    news
}

/// What was read, once it has been.
async fn finished(reading: &mut Option<Reading>) -> Result<(Watch, News), StreamError> {
    match reading {
        Some(reading) => (&mut reading.result).await,
        None => std::future::pending().await,
    }
}

/// Thousands of accesses take longer to make than others may have to wait for this thread.
async fn breathe(index: usize) {
    if index % A_TURN == A_TURN - 1 {
        yield_now().await;
    }
}

impl Read {
    fn new(digests: Digests, merged: &Kubeconfig, files: &Files) -> Self {
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
    Upsert::gated(key.clone(), text).leading_to(program.site.clone())
}

/// Whether a cluster that was ready was told to be where it is now.
fn leads_to(told: &Upsert, program: &Program) -> bool {
    match &told.access {
        SourcedAccess::Ready(access) => access.change_to(&program.site) != AccessChange::Endpoint,
        SourcedAccess::Refused(_) | SourcedAccess::Gated(_) => false,
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
