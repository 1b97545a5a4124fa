//! TEST, LOCK, UNLOCK, CANCEL: byte ranges of hosts in the table of claims and, through it, on the server's own host.
//!
//! A lock passes these in order: the handle, the grace period, the list of hosts to notify of a restart, the caller's
//! rights, conflicting delegations of version 4, the table. A worker does everything that reaches the file system, and
//! holds the lock of what the calling host holds. A call that fails gives back what it has taken.

use super::{
    Call, Lockd,
    hosts::{Held, Host, Kept, UNKNOWN, Waiting, lock_owner, owner_of},
    room::Place,
    waiting::{Standing, Waiter, Wish, again, bell},
};
use crate::{
    Access, Fault, OpenFile, Origin,
    claims::{Claims, Client, Denied, FileKey, Holder, Kind, LockRefused, LockRequest, LockedBy, Range, Using},
    opened::Opened,
};
use rpcrdma_nfs::{
    nlm::{self, LockArguments, Status, Tested},
    v3::{self, Handle},
};
use rustix::io::Errno;
use std::sync::Arc;

/// How often a lock is asked for again after its conflict with a client of version 4 whose lease is over.
const MAX_TAKEN: usize = 8;

/// The byte range of a call.
///
/// # Errors
/// If the range ends beyond 2^64 - 1.
// NLM-6.3.1-a
pub(super) fn range_of(offset: u64, length: u64) -> Result<Range, Status> {
    let last = match length.checked_sub(1) {
        // NLM-6.1.4-e
        None => u64::MAX,
        Some(more) => offset.checked_add(more).ok_or(Status::TooBig)?,
    };
    Range::between(offset, last).ok_or(Status::TooBig)
}

pub(super) fn kind_of(exclusive: bool) -> Kind {
    if exclusive { Kind::Write } else { Kind::Read }
}

/// What a host learns of the holder of a conflicting lock. If the holder is a client of version 4 or a program of the
/// server's host, it learns only the range.
fn holder_of(denied: &Denied) -> nlm::Holder<u64> {
    let (process, owner) = match &denied.by {
        LockedBy::Holder(holder) if matches!(holder.client(), Client::Nlm(_)) => owner_of(holder),
        _ => Default::default(),
    };
    let (offset, last) = (denied.range.first(), denied.range.last());
    let length = if last == u64::MAX { 0 } else { last - offset + 1 };
    nlm::Holder { exclusive: denied.kind == Kind::Write, process, owner, offset, length }
}

/// The conflict with a delegation: its holder may have locked anything.
const DELEGATED: Denied = Denied { range: Range::ALL, kind: Kind::Write, by: LockedBy::Host };

fn refused(refused: &LockRefused) -> Status {
    match refused {
        LockRefused::Denied(_) => Status::Denied,
        LockRefused::TooMany(_) => Status::DeniedNoLocks,
        LockRefused::Host(error) => match Errno::from_io_error(error) {
            Some(Errno::NOLCK | Errno::NOMEM) => Status::DeniedNoLocks,
            _ => Status::Failed,
        },
    }
}

/// The status for a failure of the file system.
pub(super) fn failed(fault: Fault) -> Status {
    match fault {
        Fault::Stale | Fault::BadId | Fault::NotFound => Status::StaleHandle,
        Fault::ReadOnly => Status::ReadOnly,
        Fault::Later => Status::DeniedNoLocks,
        _ => Status::Failed,
    }
}

/// What the table is asked for.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    Lock,
    Test,
}

impl Lockd {
    /// The file of a handle, for the caller.
    pub(super) fn open(&self, call: &Call, file: &Handle) -> Result<Opened, Status> {
        self.server.open(&call.context, file).map_err(|status| match status {
            v3::Status::STALE | v3::Status::BADHANDLE => Status::StaleHandle,
            _ => Status::Failed,
        })
    }

