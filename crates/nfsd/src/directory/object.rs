//! Open files, and a limited cache of them.
//!
//! An object holds a descriptor that names a file without opening it (`O_PATH`), and a few descriptors that callers
//! have opened for reading or writing. Only the caller that opened one uses it again, and only while the file's owner,
//! group and mode are unchanged: a caller that may no longer read stops reading. Descriptors are closed when the cache
//! has dropped the object and the last call has finished with it.
//!
//! A descriptor keeps the storage of a removed file, and a descriptor for writing keeps a program from being executed.
//! So [`Cache::sweep`] closes descriptors that were not used for some seconds, and those of files that were removed on
//! the host.

use super::{attributes, change_number::Unseen, leases::Leased, opens::Opens};
use crate::{Caller, FileId};
use foldhash::HashMap;
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_nfs::attr::{Attributes, FileType};
use rustix::{
    fd::OwnedFd,
    fs::{Statx, StatxAttributes},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The most descriptors that one object keeps for its callers.
pub(super) const MAX_OPENED: usize = 4;
/// A descriptor that was not used for this long is closed.
pub(super) const IDLE: Duration = Duration::from_secs(10);
/// A descriptor for writing is closed after this time: the file may be a program that a user of the host is about to
/// execute.
pub(super) const WRITER_IDLE: Duration = Duration::from_secs(5);
/// How many parts the cache has, each with its own lock.
const SHARDS: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file's rights, as far as its inode shows them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InodeRights {
    mode: u16,
    uid: u32,
    gid: u32,
    /// Whether nobody may change it, or only append to it, the superuser included.
    frozen: StatxAttributes,
}

impl From<&Statx> for InodeRights {
    fn from(stat: &Statx) -> Self {
        let frozen = stat.stx_attributes & (StatxAttributes::IMMUTABLE | StatxAttributes::APPEND);
        Self { mode: stat.stx_mode, uid: stat.stx_uid, gid: stat.stx_gid, frozen }
    }
}

/// What a kept descriptor is worth to its caller.
#[derive(Debug)]
pub(super) enum Kept {
    /// The caller has none, or may no longer use it.
    None,
    /// The caller opened the file under its present rights.
    Valid(Arc<OwnedFd>),
    /// The inode has changed since, perhaps by a change of an access control list.
    Doubtful(Doubtful),
}

/// A descriptor of which only the kernel knows whether the caller may still open the file in this mode.
#[derive(Debug)]
pub(super) struct Doubtful {
    pub(super) file: Arc<OwnedFd>,
    pub(super) mode: Mode,
    /// When the kernel last said that the caller may, the file had these rights, too, and no access control list.
    pub(super) was_unlisted: bool,
}

/// Whether a file's rights are the same, and nothing has changed its inode, as far as the file system's clock shows.
pub(super) fn is_unchanged(before: &Statx, after: &Statx) -> bool {
    changed(before) == changed(after) && InodeRights::from(before) == InodeRights::from(after)
}

fn changed(stat: &Statx) -> (i64, u32) {
    (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)
}

/// What a file was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
    /// Both, by one descriptor.
    Both,
}

impl Mode {
    /// Whether a descriptor with this mode serves a caller that wants another mode.
    fn serves(self, wanted: Self) -> bool {
        self == wanted || self == Self::Both
    }
}

struct Opened {
    caller: Caller,
    mode: Mode,
    rights: InodeRights,
    /// When the inode last changed, by the kernel: access control lists change without a trace in the mode.
    changed: (i64, u32),
    /// The kernel has said that the caller may open the file, when that had these rights and no access control list.
    is_unlisted: bool,
    used: Timestamp,
    file: Arc<OwnedFd>,
}

