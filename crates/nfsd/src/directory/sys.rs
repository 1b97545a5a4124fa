//! The kernel's own file handles, `name_to_handle_at` and `open_by_handle_at`; locks of open file descriptions,
//! `F_OFD_SETLK` and `F_OFD_GETLK` of `fcntl`, and leases, `F_SETLEASE` and `F_GETLEASE`; clones of ranges,
//! `FICLONERANGE` of `ioctl`.
//!
//! The only unsafe code of the crate. rustix offers everything else that the crate needs, but none of these calls, and
//! no other well-kept crate has safe functions for them. Errors are the kernel's error numbers.

#![allow(unsafe_code, reason = "system calls that no well-kept crate offers")]

use crate::Span;
use rustix::{fd::OwnedFd, io::Errno};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

/// The largest handle that the code asks for, in bytes.
pub(super) const MAX_OCTETS: usize = 32;

/// The kernel's `struct file_handle` with room for the bytes behind it.
#[repr(C)]
struct RawHandle {
    head: libc::file_handle,
    octets: [u8; MAX_OCTETS],
}

/// A handle of the kernel: a type that the file system chose, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelHandle {
    pub(super) kind: i32,
    pub(super) len: usize,
    pub(super) octets: [u8; MAX_OCTETS],
}

/// The handle of an open file, which may be opened with `O_PATH`. `EOVERFLOW` if it has more than [`MAX_OCTETS`].
pub(super) fn name_to_handle(fd: BorrowedFd<'_>) -> Result<KernelHandle, Errno> {
    let head = libc::file_handle { handle_bytes: MAX_OCTETS as u32, handle_type: 0, f_handle: [] };
    let mut raw = RawHandle { head, octets: [0; MAX_OCTETS] };
    let mut mount_id = 0;
    // SAFETY: the descriptor is open for the whole call; the path is a NUL-terminated string; `raw` begins with a
    // file_handle whose handle_bytes says how many bytes follow it, and they do, because the struct is repr(C) and
    // file_handle ends in a zero-length array of bytes; both pointers are to live, exclusively borrowed variables.
    let result = unsafe {
        libc::name_to_handle_at(
            fd.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast(),
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    check(result)?;
    let len = usize::try_from(raw.head.handle_bytes).unwrap_or(usize::MAX);
    if len > MAX_OCTETS {
        return Err(Errno::OVERFLOW);
    }
    Ok(KernelHandle { kind: raw.head.handle_type, len, octets: raw.octets })
}

/// Opens the file of a handle with `O_PATH`, in the file system that `mount` lies in. Needs `CAP_DAC_READ_SEARCH`.
pub(super) fn open_by_handle(mount: BorrowedFd<'_>, handle: &KernelHandle) -> Result<OwnedFd, Errno> {
    let handle_bytes = handle.len.min(MAX_OCTETS) as u32;
    let head = libc::file_handle { handle_bytes, handle_type: handle.kind, f_handle: [] };
    let mut raw = RawHandle { head, octets: handle.octets };
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the descriptor is open for the whole call; `raw` begins with a file_handle, and at least handle_bytes
    // bytes follow it (see above); the kernel only reads them.
    let result = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut raw).cast(), flags) };
    let fd = check(result)?;
    // SAFETY: the kernel has just made this descriptor for us, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A range of a file as `fcntl` describes it: a length of 0 is to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelRange {
    pub(super) start: i64,
    pub(super) length: i64,
}

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelLock {
    None,
    Read,
    Write,
}

impl KernelLock {
    /// From the kernel's number. An unknown number counts as a lock that excludes all others.
    fn of(number: libc::c_short) -> Self {
        match libc::c_int::from(number) {
            libc::F_UNLCK => Self::None,
            libc::F_RDLCK => Self::Read,
            _ => Self::Write,
        }
    }

