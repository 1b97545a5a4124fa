//! Small files from a server: each is read by one call, without an open, and many such calls are under way. A file is
//! written here by the thread that serves the connection: that takes less time than to wake another.
//!
//! This is a short cut. A file that did not come in this way, whole and as its directory told it, is copied as every
//! other ([`Copier::regular`]), which also tells what is wrong with it.

use super::{
    Copier,
    later::FileId,
    regular::is_copy,
    target::{Output, existing, part_path},
};
use crate::session::Session;
use anyhow::Result;
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_nfs_client::{Found, ReadOk};
use std::path::{Path, PathBuf};

/// The largest file that is read in this way.
pub(super) const SMALL_OCTETS: u64 = 64 << 10;
/// Such calls under way.
pub(super) const CALLS: usize = 32;

/// A file that is to be copied, or was, and what came of it.
pub(super) type Done = (PathBuf, Result<()>);

/// A small file that is to be copied.
pub(super) struct Wanted {
    pub(super) found: Found,
    pub(super) local: PathBuf,
    pub(super) id: FileId,
}

impl Wanted {
    /// How many octets are asked for: of an empty file one, since there may be some after all.
    fn count(&self) -> u32 {
        u32::try_from(self.found.attributes.size).unwrap_or(u32::MAX).max(1)
    }

    /// Whether what came is all of the file, and what its directory told of it.
    fn is_whole(&self, read: &ReadOk) -> bool {
        read.end && read.data.len() as u64 == self.found.attributes.size
    }
}

impl Copier {
    /// Whether a file is read in this way: it is small, no part of it can be here, and it alone is asked for.
    pub(super) fn is_small(&self, found: &Found, local: &Path, most: u32) -> bool {
        let Attributes { file_type, size, .. } = found.attributes;
        file_type == FileType::Regular
            && size <= SMALL_OCTETS.min(most.into())
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
            Ok(read) if wanted.is_whole(&read) => self.place(&wanted, &read.data),
            Err(error) if error.is_unreachable() => Err(error.into()),
            Ok(_) | Err(_) => self.regular(session, &wanted.found, &wanted.local).await,
        };
        self.ended(wanted, copied)
    }

    /// Writes one that has come whole.
    fn place(&self, Wanted { found, local, .. }: &Wanted, data: &[u8]) -> Result<()> {
        let source = &found.attributes;
        let output = Output::open(local, self.placing, source, &*self.random)?;
        if let Some(reason) = output.in_place {
            self.note(local, &format!("is written in place: {reason}"));
        }
        if let Err(error) = output.write_data(data, 0, source) {
            if let Some(note) = output.remains() {
                self.note(local, &note);
            }
            return Err(error.into());
        }
        if let Some(note) = output.finish_here(data.len() as u64, source)? {
            self.note(local, note);
        }
        let mut tally = self.tally.borrow_mut();
        tally.moved(data.len());
        tally.file_done();
        Ok(())
    }

    /// Remembers what became of a file.
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
    use bytes::Bytes;
    use rpcrdma_nfs_client::Handle;

    fn wanted(size: u64) -> Wanted {
        let mut attributes = sample_attributes(FileType::Regular);
        attributes.size = size;
        let found = Found { file: Handle::new(b"f").unwrap(), attributes, place: None };
        Wanted { found, local: PathBuf::from("f"), id: FileId::sample() }
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