/// A file.
pub(super) struct Object {
    /// Distinguishes it from all other objects of this process.
    pub(super) number: u64,
    pub(super) id: FileId,
    pub(super) fd: OwnedFd,
    pub(super) file_type: FileType,
    /// When it was last asked for, in nanoseconds of the cache's clock.
    used: AtomicU64,
    opened: Mutex<Vec<Opened>>,
    /// Held from taking attributes before a change until taking them after it.
    change: Mutex<()>,
    /// How many changes through this server have ended.
    changes: AtomicU64,
    /// Changes that the file system's clock was too coarse to show.
    unseen: Unseen,
    /// What clients have open, whichever of their owners. While there is any open, the file stays after its last name
    /// is removed.
    pub(super) opens: Opens,
    /// The lease that keeps programs of the host from it.
    pub(super) leased: Leased,
}

impl Object {
    pub(super) fn new(id: FileId, fd: OwnedFd, file_type: FileType) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            id,
            fd,
            file_type,
            used: AtomicU64::default(),
            opened: Mutex::default(),
            change: Mutex::default(),
            changes: AtomicU64::default(),
            unseen: Unseen::default(),
            opens: Opens::default(),
            leased: Leased::default(),
        }
    }

    /// The attributes that the kernel returns, with its change number.
    pub(super) fn told(&self, stat: &Statx, file_system: u64) -> Attributes {
        let mut told = attributes::attributes(stat, file_system);
        told.change = told.change.wrapping_add(self.unseen.count(stat));
        told
    }

    /// How many changes through this server have ended.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A change has ended, whether or not it has succeeded: attributes from before it are old.
    pub(super) fn end_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Something was done to the object. The caller has its turn to change it ([`begin_change`](Self::begin_change)).
    pub(super) fn has_changed(&self, before: &Statx, after: &Statx) {
        self.unseen.note(before, after);
    }

    /// Whether a client has it open.
    pub(super) fn is_open(&self) -> bool {
        self.opens.any()
    }

    fn used(&self) -> Timestamp {
        Timestamp::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Waits for other changes of the same object through this server.
    pub(super) fn begin_change(&self) -> MutexGuard<'_, ()> {
        lock(&self.change)
    }

    /// The descriptor that the caller has opened, even if the rights have changed since: check that with [`still_may`].
    ///
    /// [`still_may`]: Self::still_may
    pub(super) fn opened(&self, caller: &Caller, mode: Mode) -> Option<Arc<OwnedFd>> {
        let mut opened = lock(&self.opened);
        let found = opened.iter_mut().find(|opened| opened.mode.serves(mode) && opened.caller.is_same_user(caller))?;
        found.used = self.used();
        Some(found.file.clone())
    }

    /// Whether the caller opened the file under its present rights.
    pub(super) fn still_may(&self, caller: &Caller, mode: Mode, stat: &Statx, keeping: Keeping) -> bool {
        matches!(self.kept(caller, mode, stat, keeping), Kept::Valid(_))
    }

    /// The descriptor that the caller has opened. Forgets all descriptors that were opened under other rights.
    pub(super) fn kept(&self, caller: &Caller, mode: Mode, stat: &Statx, keeping: Keeping) -> Kept {
        let rights = InodeRights::from(stat);
        let mut opened = lock(&self.opened);
        opened.retain(|opened| match keeping {
            Keeping::Strictly => opened.rights == rights,
            // NFS3-OWN-b
            Keeping::OfOwner { uid } => opened.caller.uid == uid && rights.uid == uid || opened.rights == rights,
        });
        let found = opened.iter_mut().find(|opened| opened.mode.serves(mode) && opened.caller.is_same_user(caller));
        let Some(found) = found else { return Kept::None };
        found.used = self.used();
        let is_certain = match keeping {
            Keeping::Strictly => found.caller.uid == rights.uid || found.changed == changed(stat),
            Keeping::OfOwner { .. } => true,
        };
        let file = found.file.clone();
        match is_certain {
            true => Kept::Valid(file),
            false => Kept::Doubtful(Doubtful { file, mode: found.mode, was_unlisted: found.is_unlisted }),
        }
    }

    /// The kernel has said whether a caller may still open the file as it has opened this descriptor
    /// ([`Kept::Doubtful`]); `stat` is from before that. `is_unlisted`: if it may, that does not come from an access
    /// control list.
    pub(super) fn answered(&self, file: &Arc<OwnedFd>, stat: &Statx, may: bool, is_unlisted: bool) {
        let mut opened = lock(&self.opened);
        // The caller may have opened the file anew meanwhile, under other rights.
        let Some(at) = opened.iter().position(|opened| Arc::ptr_eq(&opened.file, file)) else { return };
        if may {
            (opened[at].changed, opened[at].is_unlisted) = (changed(stat), is_unlisted);
        } else {
            opened.remove(at);
        }
    }

    /// Keeps a descriptor that a caller has opened.
    pub(super) fn keep(&self, caller: &Caller, mode: Mode, stat: &Statx, file: Arc<OwnedFd>) {
        let mut opened = lock(&self.opened);
        opened.retain(|opened| opened.mode != mode || !opened.caller.is_same_user(caller));
        if opened.len() == MAX_OPENED {
            opened.remove(0);
        }
        let (rights, changed, used) = (stat.into(), changed(stat), self.used());
        opened.push(Opened { caller: caller.clone(), mode, rights, changed, is_unlisted: false, used, file });
    }

    /// The caller itself has changed the file's rights, and goes on with the descriptors that it opened before.
    pub(super) fn renew(&self, caller: &Caller, before: &Statx, after: &Statx) {
        let is_its = |opened: &&mut Opened| opened.caller.is_same_user(caller) && opened.rights == before.into();
        for opened in lock(&self.opened).iter_mut().filter(is_its) {
            (opened.rights, opened.changed, opened.is_unlisted) = (after.into(), changed(after), false);
        }
    }

    /// Closes the descriptors for writing, so that the file can be executed.
    pub(super) fn forget_writers(&self) {
        lock(&self.opened).retain(|opened| opened.mode == Mode::Read);
    }

    /// Closes all descriptors of callers.
    pub(super) fn forget_opened(&self) {
        lock(&self.opened).clear();
    }

    /// Closes descriptors that were not used for long.
    fn sweep(&self, now: Timestamp) {
        lock(&self.opened).retain(|opened| {
            let idle = if opened.mode == Mode::Read { IDLE } else { WRITER_IDLE };
            now.since(opened.used) < idle
        });
    }
}

