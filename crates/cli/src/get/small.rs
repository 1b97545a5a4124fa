//! Small files from a server: each is read by one call, without an open, and many such calls are under way. Another
//! thread writes them here ([`Writing`]).
//!
//! This is a short cut. A file that did not come in this way, whole and as its directory describes it, is copied like
//! every other ([`Copier::regular`]), which also reports what is wrong with it.

use super::{
    Copier,
    later::FileId,
    regular::is_copy,
    target::{existing, part_path},
    writing::{Placed, Whole, Writing},
};
use crate::session::Session;
use anyhow::Result;
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_nfs_client::{Found, ReadOk};
use std::path::{Path, PathBuf};

/// The largest file that is read in this way.
pub(super) const SMALL_BYTES: u64 = 64 << 10;
/// Such calls under way.
pub(super) const CALLS: usize = 96;

/// A file that is to be copied, or was, and the result.
pub(super) type Done = (PathBuf, Result<()>);

/// A small file that is to be copied.
pub(super) struct Wanted {
    pub(super) found: Found,
    pub(super) local: PathBuf,
    /// This run has made the directory that it goes into.
    pub(super) is_in_new: bool,
    pub(super) id: FileId,
}

impl Wanted {
    /// How many bytes are asked for: of an empty file one, since there may be some after all.
    fn count(&self) -> u32 {
        u32::try_from(self.found.attributes.size).unwrap_or(u32::MAX).max(1)
    }

    /// Whether this is all of the file, and what its directory says about it.
    fn is_whole(&self, read: &ReadOk) -> bool {
        read.end && read.data.len() as u64 == self.found.attributes.size
    }
}

impl Copier {
    /// Whether a file is read in this way: it is small, no part of it can be here, and only its contents are asked for.
    pub(super) fn is_small(&self, found: &Found, local: &Path, most: u32) -> bool {
        let Attributes { file_type, size, .. } = found.attributes;
        file_type == FileType::Regular
            && size <= SMALL_BYTES.min(most.into())
            && !self.placing.inplace
            && !self.xattrs
            && (!self.placing.resume || part_path(local).is_some_and(|part| part.symlink_metadata().is_err()))
    }

    /// Whether `--resume` passes over a file, which is whole already.
    pub(super) fn is_there(&self, found: &Found, local: &Path) -> bool {
        self.placing.resume && matches!(existing(local), Ok(Some(here)) if is_copy(&here, &found.attributes))
    }

    /// Copies a file that is read in one call.
    pub(super) async fn small(&self, session: &Session, wanted: Wanted) -> Done {
        let copied = match session.files.read_small(&wanted.found.file, wanted.count()).await {
            Ok(read) if wanted.is_whole(&read) => self.place(&wanted, read.data).await,
            Err(error) if error.is_unreachable() => Err(error.into()),
            Ok(_) | Err(_) => self.regular(session, &wanted.found, &wanted.local).await,
        };
        self.ended(wanted, copied)
    }

    /// Writes a file that has come whole.
    async fn place(&self, Wanted { found, local, is_in_new, .. }: &Wanted, data: Bytes) -> Result<()> {
        let (len, source) = (data.len(), found.attributes.clone());
        let whole = Whole { local: local.clone(), is_in_new: *is_in_new, source, data };
        let Placed { notes, result } = self.writing()?.place(whole).await;
        notes.iter().for_each(|note| self.note(local, note));
        result?;
        let mut tally = self.tally.borrow_mut();
        tally.moved(len);
        tally.file_done();
        Ok(())
    }

    /// The thread that writes, which begins with the first file.
    fn writing(&self) -> Result<&Writing> {
        if let Some(writing) = self.writing.get() {
            return Ok(writing);
        }
        let writing = Writing::start(self.placing, self.random.clone())?;
        Ok(self.writing.get_or_init(|| writing))
    }

    /// Remembers whether a file was copied.
    pub(super) fn ended(&self, wanted: Wanted, copied: Result<()>) -> Done {
        match &copied {
            Ok(()) => self.known.borrow_mut().copied(wanted.id),
            Err(_) => self.known.borrow_mut().failed(wanted.id, &wanted.local),
        }
        (wanted.local, copied)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample_attributes, *};
    use rpcrdma_nfs_client::Handle;

    fn wanted(size: u64) -> Wanted {
        let mut attributes = sample_attributes(FileType::Regular);
        attributes.size = size;
        let found = Found { file: Handle::new(b"f").unwrap(), attributes, place: None };
        Wanted { found, local: PathBuf::from("f"), is_in_new: false, id: FileId::sample() }
    }

    #[test]
    fn what_is_not_as_its_directory_told_comes_in_the_usual_way() {
        let read = |len: usize, end| ReadOk { data: Bytes::from(vec![7; len]), end };
        for (size, read, is_whole) in [
            (4, read(4, true), true),
            (4, read(4, false), false),
            (4, read(3, true), false),
            (0, read(0, true), true),
            (0, read(1, true), false),
        ] {
            assert_eq!(wanted(size).is_whole(&read), is_whole, "{size} {read:?}");
        }
    }
}