    /// Opens a file for a lock of this kind, if the caller may read or write it, or owns it: when the caller opened the
    /// file, its own host has checked the rights.
    async fn open_for(&self, file: &Opened, access: Access) -> Result<Arc<dyn OpenFile>, Status> {
        let opened = file.file_system.open_as_owner(file.caller.clone(), file.file, access).await;
        opened.map_err(|failure| failed(failure.fault))
    }

    /// Asks the table. If a client of version 4 whose lease is over is in the way, takes its claims on the file and
    /// asks again. Sleeps.
    // NLM-BOTH-a, NLM-BOTH-b
    pub(super) fn ask(&self, origin: Origin, request: &LockRequest<'_>, ask: Ask) -> Result<(), LockRefused> {
        let mut taken = 0;
        loop {
            let outcome = match ask {
                Ask::Lock => self.claims().lock(request),
                Ask::Test => self.claims().test(request),
            };
            let Err(failed) = outcome else { return Ok(()) };
            let LockRefused::Denied(Denied { by: LockedBy::Holder(other), .. }) = &failed else { return Err(failed) };
            let Some(version_4) = self.server.version_4.get() else { return Err(failed) };
            taken += 1;
            if taken > MAX_TAKEN || version_4.take_from(origin, &[other.client()], request.file).is_err() {
                return Err(failed);
            }
        }
    }

    /// Whether a lock would be granted, and what conflicts with it.
    pub(super) async fn test(self: &Arc<Self>, call: &Call, exclusive: bool, lock: nlm::Lock<u64>) -> Tested<u64> {
        match self.try_test(call, exclusive, lock).await {
            Ok(None) => Tested::Other(Status::Granted),
            Ok(Some(denied)) => Tested::Denied(holder_of(&denied)),
            // This status must come with a holder, which is not known.
            Err(Status::Denied) => Tested::Other(Status::DeniedNoLocks),
            Err(status) => Tested::Other(status),
        }
    }

    async fn try_test(
        self: &Arc<Self>,
        call: &Call,
        exclusive: bool,
        lock: nlm::Lock<u64>,
    ) -> Result<Option<Denied>, Status> {
        let (range, kind) = (range_of(lock.offset, lock.length)?, kind_of(exclusive));
        let file = self.open(call, &lock.file)?;
        self.admit(false)?;
        // A program may test for an exclusive lock, whatever it has opened the file for.
        let open = match self.open_for(&file, Access::Read).await {
            Err(Status::Failed) if exclusive => self.open_for(&file, Access::Write).await?,
            opened => opened?,
        };
        let Ok(using) = self.server.using(&file, None, Kind::Read).await else { return Ok(Some(DELEGATED)) };
        let client = self.hosts.find(call.client(), lock.caller.as_slice()).map_or(UNKNOWN, |host| host.client());
        let holder = lock_owner(client, lock.process, &lock.owner);
        self.on_worker(call.origin(), move |lockd| {
            let host = lockd.host_locks(&file, &open);
            let key = key_of(&file);
            let request = LockRequest { file: key, holder: &holder, range, kind, host: host.as_ref(), wake: None };
            let tested = lockd.ask(file.caller.origin, &request, Ask::Test);
            drop(using);
            match tested {
                Ok(()) => Ok(None),
                Err(LockRefused::Denied(denied)) => Ok(Some(denied)),
                Err(error) => Err(refused(&error)),
            }
        })
        .await?
    }

