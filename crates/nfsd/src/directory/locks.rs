//! Locks of one file of the host, through one open file description of it.
//!
//! Locks of open file descriptions (`F_OFD_SETLK`) and locks that programs take with `fcntl` or `lockf` exclude each
//! other; locks of `flock` are independent of both. They end when the descriptor is closed. No call waits for a lock.
//! Owns the descriptor, which no other code may share: locks belong to the open file description, and a duplicate's
//! would not exclude them. Errors are the kernel's.

use super::sys::{self, KernelLock, KernelRange};
use crate::claims::{HostDenied, HostLock, HostLocks, Kind, Range};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{OFlags, fcntl_getfl},
    io::Errno,
};
use std::io;

/// The last byte that the kernel knows. Beyond it no program of the host can lock.
const LAST: u64 = i64::MAX as u64;

/// Locks on one open file, which exclude programs of the host.
#[derive(Debug)]
pub struct OfdLocks {
    fd: OwnedFd,
    can_write: bool,
}

impl OfdLocks {
    /// Locks through this descriptor, which was opened for this alone: for reading and writing if possible. If it is
    /// for reading only, nothing can be locked for writing.
    ///
    /// # Errors
    /// `EBADF` if it was not opened for reading.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = fcntl_getfl(&fd)?;
        let can_write = match flags & OFlags::RWMODE {
            _ if flags.contains(OFlags::PATH) => return Err(Errno::BADF.into()),
            OFlags::RDWR => true,
            OFlags::RDONLY => false,
            _ => return Err(Errno::BADF.into()),
        };
        Ok(Self { fd, can_write })
    }

    fn find(&self, range: KernelRange, lock: KernelLock) -> io::Result<Option<HostLock>> {
        let found = sys::get_lock(self.fd.as_fd(), range, lock)?;
        Ok(found.and_then(|(range, lock)| {
            let first = u64::try_from(range.start).ok()?;
            let last = match u64::try_from(range.length).ok()? {
                0 => u64::MAX,
                length => first.saturating_add(length - 1),
            };
            let kind = if lock == KernelLock::Read { Kind::Read } else { Kind::Write };
            Some(HostLock { range: Range::between(first, last)?, kind })
        }))
    }
}

/// The range for the kernel; `None` if it lies beyond all that the kernel knows.
fn kernel_range(range: Range) -> Option<KernelRange> {
    let start = i64::try_from(range.first()).ok()?;
    // NFS4-HOST-a
    let to_the_end = range.last() >= LAST;
    let length = if to_the_end { 0 } else { i64::try_from(range.length()).ok()? };
    Some(KernelRange { start, length })
}

fn kernel_lock(kind: Option<Kind>) -> KernelLock {
    match kind {
        None => KernelLock::None,
        Some(Kind::Read) => KernelLock::Read,
        Some(Kind::Write) => KernelLock::Write,
    }
}

impl HostLocks for OfdLocks {
    fn set(&self, range: Range, kind: Option<Kind>) -> Result<(), HostDenied> {
        let Some(kernel) = kernel_range(range) else { return Ok(()) };
        match sys::set_lock(self.fd.as_fd(), kernel, kernel_lock(kind)) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                // If the lock is gone by now, only its range is known (RFC 8881 section 18.10.4).
                let gone = HostLock { range, kind: Kind::Write };
                Err(HostDenied::Conflict(self.find(kernel, kernel_lock(kind))?.unwrap_or(gone)))
            }
            Err(error) => Err(HostDenied::Failed(error.into())),
        }
    }

    fn test(&self, range: Range, kind: Kind) -> io::Result<Option<HostLock>> {
        kernel_range(range).map_or(Ok(None), |kernel| self.find(kernel, kernel_lock(Some(kind))))
    }

    fn can_write(&self) -> bool {
        self.can_write
    }
}
