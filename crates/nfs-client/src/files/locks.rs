//! Locks of ranges of open files: version 4.
//!
//! Version 3 has a second protocol for them, NLM, which this client does not implement.

use super::{File, Files};
use crate::{
    Error,
    v4::{Conflict, Nfs4, Opened},
};
use rpcrdma_nfs::v4::{Op, ops};
use std::time::Duration;

/// The reason for version 3.
const NONE: &str =
    "version 3 of NFS has no locks of its own, and this client does not speak NLM, which has them; version 4 has locks";

/// The length of a range that goes to the end of the file, wherever the end is.
pub const TO_THE_END: u64 = u64::MAX;

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Other owners may have shared locks. The file must be open for reading.
    Shared,
    /// No other owner may have a lock. The file must be open for writing.
    Exclusive,
}

impl From<LockKind> for ops::LockKind {
    fn from(kind: LockKind) -> Self {
        match kind {
            LockKind::Shared => Self::Read,
            LockKind::Exclusive => Self::Write,
        }
    }
}

/// Locks. Each open of a file, together with its clones, is one owner of locks: two opens exclude each other. Locks are
/// advisory: they exclude only other locks, unless the server enforces them.
///
/// ```
/// # use rpcrdma_nfs_client::{Error, File, LockKind, TO_THE_END};
/// # async fn example(file: &File) -> Result<(), Error> {
/// match file.lock(LockKind::Exclusive, 0, TO_THE_END).await {
///     Err(error) if error.conflict().is_some() => {
///         println!("{error}: waiting");
///         file.lock_when_free(LockKind::Exclusive, 0, TO_THE_END).await?;
///     }
///     locked => locked?,
/// }
/// // Nobody else has it now, unless it gets lost.
/// file.is_held()?;
/// file.unlock(0, TO_THE_END).await?;
/// # Ok(())
/// # }
/// ```
impl File {
    fn lockable(&self, operation: Op) -> Result<(&Nfs4, &Opened), Error> {
        self.version_4(operation.name(), NONE)?.opened(operation)
    }

    /// Locks a range; with the length [`TO_THE_END`] it goes to the end of the file.
    ///
    /// # Errors
    /// If another client has locked a part of the range, the error has an [`Error::conflict`]. In version 3
    /// [`Error::is_not_supported`] is true. For other errors here and below see [`Error`].
    pub async fn lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<(), Error> {
        let (nfs, opened) = self.lockable(Op::Lock)?;
        Ok(nfs.lock(opened, kind.into(), offset, length).await?)
    }

    /// The same, but waits until the range is free.
    pub async fn lock_when_free(&self, kind: LockKind, offset: u64, length: u64) -> Result<(), Error> {
        let (nfs, opened) = self.lockable(Op::Lock)?;
        Ok(nfs.lock_when_free(opened, kind.into(), offset, length).await?)
    }

    /// The lock that conflicts with such a lock, if there is one.
    pub async fn test_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<Option<Conflict>, Error> {
        let (nfs, opened) = self.lockable(Op::LockT)?;
        Ok(nfs.test_lock(opened, kind.into(), offset, length).await?)
    }

    /// Unlocks a range.
    pub async fn unlock(&self, offset: u64, length: u64) -> Result<(), Error> {
        let (nfs, opened) = self.lockable(Op::LockU)?;
        Ok(nfs.unlock(opened, offset, length).await?)
    }

    /// Whether the open and its locks are held, as far as the client knows. Makes no call: from the replies to other
    /// calls, and to the driver's, the client learns what the server takes away.
    ///
    /// # Errors
    /// If they are lost, [`Error::is_lost`] is true; in version 3, [`Error::is_not_supported`].
    pub fn is_held(&self) -> Result<(), Error> {
        let (nfs, opened) = self.lockable(Op::Lock)?;
        Ok(nfs.is_held(opened)?)
    }
}

impl Files {
    /// How long the server certainly keeps the open and its locks, counted from its last reply; zero if it was silent
    /// for a whole lease. `None` in version 3, which has no leases.
    pub fn lease_left(&self) -> Option<Duration> {
        self.version_4().map(Nfs4::lease_left)
    }
}
