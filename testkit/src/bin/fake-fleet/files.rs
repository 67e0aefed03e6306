//! Kubeconfig files of the fleet: one of all clusters, and one each where a folder was named. Each is replaced at once.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clustercache_testkit::fleet::{FakeCluster, Fleet};
use tempfile::{NamedTempFile, TempDir};

pub(crate) struct Files {
    of_all: PathBuf,
    folder: Option<PathBuf>,
    /// Removed at the end: where nobody named a place.
    _own: Option<TempDir>,
}

impl Files {
    /// `of_all` wins over `all.yaml` in `folder`.
    pub(crate) fn new(of_all: Option<PathBuf>, folder: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut own = None;
        let of_all = match (of_all, &folder) {
            (Some(path), _) => path,
            (None, Some(folder)) => folder.join("all.yaml"),
            (None, None) => own.insert(tempfile::tempdir()?).path().join("kubeconfig"),
        };
        Ok(Self {
            of_all,
            folder,
            _own: own,
        })
    }

    pub(crate) fn of_all(&self) -> &Path {
        &self.of_all
    }

    /// Writes all of them.
    pub(crate) fn save(&self, fleet: &Fleet) -> anyhow::Result<()> {
        self.save_of(fleet, fleet.clusters())
    }

    /// Writes those of some clusters, and the one of all.
    pub(crate) fn save_of(&self, fleet: &Fleet, changed: &[FakeCluster]) -> anyhow::Result<()> {
        if let Some(folder) = &self.folder {
            for cluster in changed {
                let path = folder.join(format!("{}.yaml", cluster.name()));
                replace(&path, &cluster.kubeconfig())?;
            }
        }
        replace(&self.of_all, &fleet.kubeconfig_of_all())
    }
}

fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
