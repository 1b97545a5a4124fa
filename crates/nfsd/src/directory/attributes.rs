//! From the kernel's attributes and errors to the file system's.

use crate::Fault;
use rpcrdma_nfs::attr::{Attributes, Device, FileType, SetTime, Time};
use rustix::{
    fs::{self, AtFlags, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, statx},
    io::Errno,
};
use std::os::fd::AsFd;

/// Permission bits, with set-user-id, set-group-id and sticky.
pub(super) const MODE_BITS: u32 = 0o7777;
/// The unit in which the kernel counts storage in use.
const BLOCK_BYTES: u64 = 512;

/// The kernel's attributes of an open file.
pub(super) fn stat(fd: impl AsFd) -> Result<Statx, Errno> {
    statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// What kind of file it is.
pub(super) fn file_type(stat: &Statx) -> FileType {
    match fs::FileType::from_raw_mode(stat.stx_mode.into()) {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::Character,
        fs::FileType::BlockDevice => FileType::Block,
        _ => FileType::Regular,
    }
}

/// Attributes in the file system `file_system`.
pub(super) fn attributes(stat: &Statx, file_system: u64) -> Attributes {
    let mut told = Attributes::new(file_type(stat), file_system, stat.stx_ino);
    told.mode = u32::from(stat.stx_mode) & MODE_BITS;
    told.links = stat.stx_nlink;
    (told.uid, told.gid) = (stat.stx_uid, stat.stx_gid);
    told.size = stat.stx_size;
    told.used = stat.stx_blocks.saturating_mul(BLOCK_BYTES);
    told.device = Device { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor };
    told.accessed = time(&stat.stx_atime);
    told.modified = time(&stat.stx_mtime);
    told.changed = time(&stat.stx_ctime);
    let is_born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    told.created = is_born.then(|| time(&stat.stx_btime));
    told.change = told.changed.as_change();
    told
}

fn time(time: &StatxTimestamp) -> Time {
    Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// Times to set.
pub(super) fn timestamps(accessed: SetTime, modified: SetTime) -> Timestamps {
    let spec = |how| match how {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Server => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::Client(Time { seconds, nanoseconds }) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.min(999_999_999).into() }
        }
    };
    Timestamps { last_access: spec(accessed), last_modification: spec(modified) }
}

/// The fault that an error number stands for.
pub(super) fn fault(error: Errno) -> Fault {
    match error {
        Errno::PERM => Fault::NotOwner,
        Errno::NOENT => Fault::NotFound,
        Errno::NXIO => Fault::NoDevice,
        Errno::NODEV => Fault::NoDriver,
        // Links are not followed, mounts not crossed, and a mount point or a running program cannot be changed.
        Errno::ACCESS | Errno::BUSY | Errno::TXTBSY | Errno::XDEV | Errno::LOOP => Fault::Denied,
        Errno::EXIST => Fault::Exists,
        Errno::NOTDIR => Fault::NotDirectory,
        Errno::ISDIR => Fault::IsDirectory,
        Errno::INVAL => Fault::Invalid,
        Errno::FBIG => Fault::TooLarge,
        Errno::NOSPC => Fault::NoSpace,
        Errno::ROFS => Fault::ReadOnly,
        Errno::MLINK => Fault::TooManyLinks,
        Errno::NAMETOOLONG => Fault::NameTooLong,
        Errno::NOTEMPTY => Fault::NotEmpty,
        Errno::DQUOT => Fault::Quota,
        Errno::STALE => Fault::Stale,
        Errno::OPNOTSUPP => Fault::Unsupported,
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::TIMEDOUT => Fault::Later,
        _ => Fault::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux returns ENODATA also for a medium that has lost its data.
    #[test]
    fn lost_data_is_a_failure_of_the_disk() {
        assert_eq!(fault(Errno::NODATA), Fault::Io);
    }

    #[test]
    fn times_are_told_as_the_kernel_has_them() {
        let mut stat = stat(std::fs::File::open("/proc/self/status").unwrap()).unwrap();
        stat.stx_mtime.tv_sec = -1;
        stat.stx_ctime.tv_sec = 1 << 32;
        let told = attributes(&stat, 7);
        assert_eq!((told.modified.seconds, told.changed.seconds), (-1, 1 << 32));
        assert_eq!((told.file_system, told.file_type), (7, FileType::Regular));
    }
}
