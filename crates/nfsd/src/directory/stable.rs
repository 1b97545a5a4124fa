//! Waits until a change is on the disk, as RFC 1813 (section 4.8) requires before a change of attributes and names is
//! answered.
//!
//! The server opens a file or directory for a moment and synchronises it. It synchronises a file with uncommitted data
//! through the descriptor kept for that (see [`uncommitted`]). If this process may not open a file, it synchronises the
//! whole file system. Symbolic links and special files cannot be synchronised by themselves: they reach the disk with
//! the directory in which they were made, but the server does not wait for later changes of their attributes.
//!
//! Any failure may mean that earlier data of any client is lost: all clients with uncommitted data learn it
//! ([`Inner::lose`]), before the failure is answered.
//!
//! [`uncommitted`]: super::uncommitted

use super::{
    Inner, Object,
    attributes::fault,
    resolve::reopen,
    uncommitted::{For, Held},
};
use crate::{Failure, Fault, FileId};
use rpcrdma_nfs::attr::FileType;
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, fsync, syncfs},
    io::{Errno, retry_on_intr},
};

/// When the server answers changes of attributes and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// When they are on the disk.
    Stable,
    /// When the kernel has them.
    Early,
}

impl Answers {
    /// Waits for `files`, which a change has touched. On failure the change's result is lost.
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
            Err(fault) => Err(Failure { fault, info: info(done) }),
        }
    }
}

/// File systems that keep nothing on a disk refuse to synchronise, with one of these error numbers.
fn refuses(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

impl Inner {
    /// Waits for the disk through the kept descriptor.
    pub(super) fn settle(&self, held: &Held, what: For) -> Result<(), Errno> {
        self.uncommitted.synchronise(held, what, try_wait, |error| self.lose(held.file, error))
    }

    /// The same for a file that has no uncommitted data, or had none just now.
    pub(super) fn wait(&self, file: FileId, fd: &OwnedFd) -> Result<(), Errno> {
        try_wait(fd).inspect_err(|error| self.lose(file, *error))
    }

    /// Data that was written to a file may be lost: every client with uncommitted data learns it, and descriptors that
    /// would report it again are closed.
    fn lose(&self, file: FileId, error: Errno) {
        let is_uncommitted = self.uncommitted.lose(file, &self.losses, self.clock.now());
        if let Some(object) = self.cache.get(file) {
            object.forget_opened();
        }
        if let Some(failures) = self.sync_failures.count() {
            tracing::error!(
                directory = %self.path.display(),
                %error,
                failures,
                clients_send_again = is_uncommitted,
                "the disk has not taken what was written"
            );
        }
    }

    /// Does nothing if the file is gone by now.
    fn synchronise(&self, file: FileId) -> Result<(), Fault> {
        let Ok(object) = self.object(file) else { return Ok(()) };
        #[cfg(test)]
        self.synchronised.lock().unwrap().push(file);
        if let Some(held) = self.uncommitted.hold(object.id) {
            return self.settle(&held, For::All).map_err(fault);
        }
        if let Some(shared) = object.leased.shared() {
            return self.wait(object.id, &shared).map_err(fault);
        }
        let synced = match open(&object) {
            Ok(Some(fd)) => self.wait(object.id, &fd),
            Ok(None) => Ok(()),
            Err(Errno::ACCESS | Errno::PERM) => self.synchronise_all(),
            Err(Errno::NOENT | Errno::STALE) => Ok(()),
            Err(error) => Err(error),
        };
        synced.map_err(fault)
    }

    /// Waits for the whole file system. A failure here concerns no file in particular: each file with uncommitted data
    /// has its own descriptor, which reports it.
    fn synchronise_all(&self) -> Result<(), Errno> {
        // A new open file description does not report failures from before that were already reported.
        let root = reopen(&self.root_fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        match retry_on_intr(|| syncfs(&root)) {
            Err(error) if refuses(error) => Ok(()),
            done => done,
        }
    }
}

fn try_wait(fd: &OwnedFd) -> Result<(), Errno> {
    match retry_on_intr(|| fsync(fd)) {
        // A failing disk may return such a number, too; but the kernel reports that once, and a refusal each time.
        Err(error) if refuses(error) && fsync(fd) == Err(error) => Ok(()),
        done => done,
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