    /// Locks a range, or waits for it.
    pub(super) async fn lock(
        self: &Arc<Self>,
        call: &Call,
        args: LockArguments<u64>,
        is_watched: bool,
    ) -> Result<Status, Status> {
        let LockArguments { block, exclusive, lock, reclaim, .. } = args;
        let (range, kind) = (range_of(lock.offset, lock.length)?, kind_of(exclusive));
        let file = self.open(call, &lock.file)?;
        // NLM-RIGHTS-b
        if exclusive && file.read_only {
            return Err(Status::ReadOnly);
        }
        self.admit(reclaim)?;
        let host = self.enter(call, &lock.caller).ok_or(Status::DeniedNoLocks)?;
        // NLM-RIGHTS-a
        let access = if exclusive { Access::Write } else { Access::Read };
        let open = self.open_for(&file, access).await?;
        if is_watched {
            self.watched(&host, call).await?;
        }
        let using = self.server.using(&file, None, kind).await.ok();
        let holder = lock_owner(host.client(), lock.process, &lock.owner);
        let (key, version, form, local) = (key_of(&file), call.version, call.form, call.local());
        let wish = Wish { file, key, holder, range, kind, lock, version, form, local, open };
        // A host that reclaims a lock has had it, and does not wait.
        let waits = block && !reclaim;
        self.on_worker(call.origin(), move |lockd| lockd.lock_now(&host, &wish, using, waits)).await?
    }

    /// Asks for a lock on behalf of a host, and puts it on the host's waiting list if the host waits for it. Sleeps.
    pub(super) fn lock_now(
        self: &Arc<Self>,
        host: &Arc<Host>,
        wish: &Wish,
        using: Option<Using>,
        waits: bool,
    ) -> Result<Status, Status> {
        let mut held = host.held();
        if held.is_over {
            return Err(Status::DeniedNoLocks);
        }
        let mut known = held.waits_at(wish.key, &wish.holder, wish.range);
        if known.is_some_and(|at| held.waiting[at].waiter.kind != wish.kind) {
            self.stop_waiting(&mut held, known.take(), wish);
        }
        let place = match self.place_for(&held, host, wish) {
            Ok(place) => place,
            Err(status) => {
                self.stop_waiting(&mut held, known, wish);
                return Err(status);
            }
        };
        let waiter = match known {
            _ if !waits => None,
            // It keeps its place.
            Some(at) => Some(held.waiting[at].waiter.clone()),
            None if held.waiting.len() >= self.limits.waiting_of_host => None,
            None => self.waiting.take().map(|place| Waiter::new(wish, place)),
        };
        let asked = match &using {
            Some(_) => {
                let wake = waiter.as_ref().map(|waiter| bell(self, host, waiter));
                let host_locks = self.host_locks(&wish.file, &wish.open);
                let (file, holder, range, kind) = (wish.key, &wish.holder, wish.range, wish.kind);
                let request = LockRequest { file, holder, range, kind, host: host_locks.as_ref(), wake };
                self.ask(wish.file.caller.origin, &request, Ask::Lock)
            }
            None => Err(DELEGATED.into()),
        };
        match (asked, waiter) {
            (Ok(()), _) => {
                // The owner has the lock that it waited for: a task that is calling the host need not go on.
                known.map(|at| held.end_waiting(at));
                held.keep(wish.key, &wish.holder, place, (wish.kind, wish.open.clone(), using));
                Ok(Status::Granted)
            }
            (Err(LockRefused::Denied(denied)), Some(waiter)) => {
                let is_told = !matches!(denied.by, LockedBy::Host);
                let standing = Standing::Waiting(again(self.clock.now(), is_told, held.waiting.len()));
                match known {
                    Some(at) => {
                        // The server was calling the host because it had the lock for it, and has lost the lock to a
                        // delegation.
                        let standing = std::mem::replace(&mut held.waiting[at].standing, standing);
                        self.give_back(&mut held, &Waiting { waiter, standing });
                    }
                    None => held.waiting.push(Waiting { waiter, standing }),
                }
                Ok(Status::Blocked)
            }
            (Err(error), _) => {
                self.stop_waiting(&mut held, known, wish);
                let is_denied = matches!(error, LockRefused::Denied(_));
                Err(if is_denied && waits { Status::DeniedNoLocks } else { refused(&error) })
            }
        }
    }

