//! Byte ranges on the table: locking, testing, unlocking, and in which order the code asks table, host and queue.
//!
//! Each file with ranges has its own lock, held for one operation including its calls of the host: `fcntl` never waits
//! for a lock here, and on local file systems never for a disk. Reading, writing and opening do not take this lock. A
//! program whose host can be slow (FUSE, NFS) calls from a thread that may wait.

use super::{
    Claims, HostDenied, HostLock, HostLocks, Wake,
    clients::{Limits, Sort, TooMany},
    files::FileKey,
    holder::{Client, Holder},
    host::Mirror,
    range::{Kind, Range},
    ranges::Ranges,
    waiting::{Place, Queue, Wakes},
};
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// The arguments of a lock.
#[derive(Clone)]
pub struct LockRequest<'a> {
    /// The file.
    pub file: FileKey,
    /// The owner that asks.
    pub holder: &'a Holder,
    /// The range to lock.
    pub range: Range,
    /// How.
    pub kind: Kind,
    /// The host's locks of this file, if the host has any. The table keeps them while anything of the file is locked,
    /// if it has none yet.
    pub host: Option<&'a Arc<dyn HostLocks>>,
    /// What to notify when it is worth asking again, if the client waits for the lock (READW_LT, WRITEW_LT). A request
    /// without this ends the client's waiting.
    pub wake: Option<Arc<dyn Wake>>,
}

/// Who holds the conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockedBy {
    /// An owner of a client.
    Holder(Holder),
    /// A program of the host.
    Host,
}

/// A conflicting lock: the range as its owner has locked it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("locked by another owner")]
pub struct Denied {
    /// What is locked.
    pub range: Range,
    /// How.
    pub kind: Kind,
    /// By whom.
    pub by: LockedBy,
}

/// Why a range is not locked or unlocked.
#[derive(Debug, thiserror::Error)]
pub enum LockRefused {
    /// NFS4ERR_DENIED. An unlock never fails so.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// NFS4ERR_RESOURCE, in minor versions from 1 on NFS4ERR_DELAY. An unlock in the middle of a range makes two ranges
    /// of one.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The host has failed: NFS4ERR_DELAY for lack of memory (ENOLCK), NFS4ERR_OPENMODE if its descriptor does not
    /// allow this kind (EBADF).
    #[error(transparent)]
    Host(#[from] io::Error),
}

impl From<HostLock> for Denied {
    fn from(HostLock { range, kind }: HostLock) -> Self {
        Self { range, kind, by: LockedBy::Host }
    }
}

impl From<HostDenied> for LockRefused {
    fn from(denied: HostDenied) -> Self {
        match denied {
            HostDenied::Conflict(lock) => Self::Denied(lock.into()),
            HostDenied::Failed(error) => Self::Host(error),
        }
    }
}

/// The locks on one file.
#[derive(Default)]
pub(super) struct FileLocks {
    ranges: Ranges,
    host: Mirror,
    queue: Queue,
}

impl FileLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.len() == 0 && self.queue.is_empty()
    }

    fn denied(&self, holder: &Holder, range: Range, kind: Kind) -> Result<(), Denied> {
        match self.ranges.conflict(holder, range, kind) {
            None => Ok(()),
            Some((range, kind, by)) => Err(Denied { range, kind, by: LockedBy::Holder(by.clone()) }),
        }
    }

    fn lock(&mut self, at: &Place<'_>, request: &LockRequest<'_>) -> Result<Wakes, LockRefused> {
        let LockRequest { holder, range, kind, .. } = *request;
        self.denied(holder, range, kind)?;
        let plan = self.ranges.plan(holder, range, Some(kind));
        if self.host.is_there() || request.host.is_some() {
            self.mirrored_limit(at, holder.client(), plan.growth())?;
            self.host.adopt(request.host, kind, &self.ranges)?;
        }
        at.clients.take(holder.client(), Sort::Range, plan.growth())?;
        // NFS4-HOST-c
        if let Err(denied) = self.host.lock(range, kind) {
            at.clients.give(holder.client(), Sort::Range, plan.growth());
            return Err(denied.into());
        }
        self.apply(at, holder, &plan);
        self.queue.remove(at, holder, range);
        // The owner may have had a write lock there, which is a read lock now.
        Ok(if kind == Kind::Read { self.freed(at) } else { Wakes::new() })
    }

    fn unlock(&mut self, at: &Place<'_>, holder: &Holder, range: Range) -> Result<(), LockRefused> {
        let plan = self.ranges.plan(holder, range, None);
        if self.host.is_there() && plan.growth() > 0 {
            self.mirrored_limit(at, holder.client(), plan.growth())?;
        }
        at.clients.take(holder.client(), Sort::Range, plan.growth())?;
        let Err((kept, denied)) = self.host.unlock(&self.ranges, holder, range) else {
            self.apply(at, holder, &plan);
            return Ok(());
        };
        // The table keeps the ranges that the host keeps, and all behind them.
        at.clients.give(holder.client(), Sort::Range, plan.growth());
        if let Some(before) = kept.checked_sub(1).and_then(|last| Range::between(range.first(), last)) {
            let plan = self.ranges.plan(holder, before, None);
            // The host has released this part already: if two ranges remain of one, they are counted, and never
            // refused.
            at.clients.count(holder.client(), Sort::Range, plan.growth());
            self.apply(at, holder, &plan);
        }
        Err(denied.into())
    }

    /// Releases all ranges of an owner, whatever the host answers.
    fn give_up(&mut self, at: &Place<'_>, holder: &Holder) -> Wakes {
        self.host.give_up(&self.ranges, holder, Range::ALL);
        let plan = self.ranges.plan(holder, Range::ALL, None);
        self.apply(at, holder, &plan);
        self.freed(at)
    }

    /// Refuses what would make the host go through too many locks.
    fn mirrored_limit(&self, at: &Place<'_>, client: Client, more: usize) -> Result<(), TooMany> {
        let limit = at.clients.limits.ranges_of_mirrored_file;
        let of_client = self.ranges.len_of(client) + more;
        let fits = self.ranges.len() + more <= limit && of_client <= Limits::part_of_one(limit);
        if fits { Ok(()) } else { Err(TooMany) }
    }

    fn apply(&mut self, at: &Place<'_>, holder: &Holder, plan: &super::ranges::Plan) {
        let had = self.ranges.has(holder);
        self.ranges.apply(holder, plan);
        at.clients.give(holder.client(), Sort::Range, plan.shrinkage());
        let has = self.ranges.has(holder);
        if had != has {
            at.clients.note(Sort::Range, at.file, holder, has);
        }
        if self.ranges.len() == 0 {
            self.host.close();
        }
    }

    fn freed(&mut self, at: &Place<'_>) -> Wakes {
        if self.queue.is_empty() { Wakes::new() } else { self.queue.freed(at, &self.ranges) }
    }
}

