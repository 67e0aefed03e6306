//! Notices that a file may have changed, wherever it really is. Files are replaced by renames, and projected volumes swap a link in
//! the middle of the path: so the directories are watched in which a name on the way to the file could come to mean something else.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::watch;

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;

/// A watch over some paths. Its thread ends when it is dropped. What it misses (a network file system, a limit of the kernel's) is
/// for a poll to find.
pub(crate) struct Watch {
    watcher: Option<RecommendedWatcher>,
    points: Arc<Mutex<BTreeSet<PathBuf>>>,
    directories: BTreeSet<PathBuf>,
    changes: watch::Sender<u64>,
    complained: bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            watcher: None,
            points: Arc::default(),
            directories: BTreeSet::new(),
            changes: watch::Sender::new(0),
            complained: false,
        }
    }

    /// Changes when something has happened. It counts and queues nothing.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Watches what `paths` mean now. To be called before each read: a change after it is noticed, one before it is read. Blocks; `begins`
    /// is told on what.
    pub(crate) fn arm(&mut self, paths: &BTreeSet<PathBuf>, begins: impl Fn(&Path)) {
        let mut armed = None;
        // Links may be swapped while the watches are set; who does that for ever is left to the poll.
        for _ in 0..3 {
            let points = paths.iter().flat_map(|path| {
                begins(path);
                points(path)
            });
            let points: BTreeSet<_> = points.collect();
            if armed.as_ref() == Some(&points) {
                break;
            }
            if let Err(error) = self.set(&points)
                && !std::mem::replace(&mut self.complained, true)
            {
                tracing::warn!(%error, "edits of the kubeconfig are noticed by polling only");
            }
            armed = Some(points);
        }
    }

    fn set(&mut self, points: &BTreeSet<PathBuf>) -> notify::Result<()> {
        let directories: BTreeSet<_> = points
            .iter()
            .filter_map(|point| point.parent().map(Path::to_owned))
            .collect();
        // A directory that goes is an event about itself.
        let all = points.union(&directories).cloned().collect();
        *self.points.lock().unwrap_or_else(PoisonError::into_inner) = all;
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(watcher(Arc::clone(&self.points), self.changes.clone())?),
        };
        for gone in self.directories.difference(&directories) {
            // Fails where the directory itself went, and the watch with it.
            let _ = watcher.unwatch(gone);
        }
        self.directories.clone_from(&directories);
        // Also those that are watched already: a directory may have been replaced by one of the same name.
        let mut outcome = Ok(());
        for directory in &directories {
            outcome = outcome.and(watcher.watch(directory, RecursiveMode::NonRecursive));
        }
        outcome
    }
}

fn watcher(
    points: Arc<Mutex<BTreeSet<PathBuf>>>,
    changes: watch::Sender<u64>,
) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        let concerns_us = match event {
            Ok(event) => {
                is_change(event.kind) && {
                    let points = points.lock().unwrap_or_else(PoisonError::into_inner);
                    let ours = |path: &PathBuf| points.contains(path);
                    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(ours)
                }
            }
            Err(_) => true,
        };
        if concerns_us {
            changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    })
}

/// That somebody reads is no change: we do, and would answer ourselves for ever.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// The places that decide what a path means: each link on the way, and the file itself (or the first name that is missing), all in
/// directories as they really are.
fn points(path: &Path) -> Vec<PathBuf> {
    let mut points = Vec::new();
    let mut here = PathBuf::new();
    let mut ahead: VecDeque<OsString> = parts(path).collect();
    while let Some(part) = ahead.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                here.pop();
                continue;
            }
            // `/` begins anew; a prefix or `.` changes nothing else.
            _ => {
                here.push(part);
                continue;
            }
        }
        let next = here.join(&part);
        match std::fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() && points.len() < MAX_LINKS => {
                let target = std::fs::read_link(&next).unwrap_or_default();
                points.push(next);
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            Ok(found) if found.is_dir() && !ahead.is_empty() => here = next,
            _ => {
                points.push(next);
                break;
            }
        }
    }
    points
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().map(|part| part.as_os_str().to_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn each_link_on_the_way_and_the_file_decide_what_a_path_means() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("..1")).unwrap();
        std::fs::write(root.join("..1/config"), "").unwrap();
        symlink("..1", root.join("..data")).unwrap();
        symlink("..data/config", root.join("config")).unwrap();
        let expected = ["config", "..data", "..1/config"].map(|name| root.join(name));
        assert_eq!(points(&root.join("config")), expected);
        assert_eq!(points(&root.join("..1/../config")), expected);
    }

    #[test]
    fn the_first_name_that_is_missing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(points(&root.join("a/b/config")), [root.join("a")]);
    }

    #[test]
    fn links_in_a_circle_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert!(points(&root.join("a")).len() <= MAX_LINKS + 1);
    }

    #[test]
    fn reading_is_no_change() {
        use notify::event::AccessKind::{Close, Open};
        assert!(!is_change(EventKind::Access(Open(AccessMode::Any))));
        assert!(!is_change(EventKind::Access(Close(AccessMode::Read))));
        assert!(is_change(EventKind::Access(Close(AccessMode::Write))));
    }
}