    /// Room for an owner that holds nothing of the file yet.
    fn place_for(&self, held: &Held, host: &Host, wish: &Wish) -> Result<Option<Place>, Status> {
        let (_, ranges) = self.claims().held_by(host.client());
        if ranges >= self.limits.locks_of_host {
            return Err(Status::DeniedNoLocks);
        }
        if held.files.contains_key(&(wish.key, wish.holder.clone())) {
            return Ok(None);
        }
        if held.owners() >= self.limits.owners_of_host {
            return Err(Status::DeniedNoLocks);
        }
        self.owners.take().map(Some).ok_or(Status::DeniedNoLocks)
    }

    fn stop_waiting(&self, held: &mut Held, known: Option<usize>, wish: &Wish) {
        if let Some(at) = known {
            // If the server was calling the host, it had already taken the lock: it gives it back.
            let ended = held.end_waiting(at);
            self.give_back(held, &ended);
        }
        self.claims().cancel(wish.key, &wish.holder, wish.range);
    }

    /// Ends an owner's waiting for a lock.
    // NLM-CANCEL-a
    pub(super) async fn cancel(
        self: &Arc<Self>,
        call: &Call,
        exclusive: bool,
        lock: nlm::Lock<u64>,
    ) -> Result<Status, Status> {
        let (range, kind) = (range_of(lock.offset, lock.length)?, kind_of(exclusive));
        let file = self.open(call, &lock.file)?;
        let host = self.hosts.find(call.client(), lock.caller.as_slice()).ok_or(Status::Denied)?;
        let holder = lock_owner(host.client(), lock.process, &lock.owner);
        self.on_worker(call.origin(), move |lockd| {
            let (mut held, key) = (host.held(), key_of(&file));
            let at = held.waits_at(key, &holder, range).ok_or(Status::Denied)?;
            if held.waiting[at].waiter.kind != kind {
                return Err(Status::Denied);
            }
            let ended = held.end_waiting(at);
            lockd.claims().cancel(key, &holder, range);
            lockd.give_back(&mut held, &ended);
            Ok(Status::Granted)
        })
        .await?
    }

    /// Unlocks a range. It is no failure if nothing of the range was locked.
    pub(super) async fn unlock(self: &Arc<Self>, call: &Call, lock: nlm::Lock<u64>) -> Result<Status, Status> {
        let range = range_of(lock.offset, lock.length)?;
        let file = self.open(call, &lock.file)?;
        let Some(host) = self.hosts.find(call.client(), lock.caller.as_slice()) else { return Ok(Status::Granted) };
        let holder = lock_owner(host.client(), lock.process, &lock.owner);
        self.on_worker(call.origin(), move |lockd| {
            let (mut held, key) = (host.held(), key_of(&file));
            // A host that unlocks a granted lock knows that it has it, even if its answer was lost.
            while let Some(at) = held.waiting.iter().position(|Waiting { waiter, standing }| {
                let is_granted = matches!(standing, Standing::Granting { .. });
                is_granted && waiter.key == key && waiter.holder == holder && waiter.range.overlaps(range)
            }) {
                held.end_waiting(at);
            }
            let unlocked = lockd.claims().unlock(key, &holder, range);
            lockd.settle(&mut held, key, &holder);
            match unlocked {
                Ok(()) => Ok(Status::Granted),
                Err(error) => Err(refused(&error)),
            }
        })
        .await?
    }

    /// Gives back the lock that the server took for a host that no longer waits: except what its owner had before, in
    /// its former kind. Sleeps.
    pub(super) fn give_back(&self, held: &mut Held, ended: &Waiting) {
        let Standing::Granting { before, .. } = &ended.standing else { return };
        let Waiter { key, holder, range, kind, .. } = &*ended.waiter;
        let mut next = Some(range.first());
        // NLM-GRANT-e
        for (part, part_kind) in before {
            if part_kind != kind {
                let request =
                    LockRequest { file: *key, holder, range: *part, kind: *part_kind, host: None, wake: None };
                // A change back to reading conflicts with no other. An owner that had the range for writing gets that
                // again unless another owner reads.
                let _ = self.claims().lock(&request);
            }
            let gap = next.zip(part.first().checked_sub(1)).and_then(|(from, to)| Range::between(from, to));
            self.unlock_surely(*key, holder, gap);
            next = part.last().checked_add(1);
        }
        let rest = next.and_then(|from| Range::between(from, range.last()));
        self.unlock_surely(*key, holder, rest);
        self.settle(held, *key, holder);
    }

