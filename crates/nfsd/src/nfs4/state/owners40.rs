//! Owners of opens and locks in minor version 0, with their sequence numbers (RFC 7530 sections 9.1.3, 9.1.7 to
//! 9.1.11).
//!
//! An owner does one thing after the other: a call takes the owner's [turn](StateOwner::turn), and only calls of the
//! same owner wait for it. The owner remembers its last call with the answer: a repetition gets that answer, and is not
//! executed. An owner that has nothing open, or no lock stateid, is forgotten a lease after its last use; its next OPEN
//! must then be confirmed.
//!
//! Owns names and answers, each within [`OWNER_BYTES`](super::limits::OWNER_BYTES). The table's lock comes before the
//! lock of [`Held`]. Nothing sleeps; waiting for a turn is asynchronous.

use super::{
    held::{Held, Totals},
    limits::{Limits, OWNER_BYTES},
    release::Release,
};
use crate::FileId;
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{Op, Outcome, OwnerName, StateIdOther, Status};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};
use tokio::sync::OwnedMutexGuard;

/// The last call of an owner, and its answer.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// Distinguishes the call from another.
    pub(crate) digest: u64,
    /// The answer.
    pub(crate) outcome: Outcome,
    /// The current file after it, if the call changes the current file.
    pub(crate) file: Option<FileId>,
}

/// The sequence of an owner's calls.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// The number of the last call; `None` before the first.
    last: Option<u32>,
    remembered: Option<Box<Remembered>>,
    /// Whether the client has shown that it knows the owner's number.
    pub(crate) is_confirmed: bool,
    /// The open that waits for its confirmation.
    pub(crate) unconfirmed: Option<StateIdOther>,
    closed: Option<StateIdOther>,
    used: Timestamp,
}

impl Sequence {
    /// Whether a call is the owner's next one: `None`; or the answer, if it repeats the last one.
    ///
    /// # Errors
    /// BAD_SEQID.
    // NFS4-7530-9.1.9-c
    pub(crate) fn check(&self, number: u32, digest: u64) -> Result<Option<&Remembered>, Status> {
        match self.last {
            // NFS4-7530-9.1.9-a: an unknown owner has no number.
            None => Ok(None),
            Some(last) if number == last.wrapping_add(1) => Ok(None),
            // NFS4-7530-9.1.9-b: the remembered answer belongs only to the same call.
            Some(last) if number == last => {
                self.remembered.as_deref().filter(|known| known.digest == digest).map(Some).ok_or(Status::BAD_SEQID)
            }
            // NFS4-7530-9.1.7-a
            Some(_) => Err(Status::BAD_SEQID),
        }
    }

    /// A call was executed. Its number is used up, unless its status says that it is not.
    pub(crate) fn executed(&mut self, number: u32, remembered: Remembered, now: Timestamp) {
        self.used = self.used.max(now);
        if remembered.outcome.status().is_counted() {
            self.last = Some(number);
            // NFS4-7530-9.1.8-a
            self.remembered = Some(Box::new(remembered));
        }
    }

    /// Treats the owner as unknown.
    pub(crate) fn start_over(&mut self) {
        (self.last, self.remembered) = (None, None);
    }
}

/// An owner of opens, or of locks.
#[derive(Debug)]
pub(crate) struct StateOwner {
    /// Its name.
    pub(crate) name: OwnerName,
    sequence: Arc<tokio::sync::Mutex<Sequence>>,
}

/// An owner's turn: the right to do the owner's next operation.
pub(crate) type Turn = OwnedMutexGuard<Sequence>;

impl StateOwner {
    /// Waits until the owner's present operation has ended.
    pub(crate) async fn turn(&self) -> Turn {
        self.sequence.clone().lock_owned().await
    }

    fn octets(&self) -> usize {
        OWNER_BYTES + self.name.0.len()
    }
}

/// Whether an owner owns opens or locks: the two have separate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerOf {
    /// Opens.
    Opens,
    /// Locks.
    Locks,
}

type ByName = HashMap<OwnerName, Arc<StateOwner>>;

