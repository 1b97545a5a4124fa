//! Finding files: from an id to an open descriptor, and from a name in a directory to an id (see [`ids`]).
//!
//! [`ids`]: super::ids

use super::{
    Ids, Inner, Object,
    attributes::{self, fault, file_type, stat},
    hash,
    ids::{BORN, COVER, KERNEL, PROVEN, is_indexed, kernel_handle},
    index::Place,
    recent::{recent, stat_shared},
    sys::{self, KernelHandle},
};
use crate::{Caller, Failure, Fault, FileId, Found, Told, failed};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_oncrpc::Arrival;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, open, openat, openat2, readlink, statx},
    io::Errno,
    path::{Arg, DecInt},
};
use siphasher::sip::SipHasher24;
use std::{
    hash::Hasher,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{Arc, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

/// The most directories that the code opens to find a file that only the index knows, or climbs to find where a
/// directory lies if its path is too long for the kernel to return. Real trees are much less deep.
pub(super) const MAX_DEPTH: usize = 1024;

/// How often the code tries a handle for which the kernel has no memory; then the client must try later.
const HANDLE_TRIES: usize = 20;
/// The time between two tries; to make a file takes less.
const HANDLE_PAUSE: Duration = Duration::from_millis(1);

/// A mount point below the served directory: an empty directory that belongs to the superuser.
#[derive(Clone, Copy)]
pub(super) struct Cover {
    pub(super) number: u64,
}

impl Cover {
    fn new(directory: FileId, name: &[u8]) -> Self {
        let mut hasher = SipHasher24::new_with_key(&[3; 16]);
        hasher.write(directory.as_slice());
        hasher.write(name);
        Self { number: hasher.finish() }
    }

    pub(super) fn of(file: FileId) -> Option<Self> {
        match file.as_slice() {
            [COVER, number @ ..] => number.try_into().ok().map(|number| Self { number: u64::from_be_bytes(number) }),
            _ => None,
        }
    }

    fn id(self) -> FileId {
        let mut octets = [COVER; 9];
        octets[1..].copy_from_slice(&self.number.to_be_bytes());
        FileId::new(&octets).expect("nine bytes fit an id")
    }

    pub(super) fn attributes(self, file_system: u64) -> Attributes {
        let mut told = Attributes::new(FileType::Directory, file_system, self.number);
        (told.mode, told.links) = (0o555, 2);
        told
    }
}

/// Opens a name (or `.`) beneath a directory, and follows no link.
pub(super) fn open_beneath(directory: impl AsFd, name: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve =
        // NFS3-ESC-a, NFS3-ESC-c
        ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens the file of a handle. Linux also returns "no memory" for the handle of a removed file at the moment when a new
/// file takes its inode number; a moment later it gives the right answer.
fn open_by_handle(root: &OwnedFd, handle: &KernelHandle) -> Result<OwnedFd, Errno> {
    for _ in 1..HANDLE_TRIES {
        match sys::open_by_handle(root.as_fd(), handle) {
            Err(Errno::NOMEM) => std::thread::sleep(HANDLE_PAUSE),
            other => return other,
        }
    }
    sys::open_by_handle(root.as_fd(), handle)
}

/// The path under which the kernel lets a process reach its own descriptor.
pub(super) fn own_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The directory of the process's own descriptors. It stays open, because to find it takes as long as the work there.
/// `None` if it could not be opened.
fn own_descriptors() -> Option<BorrowedFd<'static>> {
    static OPENED: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = OPENED.get_or_init(|| open("/proc/self/fd", flags, Mode::empty()).ok());
    opened.as_ref().map(AsFd::as_fd)
}

/// Opens the same file again, with other flags.
pub(super) fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match own_descriptors() {
        Some(own) => openat(own, DecInt::from_fd(fd), flags, Mode::empty()),
        None => open(own_path(fd), flags, Mode::empty()),
    }
}

/// Whether the kernel makes handles here and lets us open them.
pub(super) fn has_kernel_handles(root: &OwnedFd) -> bool {
    sys::name_to_handle(root.as_fd()).and_then(|handle| sys::open_by_handle(root.as_fd(), &handle)).is_ok()
}

impl Inner {
    pub(super) fn index(&self) -> MutexGuard<'_, super::Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of an id, but not one that covers a mount point.
    pub(super) fn object(&self, id: FileId) -> Result<Arc<Object>, Fault> {
        if id == self.root.id {
            return Ok(self.root.clone());
        }
        if let Some(object) = self.cache.get(id) {
            return Ok(object);
        }
        match id.as_slice().first() {
            Some(&KERNEL) if self.ids == Ids::Kernel => {
                let handle = kernel_handle(id).ok_or(Fault::BadId)?;
                let fd = open_by_handle(&self.root_fd, &handle).map_err(|error| match error {
                    Errno::STALE | Errno::INVAL | Errno::NOENT => Fault::Stale,
                    other => fault(other),
                })?;
                self.adopt(id, fd)
            }
            Some(&(BORN | PROVEN)) => self.find(id),
            Some(&COVER) => Err(Fault::IsDirectory),
            _ => Err(Fault::Stale),
        }
    }

    /// Makes an object of a descriptor that was just opened.
    fn adopt(&self, id: FileId, fd: OwnedFd) -> Result<Arc<Object>, Fault> {
        let stat = stat(&fd).map_err(fault)?;
        // NFS3-ESC-d
        if stat.stx_nlink == 0 || self.hidden.is(&stat) || self.hidden.holds(&stat) {
            return Err(Fault::Stale);
        }
        Ok(self.cache.insert(Object::new(id, fd, file_type(&stat))))
    }

    /// Finds a file that only the index knows: goes up from place to place to a directory that is open, and down again.
    /// The object gets the id that the file would get today.
    fn find(&self, id: FileId) -> Result<Arc<Object>, Fault> {
        if self.is_root(id)? {
            return Ok(self.root.clone());
        }
        let places = self.index().places(id).to_vec();
        places.iter().rev().find_map(|place| self.find_at(id, place)).ok_or(Fault::Stale)
    }

    fn find_at(&self, id: FileId, place: &Place) -> Option<Arc<Object>> {
        // Directories have one place each, so the way up is a list; the code walks down without recursion.
        let mut way = vec![(id, place.name.clone())];
        let mut above = place.directory;
        let mut directory = loop {
            if way.len() > MAX_DEPTH {
                return None;
            }
            if self.is_root(above).ok()? {
                break self.root.clone();
            }
            if let Some(object) = self.cache.get(above) {
                break object;
            }
            if above.as_slice().first() == Some(&KERNEL) {
                break self.object(above).ok()?;
            }
            let place = self.index().places(above).last()?.clone();
            way.push((above, place.name));
            above = place.directory;
        };
        while let Some((id, name)) = way.pop() {
            let fd = open_beneath(&directory.fd, &name[..], OFlags::PATH).ok()?;
            let stat = stat(&fd).ok()?;
            let own = self.ids.of(&fd, &stat);
            if self.hidden.is(&stat) || !self.ids.is(id, own, &stat) {
                return None;
            }
            directory = self.cache.insert(Object::new(own, fd, file_type(&stat)));
        }
        Some(directory)
    }

    /// Whether an id is the served directory's own id, perhaps in the form of an earlier version.
    fn is_root(&self, id: FileId) -> Result<bool, Fault> {
        let root = &self.root;
        if id == root.id || !is_indexed(id) {
            return Ok(id == root.id);
        }
        Ok(self.ids.is(id, root.id, &stat(&root.fd).map_err(fault)?))
    }

    /// A directory that lies beneath the served one at present.
    pub(super) fn directory(&self, id: FileId) -> Result<Arc<Object>, Fault> {
        let object = self.found_directory(id)?;
        self.check_present(&object)?;
        Ok(object)
    }

    /// A directory, wherever it lies at present: see [`present_stat`](Self::present_stat).
    pub(super) fn found_directory(&self, id: FileId) -> Result<Arc<Object>, Fault> {
        if Cover::of(id).is_some() {
            return Err(Fault::ReadOnly);
        }
        let object = self.object(id)?;
        if object.file_type == FileType::Directory { Ok(object) } else { Err(Fault::NotDirectory) }
    }

    /// The file of an id; a directory must lie beneath the served one at present.
    pub(super) fn present(&self, id: FileId) -> Result<Arc<Object>, Fault> {
        let object = self.object(id)?;
        self.check_present(&object)?;
        Ok(object)
    }

    /// Fails if a directory has been moved out.
    fn check_present(&self, object: &Object) -> Result<(), Fault> {
        if object.file_type == FileType::Directory && object.id != self.root.id {
            self.present_stat(object)?;
        }
        Ok(())
    }

    /// The kernel's attributes of a directory; fails if it has been moved out.
    pub(super) fn present_stat(&self, directory: &Object) -> Result<Statx, Fault> {
        let stat = stat(&directory.fd).map_err(fault)?;
        let is_present = match directory.id == self.root.id {
            true => stat.stx_nlink > 0,
            false => self.is_beneath(&directory.fd, &stat)?,
        };
        if is_present { Ok(stat) } else { Err(Fault::Stale) }
    }

    /// Whether a directory lies in the served one, according to the kernel. A removed directory lies nowhere.
    fn is_beneath(&self, directory: &OwnedFd, own: &Statx) -> Result<bool, Fault> {
        // The kernel takes much longer to put a path together than to look a few steps up.
        if let Some(is_beneath) = self.is_near(directory, own) {
            return Ok(is_beneath);
        }
        let path = |fd: &OwnedFd| readlink(own_path(fd), Vec::new());
        match (path(&self.root_fd), path(directory)) {
            (Ok(root), Ok(path)) => {
                let root = root.to_bytes().strip_suffix(b"/").unwrap_or(root.to_bytes());
                let is_beneath = path.to_bytes().strip_prefix(root).is_some_and(|rest| rest.first() == Some(&b'/'));
                // NFS3-ESC-d
                if is_beneath && self.hidden.is_above(path.to_bytes()) && !self.hidden.is_above(root) {
                    return Ok(false);
                }
                // The kernel marks removed files like this; but it may also be part of a name.
                if is_beneath && path.to_bytes().ends_with(b" (deleted)") {
                    return Ok(stat(directory).map_err(fault)?.stx_nlink > 0);
                }
                Ok(is_beneath)
            }
            // For example, the path is too long for the kernel to return.
            _ => self.climb(directory).map_err(fault),
        }
    }

    /// The same, if the served directory or the hidden one is only a few steps above.
    fn is_near(&self, directory: &OwnedFd, own: &Statx) -> Option<bool> {
        if own.stx_nlink == 0 || self.hidden.is(own) {
            return Some(false);
        }
        for above in ["..", "../..", "../../.."] {
            // Another program may be moving it.
            let Ok(stat) = statx(directory, above, AtFlags::empty(), StatxFlags::BASIC_STATS) else { break };
            if self.hidden.is(&stat) {
                return Some(false);
            }
            if (stat.stx_ino, (stat.stx_dev_major, stat.stx_dev_minor)) == (self.root_inode, self.root_device) {
                return Some(true);
            }
        }
        None
    }

    /// The same, by going up.
    fn climb(&self, directory: &OwnedFd) -> Result<bool, Errno> {
        let mut above = open_parent(directory)?;
        let mut below = stat(directory)?;
        for _ in 0..MAX_DEPTH {
            if self.hidden.is(&below) {
                return Ok(false);
            }
            let here = stat(&above)?;
            let device = (here.stx_dev_major, here.stx_dev_minor);
            if (here.stx_ino, device) == (self.root_inode, self.root_device) {
                return Ok(true);
            }
            if here.stx_ino == below.stx_ino && device == (below.stx_dev_major, below.stx_dev_minor) {
                return Ok(false);
            }
            below = here;
            above = open_parent(&above)?;
        }
        Ok(false)
    }

    /// The id and object of a file that was found by a name. Remembers where the file was.
    pub(super) fn learn(&self, directory: &Object, name: &[u8], fd: OwnedFd) -> Result<(Arc<Object>, Statx), Fault> {
        let stat = stat(&fd).map_err(fault)?;
        // NFS3-ESC-d
        if self.hidden.is(&stat) {
            return Err(Fault::NotFound);
        }
        let id = self.ids.of(&fd, &stat);
        if id == self.root.id {
            return Ok((self.root.clone(), stat));
        }
        self.remember(id, directory, name)?;
        Ok((self.cache.insert(Object::new(id, fd, file_type(&stat))), stat))
    }

    /// Remembers where a file was seen, if the server needs that to find it again.
    pub(super) fn remember(&self, id: FileId, directory: &Object, name: &[u8]) -> Result<(), Fault> {
        if !is_indexed(id) {
            return Ok(());
        }
        let place = Place { directory: directory.id, name: Bytes::copy_from_slice(name) };
        self.index().add(id, place).map_err(|error| {
            // The server does not return a handle that would not survive.
            if let Some(failures) = self.index_failures.count() {
                tracing::error!(%error, failures, "the index of files cannot be written");
            }
            Fault::Io
        })
    }

    /// A file is no longer at this place.
    pub(super) fn forget(&self, id: FileId, directory: &Object, name: &[u8]) {
        let place = Place { directory: directory.id, name: Bytes::copy_from_slice(name) };
        if let Err(error) = self.index().remove(id, &place)
            && let Some(failures) = self.index_failures.count()
        {
            tracing::warn!(%error, failures, "the index of files cannot be written");
        }
    }

    pub(super) fn lookup(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Told<Found> {
        if let Some(cover) = Cover::of(directory) {
            let attributes = Some(cover.attributes(self.id));
            return match name {
                b"." => Ok(Found { file: directory, attributes: attributes.clone(), directory: attributes }),
                _ => Err(Failure { fault: Fault::NotFound, info: attributes }),
            };
        }
        let directory = self.directory(directory).map_err(failed)?;
        let found = self.lookup_in(caller, &directory, name);
        let above = stat(&directory.fd).ok().map(|stat| directory.told(&stat, self.id));
        match found {
            Ok((file, attributes)) => Ok(Found { file, attributes: Some(attributes), directory: above }),
            Err(fault) => Err(Failure { fault, info: above }),
        }
    }

    fn lookup_in(&self, caller: &Caller, directory: &Object, name: &[u8]) -> Result<(FileId, Attributes), Fault> {
        let assumed = self.identity.assume(caller).map_err(fault)?;
        let opened = match name {
            b"." => reopen(&directory.fd, OFlags::PATH),
            b".." if directory.id == self.root.id => reopen(&directory.fd, OFlags::PATH),
            b".." => open_parent(&directory.fd),
            name => open_beneath(&directory.fd, name, OFlags::PATH),
        };
        drop(assumed);
        let fd = match opened {
            Err(Errno::XDEV) => {
                let cover = Cover::new(directory.id, name);
                return Ok((cover.id(), cover.attributes(self.id)));
            }
            other => other.map_err(fault)?,
        };
        if matches!(name, b"." | b"..") {
            return self.above(fd);
        }
        let (object, stat) = self.learn(directory, name, fd)?;
        Ok((object.id, object.told(&stat, self.id)))
    }

    /// The directory above or itself, for `.` and `..`. It may have been moved out meanwhile.
    fn above(&self, fd: OwnedFd) -> Result<(FileId, Attributes), Fault> {
        let stat = stat(&fd).map_err(fault)?;
        let id = self.ids.of(&fd, &stat);
        if id != self.root.id && !self.is_beneath(&fd, &stat)? {
            return Err(Fault::Stale);
        }
        Ok((id, self.told(id, &stat)))
    }

    /// The file of an entry of a listing, as far as it is known. The caller still has to remember it.
    pub(super) fn entry(&self, directory: &Object, name: &[u8]) -> Option<(FileId, Attributes)> {
        match open_beneath(&directory.fd, name, OFlags::PATH) {
            Err(Errno::XDEV) => {
                let cover = Cover::new(directory.id, name);
                Some((cover.id(), cover.attributes(self.id)))
            }
            other => {
                let fd = other.ok()?;
                let stat = stat(&fd).ok()?;
                if self.hidden.is(&stat) {
                    return None;
                }
                let id = self.ids.of(&fd, &stat);
                let attributes = self.told(id, &stat);
                // A client that lists files with their attributes probably reads them next: then they are found without
                // the disk.
                if !is_indexed(id) && attributes.file_type == FileType::Regular {
                    self.cache.insert(Object::new(id, fd, FileType::Regular));
                }
                Some((id, attributes))
            }
        }
    }

    /// Attributes, if they are available without waiting.
    pub(super) fn attributes_now(&self, file: FileId, arrival: Option<Arrival>) -> Option<Result<Attributes, Fault>> {
        if let Some(cover) = Cover::of(file) {
            return Some(Ok(cover.attributes(self.id)));
        }
        if !self.local {
            return None;
        }
        let object = if file == self.root.id { self.root.clone() } else { self.cache.get(file)? };
        match self.seen(&object, arrival) {
            // A job closes it: closing the last descriptor of a large file takes time.
            Ok(None) => None,
            Ok(Some(attributes)) => Some(Ok(attributes)),
            Err(fault) => Some(Err(fault)),
        }
    }

    pub(super) fn attributes(&self, file: FileId) -> Result<Attributes, Fault> {
        match Cover::of(file) {
            Some(cover) => Ok(cover.attributes(self.id)),
            None => self.attributes_of(&*self.object(file)?),
        }
    }

    fn attributes_of(&self, object: &Object) -> Result<Attributes, Fault> {
        self.seen(object, None)?.ok_or_else(|| {
            self.gone(object.id);
            Fault::Stale
        })
    }

    /// Attributes; `None` if the file was removed.
    fn seen(&self, object: &Object, arrival: Option<Arrival>) -> Result<Option<Attributes>, Fault> {
        self.check_present(object)?;
        let stat = match recent(object, arrival, |_| true) {
            Some(stat) => stat,
            None => stat_shared(object, arrival).map_err(fault)?,
        };
        Ok((stat.stx_nlink > 0 || object.is_open()).then(|| object.told(&stat, self.id)))
    }

    /// The attributes of a file that may be kept.
    fn told(&self, id: FileId, stat: &Statx) -> Attributes {
        if id == self.root.id {
            return self.root.told(stat, self.id);
        }
        match self.cache.peek(id) {
            Some(object) => object.told(stat, self.id),
            None => attributes::attributes(stat, self.id),
        }
    }

    /// Fails if a file has no name and is not open.
    pub(super) fn check_there(&self, object: &Object, stat: &Statx) -> Result<(), Fault> {
        if stat.stx_nlink > 0 || object.is_open() {
            return Ok(());
        }
        self.gone(object.id);
        Err(Fault::Stale)
    }
}

fn open_parent(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(directory, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A number for a name in a listing of a directory without stable positions.
pub(super) fn name_hash(name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&[4; 16]);
    hasher.write(name);
    hash(&[hasher.finish()])
}