    fn describe(self, range: KernelRange) -> libc::flock64 {
        let number = match self {
            Self::None => libc::F_UNLCK,
            Self::Read => libc::F_RDLCK,
            Self::Write => libc::F_WRLCK,
        };
        libc::flock64 {
            l_type: number as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: range.start,
            l_len: range.length,
            l_pid: 0,
        }
    }
}

/// Locks or unlocks a range for the open file description. Does not wait: `EAGAIN` or `EACCES` if another owner has it.
pub(super) fn set_lock(fd: BorrowedFd<'_>, range: KernelRange, lock: KernelLock) -> Result<(), Errno> {
    let description = lock.describe(range);
    // SAFETY: the descriptor is open for the whole call, and the kernel only reads the description.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const description) }).map(drop)
}

/// The first lock of another owner that conflicts with this one.
pub(super) fn get_lock(
    fd: BorrowedFd<'_>,
    range: KernelRange,
    lock: KernelLock,
) -> Result<Option<(KernelRange, KernelLock)>, Errno> {
    let mut description = lock.describe(range);
    // SAFETY: the descriptor is open for the whole call; the pointer is to a live, exclusively borrowed variable of the
    // type that the kernel reads and writes.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut description) })?;
    let range = KernelRange { start: description.l_start, length: description.l_len };
    Ok(match KernelLock::of(description.l_type) {
        KernelLock::None => None,
        found => Some((range, found)),
    })
}

/// Makes a range of `to` share the blocks of a range of `from`; a length of 0 is up to the end of `from`.
pub(super) fn clone_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, span: &Span) -> Result<(), Errno> {
    let range = libc::file_clone_range {
        src_fd: from.as_raw_fd().into(),
        src_offset: span.from,
        src_length: span.length,
        dest_offset: span.to,
    };
    // SAFETY: both descriptors are open for the whole call, and the kernel only reads the description.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) }).map(drop)
}

/// `F_SETSIG`, which libc does not name.
const F_SETSIG: libc::c_int = 10;

/// Takes a lease on an open file, or gives it back. `EAGAIN` if the file is open in a way that excludes the lease. The
/// kernel sends no signal when the lease is broken.
pub(super) fn set_lease(fd: BorrowedFd<'_>, lease: KernelLock) -> Result<(), Errno> {
    let raw = fd.as_raw_fd();
    let number = match lease {
        KernelLock::None => libc::F_UNLCK,
        KernelLock::Read => libc::F_RDLCK,
        KernelLock::Write => libc::F_WRLCK,
    };
    if lease == KernelLock::None {
        // SAFETY: the descriptor is open for the whole call, which takes a number and no memory.
        return check(unsafe { libc::fcntl(raw, libc::F_SETLEASE, number) }).map(drop);
    }
    // If a descriptor has no owner, a lease makes this process its owner, and the kernel would end the process with
    // SIGIO if the lease were broken before F_SETOWN removes the owner again. So the kernel is told to send a signal
    // that is ignored by default. SAFETY: the descriptor is open for all three calls, which take numbers and no memory.
    check(unsafe { libc::fcntl(raw, F_SETSIG, libc::SIGURG) })?;
    // SAFETY: as before.
    let leased = check(unsafe { libc::fcntl(raw, libc::F_SETLEASE, number) });
    // SAFETY: as before.
    check(unsafe { libc::fcntl(raw, libc::F_SETOWN, 0) })?;
    leased.map(drop)
}

/// The lease on an open file: if it is being broken, what may remain of it.
pub(super) fn lease(fd: BorrowedFd<'_>) -> Result<KernelLock, Errno> {
    // SAFETY: the descriptor is open for the whole call, which takes no argument.
    let number = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETLEASE) })?;
    Ok(match number {
        libc::F_UNLCK => KernelLock::None,
        libc::F_RDLCK => KernelLock::Read,
        _ => KernelLock::Write,
    })
}

fn check(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result >= 0 {
        return Ok(result);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
