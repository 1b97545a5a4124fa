//! What clients may reclaim after a restart, and for how long all others wait for them (RFC 8881 sections 8.4.2.1, 8.4.3,
//! 18.51).
//!
//! There is a grace period only if the journal names an owner that may reclaim. It ends when all of them have said that they are
//! done, or a lease after the start; those that have not come by then are forgotten on the disk first, as from then on others
//! may get what they held. Functions that say so sleep until the disk has what they write: give them to a worker. When the
//! disk refuses, they fail and say why in the log, and what depends on them does not happen: no OPEN, no taking away, no end of
//! the grace period.

use super::{
    clients::{Client, Principal},
    journal::{Disk, End, Journal, Known, Record, Store},
    limits::Limits,
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::Status;
use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The proof that the journal names a client, so that it could reclaim what it is about to get.
#[derive(Debug)]
pub(crate) struct Recorded(());

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the journal of NFSv4 clients in {} cannot be used", path.display())]
pub(crate) struct JournalError {
    path: PathBuf,
    source: io::Error,
}

/// The journal, and the grace period.
pub(crate) struct Recovery {
    path: PathBuf,
    epoch: u32,
    is_grace: AtomicBool,
    /// Behind a lock of its own: who only asks does not wait for a disk.
    grace: Mutex<Grace>,
    journal: Mutex<Journal>,
    /// Writes that failed, told at the first, second, fourth and so on.
    failures: AtomicU64,
}

struct Grace {
    until: Timestamp,
    /// What was known at the start.
    past: HashMap<Bytes, Known>,
    /// Those of them that may reclaim and have not said that they are done.
    awaited: HashSet<Bytes>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recovery {
    /// Opens the journal in the state directory, and begins a new epoch. Sleeps.
    ///
    /// # Errors
    /// If the journal can be neither read nor written.
    pub(crate) fn open(
        directory: &Path,
        unix_seconds: u64,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<Self, JournalError> {
        Self::with_store(Box::new(Disk::new(directory)), unix_seconds, now, limits)
            .map(|recovery| Self { path: directory.to_owned(), ..recovery })
            .map_err(|source| JournalError { path: directory.to_owned(), source })
    }

    pub(super) fn with_store(
        store: Box<dyn Store>,
        unix_seconds: u64,
        now: Timestamp,
        limits: &Limits,
    ) -> io::Result<Self> {
        let (journal, epoch, past) = Journal::open(store, unix_seconds, limits.lease, limits.records)?;
        if past.end == End::Damaged {
            tracing::error!(
                "the journal of NFSv4 clients is damaged and kept aside: no client can reclaim what it held"
            );
        }
        let may_reclaim = past.owners.iter().filter(|(_, known)| !known.revoked);
        let awaited: HashSet<_> = may_reclaim.map(|(owner, _)| owner.clone()).collect();
        // NFS4-8881-8.4.2.1-c: clients have counted on the lease that they were told before.
        let until = now + limits.grace.max(past.lease);
        Ok(Self {
            path: PathBuf::new(),
            epoch,
            is_grace: AtomicBool::new(!awaited.is_empty()),
            grace: Mutex::new(Grace { until, past: past.owners, awaited }),
            journal: Mutex::new(journal),
            failures: AtomicU64::new(0),
        })
    }

    /// The number of this boot, larger than all before.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether clients may still reclaim, so that READ, WRITE and new locks have to wait unless nothing can conflict.
    pub(crate) fn is_grace(&self) -> bool {
        self.is_grace.load(Ordering::Acquire)
    }

    /// Writes to the journal, and says why if that fails.
    fn write(&self, records: &[Record]) -> Result<(), Status> {
        lock(&self.journal).write(records).map_err(|error| {
            let count = self.failures.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if count.is_power_of_two() {
                let path = self.path.display();
                tracing::error!(%path, %error, count, "the journal of NFSv4 clients cannot be written: clients get no state");
            }
            Status::SERVERFAULT
        })
    }

    /// Whether a client may reclaim now (OPEN with CLAIM_PREVIOUS, LOCK with reclaim), and the proof that it is on record.
    ///
    /// # Errors
    /// NO_GRACE outside of the grace period, after the client's RECLAIM_COMPLETE, and if state was taken from it; RECLAIM_BAD if
    /// it held nothing, or was another principal's.
    pub(crate) fn reclaim<P>(&self, client: &Client<P>) -> Result<Recorded, Status> {
        let grace = lock(&self.grace);
        if !self.is_grace() || client.is_complete() {
            return Err(Status::NO_GRACE);
        }
        match grace.past.get(client.owner()) {
            Some(known) if known.principal != client.principal() => Err(Status::RECLAIM_BAD),
            Some(known) if known.revoked => Err(Status::NO_GRACE),
            Some(_) => Ok(Recorded(())),
            None => Err(Status::RECLAIM_BAD),
        }
    }

    /// Whether a client may get what it did not hold before.
    ///
    /// # Errors
    /// GRACE in the grace period, and before the client's RECLAIM_COMPLETE.
    pub(crate) fn fresh<P>(&self, client: &Client<P>) -> Result<(), Status> {
        if self.is_grace() || !client.is_complete() { Err(Status::GRACE) } else { Ok(()) }
    }

    /// The proof that a client is on record, if it is: else [`record`](Self::record) has to be asked, by a worker.
    pub(crate) fn recorded<P>(&self, client: &Client<P>) -> Option<Recorded> {
        client.is_recorded().then_some(Recorded(()))
    }

    /// Puts a client on record, before it gets its first state. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses.
    pub(crate) fn record<P>(&self, client: &Client<P>) -> Result<Recorded, Status> {
        let known = Known { principal: client.principal(), revoked: false };
        let is_known = lock(&self.journal).known(client.owner());
        // What was taken away stays noted until the client has freed it all.
        let needs = is_known.is_none_or(|before| before.principal != known.principal);
        if needs {
            self.write(&[Record::Owner(client.owner().clone(), known)])?;
        }
        client.set_recorded();
        Ok(Recorded(()))
    }

    /// The client has reclaimed what it wants (RECLAIM_COMPLETE without `rca_one_fs`). Sleeps.
    ///
    /// # Errors
    /// COMPLETE_ALREADY the second time; SERVERFAULT if the disk refuses, and then it may be tried again.
    pub(crate) fn complete<P>(&self, client: &Client<P>, now: Timestamp) -> Result<(), Status> {
        if client.is_complete() {
            return Err(Status::COMPLETE_ALREADY);
        }
        let known = Known { principal: client.principal(), revoked: client.has_losses() };
        if lock(&self.journal).known(client.owner()) != Some(known) {
            self.write(&[Record::Owner(client.owner().clone(), known)])?;
        }
        client.set_recorded();
        if !client.set_complete() {
            return Err(Status::COMPLETE_ALREADY);
        }
        let mut grace = lock(&self.grace);
        if grace.past.get(client.owner()).is_some_and(|known| known.principal == client.principal()) {
            grace.awaited.remove(client.owner());
        }
        drop(grace);
        // The answer does not depend on it: the next upkeep tries again.
        let _ = self.upkeep(now);
        Ok(())
    }

    /// State is about to be taken from a client: it cannot reclaim until it has taken note. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses: nothing may be taken.
    pub(super) fn revoke<P>(&self, client: &Client<P>) -> Result<(), Status> {
        let known = Known { principal: client.principal(), revoked: true };
        self.write(&[Record::Owner(client.owner().clone(), known)])
    }

    /// The client has freed all that was taken from it, or nothing was taken in the end: it may reclaim again.
    pub(crate) fn restore<P>(&self, client: &Client<P>) {
        let known = Known { principal: client.principal(), revoked: false };
        let mut journal = lock(&self.journal);
        if journal.known(client.owner()).is_some_and(|before| before.revoked) {
            journal.write_later(Record::Owner(client.owner().clone(), known));
        }
    }

    /// Clients are about to lose all that they hold to others. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses: nothing may be taken.
    pub(super) fn expire(&self, owners: impl Iterator<Item = Bytes>) -> Result<(), Status> {
        let records: Vec<_> = owners.map(Record::Gone).collect();
        if records.is_empty() { Ok(()) } else { self.write(&records) }
    }

    /// A client that was to be expired is there again.
    pub(super) fn note_again<P>(&self, client: &Client<P>) {
        let known = Known { principal: client.principal(), revoked: client.has_losses() };
        lock(&self.journal).write_later(Record::Owner(client.owner().clone(), known));
    }

    /// A client that holds nothing is no more.
    pub(super) fn forget(&self, owner: &Bytes) {
        let mut journal = lock(&self.journal);
        if journal.known(owner).is_some() {
            journal.write_later(Record::Gone(owner.clone()));
        }
    }

    /// Whether the owner is awaited, but as another principal: the name is in use, as it is while a lease runs.
    pub(super) fn is_of_another(&self, owner: &Bytes, principal: Principal) -> bool {
        let is_other = |grace: &Grace| {
            grace.awaited.contains(owner) && grace.past.get(owner).is_some_and(|known| known.principal != principal)
        };
        self.is_grace() && is_other(&lock(&self.grace))
    }

    /// Ends the grace period when it is time, and writes what was left for later. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses; the grace period goes on.
    pub(crate) fn upkeep(&self, now: Timestamp) -> Result<(), Status> {
        let mut grace = lock(&self.grace);
        if self.is_grace() && (grace.awaited.is_empty() || now >= grace.until) {
            // Those that were revoked before and have not come are forgotten with those that were awaited.
            let journal = lock(&self.journal);
            let is_unchanged = |(owner, known): &(&Bytes, &Known)| journal.known(owner) == Some(**known);
            let left = grace.past.iter().filter(is_unchanged);
            let left = left.filter(|(owner, known)| known.revoked || grace.awaited.contains(*owner));
            let gone: Vec<_> = left.map(|(owner, _)| Record::Gone(owner.clone())).collect();
            drop(journal);
            // NFS4-8881-8.4.3-b: on the disk before anybody else gets what they held.
            self.write(&gone)?;
            grace.awaited.clear();
            grace.past.clear();
            self.is_grace.store(false, Ordering::Release);
        }
        drop(grace);
        if lock(&self.journal).has_waiting() { self.write(&[]) } else { Ok(()) }
    }

    /// What the journal knows of an owner.
    #[cfg(test)]
    pub(super) fn known(&self, owner: &Bytes) -> Option<Known> {
        lock(&self.journal).known(owner)
    }
}

impl Principal {
    #[cfg(test)]
    pub(super) const fn unix(user: u64) -> Self {
        Self { flavor: 1, user }
    }
}

#[cfg(test)]
#[path = "tests/grace.rs"]
mod tests;