impl Claims {
    /// Locks a range, and replaces what the owner has there: for the first time, again, or in another kind. Either all
    /// of it is locked so afterwards, in the table and on the host, or nothing has changed.
    ///
    /// # Errors
    /// If another owner or a program of the host has part of it, if there are too many ranges, or if the host fails.
    // NFS4-8881-9.1.2-c, NFS4-8881-9.6-b
    pub fn lock(&self, request: &LockRequest<'_>) -> Result<(), LockRefused> {
        let attempt = || {
            self.on_file(request.file, |locks, at| match locks.lock(at, request) {
                Ok(wakes) => (Ok(()), wakes),
                Err(refused) => {
                    match &request.wake {
                        Some(wake) if matches!(refused, LockRefused::Denied(_)) => {
                            locks.queue.push(at, request.holder, (request.range, request.kind), wake.clone());
                        }
                        _ => locks.queue.remove(at, request.holder, request.range),
                    }
                    (Err(refused), Wakes::new())
                }
            })
        };
        self.unless_expired((request.file, Some(request.holder.client())), attempt, |outcome| match outcome {
            Err(LockRefused::Denied(denied)) => denied.clients(),
            _ => Vec::new(),
        })
    }

    /// Whether a range could be locked (LOCKT): the owner's own locks do not conflict. Changes nothing.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), except for limits.
    pub fn test(&self, request: &LockRequest<'_>) -> Result<(), LockRefused> {
        let LockRequest { holder, range, kind, .. } = *request;
        let attempt = || {
            self.on_file(request.file, |locks, _| {
                let tested = locks.denied(holder, range, kind).map_err(LockRefused::from).and_then(|()| {
                    match locks.host.test(request.host, range, kind)? {
                        Some(lock) => Err(LockRefused::Denied(lock.into())),
                        None => Ok(()),
                    }
                });
                (tested, Wakes::new())
            })
        };
        self.unless_expired((request.file, Some(holder.client())), attempt, |outcome| match outcome {
            Err(LockRefused::Denied(denied)) => denied.clients(),
            _ => Vec::new(),
        })
    }

