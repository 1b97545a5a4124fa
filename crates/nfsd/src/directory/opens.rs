//! Files that clients have open: one [`Open`] for each file and access, however many owners share it.
//!
//! The server checks rights at each open of a file. The open file then reads and writes by its own descriptors, and
//! stays until its last owner has closed it, even if the file has lost its last name. The number of files that are open
//! at a time is limited, since each has a descriptor or two.

use super::{
    Inner, Object, OfdLocks,
    access::Owner,
    attributes::{fault, stat},
    object::Mode,
    resolve::reopen,
};
use crate::{Access, Caller, Failure, Fault, FileId, OpenFile, Told, Via, claims::HostLocks, failed};
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, Statx},
};
use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The opens of one file, by access.
#[derive(Default)]
pub(super) struct Opens {
    by_access: Mutex<[Weak<Open>; 3]>,
    /// How many opens there are or are about to be.
    count: AtomicUsize,
    /// The host's locks, while anything is locked: one descriptor for all owners that have the file open.
    locks: Mutex<KnownLocks>,
}

/// The host's locks on a file.
#[derive(Default)]
struct KnownLocks {
    locks: Weak<OfdLocks>,
    /// They are for reading only because the file was leased.
    reads_alone: bool,
}

impl Opens {
    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Whether there is exactly one.
    fn is_only(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 1
    }

