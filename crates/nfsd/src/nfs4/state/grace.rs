//! What clients may reclaim after a restart, and how long all other clients wait for that (RFC 8881 sections 8.4.2.1,
//! 8.4.3, 18.51).
//!
//! There is a grace period only if the journal names an owner that may reclaim. It ends when all such owners have said
//! that they are done, or a lease after the start; while a client still reclaims it goes on, for at most one more
//! lease. First the server forgets, on the disk, the owners that have not come by then, because from then on other
//! clients may get what they held.
//!
//! Functions whose documentation says "Sleeps" wait until the disk has what they write: call them on a worker. If the
//! disk refuses, they fail and log the reason, and whatever depends on them does not happen: an OPEN, a revocation, the
//! end of the grace period.

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
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// How long the grace period goes on at least after a reclaim: a client that has come late reclaims one file after the
/// other, without a pause.
const NEXT_RECLAIM: Duration = Duration::from_secs(2);

/// The proof that the journal names a client, so that the client could reclaim what it is about to get.
#[derive(Clone, Debug)]
pub(crate) struct Recorded(());

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// It can be neither read nor written.
    #[error("the journal of NFSv4 clients in {} cannot be used", path.display())]
    Io {
        /// The state directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another running server has it.
    #[error("another server uses the journal of NFSv4 clients in {}", path.display())]
    InUse {
        /// The state directory.
        path: PathBuf,
    },
}

/// The journal, and the grace period. Locks are taken in the order of the fields. Only the first is held during a wait
/// for the disk, and only functions that sleep take it.
pub(crate) struct Recovery {
    journal: Mutex<Journal>,
    /// Entries for the journal: the next function that locks the journal writes them.
    later: Mutex<Vec<Later>>,
    grace: Mutex<Grace>,
    is_grace: AtomicBool,
    /// Whether clients of another protocol may reclaim at this moment, if there is another protocol.
    beside: OnceLock<Beside>,
    epoch: u32,
    path: PathBuf,
    /// Failed writes: the log has the first, second, fourth and so on.
    failures: AtomicU64,
}

/// Returns whether another protocol has a grace period now.
type Beside = Box<dyn Fn() -> bool + Send + Sync>;

struct Grace {
    until: Timestamp,
    /// After this time the server waits for no client, even if clients still reclaim.
    latest: Timestamp,
    /// The owners that the journal named at the start.
    past: HashMap<Bytes, Known>,
    /// Those owners that may reclaim and have not said that they are done.
    awaited: HashSet<Bytes>,
    /// Those owners that hold something reclaimed and cannot say that they are done: clients of minor version 0. The
    /// server waits for them, and they stay on record when the time is over.
    present: HashSet<Bytes>,
    /// The server is forgetting the owners that have not come.
    is_ending: bool,
}

