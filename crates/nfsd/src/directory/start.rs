//! Begins to serve a directory: finds what its file system and the kernel offer, and how many files may be open.

use super::{
    Answers, Beside, Cache, DirectoryFs, Hidden, Identity, Ids, Inner, Kept, Leases, Losses, Object, Room, Uncommitted,
    attributes, copy, index_files, object, posix_acl, resolve, seldom, xattr,
};
use crate::{Queue, StateDirectory};
use rpcrdma_env::Env;
use rustix::{
    fs::{self, Mode, OFlags, fstatfs, fstatvfs},
    io::Errno,
    process::{Resource, getrlimit},
};
use siphasher::sip::SipHasher24;
use std::{
    hash::Hasher,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// The most files that the cache keeps, if the process may open enough; see [`object_limit`].
const MAX_OBJECTS: u64 = 4096;
/// The most files that clients may have open; see [`open_limit`].
const MAX_OPEN_FILES: usize = 65_536;
/// One in this many kept files may have uncommitted data.
const UNCOMMITTED_PART: usize = 4;
/// File systems whose directory positions stay valid: those of ext4, XFS, Btrfs, F2FS and ZFS, by magic number.
const STABLE_COOKIES: [u64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1];
/// File systems that read from memory without waiting: the same, tmpfs and overlayfs.
const LOCAL: [u64; 7] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, TMPFS, 0x794C_7630];
/// A file system without a disk.
const TMPFS: u64 = 0x0102_1994;

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It does not exist, is not a directory, or cannot be read.
    #[error("cannot serve {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel cannot resolve paths beneath a directory: it is older than Linux 5.6, or a sandbox forbids it.
    #[error("the system has no openat2, without which a directory cannot be served safely")]
    NoOpenat2,
    /// The index in the state directory cannot be used.
    #[error("cannot use {}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory is the state directory itself.
    #[error("{} is the state directory: clients must not read the secret in it", path.display())]
    ServesState {
        /// The directory.
        path: PathBuf,
    },
    /// Another server serves the same directory with the same state.
    #[error("another server is serving this directory with the state in {}", path.display())]
    InUse {
        /// The state directory.
        path: PathBuf,
    },
}

/// Which of the kernel's offers the server uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// Handles with which the kernel opens files.
    pub(super) kernel_handles: bool,
    /// Handles as proof that a file is the right one.
    pub(super) proofs: bool,
    /// Positions in directories as cookies.
    pub(super) positions: bool,
    /// Access control lists and extended attributes.
    pub(super) lists_and_xattrs: bool,
    /// The directory may use one in this many of the files that the process may open.
    pub(super) part: u64,
}

impl Default for Ways {
    fn default() -> Self {
        Self { kernel_handles: true, proofs: true, positions: true, lists_and_xattrs: true, part: 1 }
    }
}

impl DirectoryFs {
    /// Serves the directory at `path`. Acts as the callers if the calling thread runs as the superuser, else as itself.
    ///
    /// # Errors
    /// If the directory or the index of its files in `state` cannot be used.
    pub fn open(path: &Path, state: &StateDirectory, queue: Arc<Queue>, env: &Env) -> Result<Self, OpenError> {
        Self::open_one_of(1, path, state, queue, env)
    }

