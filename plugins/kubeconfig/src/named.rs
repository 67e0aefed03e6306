//! Files that a document names: a CA, a client certificate, its key, a token. Of each the last content that was one, and what is wrong
//! with it now: a broken edit takes nothing away.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use crate::{
    FileProblem, FileProblemReason as Reason,
    material::{Bytes, Contents},
    read,
    state::changed,
};

/// Of a CA bundle as long as a distribution's, twice.
const LIMIT: usize = 1024 * 1024;

/// A file that a document names, as it was when it was last read.
#[derive(Clone, Default)]
pub(crate) struct NamedFile {
    good: Option<([u8; 32], Bytes)>,
    problem: Option<FileProblem>,
}

impl NamedFile {
    pub(crate) fn problem(&self) -> Option<&FileProblem> {
        self.problem.as_ref()
    }

    /// Stands for what is told of it.
    pub(crate) fn digest(&self) -> Result<[u8; 32], Reason> {
        match (&self.good, &self.problem) {
            (Some((digest, _)), _) => Ok(*digest),
            (None, problem) => Err(problem
                .as_ref()
                .map_or(Reason::Missing, |it| it.reason.clone())),
        }
    }

    fn content(&self) -> Result<Bytes, Reason> {
        match &self.good {
            Some((_, bytes)) => Ok(Arc::clone(bytes)),
            None => self.digest().map(|_| Bytes::default()),
        }
    }

    /// The state after reading the file again. Blocks.
    fn reread(mut self, path: &Path) -> Self {
        let problem = self.take(path).err().map(|reason| FileProblem {
            file: path.to_owned(),
            reason,
            kept: self.good.is_some(),
        });
        changed(self.problem.as_ref(), problem.as_ref(), path);
        self.problem = problem;
        self
    }

    fn take(&mut self, path: &Path) -> Result<(), Reason> {
        let bytes = read::read(path, LIMIT)?;
        if bytes.trim_ascii().is_empty() {
            return Err(Reason::Empty);
        }
        let digest = Sha256::digest(&*bytes).into();
        if self.good.as_ref().is_none_or(|(known, _)| *known != digest) {
            self.good = Some((digest, Arc::new(bytes)));
        }
        Ok(())
    }
}

/// All of them, by path.
pub(crate) type NamedFiles = BTreeMap<PathBuf, NamedFile>;

/// Reads those that are named now; of others nothing is kept. Blocks; `begins` is told on what.
pub(crate) fn reread(
    mut before: NamedFiles,
    named: BTreeSet<PathBuf>,
    begins: impl Fn(&Path),
) -> NamedFiles {
    let read = |path: PathBuf| {
        begins(&path);
        let file = before.remove(&path).unwrap_or_default().reread(&path);
        (path, file)
    };
    named.into_iter().map(read).collect()
}

/// What is in them.
pub(crate) fn contents(files: &NamedFiles) -> Contents {
    let content = |(path, file): (&PathBuf, &NamedFile)| (path.clone(), file.content());
    files.iter().map(content).collect()
}
