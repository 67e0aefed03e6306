//! What the files say: of each the last sound state, and what is wrong with it now. A broken edit takes nothing away.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use clustercache::{ClusterKey, Upsert};
use sha2::{Digest, Sha256};

use crate::{
    FileProblem, FileProblemReason as Reason, Kubeconfig, Policy, problem::StreamError, read,
};

/// The clusters that a source has, by key.
pub(crate) type Clusters = BTreeMap<ClusterKey, Upsert>;

/// A file, as it was when it was last read.
#[derive(Clone, Default)]
pub(crate) struct FileState {
    /// What it said when it was last sound, with the digest of its content.
    good: Option<([u8; 32], Kubeconfig)>,
    problem: Option<FileProblem>,
}

impl FileState {
    pub(crate) fn problem(&self) -> Option<&FileProblem> {
        self.problem.as_ref()
    }

    /// Stands for what it said when it was last sound.
    pub(crate) fn digest(&self) -> Option<[u8; 32]> {
        self.good.as_ref().map(|(digest, _)| *digest)
    }

    /// The state after reading the file again. Says once what has become wrong or right with it. Blocks.
    pub(crate) fn reread(mut self, path: &Path, policy: &Policy) -> Self {
        let problem = self.take(path, policy).err().map(|reason| FileProblem {
            file: path.to_owned(),
            reason,
            kept: self.good.is_some(),
        });
        match (&self.problem, &problem) {
            (old, Some(new)) if old.as_ref() != Some(new) => {
                tracing::warn!(problem = %new, "kubeconfig not taken");
            }
            (Some(_), None) => tracing::info!(file = ?path, "kubeconfig is sound again"),
            _ => tracing::debug!(file = ?path, "kubeconfig read"),
        }
        self.problem = problem;
        self
    }

    fn take(&mut self, path: &Path, policy: &Policy) -> Result<(), Reason> {
        let bytes = read::read(path, policy.limit())?;
        let digest = Sha256::digest(&*bytes).into();
        let before = match &self.good {
            Some((known, _)) if *known == digest => return Ok(()),
            good => good.as_ref().map(|(_, before)| before),
        };
        let origin: Arc<str> = path.to_string_lossy().into();
        let now = Kubeconfig::parse_from(&bytes, policy, Some(&origin)).map_err(Reason::Refused)?;
        // What kubectl writes ends with `users`, so what was cut off, yet is YAML, lacks a list. An empty one is written out.
        let lost =
            before.and_then(|before| before.lists.iter().find(|list| !now.lists.contains(list)));
        if let Some(list) = lost {
            return Err(Reason::CutOff { list });
        }
        self.good = Some((digest, now));
        Ok(())
    }
}

/// The clusters of all files together. Fails as long as none has ever been sound.
pub(crate) fn clusters(
    files: &BTreeMap<PathBuf, FileState>,
    order: &[PathBuf],
) -> Result<Clusters, StreamError> {
    let states = || order.iter().filter_map(|path| files.get(path));
    let merged = states()
        .filter_map(|state| state.good.as_ref())
        .map(|(_, kubeconfig)| kubeconfig)
        .fold(None, |merged: Option<Kubeconfig>, next| {
            Some(merged.map_or_else(|| next.clone(), |merged| merged.merge(next)))
        });
    let Some(merged) = merged else {
        let problem = states().find_map(FileState::problem).cloned();
        return Err(problem.map_or(StreamError::NoFile, StreamError::Nothing));
    };
    let cluster = |(name, access)| {
        let key = ClusterKey::named(name);
        let cluster = match access {
            Ok(access) => Upsert::ready(key.clone(), access),
            Err::<_, crate::Refusal>(refusal) => Upsert::refused(key.clone(), refusal.to_string()),
        };
        (key, cluster)
    };
    Ok(merged.contexts().map(cluster).collect())
}