    /// The same for one of several directories that the program serves: they share its limit of open files evenly.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_one_of(
        directories: usize,
        path: &Path,
        state: &StateDirectory,
        queue: Arc<Queue>,
        env: &Env,
    ) -> Result<Self, OpenError> {
        let part = u64::try_from(directories).unwrap_or(u64::MAX).max(1);
        Self::open_with(path, state, queue, env, Ways { part, ..Ways::default() })
    }

    /// The same as [`open`](Self::open), but leaves some of the kernel's offers unused.
    pub(super) fn open_with(
        path: &Path,
        state: &StateDirectory,
        queue: Arc<Queue>,
        env: &Env,
        ways: Ways,
    ) -> Result<Self, OpenError> {
        let directory = |source: Errno| OpenError::Directory { path: path.to_owned(), source: source.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = fs::open(path, flags, Mode::empty()).map_err(directory)?;
        match resolve::open_beneath(&root_fd, c".", OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOSYS | Errno::PERM) => return Err(OpenError::NoOpenat2),
            other => other.map_err(directory)?,
        };
        let root_path_fd = resolve::reopen(&root_fd, OFlags::PATH | OFlags::DIRECTORY).map_err(directory)?;
        let stat = attributes::stat(&root_fd).map_err(directory)?;
        let space = fstatvfs(&root_fd).map_err(directory)?;
        let kind = fstatfs(&root_fd).map_err(directory)?.f_type as u64;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let file_system = match space.f_fsid {
            0 => u64::from(device.0) << 32 | u64::from(device.1),
            id => id,
        };
        // The file system's own id is not enough: handles of one directory must not work in another.
        let id = hash(&[file_system, stat.stx_ino, stat.stx_btime.tv_sec as u64, stat.stx_btime.tv_nsec.into()]);
        let hidden =
            Hidden::open(state.path()).map_err(|source| OpenError::Index { path: state.path().to_owned(), source })?;
        if hidden.is(&stat) {
            return Err(OpenError::ServesState { path: path.to_owned() });
        }
        let (index, lock) = index_files::open(state.path(), id)?;
        let identity = Identity::current().map_err(directory)?;
        let by_handle = ways.kernel_handles && identity.is_privileged() && resolve::has_kernel_handles(&root_fd);
        let ids = match by_handle {
            true => Ids::Kernel,
            false if ways.proofs => Ids::without_opening(&root_fd, &stat),
            false => Ids::Born,
        };
        let (acls, xattrs) = match ways.lists_and_xattrs {
            true => (posix_acl::has_acls(&root_fd), xattr::has_xattrs(&root_fd)),
            false => (false, false),
        };
        let root_id = ids.of(&root_path_fd, &stat);
        let clone_bytes = copy::clone_unit(&root_fd, space.f_bsize);
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / ways.part;
        let limit = object_limit(descriptors);
        let inner = Inner {
            path: path.to_owned(),
            clock: env.clock.clone(),
            root: Arc::new(Object::new(root_id, root_path_fd, attributes::file_type(&stat))),
            root_fd,
            root_device: device,
            root_inode: stat.stx_ino,
            id,
            identity,
            hidden,
            ids,
            stable_cookies: ways.positions && STABLE_COOKIES.contains(&kind),
            local: LOCAL.contains(&kind),
            in_memory: kind == TMPFS,
            max_name_bytes: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
            clone_bytes,
            acls,
            xattrs,
            cache: Cache::new(limit, env.clock.clone()),
            beside: Beside::new(),
            uncommitted: Uncommitted::new((limit / UNCOMMITTED_PART).max(1)),
            open_files: Room::new(open_limit(descriptors)),
            leases: Leases::default(),
            losses: Losses::default(),
            sync_failures: seldom::Seldom::default(),
            index: Mutex::new(index),
            kept: Kept::default(),
            index_failures: seldom::Seldom::default(),
            #[cfg(test)]
            synchronised: Mutex::default(),
            acl_failures: seldom::Seldom::default(),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner), queue, answers: Answers::Stable })
    }
}

/// How many files the cache keeps if the directory may have `descriptors` files open: their descriptors, with all that
/// callers have opened, take at most half; the rest is for connections.
pub(super) fn object_limit(descriptors: u64) -> usize {
    (descriptors / 2 / (1 + object::MAX_OPENED as u64)).min(MAX_OBJECTS) as usize
}

/// How many files clients may have open at a time, each for one access, if the directory may have `descriptors` files
/// open: each takes at most two, and all together a quarter.
pub(super) fn open_limit(descriptors: u64) -> usize {
    usize::try_from(descriptors / 4 / 2).unwrap_or(usize::MAX).clamp(1, MAX_OPEN_FILES)
}

pub(super) fn hash(words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&[1; 16]);
    for word in words {
        hasher.write(&word.to_be_bytes());
    }
    hasher.finish()
}
