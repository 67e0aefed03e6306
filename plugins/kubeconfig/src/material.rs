//! What an entry is made of, where a document may give it in two ways: inline, or as a file that it names.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use zeroize::Zeroizing;

use crate::{
    FileProblemReason, Refusal, RefusalReason, allow::Fields, policy::Grants, refusal::Place,
};

/// Wiped when the last of those that share them goes.
pub(crate) type Bytes = Arc<Zeroizing<Vec<u8>>>;

/// The files that documents name, as they were when they were last read.
pub(crate) type Contents = BTreeMap<PathBuf, Result<Bytes, FileProblemReason>>;

/// A part of an entry, with the place of its field.
pub(crate) enum Material {
    Inline(Bytes, Place),
    File(PathBuf, Place),
}

impl Material {
    /// Takes out the part, which is `inline` as `decode` reads it, or what is in the file that `file` names.
    pub(crate) fn take(
        fields: &mut Fields,
        (inline, file): (&'static str, &'static str),
        grants: Grants<'_>,
        decode: impl FnOnce(Zeroizing<String>, &Place) -> Result<Zeroizing<Vec<u8>>, Refusal>,
    ) -> Result<Option<Self>, Refusal> {
        let at = |name| fields.place(name);
        let (inline_place, file_place) = (at(inline), at(file));
        match (fields.filled(inline)?, fields.filled(file)?) {
            (Some(_), Some(_)) => Err(file_place.refuse(RefusalReason::Conflict { with: inline })),
            (Some(text), None) => {
                let bytes = decode(text, &inline_place)?;
                Ok(Some(Self::Inline(Arc::new(bytes), inline_place)))
            }
            // Without a directory the allow-list has refused it.
            (None, Some(path)) => {
                let directory = grants.directory.unwrap_or(Path::new(""));
                Ok(Some(Self::File(directory.join(&*path), file_place)))
            }
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::Inline(_, place) | Self::File(_, place) => place,
        }
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Inline(..) => None,
            Self::File(path, _) => Some(path),
        }
    }

    pub(crate) fn read(&self, contents: &Contents) -> Result<Bytes, Refusal> {
        match self {
            Self::Inline(bytes, _) => Ok(Arc::clone(bytes)),
            Self::File(path, place) => {
                let missing = || Err(FileProblemReason::Missing);
                let content = contents.get(path).cloned().unwrap_or_else(missing);
                content.map_err(|reason| place.refuse(RefusalReason::Unread(Arc::new(reason))))
            }
        }
    }
}