    /// Unlocks a range for certain: if it cannot be unlocked alone, then all that its owner has on the file.
    fn unlock_surely(&self, file: FileKey, holder: &Holder, range: Option<Range>) {
        if let Some(range) = range
            && self.claims().unlock(file, holder, range).is_err()
        {
            self.claims().unlock_all(file, holder);
        }
    }

    /// Closes the file for an owner that has no lock on it any more.
    pub(super) fn settle(&self, held: &mut Held, file: FileKey, holder: &Holder) {
        if !self.claims().has_locks(file, holder) {
            held.files.remove(&(file, holder.clone()));
        }
    }
}

/// Frees everything that a forgotten host holds and waits for. Sleeps.
pub(super) fn release(claims: &Claims, host: &Host) {
    let mut held = host.held();
    // NLM-FREE-a
    held.is_over = true;
    while !held.waiting.is_empty() {
        held.end_waiting(0);
    }
    // NLM-FREE-a
    claims.release_client(host.client());
    let (files, shares) = (std::mem::take(&mut held.files), std::mem::take(&mut held.shares));
    drop(held);
    // After the lock is released: a file without a name is freed with its last open.
    drop((files, shares));
}

impl Held {
    /// An owner has locked a file in this kind.
    pub(super) fn keep(
        &mut self,
        file: FileKey,
        holder: &Holder,
        place: Option<Place>,
        (kind, open, using): (Kind, Arc<dyn OpenFile>, Option<Using>),
    ) {
        match (self.files.get_mut(&(file, holder.clone())), place) {
            (Some(kept), _) => kept.keep(kind, open, using),
            (None, Some(place)) => {
                let mut kept = Kept::new(place);
                kept.keep(kind, open, using);
                self.files.insert((file, holder.clone()), kept);
            }
            (None, None) => {}
        }
    }
}

/// The file's key in the table of claims.
pub(super) fn key_of(file: &Opened) -> FileKey {
    FileKey { file_system: file.file_system.id(), file: file.file }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NLM-6.1.4-e, NLM-6.3.1-a
    #[test]
    fn a_range_ends_in_64_bits() {
        const END: u64 = u64::MAX;
        for (offset, length, last) in [(0, 0, END), (7, 0, END), (7, 1, 7), (END, 1, END), (END, 0, END), (1, END, END)]
        {
            assert_eq!(range_of(offset, length).unwrap(), Range::between(offset, last).unwrap(), "{offset} {length}");
        }
        for (offset, length) in [(END, 2), (2, END), (END - 1, 3), (END, END)] {
            assert_eq!(range_of(offset, length), Err(Status::TooBig), "{offset} {length}");
        }
    }

    #[test]
    fn a_holder_is_told_as_far_as_it_is_known() {
        let name = nlm::OwnerHandle::from("name");
        let by = LockedBy::Holder(lock_owner(UNKNOWN, 5, &name));
        let denied = Denied { range: Range::between(7, 9).unwrap(), kind: Kind::Write, by };
        let told = holder_of(&denied);
        assert_eq!((told.exclusive, told.process, told.owner, told.offset, told.length), (true, 5, name, 7, 3));
        let by = LockedBy::Holder(Holder::new(Client::V4(1), b"a name of version 4"));
        let told = holder_of(&Denied { range: Range::ALL, kind: Kind::Read, by });
        assert_eq!((told.process, told.owner.as_slice(), told.offset, told.length), (0, &b""[..], 0, 0));
    }
}