/// For which callers opened files stay open when the file's owner, group, mode or access list changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keeping {
    /// For none. After any other change of the inode, too, the kernel is asked again, since it may be a change of an
    /// access list; but only for callers that do not own the file, because a list does not bind the owner.
    Strictly,
    /// For the file's owner, who may override its mode (RFC 1813 section 4.4), if the owner is this user.
    OfOwner {
        /// The user.
        uid: u32,
    },
}

#[derive(Default)]
struct Shard {
    objects: HashMap<FileId, (Arc<Object>, bool)>,
    /// Candidates for eviction, oldest first; a candidate that was used since its last turn gets another turn.
    order: VecDeque<FileId>,
}

/// A cache of objects.
pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    shard_limit: usize,
    clock: Arc<dyn Clock>,
}

impl Cache {
    /// A cache of at most `limit` objects, at least one for each of its 16 parts.
    pub(super) fn new(limit: usize, clock: Arc<dyn Clock>) -> Self {
        Self { shards: Default::default(), shard_limit: (limit / SHARDS).max(1), clock }
    }

    fn use_now(&self, object: &Object) {
        object.used.store(self.clock.now().as_nanos(), Ordering::Relaxed);
    }

    fn shard(&self, id: FileId) -> MutexGuard<'_, Shard> {
        let sum = id.as_slice().iter().fold(0usize, |sum, octet| sum.wrapping_mul(31).wrapping_add((*octet).into()));
        lock(&self.shards[sum % SHARDS])
    }

    pub(super) fn get(&self, id: FileId) -> Option<Arc<Object>> {
        let mut shard = self.shard(id);
        let (object, used) = shard.objects.get_mut(&id)?;
        *used = true;
        self.use_now(object);
        Some(object.clone())
    }

    /// The same, but it does not count as a use.
    pub(super) fn peek(&self, id: FileId) -> Option<Arc<Object>> {
        self.shard(id).objects.get(&id).map(|(object, _)| object.clone())
    }

    /// Adds an object, or returns the object that already has its id.
    pub(super) fn insert(&self, object: Object) -> Arc<Object> {
        let id = object.id;
        let mut evicted = Vec::new();
        let mut shard = self.shard(id);
        if let Some((object, used)) = shard.objects.get_mut(&id) {
            *used = true;
            self.use_now(object);
            return object.clone();
        }
        self.use_now(&object);
        // A used object gets another turn. An object in use stays, so that no file has two objects.
        for _ in 0..2 * shard.order.len() {
            if shard.objects.len() < self.shard_limit {
                break;
            }
            let Some(oldest) = shard.order.pop_front() else { break };
            match shard.objects.get_mut(&oldest) {
                Some((object, used)) if *used || Arc::strong_count(object) > 1 => {
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
        // Closing may take long; it happens here, after the lock is released.
        drop(evicted);
        object
    }

    #[cfg(test)]
    pub(super) fn objects(&self) -> Vec<Arc<Object>> {
        self.shards
            .iter()
            .flat_map(|shard| lock(shard).objects.values().map(|(object, _)| object.clone()).collect::<Vec<_>>())
            .collect()
    }

    /// Closes what was not used for long and what was removed, and returns the removed files.
    pub(super) fn sweep(&self) -> Vec<FileId> {
        let now = self.clock.now();
        let mut removed = Vec::new();
        for shard in &self.shards {
            let objects: Vec<_> = lock(shard).objects.values().map(|(object, _)| object.clone()).collect();
            for object in objects {
                object.sweep(now);
                let has_name = attributes::stat(&object.fd).map_or(true, |stat| stat.stx_nlink > 0);
                let is_removed = !has_name && !object.is_open();
                if is_removed {
                    removed.push(object.id);
                }
                // Two references: the shard's and this loop's.
                let is_in_use = Arc::strong_count(&object) > 2;
                if is_removed || !is_in_use && now.since(object.used()) >= IDLE {
                    self.remove(object.id);
                }
            }
        }
        removed
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

    /// A clock that the test sets.
    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Hands {
        fn pass(&self, time: Duration) {
            self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
        }
    }

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, _: Timestamp) -> rpcrdma_env::BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }

        fn unix_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Checked at moments between the two limits, when one sort of descriptor is closed and the other is not.
    #[test]
    fn what_nobody_uses_is_closed_after_some_seconds() {
        let clock = Arc::new(Hands::default());
        let cache = Cache::new(SHARDS * 4, clock.clone());
        let (idle, busy) = (cache.insert(object(1)), cache.insert(object(2)));
        let told = stat(&idle.fd).unwrap();
        let user = Caller::root();
        for object in [&idle, &busy] {
            object.keep(&user, Mode::Write, &told, Arc::new(File::open("/dev/null").unwrap().into()));
            object.keep(&user, Mode::Read, &told, Arc::new(File::open("/dev/null").unwrap().into()));
        }
        let count = |object: &Object| lock(&object.opened).len();
        let moment = Duration::from_nanos(1);
        clock.pass(WRITER_IDLE - moment);
        cache.sweep();
        assert_eq!((count(&idle), count(&busy)), (2, 2));
        cache.get(busy.id).unwrap().opened(&user, Mode::Write).unwrap();
        clock.pass(moment);
        cache.sweep();
        assert_eq!((count(&idle), count(&busy)), (1, 2), "a writer goes first");
        clock.pass(IDLE - WRITER_IDLE - moment);
        cache.get(busy.id).unwrap().opened(&user, Mode::Read).unwrap();
        cache.sweep();
        let weak = Arc::downgrade(&idle);
        drop(idle);
        assert!(weak.upgrade().is_some(), "not yet");
        clock.pass(moment);
        assert_eq!(cache.sweep(), []);
        assert!(weak.upgrade().is_none() && cache.get(busy.id).is_some());
        assert_eq!(count(&busy), 1, "its writer was not used");
    }

    #[test]
    fn what_was_removed_on_the_host_is_closed_although_it_is_used() {
        let cache = Cache::new(SHARDS * 4, Arc::new(Hands::default()));
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let id = FileId::new(b"x").unwrap();
        let weak = Arc::downgrade(&cache.insert(Object::new(id, scratch.reopen().unwrap().into(), FileType::Regular)));
        assert_eq!(cache.sweep(), []);
        drop(scratch);
        assert_eq!(cache.sweep(), [id]);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let cache = Cache::new(SHARDS * 4, Arc::new(Hands::default()));
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
        let user = |uid| Caller::new(uid, 0);
        object.keep(&user(1), Mode::Read, &stat, file());
        assert!(object.opened(&user(1), Mode::Read).is_some());
        assert!(object.opened(&user(2), Mode::Read).is_none());
        assert!(object.opened(&user(1), Mode::Write).is_none());
        let (strictly, of_owner) = (Keeping::Strictly, Keeping::OfOwner { uid: 2 });
        assert!(object.still_may(&user(1), Mode::Read, &stat, strictly));
        stat.stx_ctime.tv_nsec ^= 1;
        assert!(object.still_may(&user(1), Mode::Read, &stat, of_owner));
        assert!(!object.still_may(&user(1), Mode::Read, &stat, strictly));
        let kept = |uid, mode| object.kept(&user(uid), mode, &stat, strictly);
        assert!(
            matches!(kept(1, Mode::Read), Kept::Doubtful(Doubtful { mode: Mode::Read, .. }))
                && matches!(kept(2, Mode::Read), Kept::None)
        );
        let first = object.opened(&user(1), Mode::Read).unwrap();
        object.answered(&file(), &stat, false, false);
        object.answered(&first, &stat, true, true);
        assert!(matches!(kept(1, Mode::Read), Kept::Valid(_)));
        // An answer about a descriptor that is no longer kept says nothing about the next.
        let second = file();
        object.keep(&user(1), Mode::Read, &stat, second.clone());
        object.answered(&first, &stat, true, true);
        let mut later = stat;
        later.stx_ctime.tv_sec += 1;
        assert!(is_unchanged(&stat, &stat) && !is_unchanged(&stat, &later));
        let kept_later = object.kept(&user(1), Mode::Read, &later, strictly);
        assert!(matches!(kept_later, Kept::Doubtful(Doubtful { was_unlisted: false, .. })), "{kept_later:?}");
        object.answered(&second, &stat, false, false);
        assert!(matches!(kept(1, Mode::Read), Kept::None));
        object.keep(&user(1), Mode::Both, &stat, file());
        stat.stx_ctime.tv_nsec ^= 1;
        let doubtful = object.kept(&user(1), Mode::Write, &stat, strictly);
        assert!(
            matches!(doubtful, Kept::Doubtful(Doubtful { mode: Mode::Both, was_unlisted: false, .. })),
            "all that the descriptor allows is in doubt"
        );
        stat.stx_attributes ^= StatxAttributes::APPEND;
        assert!(matches!(object.kept(&user(1), Mode::Write, &stat, strictly), Kept::None), "frozen on the host");
        object.keep(&user(1), Mode::Read, &stat, file());
        object.keep(&user(2), Mode::Read, &stat, file());
        (stat.stx_mode, stat.stx_uid) = (stat.stx_mode ^ 0o400, 2);
        assert!(!object.still_may(&user(1), Mode::Read, &stat, of_owner));
        assert!(object.opened(&user(1), Mode::Read).is_none());
        assert!(object.still_may(&user(2), Mode::Read, &stat, of_owner), "the owner overrides the mode");
        assert!(!object.still_may(&user(2), Mode::Read, &stat, strictly));
        for uid in 0..10 {
            object.keep(&user(uid), Mode::Write, &stat, file());
        }
        assert_eq!(lock(&object.opened).len(), MAX_OPENED);
        object.forget_writers();
        assert!(lock(&object.opened).is_empty());
    }
}
