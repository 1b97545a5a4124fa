//! Hides the state directory, which may lie in the served directory, from all clients.
//!
//! A client that could read the secret there could forge handles. So the state directory is hidden: no name leads to
//! it, no listing shows it, and no handle opens it or a file in it, not even a handle from before it was hidden. Its
//! name is taken, though: to make something of that name fails with EXIST. Clients can neither rename the directories
//! above it (NFS3ERR_ACCES) nor remove them, since they are not empty. The server knows it by device and inode,
//! whatever its path is. Owns a descriptor of the state directory, so that its inode is not used again. If the code
//! cannot determine something, it treats it as hidden.

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
    /// The inodes of its contents when it was hidden.
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

    /// Whether the state directory lies below a directory. Such a directory may not be moved: the server finds its
    /// state by path, and would take for it whatever a client makes in the old place.
    pub(super) fn lies_below(&self, directory: &OwnedFd) -> bool {
        let path = |fd: &OwnedFd| readlink(own_path(fd), Vec::new());
        match (path(&self.fd), path(directory)) {
            (Ok(own), Ok(above)) => {
                own.to_bytes().strip_prefix(above.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
            }
            // The kernel cannot return so long a path: nobody keeps a state directory there.
            _ => false,
        }
    }

    /// Whether a directory's path, as the kernel returns it, is the state directory's or leads below it.
    pub(super) fn is_above(&self, path: &[u8]) -> bool {
        // If the kernel cannot return its own path (because it is too long), no directory whose path it can return lies
        // below it.
        let Ok(own) = readlink(own_path(&self.fd), Vec::new()) else { return false };
        path.strip_prefix(own.to_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }

    /// Whether a file that was opened by its handle is one of the files in the state directory, or one level deeper. No
    /// handle leads to files that came there later: no client has ever found a name of them. The code still reads the
    /// directories again, because an old inode number may belong to another file today. [`is_above`](Self::is_above)
    /// recognises directories in it.
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

/// The inodes of a directory's entries and of the entries one level deeper, without those that vanish meanwhile. The
/// server itself makes no deeper directories.
fn inodes(directory: &OwnedFd) -> io::Result<HashSet<u64>> {
    let mut found = HashSet::new();
    for entry in std::fs::read_dir(own_path(directory))?.flatten() {
        // Some file systems list inode numbers that differ from those of the files.
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
