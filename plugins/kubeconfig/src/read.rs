//! Reads a file that may be anything: it is opened only if it is a regular file, and then without waiting for anybody.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    path::Path,
};

use zeroize::Zeroizing;

use crate::FileProblemReason as Reason;

/// The content of a regular file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Zeroizing<Vec<u8>>, Reason> {
    // Looked at before it is opened, as opening a device may do something; and again after, as it may have been replaced between.
    regular(&std::fs::metadata(path).map_err(reason)?)?;
    let file = open(path).map_err(reason)?;
    let metadata = file.metadata().map_err(reason)?;
    regular(&metadata)?;
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Reason::TooLarge { limit });
    }
    // One byte more than may be: so what grows meanwhile is seen, and nothing is moved (and left behind) while it is read.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 1));
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(reason)?;
    if bytes.len() > limit {
        return Err(Reason::TooLarge { limit });
    }
    Ok(bytes)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.open(path)
}

fn regular(metadata: &std::fs::Metadata) -> Result<(), Reason> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(Reason::NotAFile)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn reason(error: io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Reason::Missing,
        kind => Reason::Unreadable(kind),
    }
}