enum Later {
    /// A client that holds nothing has ended.
    Forget(Bytes),
    /// A client has learned of all its losses, if it has lost nothing since.
    Restore(Bytes, Arc<AtomicU32>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recovery {
    /// Opens the journal of a server in the state directory, and begins a new epoch. Sleeps.
    ///
    /// # Errors
    /// If the journal can be neither read nor written, or another server has it.
    pub(crate) fn open(
        (directory, server): (&Path, Option<u64>),
        unix_seconds: u64,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<Self, JournalError> {
        let path = directory.to_owned();
        let disk = match Disk::take(directory, server) {
            Ok(Some(disk)) => disk,
            Ok(None) => return Err(JournalError::InUse { path }),
            Err(source) => return Err(JournalError::Io { path, source }),
        };
        match Self::with_store(Box::new(disk), unix_seconds, now, limits) {
            Ok(recovery) => Ok(Self { path, ..recovery }),
            Err(source) => Err(JournalError::Io { path, source }),
        }
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
        // NFS4-8881-8.4.2.1-c: clients rely on the lease that the server announced before its restart.
        let lasts = limits.grace.max(past.lease);
        let (until, latest) = (now + lasts, now + lasts + lasts);
        if !awaited.is_empty() {
            tracing::info!(
                clients = awaited.len(),
                seconds = lasts.as_secs(),
                "clients from before the restart may reclaim what they held in NFS version 4: for so long, or until all \
                 have done so, others get no new open file and no lock"
            );
        }
        Ok(Self {
            journal: Mutex::new(journal),
            later: Mutex::default(),
            is_grace: AtomicBool::new(!awaited.is_empty()),
            beside: OnceLock::new(),
            grace: Mutex::new(Grace {
                until,
                latest,
                past: past.owners,
                awaited,
                present: HashSet::new(),
                is_ending: false,
            }),
            epoch,
            path: PathBuf::new(),
            failures: AtomicU64::new(0),
        })
    }

    /// The number of this boot, larger than all before.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether clients may still reclaim: then READ, WRITE and new locks have to wait unless nothing can conflict.
    pub(crate) fn is_own_grace(&self) -> bool {
        self.is_grace.load(Ordering::Acquire)
    }

    /// The same, or clients of another protocol may still reclaim.
    pub(crate) fn is_grace(&self) -> bool {
        self.is_own_grace() || self.beside.get().is_some_and(|is_beside| is_beside())
    }

    /// Sets another protocol's `is_grace`: while it returns true, clients get nothing new, either. Later calls change
    /// nothing.
    pub(crate) fn wait_beside(&self, is_grace: Beside) {
        let _ = self.beside.set(is_grace);
    }

    /// The journal, with all entries that were left for later.
    fn journal(&self) -> MutexGuard<'_, Journal> {
        let mut journal = lock(&self.journal);
        for later in std::mem::take(&mut *lock(&self.later)) {
            match later {
                Later::Forget(owner) if journal.known(&owner).is_some() => journal.write_later(Record::Gone(owner)),
                Later::Restore(owner, losses) => {
                    let has_losses = losses.load(Ordering::Acquire) != 0;
                    if let Some(known) = journal.known(&owner).filter(|known| known.revoked && !has_losses) {
                        journal.write_later(Record::Owner(owner, Known { revoked: false, ..known }));
                    }
                }
                Later::Forget(_) => {}
            }
        }
        journal
    }

    /// Writes to the journal, and logs the reason if that fails.
    fn write(&self, journal: &mut Journal, records: &[Record]) -> Result<(), Status> {
        journal.write(records).map_err(|error| {
            let count = self.failures.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if count.is_power_of_two() {
                let path = self.path.display();
                tracing::error!(
                    %path, %error, count,
                    "the journal of NFSv4 clients cannot be written: new clients cannot open files"
                );
            }
            Status::SERVERFAULT
        })
    }

    /// Whether a client may reclaim now (OPEN with CLAIM_PREVIOUS, LOCK with reclaim). Returns the proof that the
    /// client is on record.
    ///
    /// # Errors
    /// NO_GRACE outside of the grace period, after the client's RECLAIM_COMPLETE, and if the server took state from it;
    /// RECLAIM_BAD if it held nothing, or another principal did; DELAY while the grace period ends.
    // NFS4-8881-15.1.9.4-a, NFS4-8881-18.51-c
    pub(crate) fn reclaim<P>(&self, client: &Client<P>, now: Timestamp) -> Result<Recorded, Status> {
        let mut grace = lock(&self.grace);
        if !self.is_own_grace() || client.is_complete() {
            return Err(Status::NO_GRACE);
        }
        if grace.is_ending {
            return Err(Status::DELAY);
        }
        match grace.past.get(client.owner()) {
            Some(known) if known.principal != client.principal() => Err(Status::RECLAIM_BAD),
            Some(known) if known.revoked => Err(Status::NO_GRACE),
            Some(_) => {
                // NFS4-8881-8.4.2.1-d
                grace.until = grace.until.max(grace.latest.min(now + NEXT_RECLAIM));
                Ok(Recorded(()))
            }
            None => Err(Status::RECLAIM_BAD),
        }
    }

    /// A client has successfully reclaimed something. Only this keeps a client on record that cannot say that it is
    /// done: if all its reclaims fail, it holds nothing, and other clients may have what it held until the next restart
    /// (RFC 7530 section 9.6.3.4.2). If the grace period ends before this call, the client's next OPEN puts it on
    /// record again.
    pub(crate) fn reclaimed<P>(&self, client: &Client<P>) {
        let mut grace = lock(&self.grace);
        if client.is_zero() && grace.awaited.contains(client.owner()) {
            grace.present.insert(client.owner().clone());
        }
    }

    /// Whether a client may get what it did not hold before.
    ///
    /// # Errors
    /// GRACE in the grace period, and before the client's RECLAIM_COMPLETE.
    // NFS4-8881-18.51-b
    pub(crate) fn fresh<P>(&self, client: &Client<P>) -> Result<(), Status> {
        // In minor version 0 no client says that it is complete (RFC 7530 section 9.6.2). NFS4-8881-8.4.2.1-b
        if self.is_grace() || !(client.is_complete() || client.is_zero()) { Err(Status::GRACE) } else { Ok(()) }
    }

    /// The proof that a client is on record, if it is. Otherwise a worker must call [`record`](Self::record).
    pub(crate) fn recorded<P>(&self, client: &Client<P>) -> Option<Recorded> {
        client.is_recorded().then_some(Recorded(()))
    }

    /// Puts a client on record, before it gets its first state. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses.
    pub(crate) fn record<P>(&self, client: &Client<P>) -> Result<Recorded, Status> {
        let mut journal = self.journal();
        // The journal keeps the note of a loss until the client has freed all that it lost. A client that cannot say
        // that it is done begins anew with its first OPEN after a restart: the time for reclaims is over then, and what
        // it held before is gone.
        let is_new_beginning = client.is_zero() && !client.has_losses();
        let is_known = journal
            .known(client.owner())
            .is_some_and(|known| known.principal == client.principal() && !(known.revoked && is_new_beginning));
        if !is_known {
            self.write(&mut journal, &[note(client, false)])?;
        }
        client.set_recorded();
        Ok(Recorded(()))
    }

    /// The client has reclaimed all that it wants (RECLAIM_COMPLETE without `rca_one_fs`). Sleeps.
    ///
    /// # Errors
    /// COMPLETE_ALREADY the second time; SERVERFAULT if the disk refuses: then the client may try again.
    // NFS4-8881-18.51-a
    pub(crate) fn complete<P>(&self, client: &Client<P>, now: Timestamp) -> Result<(), Status> {
        let mut journal = self.journal();
        if client.is_complete() {
            return Err(Status::COMPLETE_ALREADY);
        }
        let known = Known { principal: client.principal(), revoked: client.has_losses() };
        if journal.known(client.owner()) != Some(known) {
            self.write(&mut journal, &[note(client, known.revoked)])?;
        }
        client.set_recorded();
        client.set_complete();
        let mut grace = lock(&self.grace);
        if grace.past.get(client.owner()).is_some_and(|known| known.principal == client.principal()) {
            grace.awaited.remove(client.owner());
        }
        drop(grace);
        // The reply does not depend on this: the next upkeep tries again.
        let _ = self.end_grace(&mut journal, now);
        Ok(())
    }

    /// Clients are about to lose something to other clients: those `in_part` cannot reclaim until they have
    /// acknowledged the loss, and `whole` lose everything that they hold. Writes at once, and only what the disk does
    /// not have yet. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses: then nothing may be taken, and the journal notes no client.
    pub(super) fn note_losses<'a, P: 'a>(
        &self,
        in_part: impl IntoIterator<Item = &'a Client<P>>,
        whole: &[Arc<Client<P>>],
    ) -> Result<(), Status> {
        let mut journal = self.journal();
        let is_known = |client: &&Arc<Client<P>>| {
            journal.known(client.owner()).is_some_and(|known| known.principal == client.principal())
        };
        let revoked = in_part.into_iter().map(|client| note(client, true));
        let mut records: Vec<_> = revoked.filter(|record| !journal.says(record)).collect();
        records.extend(whole.iter().filter(is_known).map(|client| Record::Gone(client.owner().clone())));
        if records.is_empty() { Ok(()) } else { self.write(&mut journal, &records) }
    }

    /// The client has freed all that it lost, or it lost nothing in the end: it may reclaim again, also what it gets
    /// from now on. After [`write_waiting`](Self::write_waiting) has returned, that holds even after a restart.
    pub(super) fn restore<P>(&self, client: &Client<P>) {
        lock(&self.later).push(Later::Restore(client.owner().clone(), client.held.losses()));
    }

    /// A client that should lose everything has come back, or its next incarnation has. If the client has not sent
    /// RECLAIM_COMPLETE, it may have lost something before a restart. Sleeps.
    pub(super) fn note_again<P>(&self, client: &Client<P>) {
        let mut journal = self.journal();
        let record = note(client, client.has_losses() || !(client.is_complete() || client.is_zero()));
        // The client goes on opening files without being put on record first. If the disk refuses now, it may accept
        // this later.
        if self.write(&mut journal, std::slice::from_ref(&record)).is_err() {
            journal.write_later(record);
        }
    }

    /// A client that holds nothing has ended.
    pub(super) fn forget(&self, owner: &Bytes) {
        lock(&self.later).push(Later::Forget(owner.clone()));
    }

    /// Whether the server waits for this owner with another principal: the name is in use, as it is while a lease runs.
    pub(super) fn is_of_another(&self, owner: &Bytes, principal: Principal) -> bool {
        let is_other = |grace: &Grace| {
            grace.awaited.contains(owner) && grace.past.get(owner).is_some_and(|known| known.principal != principal)
        };
        self.is_own_grace() && is_other(&lock(&self.grace))
    }

    /// Ends the grace period when it is time, and writes the entries that were left for later. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the disk refuses; the grace period goes on.
    pub(super) fn upkeep(&self, now: Timestamp) -> Result<(), Status> {
        let mut journal = self.journal();
        self.end_grace(&mut journal, now)?;
        self.write_rest(&mut journal)
    }

    /// Writes the entries that were left for later. If the disk refuses, the next upkeep tries again. Sleeps.
    pub(crate) fn write_waiting(&self) {
        // The log has the reason, and the journal on the disk is safe: a client may only reclaim less than it could.
        let _ = self.write_rest(&mut self.journal());
    }

    fn write_rest(&self, journal: &mut Journal) -> Result<(), Status> {
        if journal.has_waiting() { self.write(journal, &[]) } else { Ok(()) }
    }

    // NFS4-8881-8.4.2.1-a
    fn end_grace(&self, journal: &mut Journal, now: Timestamp) -> Result<(), Status> {
        let mut grace = lock(&self.grace);
        if !self.is_own_grace() || !(grace.awaited.is_empty() || now >= grace.until) {
            return Ok(());
        }
        // The owners with a loss that have not come are forgotten with those for which the server waited.
        let is_left = |(owner, known): &(&Bytes, &Known)| {
            // NFS4-7530-9.6.2-a
            let is_awaited = grace.awaited.contains(*owner) && !grace.present.contains(*owner);
            journal.known(owner) == Some(**known) && (known.revoked || is_awaited)
        };
        let gone: Vec<_> = grace.past.iter().filter(is_left).map(|(owner, _)| Record::Gone(owner.clone())).collect();
        grace.is_ending = true;
        drop(grace);
        // NFS4-8881-8.4.3-b: on the disk before another client gets what they held.
        let written = self.write(journal, &gone);
        let mut grace = lock(&self.grace);
        grace.is_ending = false;
        written?;
        grace.awaited.clear();
        grace.past.clear();
        grace.present.clear();
        self.is_grace.store(false, Ordering::Release);
        Ok(())
    }

    /// From now on the disk refuses to write.
    #[cfg(test)]
    pub(crate) fn refuse(&self) {
        self.journal().refuse();
    }

    /// What the journal says of an owner.
    #[cfg(test)]
    pub(super) fn known(&self, owner: &Bytes) -> Option<Known> {
        self.journal().known(owner)
    }
}

/// The journal's entry for a client.
fn note<P>(client: &Client<P>, revoked: bool) -> Record {
    Record::Owner(client.owner().clone(), Known { principal: client.principal(), revoked })
}

#[cfg(test)]
impl Recorded {
    pub(super) fn for_tests() -> Self {
        Self(())
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