    /// Unlocks all that an owner has of a range, which may be nothing.
    ///
    /// # Errors
    /// If there would be too many ranges, or if the host fails: then the owner keeps the ranges that the host keeps,
    /// and all behind them.
    pub fn unlock(&self, file: FileKey, holder: &Holder, range: Range) -> Result<(), LockRefused> {
        self.on_file(file, |locks, at| {
            let unlocked = locks.unlock(at, holder, range);
            (unlocked, locks.freed(at))
        })
    }

    /// Unlocks all that an owner has of a file: at CLOSE, RELEASE_LOCKOWNER, FREE_STATEID. Cannot fail: ranges that the
    /// host does not unlock at once are asked for again.
    pub fn unlock_all(&self, file: FileKey, holder: &Holder) {
        self.on_file(file, |locks, at| {
            locks.queue.remove_holder(at, holder);
            ((), locks.give_up(at, holder))
        });
    }

    /// Whether an owner has locked anything of a file: then CLOSE may answer NFS4ERR_LOCKS_HELD.
    pub fn has_locks(&self, file: FileKey, holder: &Holder) -> bool {
        let files = |files: &mut foldhash::HashMap<FileKey, Arc<Mutex<FileLocks>>>| files.get(&file).cloned();
        if self.table.locks.with(&file, files).is_none() {
            return false;
        }
        self.on_file(file, |locks, _| (locks.ranges.has(holder), Wakes::new()))
    }

    /// Ends an owner's waiting for a range: its client has given up.
    pub fn cancel(&self, file: FileKey, holder: &Holder, range: Range) {
        self.on_file(file, |locks, at| {
            locks.queue.remove(at, holder, range);
            ((), locks.freed(at))
        });
    }

    /// The parts of a range that an owner has locked, in order, each clipped to the range.
    pub fn ranges_of(&self, file: FileKey, holder: &Holder, range: Range) -> Vec<(Range, Kind)> {
        self.on_file(file, |locks, _| (locks.ranges.of(holder, range), Wakes::new()))
    }

    /// Ends a client's waiting for locks on a file.
    pub(super) fn wait_no_more(&self, file: FileKey, client: Client) {
        self.on_file(file, |locks, at| {
            locks.queue.remove_client(at, client);
            ((), locks.freed(at))
        });
    }

    /// Drops places in the queues that have expired, and notifies the next in line. Call it every second or so.
    pub fn sweep(&self) {
        let waited: Vec<_> = self.table.waited.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        for file in waited {
            self.on_file(file, |locks, at| {
                let is_late = locks.queue.has_late(at.now);
                ((), if is_late { locks.freed(at) } else { Wakes::new() })
            });
        }
    }

    #[cfg(test)]
    pub(super) fn owned(&self, file: FileKey) -> Vec<(Holder, Range, Kind)> {
        self.on_file(file, |locks, _| (locks.ranges.owned(), Wakes::new()))
    }

    /// Does something with the locks of a file, and then notifies the waiting owners for which that makes room.
    fn on_file<R>(&self, file: FileKey, act: impl FnOnce(&mut FileLocks, &Place<'_>) -> (R, Wakes)) -> R {
        let table = &self.table;
        let locks = table.locks.with(&file, |files| files.entry(file).or_default().clone());
        let at = Place { clients: &table.clients, file, now: table.clock.now() };
        let (result, wakes) = {
            let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = !locks.queue.is_empty();
            let done = act(&mut locks, &at);
            if waited == locks.queue.is_empty() {
                let mut all = table.waited.lock().unwrap_or_else(PoisonError::into_inner);
                if waited {
                    all.remove(&file)
                } else {
                    all.insert(file)
                };
            }
            done
        };
        let unused = table.locks.with(&file, |files| {
            // Dropped under the shard's lock, so that the last user of the file sees that it is the last.
            drop(locks);
            let last = files.get_mut(&file).and_then(Arc::get_mut).map(Mutex::get_mut);
            let is_empty = last.is_some_and(|locks| locks.unwrap_or_else(PoisonError::into_inner).is_empty());
            is_empty.then(|| files.remove(&file))
        });
        // After the shard's lock is released: this may keep a file of the host open.
        drop(unused);
        wakes.iter().for_each(|wake| wake.wake());
        result
    }
}

impl Denied {
    fn clients(&self) -> Vec<Client> {
        match &self.by {
            LockedBy::Holder(holder) => vec![holder.client()],
            LockedBy::Host => Vec::new(),
        }
    }
}
