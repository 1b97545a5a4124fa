//! Waiting until the disk has what changed, as RFC 1813 (section 4.8) asks before attributes and names are answered for.
//!
//! A file or directory is opened for the moment and synchronised. One that this process may not open is kept by
//! synchronising the whole file system. Symbolic links and special files cannot be synchronised by themselves: they are on
//! the disk with the directory that they were made in, but later changes of their attributes are not waited for.

use super::{Inner, Object, attributes::status, resolve::reopen};
use crate::FileId;
use rpcrdma_nfs::v3::{Failure, FileType, Status};
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, fsync, syncfs},
    io::Errno,
};

/// When changes of attributes and names are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// When they are on the disk.
    Stable,
    /// When the kernel has them.
    Early,
}

impl Answers {
    /// Waits for `files`, which a change that was made has touched. Its failure keeps what was to be told.
    pub(super) fn after<T, F>(
        self,
        inner: &Inner,
        files: &[FileId],
        done: T,
        info: impl FnOnce(T) -> F,
    ) -> Result<T, Failure<F>> {
        if self == Self::Early {
            return Ok(done);
        }
        match files.iter().try_for_each(|file| inner.synchronise(*file)) {
            Ok(()) => Ok(done),
            Err(status) => Err(Failure { status, info: info(done) }),
        }
    }
}

impl Inner {
    /// Nothing, if the file is gone by now.
    fn synchronise(&self, file: FileId) -> Result<(), Status> {
        let Ok(object) = self.object(file) else { return Ok(()) };
        #[cfg(test)]
        self.synchronised.lock().unwrap().push(file);
        let synced = match open(&object) {
            Ok(Some(fd)) => fsync(&fd),
            Ok(None) => return Ok(()),
            Err(Errno::ACCESS | Errno::PERM) => syncfs(&self.root_fd),
            Err(Errno::NOENT | Errno::STALE) => return Ok(()),
            Err(error) => Err(error),
        };
        match synced {
            // File systems that keep nothing say so.
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::ROFS) => Ok(()),
            Err(error) => Err(status(error)),
        }
    }
}

fn open(object: &Object) -> Result<Option<OwnedFd>, Errno> {
    match object.file_type {
        FileType::Directory => reopen(&object.fd, OFlags::RDONLY | OFlags::DIRECTORY).map(Some),
        FileType::Regular => reopen(&object.fd, OFlags::RDONLY | OFlags::NONBLOCK)
            .or_else(|_| reopen(&object.fd, OFlags::WRONLY | OFlags::NONBLOCK))
            .map(Some),
        _ => Ok(None),
    }
}
