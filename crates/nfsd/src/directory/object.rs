//! Open files, and a bounded cache of them.
//!
//! An object holds a descriptor that names a file without opening it (`O_PATH`), and a few that callers have opened for
//! reading or writing. What a caller opened is used again by the same caller only, and only while the file's owner,
//! group and mode are what they were: whoever may no longer read stops reading. Descriptors are closed when the cache
//! has dropped the object and the last call has finished with it.

use crate::{Caller, FileId};
use rpcrdma_nfs::v3::FileType;
use rustix::{fd::OwnedFd, fs::Statx};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most descriptors that one object keeps for its callers.
pub(super) const MAX_OPENED: usize = 4;
/// Into how many parts the cache is divided, each with its lock.
const SHARDS: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who may do what with a file, as far as its inode says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rights {
    mode: u16,
    uid: u32,
    gid: u32,
}

impl From<&Statx> for Rights {
    fn from(stat: &Statx) -> Self {
        Self { mode: stat.stx_mode, uid: stat.stx_uid, gid: stat.stx_gid }
    }
}

fn changed(stat: &Statx) -> (i64, u32) {
    (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)
}

/// For what a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

struct Opened {
    caller: Caller,
    mode: Mode,
    rights: Rights,
    /// When the inode had last changed, as the kernel says: access lists change without a trace in the mode.
    changed: (i64, u32),
    file: Arc<OwnedFd>,
}

/// A file.
pub(super) struct Object {
    pub(super) id: FileId,
    pub(super) fd: OwnedFd,
    pub(super) file_type: FileType,
    opened: Mutex<Vec<Opened>>,
    /// Held while attributes are taken before a change, the change is made, and they are taken after it.
    change: Mutex<()>,
}

impl Object {
    pub(super) fn new(id: FileId, fd: OwnedFd, file_type: FileType) -> Self {
        Self { id, fd, file_type, opened: Mutex::default(), change: Mutex::default() }
    }

    /// Waits for other changes of the same object through this server.
    pub(super) fn begin_change(&self) -> MutexGuard<'_, ()> {
        lock(&self.change)
    }

    /// What the caller has opened, whatever became of the rights since: check the file's with [`still_may`].
    ///
    /// [`still_may`]: Self::still_may
    pub(super) fn opened(&self, caller: &Caller, mode: Mode) -> Option<Arc<OwnedFd>> {
        let opened = lock(&self.opened);
        opened.iter().find(|opened| opened.mode == mode && opened.caller == *caller).map(|opened| opened.file.clone())
    }

    /// Whether the caller opened the file under the rights that it has now. If not, forgets what was opened. With
    /// `strictly`, any change of the inode counts, since it may be one of an access list; but not for the owner, who may
    /// always.
    pub(super) fn still_may(&self, caller: &Caller, mode: Mode, stat: &Statx, strictly: bool) -> bool {
        let rights = Rights::from(stat);
        let mut opened = lock(&self.opened);
        let is_allowed = |opened: &Opened| {
            let is_same = !strictly || opened.caller.uid == rights.uid || opened.changed == changed(stat);
            opened.rights == rights && is_same
        };
        opened.retain(is_allowed);
        opened.iter().any(|opened| opened.mode == mode && opened.caller == *caller)
    }

    /// Keeps what a caller has opened.
    pub(super) fn keep(&self, caller: &Caller, mode: Mode, stat: &Statx, file: Arc<OwnedFd>) {
        let mut opened = lock(&self.opened);
        opened.retain(|opened| opened.mode != mode || opened.caller != *caller);
        if opened.len() == MAX_OPENED {
            opened.remove(0);
        }
        opened.push(Opened { caller: caller.clone(), mode, rights: stat.into(), changed: changed(stat), file });
    }

    /// Closes what was opened for writing, so that the file can be executed.
    pub(super) fn forget_writers(&self) {
        lock(&self.opened).retain(|opened| opened.mode != Mode::Write);
    }
}

#[derive(Default)]
struct Shard {
    objects: HashMap<FileId, (Arc<Object>, bool)>,
    /// Candidates for eviction, oldest first; one that was used since its last turn gets another.
    order: VecDeque<FileId>,
}

/// A cache of objects.
pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    shard_limit: usize,
}