/// The owners of a client.
pub(crate) struct Owners {
    inner: Mutex<Inner>,
    limits: Arc<Limits>,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct Inner {
    opens: ByName,
    locks: ByName,
    /// The open that each owner has closed last, so that its CLOSE can be repeated.
    closed: HashMap<StateIdOther, Arc<StateOwner>>,
    octets: usize,
    /// When the owners were last swept.
    swept: Timestamp,
}

impl Inner {
    fn of(&mut self, what: OwnerOf) -> &mut ByName {
        match what {
            OwnerOf::Opens => &mut self.opens,
            OwnerOf::Locks => &mut self.locks,
        }
    }
}

impl Owners {
    pub(super) fn new(limits: Arc<Limits>, totals: Arc<Totals>) -> Self {
        Self { inner: Mutex::default(), limits, totals }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner with this name; a new owner if the name is unknown.
    ///
    /// # Errors
    /// DELAY if the client, or all clients together, have as many as they may.
    pub(crate) fn get(&self, what: OwnerOf, name: &OwnerName) -> Result<Arc<StateOwner>, Status> {
        let mut inner = self.lock();
        if let Some(owner) = inner.of(what).get(name) {
            return Ok(owner.clone());
        }
        let name = OwnerName(Bytes::copy_from_slice(&name.0));
        let owner = Arc::new(StateOwner { name: name.clone(), sequence: Arc::default() });
        let octets = inner.octets.saturating_add(owner.octets());
        if octets > self.limits.owners_of_client {
            return Err(Status::DELAY);
        }
        Totals::take(&self.totals.owners, owner.octets(), self.limits.owners)?;
        inner.octets = octets;
        inner.of(what).insert(name, owner.clone());
        Ok(owner)
    }

    /// The owner that closed this open last of all its opens.
    // NFS4-7530-9.1.10-b
    pub(crate) fn closer_of(&self, open: StateIdOther) -> Option<Arc<StateOwner>> {
        self.lock().closed.get(&open).cloned()
    }

    /// An owner has closed an open.
    pub(crate) fn closed(&self, owner: &Arc<StateOwner>, turn: &mut Turn, open: StateIdOther) {
        let mut inner = self.lock();
        if let Some(before) = turn.closed.replace(open) {
            inner.closed.remove(&before);
        }
        inner.closed.insert(open, owner.clone());
    }

    fn give_back(&self, inner: &mut Inner, owner: &StateOwner) {
        inner.octets = inner.octets.saturating_sub(owner.octets());
        self.totals.owners.fetch_sub(owner.octets(), Ordering::Relaxed);
    }

    /// RELEASE_LOCKOWNER: forgets the owner.
    pub(crate) fn forget_locker(&self, name: &OwnerName) {
        let mut inner = self.lock();
        if let Some(owner) = inner.locks.remove(name) {
            self.give_back(&mut inner, &owner);
        }
    }

    /// Forgets what was not used for a lease: owners that hold nothing, and unconfirmed opens. Looks at most twice in a
    /// lease.
    pub(super) fn sweep<P>(&self, held: &Held<P>, now: Timestamp) -> Vec<Release<P>> {
        let lease = self.limits.lease;
        let mut inner = self.lock();
        if now.since(inner.swept) < lease / 2 {
            return Vec::new();
        }
        inner.swept = now;
        let mut released = Vec::new();
        for what in [OwnerOf::Opens, OwnerOf::Locks] {
            let mut idle = Vec::new();
            for owner in inner.of(what).values() {
                // A call has the turn, or is about to take it.
                let Ok(mut sequence) = owner.sequence.try_lock() else { continue };
                // NFS4-7530-9.1.10-a
                if now.since(sequence.used) <= lease {
                    continue;
                }
                // NFS4-7530-16.18-c
                if let Some(open) = sequence.unconfirmed.take() {
                    released.extend(held.cancel(open));
                }
                let holds = match what {
                    OwnerOf::Opens => held.has_opens(&owner.name),
                    OwnerOf::Locks => held.has_lock_states(&owner.name),
                };
                if !holds {
                    idle.push((owner.name.clone(), sequence.closed.take()));
                }
            }
            for (name, closed) in idle {
                if let Some(closed) = closed {
                    inner.closed.remove(&closed);
                }
                // Another call may have found the owner, and may be waiting for its turn.
                if let Some(owner) = inner.of(what).remove(&name) {
                    if Arc::strong_count(&owner) == 1 {
                        self.give_back(&mut inner, &owner);
                    } else {
                        inner.of(what).insert(name, owner);
                    }
                }
            }
        }
        released
    }

    /// How many owners there are, of opens and of locks.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.opens.len(), inner.locks.len())
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        let octets = self.lock().octets;
        self.totals.owners.fetch_sub(octets, Ordering::Relaxed);
    }
}

/// Whether an operation has the sequence number of an owner.
pub(crate) fn is_in_sequence(op: Op) -> bool {
    matches!(op, Op::Open | Op::OpenConfirm | Op::OpenDowngrade | Op::Close | Op::Lock | Op::LockU)
}

#[cfg(test)]
#[path = "tests/owners40.rs"]
mod tests;