    /// A descriptor of the file, if a client has it open.
    pub(super) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        if !self.any() {
            return None;
        }
        let open = self.lock().iter().find_map(Weak::upgrade)?;
        open.descriptor(Mode::Write).or_else(|| open.descriptor(Mode::Read))
    }

    /// The lease has ended: an open for reading must no longer use the lease's descriptor.
    pub(super) fn return_borrowed(&self) {
        let reading = self.lock().get(Access::Read as usize).and_then(Weak::upgrade);
        if let Some(open) = reading {
            open.return_borrowed();
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Weak<Open>; 3]> {
        self.by_access.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a file after its last name is removed.
struct Pin(Arc<Object>);

impl Pin {
    fn new(object: Arc<Object>) -> Self {
        object.opens.count.fetch_add(1, Ordering::SeqCst);
        Self(object)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.opens.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts the open files against their limit.
pub(super) struct Room {
    used: AtomicUsize,
    most: usize,
}

impl Room {
    /// Room for this many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most })
    }

    /// How many there is room for.
    #[cfg(test)]
    pub(super) fn most(&self) -> usize {
        self.most
    }

    fn take(self: &Arc<Self>) -> Option<Place> {
        let take = |used: usize| (used < self.most).then_some(used + 1);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        Some(Place(self.clone()))
    }
}

struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A file that is open for one access.
pub(super) struct Open {
    pin: Pin,
    access: Access,
    read: RwLock<Option<Arc<OwnedFd>>>,
    write: Option<Arc<OwnedFd>>,
    /// Its descriptor for reading was the lease's when it was opened, and can write, too.
    is_borrowed: bool,
    _place: Place,
}

impl Open {
    /// The file.
    pub(super) fn object(&self) -> &Arc<Object> {
        &self.pin.0
    }

    /// Its descriptor for this mode, if it is open for it.
    pub(super) fn descriptor(&self, mode: Mode) -> Option<Arc<OwnedFd>> {
        match mode {
            Mode::Read => self.read.read().unwrap_or_else(PoisonError::into_inner).clone(),
            Mode::Write => self.write.clone(),
            Mode::Both => None,
        }
    }

    /// The lease has ended: replaces the lease's descriptor by its own, which only reads, so that programs of the host
    /// can execute the file.
    fn return_borrowed(&self) {
        if !self.is_borrowed {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match reopen(&self.object().fd, flags) {
            Ok(own) => *self.read.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(own)),
            Err(error) => tracing::debug!(%error, "a file that is only read keeps a descriptor that can write it"),
        }
    }
}

impl OpenFile for Open {
    fn file(&self) -> FileId {
        self.object().id
    }

    fn access(&self) -> Access {
        self.access
    }
}

/// Whether both exist and are the same.
fn same(one: Option<&Arc<OwnedFd>>, other: Option<&Arc<OwnedFd>>) -> bool {
    one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
}

/// The host's locks on an open file. `None` if the server may not read it.
pub(super) fn host_locks(open: &Arc<dyn OpenFile>) -> Option<Arc<dyn HostLocks>> {
    let open: &dyn Any = &**open;
    let object = open.downcast_ref::<Open>()?.object();
    let mut known = object.opens.locks.lock().unwrap_or_else(PoisonError::into_inner);
    // To open it for writing would break the lease of the clients that have it delegated for reading; but then no other
    // client has it open for writing, or locks it for writing.
    let reads_alone = object.leased.is_for_reading();
    if let Some(locks) = known.locks.upgrade().filter(|_| reads_alone || !known.reads_alone) {
        return Some(locks);
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    // Locks belong to the open file description: this must be one of its own.
    let to_read = || reopen(&object.fd, OFlags::RDONLY | flags);
    let fd = if reads_alone {
        to_read().ok()?
    } else {
        // If the client that locks here has the file delegated for writing, the delegation is recalled: its only
        // descriptor cannot be shared.
        object.leased.give_up_for(Mode::Both);
        reopen(&object.fd, OFlags::RDWR | flags).or_else(|_| to_read()).ok()?
    };
    let locks = Arc::new(OfdLocks::new(fd).ok()?);
    *known = KnownLocks { locks: Arc::downgrade(&locks), reads_alone };
    Some(locks)
}

impl Inner {
    /// Opens a file for a caller that may do that now.
    pub(super) fn open_file(
        &self,
        caller: &Caller,
        file: FileId,
        access: Access,
        owner: Owner,
    ) -> Told<Arc<dyn OpenFile>> {
        let object = self.present(file).map_err(failed)?;
        match self.try_open(caller, &object, access, owner) {
            Ok(open) => Ok(open),
            Err(fault) => Err(Failure { fault, info: self.now(&object) }),
        }
    }

    fn try_open(
        &self,
        caller: &Caller,
        object: &Arc<Object>,
        access: Access,
        owner: Owner,
    ) -> Result<Arc<Open>, Fault> {
        let descriptor = |mode| self.open(caller, object, mode, owner).map(|(file, _)| file);
        // NFS4-8881-18.16.3-a
        let (read, write) = match access {
            Access::Read => (Some(descriptor(Mode::Read)?), None),
            Access::Write => (None, Some(descriptor(Mode::Write)?)),
            // One descriptor for both if possible: a lease for writing allows no other.
            Access::Both => match descriptor(Mode::Both) {
                Ok(both) => (Some(both.clone()), Some(both)),
                Err(Fault::Denied) => (Some(descriptor(Mode::Read)?), Some(descriptor(Mode::Write)?)),
                Err(fault) => return Err(fault),
            },
        };
        let pin = Pin::new(object.clone());
        // The last name may have been removed after the look-up, when nothing kept the file.
        if stat(&object.fd).map_err(fault)?.stx_nlink == 0 && object.opens.is_only() {
            return Err(Fault::Stale);
        }
        let mut by_access = object.opens.lock();
        let Some(shared) = by_access.get_mut(access as usize) else { return Err(Fault::Internal) };
        if let Some(open) = shared.upgrade() {
            return Ok(open);
        }
        // More open files would leave no descriptors for other clients.
        let place = self.open_files.take().ok_or(Fault::Later)?;
        let is_borrowed = write.is_none() && same(read.as_ref(), object.leased.shared().as_ref());
        let open = Arc::new(Open { pin, access, read: RwLock::new(read), write, is_borrowed, _place: place });
        *shared = Arc::downgrade(&open);
        Ok(open)
    }

    /// The object and the descriptor for a read or write: of the open file, or one that the caller may open.
    pub(super) fn through(&self, via: &Via, mode: Mode) -> Result<(Arc<Object>, Arc<OwnedFd>), Fault> {
        match via.opened_as::<Open>() {
            Some(open) => {
                let descriptor = open.descriptor(mode).ok_or(Fault::Denied)?;
                Ok((open.object().clone(), descriptor))
            }
            None => {
                let object = self.object(via.file())?;
                let (descriptor, _) = self.open(&via.caller, &object, mode, Owner::Always)?;
                Ok((object, descriptor))
            }
        }
    }

    /// The same, for the file's object with the kernel's attributes of now, if the file is there.
    pub(super) fn through_as_of(
        &self,
        stat: &Statx,
        via: &Via,
        object: &Object,
        mode: Mode,
    ) -> Result<Arc<OwnedFd>, Fault> {
        match via.opened_as::<Open>() {
            Some(open) => open.descriptor(mode).ok_or(Fault::Denied),
            None => self.open_as_of(stat, &via.caller, object, mode, Owner::Always),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let room = Room::new(2);
        let places = [room.take().unwrap(), room.take().unwrap()];
        assert!(room.take().is_none());
        drop(places);
        assert!(room.take().is_some());
    }
}