impl Cache {
    /// A cache of at most `limit` objects, at least one for each of its 16 parts.
    pub(super) fn new(limit: usize) -> Self {
        Self { shards: Default::default(), shard_limit: (limit / SHARDS).max(1) }
    }

    fn shard(&self, id: FileId) -> MutexGuard<'_, Shard> {
        let sum = id.as_slice().iter().fold(0usize, |sum, octet| sum.wrapping_mul(31).wrapping_add((*octet).into()));
        lock(&self.shards[sum % SHARDS])
    }

    pub(super) fn get(&self, id: FileId) -> Option<Arc<Object>> {
        let mut shard = self.shard(id);
        let (object, used) = shard.objects.get_mut(&id)?;
        *used = true;
        Some(object.clone())
    }

    /// Adds an object, or returns the one that has its id already.
    pub(super) fn insert(&self, object: Object) -> Arc<Object> {
        let id = object.id;
        let mut evicted = Vec::new();
        let mut shard = self.shard(id);
        if let Some((object, used)) = shard.objects.get_mut(&id) {
            *used = true;
            return object.clone();
        }
        while shard.objects.len() >= self.shard_limit {
            let Some(oldest) = shard.order.pop_front() else { break };
            match shard.objects.get_mut(&oldest) {
                Some((_, used)) if *used => {
                    *used = false;
                    shard.order.push_back(oldest);
                }
                _ => evicted.extend(shard.objects.remove(&oldest)),
            }
        }
        let object = Arc::new(object);
        shard.objects.insert(id, (object.clone(), false));
        shard.order.push_back(id);
        drop(shard);
        // Closing may take long; it happens here, without the lock.
        drop(evicted);
        object
    }

    /// Forgets an object that was removed.
    pub(super) fn remove(&self, id: FileId) {
        let mut shard = self.shard(id);
        let removed = shard.objects.remove(&id);
        shard.order.retain(|other| *other != id);
        drop(shard);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::attributes::stat;
    use super::*;
    use std::fs::File;

    fn object(number: u64) -> Object {
        let id = FileId::new(&number.to_be_bytes()).unwrap();
        Object::new(id, File::open("/dev/null").unwrap().into(), FileType::Character)
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let cache = Cache::new(SHARDS * 4);
        let first = cache.insert(object(0));
        for number in 1..1000 {
            cache.insert(object(number));
            assert!(cache.get(first.id).is_some(), "in use at {number}");
        }
        let held: usize = cache.shards.iter().map(|shard| lock(shard).objects.len()).sum();
        let ordered: usize = cache.shards.iter().map(|shard| lock(shard).order.len()).sum();
        assert_eq!((held, ordered), (SHARDS * 4, SHARDS * 4));
        cache.remove(first.id);
        assert!(cache.get(first.id).is_none());
        let again = cache.insert(object(0));
        assert!(Arc::ptr_eq(&again, &cache.insert(object(0))));
    }

    #[test]
    fn what_was_opened_is_the_callers_own_while_rights_stay() {
        let object = object(0);
        let file = || Arc::new(OwnedFd::from(File::open("/dev/null").unwrap()));
        let mut stat = stat(&object.fd).unwrap();
        let user = |uid| Caller { uid, ..Caller::root() };
        object.keep(&user(1), Mode::Read, &stat, file());
        assert!(object.opened(&user(1), Mode::Read).is_some());
        assert!(object.opened(&user(2), Mode::Read).is_none());
        assert!(object.opened(&user(1), Mode::Write).is_none());
        assert!(object.still_may(&user(1), Mode::Read, &stat, true));
        stat.stx_ctime.tv_nsec ^= 1;
        assert!(object.still_may(&user(1), Mode::Read, &stat, false));
        assert!(!object.still_may(&user(1), Mode::Read, &stat, true));
        object.keep(&user(1), Mode::Read, &stat, file());
        stat.stx_mode ^= 0o400;
        assert!(!object.still_may(&user(1), Mode::Read, &stat, false));
        assert!(object.opened(&user(1), Mode::Read).is_none());
        for uid in 0..10 {
            object.keep(&user(uid), Mode::Write, &stat, file());
        }
        assert_eq!(lock(&object.opened).len(), MAX_OPENED);
        object.forget_writers();
        assert!(lock(&object.opened).is_empty());
    }
}
