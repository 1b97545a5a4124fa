//! What no client reaches, though it may lie in the served directory: the state directory.
//!
//! A client that could read the secret in it could make handles. So it is hidden: no name leads to it, no listing shows
//! it, no handle opens it or what is in it, also none that was made before it was hidden. Its name is taken, though:
//! making something of that name is EXIST. Clients cannot rename directories above it (NFS3ERR_ACCES), nor remove them,
//! since they are not empty. It is known by device and inode, whatever its path is. Owns a descriptor of the state
//! directory, so that the inode is not used again. If something cannot be determined, it counts as hidden.

use super::{
    Inner, Object,
    attributes::{file_type, stat},
    resolve::own_path,
};
use crate::Fault;
use bytes::Bytes;
use rpcrdma_nfs::attr::FileType;
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, Mode, OFlags, Statx, StatxFlags, readlink, statx},
};
use std::{collections::HashSet, io, os::unix::fs::MetadataExt, path::Path};

/// The state directory.
pub(super) struct Hidden {
    fd: OwnedFd,
    device: (u32, u32),
    inode: u64,
    /// The owner of what is in it.
    uid: u32,
    /// The inodes of what was in it when it was hidden.
    at_start: HashSet<u64>,
}

impl Hidden {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let fd = fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let stat = stat(&fd)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let at_start = inodes(&fd)?;
        Ok(Self { fd, device, inode: stat.stx_ino, uid: stat.stx_uid, at_start })
    }

    /// Whether this is the directory itself.
    pub(super) fn is(&self, stat: &Statx) -> bool {
        stat.stx_ino == self.inode && self.is_device_of(stat)
    }

    fn is_device_of(&self, stat: &Statx) -> bool {
        (stat.stx_dev_major, stat.stx_dev_minor) == self.device
    }

    /// The name that it has in a directory, if it lies there.
    pub(super) fn name_in(&self, directory: &Statx) -> Option<Bytes> {
        let above = statx(&self.fd, "..", AtFlags::empty(), StatxFlags::INO).ok()?;
        if above.stx_ino != directory.stx_ino
            || (above.stx_dev_major, above.stx_dev_minor) != (directory.stx_dev_major, directory.stx_dev_minor)
        {
            return None;
        }
        let path = readlink(own_path(&self.fd), Vec::new()).ok()?;
        path.to_bytes().rsplit(|octet| *octet == b'/').next().map(Bytes::copy_from_slice)
    }

    /// Whether it lies below a directory. One that lies above it may not be moved: the server knows its state by path,
    /// and would take for it what a client makes in the old place.
    pub(super) fn lies_below(&self, directory: &OwnedFd) -> bool {
        let path = |fd: &OwnedFd| readlink(own_path(fd), Vec::new());
        match (path(&self.fd), path(directory)) {
            (Ok(own), Ok(above)) => {
                own.to_bytes().strip_prefix(above.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
            }
            // A path that is too long for the kernel to return: no state directory is kept there.
            _ => false,
        }
    }

    /// Whether a path of a directory, as the kernel returns it, leads to it or below it.
    pub(super) fn is_above(&self, path: &[u8]) -> bool {
        // A directory whose path the kernel cannot return (it is too long, for one) lies above none whose path it can.
        let Ok(own) = readlink(own_path(&self.fd), Vec::new()) else { return false };
        path.strip_prefix(own.to_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }

    /// Whether a file that was opened by its handle is one of those in the directory, or in a directory in it. No
    /// handle leads to files that came there later: no name was ever found that does. The directories are read again
    /// all the same, because an inode of the past may belong to another file today. A directory in it is known by what
    /// is above it.
    pub(super) fn holds(&self, stat: &Statx) -> bool {
        if !self.at_start.contains(&stat.stx_ino)
            || !self.is_device_of(stat)
            || stat.stx_uid != self.uid
            || file_type(stat) == FileType::Directory
        {
            return false;
        }
        inodes(&self.fd).map_or(true, |inodes| inodes.contains(&stat.stx_ino))
    }
}

/// The inodes of what is in a directory and in directories in it, without those that go away meanwhile. The server
/// itself goes no deeper.
fn inodes(directory: &OwnedFd) -> io::Result<HashSet<u64>> {
    let mut found = HashSet::new();
    for entry in std::fs::read_dir(own_path(directory))?.flatten() {
        // Some file systems list other numbers than they return for a file.
        let inode = |entry: &std::fs::DirEntry| entry.metadata().ok().map(|metadata| metadata.ino());
        found.extend(inode(&entry));
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(inner) = std::fs::read_dir(entry.path())
        {
            found.extend(inner.flatten().filter_map(|entry| inode(&entry)));
        }
    }
    Ok(found)
}

impl Inner {
    /// Whether a name in a directory is the hidden one.
    pub(super) fn is_hidden_name(&self, directory: &Object, name: &[u8]) -> bool {
        statx(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO).is_ok_and(|stat| self.hidden.is(&stat))
    }

    /// Fails if a name in a directory is the hidden one.
    pub(super) fn check_not_hidden(&self, directory: &Object, name: &[u8], fault: Fault) -> Result<(), Fault> {
        if self.is_hidden_name(directory, name) { Err(fault) } else { Ok(()) }
    }

    /// The name in a directory that a listing leaves out.
    pub(super) fn left_out(&self, directory: &Object) -> Option<Bytes> {
        stat(&directory.fd).ok().and_then(|stat| self.hidden.name_in(&stat))
    }
}
