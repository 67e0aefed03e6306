//! What the files say: of each the last sound state, and what is wrong with it now. A broken edit takes nothing away.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clustercache::{ClusterKey, Upsert};
use sha2::{Digest, Sha256};

use crate::{
    FileProblem, FileProblemReason as Reason, Kubeconfig, Policy,
    entry::{Program, Reach},
    material::Contents,
    named::NamedFiles,
    problem::StreamError,
    read,
};

/// The clusters that a source has, by key.
pub(crate) type Clusters = BTreeMap<ClusterKey, Upsert>;

/// What the files say of a cluster.
pub(crate) enum Said {
    /// All that there is to say.
    Word(Upsert),
    /// To ask a program.
    Program(Program),
}

/// All files of a source, as they were when they were last read.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) documents: BTreeMap<PathBuf, FileState>,
    pub(crate) named: NamedFiles,
}

/// Stands for what the files say: one for each document in their order, then each file that these name.
pub(crate) type Digests = (
    Vec<Option<[u8; 32]>>,
    BTreeMap<PathBuf, Result<[u8; 32], Reason>>,
);

impl Files {
    /// In the order of the documents; `None` as long as none has ever been sound.
    pub(crate) fn merged(&self, order: &[PathBuf]) -> Option<Kubeconfig> {
        let states = order.iter().filter_map(|path| self.documents.get(path));
        let good = states.filter_map(|state| state.good.as_ref());
        good.map(|(_, kubeconfig)| kubeconfig)
            .fold(None, |merged: Option<Kubeconfig>, next| {
                Some(merged.map_or_else(|| next.clone(), |merged| merged.merge(next)))
            })
    }

    pub(crate) fn digests(&self, order: &[PathBuf]) -> Digests {
        let documents = order.iter().map(|path| self.documents.get(path)?.digest());
        let named = self
            .named
            .iter()
            .map(|(path, file)| (path.clone(), file.digest()));
        (documents.collect(), named.collect())
    }

    /// What is wrong with them now: documents in their order, then the files that they name.
    pub(crate) fn problems<'a>(
        &'a self,
        order: &'a [PathBuf],
    ) -> impl Iterator<Item = &'a FileProblem> {
        let documents = order.iter().filter_map(|path| self.documents.get(path));
        let named = self.named.values().filter_map(|file| file.problem());
        documents.filter_map(FileState::problem).chain(named)
    }

    /// Why nothing can be said.
    pub(crate) fn nothing(&self, order: &[PathBuf]) -> StreamError {
        let problem = self.problems(order).next().cloned();
        problem.map_or(StreamError::NoFile, |problem| {
            StreamError::Nothing(problem.into())
        })
    }
}

/// A document, as it was when it was last read.
#[derive(Clone, Default)]
pub(crate) struct FileState {
    /// What it said when it was last sound, with the digest of its content.
    good: Option<([u8; 32], Kubeconfig)>,
    problem: Option<FileProblem>,
}

impl FileState {
    fn problem(&self) -> Option<&FileProblem> {
        self.problem.as_ref()
    }

    /// Stands for what it said when it was last sound.
    fn digest(&self) -> Option<[u8; 32]> {
        self.good.as_ref().map(|(digest, _)| *digest)
    }

    /// The state after reading the file again. Blocks.
    pub(crate) fn reread(mut self, path: &Path, policy: &Policy) -> Self {
        let problem = self.take(path, policy).err().map(|reason| FileProblem {
            file: path.to_owned(),
            reason,
            kept: self.good.is_some(),
        });
        changed(self.problem.as_ref(), problem.as_ref(), path);
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
        let now = Kubeconfig::parse_from(&bytes, policy, Some(path)).map_err(Reason::Refused)?;
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

/// Says once what has become wrong or right with a file.
pub(crate) fn changed(old: Option<&FileProblem>, new: Option<&FileProblem>, file: &Path) {
    match (old, new) {
        (old, Some(new)) if old != Some(new) => {
            tracing::warn!(problem = %new, "kubeconfig not taken");
        }
        (Some(_), None) => tracing::info!(?file, "kubeconfig is sound again"),
        _ => tracing::debug!(?file, "kubeconfig read"),
    }
}

/// What a document says of each of its clusters.
pub(crate) fn said(merged: &Kubeconfig, contents: &Contents) -> BTreeMap<ClusterKey, Said> {
    let said = |(name, reach)| {
        let key = ClusterKey::named(name);
        let said = match reach {
            Ok(Reach::By(program)) => Said::Program(program),
            Ok(Reach::Now(access)) => Said::Word(Upsert::ready(key.clone(), access)),
            Err::<_, crate::Refusal>(refusal) => {
                Said::Word(Upsert::refused(key.clone(), refusal.to_string()))
            }
        };
        (key, said)
    };
    merged.reaches(contents).map(said).collect()
}
