//! What a client of minor version 0 holds, by its owners: without sessions only a stateid shows to whose sequence a
//! call belongs, and owners are released by name (RFC 7530 sections 9.1.4, 9.1.10, 9.1.11).

use super::{
    checked::Wanted,
    held::{Held, Kind},
    release::{Release, Why},
    stateids::{check_sequence, next},
};
use crate::claims::FileKey;
use rpcrdma_nfs::v4::{OwnerName, StateId, StateIdOther, Status};
use std::collections::{HashMap, HashSet};

/// The opens and lock stateids of a client, by their owners.
#[derive(Default)]
pub(super) struct ByOwner {
    /// How many files an owner has open.
    opens: HashMap<OwnerName, usize>,
    locks: HashMap<OwnerName, HashSet<StateIdOther>>,
    /// Opens that wait for OPEN_CONFIRM.
    unconfirmed: HashSet<StateIdOther>,
    /// States that the server took away and the client does not know of yet, at most [`MAX_LOST`].
    pub(super) lost: HashMap<StateIdOther, Why>,
    /// The client has learned of the last loss.
    pub(super) has_taken_note: bool,
}

/// How many delegations that the server took from a client of minor version 0 it remembers until the client learns of
/// it, by the first failing use. If a client has lost more, and has not started again since, it can reclaim nothing
/// after a restart of the server. A client that does not return a delegation gets no others for an hour.
pub(super) const MAX_LOST: usize = 256;

impl ByOwner {
    /// The server takes a state away.
    pub(super) fn lose(&mut self, name: StateIdOther, why: Why) {
        if self.lost.len() < MAX_LOST {
            self.lost.insert(name, why);
        }
    }

    pub(super) fn insert<P>(&mut self, name: StateIdOther, kind: &Kind<P>) {
        match kind {
            Kind::Open(open) => *self.opens.entry(open.owner.clone()).or_default() += 1,
            Kind::Lock(lock) => drop(self.locks.entry(lock.owner.clone()).or_default().insert(name)),
            Kind::Delegation(_) => {}
        }
    }

    pub(super) fn remove<P>(&mut self, name: StateIdOther, kind: &Kind<P>) {
        match kind {
            Kind::Open(open) => {
                self.unconfirmed.remove(&name);
                if let Some(count) = self.opens.get_mut(&open.owner) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.opens.remove(&open.owner);
                    }
                }
            }
            Kind::Lock(lock) => {
                if let Some(names) = self.locks.get_mut(&lock.owner) {
                    names.remove(&name);
                    if names.is_empty() {
                        self.locks.remove(&lock.owner);
                    }
                }
            }
            Kind::Delegation(_) => {}
        }
    }
}

impl<P> Held<P> {
    /// Prepares this for the client's minor version: in version 0 it also finds states by their owners.
    pub(super) fn of_minor(self, minor: u32) -> Self {
        self.lock().by_owner = (minor == 0).then(ByOwner::default);
        self
    }

    /// The owner of the open or locks that a stateid names.
    ///
    /// # Errors
    /// BAD_STATEID, or the reason why it was taken away.
    pub(crate) fn owner_of(&self, id: StateId) -> Result<(Wanted, OwnerName), Status> {
        let mut inner = self.lock();
        let state = inner.find(StateId { sequence: 0, ..id }, None, Wanted::Any)?;
        match &state.kind {
            Kind::Open(open) => Ok((Wanted::Open, open.owner.clone())),
            Kind::Lock(lock) => Ok((Wanted::Lock, lock.owner.clone())),
            Kind::Delegation(_) => Err(Status::BAD_STATEID),
        }
    }

    /// Whether a stateid may be used: in minor version 0 the sequence number 0 is not valid, and an open must first be
    /// confirmed. Other code checks whether it names anything.
    ///
    /// # Errors
    /// OLD_STATEID, BAD_STATEID.
    // NFS4-7530-9.1.4-a
    pub(crate) fn check_of_zero(&self, id: StateId) -> Result<(), Status> {
        let inner = self.lock();
        if inner.by_owner.as_ref().is_some_and(|by_owner| by_owner.unconfirmed.contains(&id.other)) {
            return Err(Status::BAD_STATEID);
        }
        match inner.states.get(&id.other) {
            Some(_) if id.sequence == 0 => Err(Status::OLD_STATEID),
            _ => Ok(()),
        }
    }

    /// An open waits for OPEN_CONFIRM.
    // NFS4-7530-9.1.11-a
    pub(crate) fn wait_for_confirmation(&self, open: StateIdOther) {
        let mut inner = self.lock();
        if inner.states.contains_key(&open)
            && let Some(by_owner) = &mut inner.by_owner
        {
            by_owner.unconfirmed.insert(open);
        }
    }

    /// OPEN_CONFIRM.
    ///
    /// # Errors
    /// BAD_STATEID if the open does not wait for it, else as for every stateid.
    // NFS4-7530-16.18-a
    pub(crate) fn confirm(&self, id: StateId, file: FileKey) -> Result<StateId, Status> {
        let mut inner = self.lock();
        let state = inner.find(StateId { sequence: 0, ..id }, Some(file), Wanted::Open)?;
        if id.sequence == 0 {
            return Err(Status::OLD_STATEID);
        }
        check_sequence(id.sequence, state.sequence)?;
        let sequence = next(state.sequence);
        if !inner.by_owner.as_mut().is_some_and(|by_owner| by_owner.unconfirmed.remove(&id.other)) {
            return Err(Status::BAD_STATEID);
        }
        if let Some(state) = inner.states.get_mut(&id.other) {
            state.sequence = sequence;
        }
        Ok(StateId { sequence, other: id.other })
    }

    /// Takes back an unconfirmed open.
    pub(crate) fn cancel(&self, open: StateIdOther) -> Vec<Release<P>> {
        let mut released = Vec::new();
        let mut inner = self.lock();
        if inner.by_owner.as_ref().is_some_and(|by_owner| by_owner.unconfirmed.contains(&open)) {
            inner.remove(open, None, &mut released);
        }
        released
    }

    /// Whether an owner has something open.
    pub(super) fn has_opens(&self, owner: &OwnerName) -> bool {
        self.lock().by_owner.as_ref().is_some_and(|by_owner| by_owner.opens.contains_key(owner))
    }

    /// Whether an owner has lock stateids, with or without locked ranges.
    pub(crate) fn has_lock_states(&self, owner: &OwnerName) -> bool {
        self.lock().by_owner.as_ref().is_some_and(|by_owner| by_owner.locks.contains_key(owner))
    }

    /// The files of an owner's lock stateids.
    pub(crate) fn locked_files(&self, owner: &OwnerName) -> Vec<FileKey> {
        let inner = self.lock();
        let names = inner.by_owner.as_ref().and_then(|by_owner| by_owner.locks.get(owner));
        names.into_iter().flatten().filter_map(|name| inner.states.get(name)).map(|state| state.file).collect()
    }

    /// Forgets an owner's lock stateids, none of which has a locked range.
    pub(crate) fn forget_locks(&self, owner: &OwnerName) -> Vec<Release<P>> {
        let mut inner = self.lock();
        let names = inner.by_owner.as_ref().and_then(|by_owner| by_owner.locks.get(owner)).cloned();
        let mut released = Vec::new();
        for name in names.into_iter().flatten() {
            inner.remove(name, None, &mut released);
        }
        released
    }
}

#[cfg(test)]
impl<P> Held<P> {
    /// The file of a state.
    pub(crate) fn file_of(&self, id: StateId) -> Option<FileKey> {
        self.lock().states.get(&id.other).map(|state| state.file)
    }
}
