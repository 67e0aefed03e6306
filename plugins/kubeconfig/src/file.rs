//! Kubeconfig files as a source of clusters.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clustercache::{ClusterKey, ClusterSource, SourceError, SourceEvent};
use futures_util::stream::BoxStream;
use tokio::sync::{Semaphore, watch};

use crate::{FileProblem, FileProblemReason, Policy, follow, paths, programs::Kept, state::Files};

/// Kubeconfig files as a source of clusters: each context is one, its key the context's name, known again by its CA. Clones share what
/// they have read.
///
/// ```
/// use std::time::Duration;
/// use clustercache_kubeconfig::KubeconfigFile;
///
/// let source = KubeconfigFile::from_env().poll_every(Duration::from_secs(10));
/// let problems = source.clone(); // `problems.problems()` says what is wrong with the files, once the engine has `source`
/// # let _ = problems;
/// ```
///
/// **Several files** are one by kubectl's rules: the first that has a cluster, a user or a context of a name gives all of it
/// ([`Kubeconfig::merge`](crate::Kubeconfig::merge)). One that has never been
/// sound, or is not there, is passed over, and is a [problem](Self::problems).
///
/// **An edit** is taken after 250 ms of quiet, or after 5 s without any, and what it did not change is not touched. A context that has become refused is an
/// `Upsert` that says why. A file that has become missing, empty, unreadable or no kubeconfig, or has lost one of its lists
/// as if it had been cut off, is a broken edit: what it said before still holds, the log says so once, and
/// [`problems`](Self::problems) as long as it is so.
///
/// **Files that a kubeconfig names** (a CA, a client certificate, its key, a token) are followed like it, and a broken edit of one is one
/// of these: its last content holds.
///
/// **Programs that it names** are run if the policy allows them; [the crate's documentation](crate#programs) says how. Those of a cluster
/// that goes, and all when the stream is dropped, are killed.
///
/// **At first**, while no file is sound, the stream fails with the reason, and is asked for again by the engine, with its backoff: at
/// most that much later the mended file is taken.
///
/// Edits are noticed by the operating system's means, and by reading every 30 s what these miss. Files are read on tokio's blocking
/// threads, one at a time. Where a file system does not answer for 10 s, what the files said before holds, and programs go on, until it does;
/// at first the stream fails. Only regular files are opened.
#[derive(Clone)]
pub struct KubeconfigFile {
    name: Arc<str>,
    pub(crate) policy: Policy,
    pub(crate) quiet: Duration,
    pub(crate) poll: Duration,
    /// For one reading of all files.
    pub(crate) read_deadline: Duration,
    pub(crate) exec_deadline: Duration,
    pub(crate) shared: Arc<Shared>,
}

/// What all streams and clones of a source have in common.
pub(crate) struct Shared {
    pub(crate) paths: Vec<PathBuf>,
    /// Held by whoever reads, until it has read: a file system that hangs holds one thread, however often it is tried.
    pub(crate) reading: Arc<Semaphore>,
    pub(crate) rereads: watch::Sender<Rereads>,
    pub(crate) kept: Arc<Kept>,
    files: Mutex<Files>,
    reads: Mutex<Reads>,
}

/// What is being read.
#[derive(Default)]
struct Reads {
    now: Option<PathBuf>,
    /// That it takes too long.
    late: Option<FileProblem>,
}

/// Which clusters' access is to be read again, and the turn in which that was said last.
#[derive(Default)]
pub(crate) struct Rereads {
    pub(crate) turn: u64,
    pub(crate) asked: BTreeMap<ClusterKey, u64>,
}

impl KubeconfigFile {
    /// The files that kubectl would take: those of `$KUBECONFIG`, else `~/.kube/config`. The environment is read here and never again.
    pub fn from_env() -> Self {
        Self::new(paths::named(
            std::env::var_os("KUBECONFIG"),
            std::env::home_dir(),
        ))
    }

    /// This file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::paths([path])
    }

    /// These files, the first of which that has a name decides what it means.
    pub fn paths(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self::new(paths::distinct(paths.into_iter().map(Into::into)))
    }

    fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            name: "kubeconfig".into(),
            policy: Policy::operator(),
            quiet: Duration::from_millis(250),
            poll: Duration::from_secs(30),
            read_deadline: Duration::from_secs(10),
            exec_deadline: Duration::from_secs(30),
            shared: Arc::new(Shared::new(paths)),
        }
    }

    /// The source's name, in logs and the state; `kubeconfig` by default.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// What the files may ask for; [`Policy::operator`] by default. From here on it shares nothing with the clones made before: what
    /// they have read was judged by another policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.shared = Arc::new(Shared::new(self.shared.paths.clone()));
        self.policy = policy;
        self
    }

    /// For how long nothing must have happened to the files before an edit is taken; 250 ms by default.
    #[must_use]
    pub fn quiet_for(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// How often the files are read though nothing was noticed; 30 s by default, and 100 ms at least.
    #[must_use]
    pub fn poll_every(mut self, poll: Duration) -> Self {
        self.poll = poll.max(Duration::from_millis(100));
        self
    }

    /// How long a program that a user names may take for a credential, from its start to its end; 30 s by default. Then it is killed.
    #[must_use]
    pub fn exec_deadline(mut self, deadline: Duration) -> Self {
        self.exec_deadline = deadline;
        self
    }

    /// What is wrong with the files now: these in their order, then those that they name; empty where all are sound, or none has been
    /// read yet.
    pub fn problems(&self) -> Vec<FileProblem> {
        let files = self.shared.files();
        let known = files.problems(&self.shared.paths).cloned();
        known.chain(self.shared.late()).collect()
    }
}

impl Shared {
    fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            reading: Arc::new(Semaphore::new(1)),
            rereads: watch::Sender::new(Rereads::default()),
            kept: Arc::default(),
            files: Mutex::default(),
            reads: Mutex::default(),
        }
    }

    /// Whoever reads begins with this file.
    pub(crate) fn reads(&self, path: &Path) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.now = Some(path.to_owned());
    }

    /// All has been read.
    pub(crate) fn is_read(&self) {
        *self.reads.lock().unwrap_or_else(PoisonError::into_inner) = Reads::default();
    }

    /// Whoever reads has been waited for so long; `kept`: something is known from before.
    pub(crate) fn is_late(&self, waited: Duration, kept: bool) -> FileProblem {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let file = reads.now.as_ref().or(self.paths.first());
        let problem = FileProblem {
            file: file.cloned().unwrap_or_default(),
            reason: FileProblemReason::NoAnswer(waited),
            kept,
        };
        reads.late = Some(problem.clone());
        problem
    }

    fn late(&self) -> Option<FileProblem> {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.late.clone()
    }

    /// A copy: the lock is never held while a file is read or a document is parsed.
    pub(crate) fn files(&self) -> Files {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.clone()
    }

    pub(crate) fn keep(&self, files: Files) {
        let mut kept = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *kept, files);
        drop(kept);
        drop(old);
    }
}

impl ClusterSource for KubeconfigFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn mistakes(&self) -> Vec<String> {
        self.policy.mistakes()
    }

    fn events(&self) -> BoxStream<'static, Result<SourceEvent, SourceError>> {
        follow::events(self.clone())
    }

    /// Reads all files, as soon as none is being edited, and runs the cluster's program again, if it has one.
    fn reread(&self, key: &ClusterKey) {
        self.shared.rereads.send_modify(|rereads| {
            rereads.turn += 1;
            rereads.asked.insert(key.clone(), rereads.turn);
        });
    }
}
