//! From what the kernel says to what the protocol says.

use rpcrdma_nfs::v3::{Attributes, FileType, SetTime, Specification, Status, Time};
use rustix::{
    fs::{self, AtFlags, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, statx},
    io::Errno,
};
use std::os::fd::AsFd;

/// Permission bits, with set-user-id, set-group-id and sticky.
pub(super) const MODE_BITS: u32 = 0o7777;
/// The unit in which the kernel counts storage in use.
const BLOCK_OCTETS: u64 = 512;

/// What the kernel says of an open file.
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
    Attributes {
        file_type: file_type(stat),
        mode: u32::from(stat.stx_mode) & MODE_BITS,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(BLOCK_OCTETS),
        device: Specification { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        file_system,
        file_id: stat.stx_ino,
        accessed: time(&stat.stx_atime),
        modified: time(&stat.stx_mtime),
        changed: time(&stat.stx_ctime),
    }
}

/// A time as the protocol can tell it: not before 1970, not after 2106.
fn time(time: &StatxTimestamp) -> Time {
    match u32::try_from(time.tv_sec) {
        Ok(seconds) => Time { seconds, nanoseconds: time.tv_nsec },
        Err(_) if time.tv_sec < 0 => Time::default(),
        Err(_) => Time { seconds: u32::MAX, nanoseconds: 999_999_999 },
    }
}

/// Times to set.
pub(super) fn timestamps(accessed: SetTime, modified: SetTime) -> Timestamps {
    let spec = |how| match how {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Server => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::Client(Time { seconds, nanoseconds }) => {
            Timespec { tv_sec: seconds.into(), tv_nsec: nanoseconds.min(999_999_999).into() }
        }
    };
    Timestamps { last_access: spec(accessed), last_modification: spec(modified) }
}

/// The status of an error.
pub(super) fn status(error: Errno) -> Status {
    match error {
        Errno::PERM => Status::PERM,
        Errno::NOENT => Status::NOENT,
        Errno::NXIO => Status::NXIO,
        Errno::NODEV => Status::NODEV,
        // Links are not followed, mounts not crossed, and a mount point or a running program cannot be changed.
        Errno::ACCESS | Errno::BUSY | Errno::TXTBSY | Errno::XDEV | Errno::LOOP => Status::ACCES,
        Errno::EXIST => Status::EXIST,
        Errno::NOTDIR => Status::NOTDIR,
        Errno::ISDIR => Status::ISDIR,
        Errno::INVAL => Status::INVAL,
        Errno::FBIG => Status::FBIG,
        Errno::NOSPC => Status::NOSPC,
        Errno::ROFS => Status::ROFS,
        Errno::MLINK => Status::MLINK,
        Errno::NAMETOOLONG => Status::NAMETOOLONG,
        Errno::NOTEMPTY => Status::NOTEMPTY,
        Errno::DQUOT => Status::DQUOT,
        Errno::STALE => Status::STALE,
        Errno::OPNOTSUPP => Status::NOTSUPP,
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::TIMEDOUT => Status::JUKEBOX,
        _ => Status::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_never_success_and_times_saturate() {
        for raw in 1..200 {
            assert_ne!(status(Errno::from_raw_os_error(raw)), Status::OK);
        }
        let mut stat = stat(std::fs::File::open("/proc/self/status").unwrap()).unwrap();
        stat.stx_mtime.tv_sec = -1;
        stat.stx_ctime.tv_sec = 1 << 32;
        let told = attributes(&stat, 7);
        assert_eq!(told.modified, Time::default());
        assert_eq!(told.changed, Time { seconds: u32::MAX, nanoseconds: 999_999_999 });
        assert_eq!((told.file_system, told.file_type), (7, FileType::Regular));
    }
}
