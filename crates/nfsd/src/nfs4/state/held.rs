//! What one client holds: opens, lock stateids and delegations, by their stateids (RFC 8881 section 8.2.4).
//!
//! Owns what each of them pins (`P`: an open file), and returns it as a [`Release`] when the state ends in any way: the
//! caller then removes it from the table of claims and drops the pin. That table decides on conflicts, not this module.
//! Each client has its own lock, held only for a moment; an operation that fails changes nothing.

use super::{
    checked::Wanted,
    held40::ByOwner,
    limits::Limits,
    owners::{Delegation, Lock, Open},
    release::{Release, Released, Why},
    stateids::{check_sequence, other, special},
};
use crate::claims::FileKey;
use rpcrdma_nfs::v4::{ClientId, OwnerName, StateId, StateIdOther, Status};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

pub(super) enum Kind<P> {
    Open(Open<P>),
    Lock(Lock),
    Delegation(Delegation<P>),
}

impl<P> Kind<P> {
    fn wanted(&self) -> Wanted {
        match self {
            Kind::Open(_) => Wanted::Open,
            Kind::Lock(_) => Wanted::Lock,
            Kind::Delegation(_) => Wanted::Delegation,
        }
    }

    fn number(&self) -> usize {
        match self {
            Kind::Open(_) => 0,
            Kind::Lock(_) => 1,
            Kind::Delegation(_) => 2,
        }
    }

    /// Bytes of the owner's name.
    fn name_bytes(&self) -> usize {
        match self {
            Kind::Open(open) => open.owner.0.len(),
            Kind::Lock(lock) => lock.owner.0.len(),
            Kind::Delegation(_) => 0,
        }
    }
}

pub(super) struct State<P> {
    pub(super) sequence: u32,
    pub(super) file: FileKey,
    pub(super) kind: Kind<P>,
}

/// How much all clients hold together.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// By kind.
    states: [AtomicUsize; 3],
    /// Bytes of owners' names.
    names: AtomicUsize,
    /// Bytes of the owners of minor version 0.
    pub(super) owners: AtomicUsize,
}

impl Totals {
    /// Opens, locks, delegations.
    pub(super) fn counts(&self) -> [usize; 3] {
        self.states.each_ref().map(|total| total.load(Ordering::Relaxed))
    }

    /// Counts `more`, if the total stays within the limit.
    pub(super) fn take(total: &AtomicUsize, more: usize, limit: usize) -> Result<(), Status> {
        let grow = |count: usize| count.checked_add(more).filter(|count| *count <= limit);
        let grown = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow);
        grown.map(drop).map_err(|_| Status::DELAY)
    }
}

/// What one client holds.
pub(crate) struct Held<P> {
    /// The flags of SEQUENCE: outside the lock, so that SEQUENCE need not wait for it.
    flags: Arc<AtomicU32>,
    inner: Mutex<Inner<P>>,
}

/// A state that the server took away and the client has not freed yet.
struct Lost {
    number: usize,
    why: Why,
    /// The locks that went with it, if it was an open.
    locks: Vec<StateIdOther>,
}

pub(super) struct Inner<P> {
    client: ClientId,
    /// A quick hash whose seed is random is enough: the server chooses the names, and all are one client's.
    pub(super) states: foldhash::HashMap<StateIdOther, State<P>>,
    /// States that the server took away and the client has not freed yet.
    revoked: foldhash::HashMap<StateIdOther, Lost>,
    pub(super) opens: HashMap<(OwnerName, FileKey), StateIdOther>,
    pub(super) locks: HashMap<(OwnerName, StateIdOther), StateIdOther>,
    /// The same states by owner, in minor version 0.
    pub(super) by_owner: Option<ByOwner>,
    counts: [usize; 3],
    /// Bytes of owners' names.
    names: usize,
    /// How many of `revoked` there are of each [`Why`].
    lost: [usize; 3],
    last: u32,
    /// Stateids of copies, which other code keeps; they name nothing here.
    copies: HashSet<StateIdOther>,
    /// The client has ended: its calls that still run get nothing, because nothing would give it back.
    is_ended: bool,
    limits: Arc<Limits>,
    totals: Arc<Totals>,
}

impl<P> Inner<P> {
    /// Makes room for a state, and gives it a name.
    ///
    /// # Errors
    /// DELAY if the client, or all clients together, hold as many states of the kind as they may, or as many bytes of
    /// names; EXPIRED if the client has ended.
    pub(super) fn add(&mut self, file: FileKey, kind: Kind<P>) -> Result<StateId, Status> {
        let (number, octets) = (kind.number(), kind.name_bytes());
        // NFS4-8881-18.35-e
        if self.is_ended {
            return Err(Status::EXPIRED);
        }
        let names = self.names.saturating_add(octets);
        // NFS4-LIMITS-NAMES-a
        if self.counts[number] >= self.limits.held_by_client || names > self.limits.names_of_client {
            return Err(Status::DELAY);
        }
        Totals::take(&self.totals.states[number], 1, self.limits.held)?;
        // NFS4-LIMITS-NAMES-a
        if let Err(status) = Totals::take(&self.totals.names, octets, self.limits.names) {
            self.totals.states[number].fetch_sub(1, Ordering::Relaxed);
            return Err(status);
        }
        self.counts[number] += 1;
        self.names = names;
        let name = self.new_name();
        if let Some(by_owner) = &mut self.by_owner {
            by_owner.insert(name, &kind);
        }
        self.states.insert(name, State { sequence: 1, file, kind });
        Ok(StateId { sequence: 1, other: name })
    }

    /// A name that is not in use.
    fn new_name(&mut self) -> StateIdOther {
        loop {
            // Numbers come back after 2^32; a number that is still in use is skipped.
            self.last = self.last.wrapping_add(1);
            let name = other(self.client, self.last);
            let is_used = self.states.contains_key(&name) || self.revoked.contains_key(&name);
            if !is_used && !self.copies.contains(&name) {
                return name;
            }
        }
    }

    fn count_out(&mut self, number: usize) {
        self.counts[number] = self.counts[number].saturating_sub(1);
        self.totals.states[number].fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgets a state that was taken away, and the locks that went with it. Returns whether `name` was such a state.
    fn forget(&mut self, name: StateIdOther) -> bool {
        let Some(lost) = self.revoked.remove(&name) else { return false };
        self.count_out(lost.number);
        self.lost[lost.why as usize] = self.lost[lost.why as usize].saturating_sub(1);
        for lock in lost.locks {
            self.forget(lock);
        }
        true
    }

    /// A client of minor version 0 learns that a state is gone: if the server took it away, the client has acknowledged
    /// that now.
    fn take_note(&mut self, name: StateIdOther) {
        let Some(by_owner) = &mut self.by_owner else { return };
        if let Some(why) = by_owner.lost.remove(&name) {
            let lost = &mut self.lost[why as usize];
            *lost = lost.saturating_sub(1);
            // NFS4-7530-9.6.2-a
            by_owner.has_taken_note = self.lost == [0; 3];
        }
    }

    /// Finds a state, by all rules of section 8.2.4 in order.
    pub(super) fn find(&mut self, id: StateId, file: Option<FileKey>, wanted: Wanted) -> Result<&mut State<P>, Status> {
        if special(id)?.is_some() {
            return Err(Status::BAD_STATEID);
        }
        if let Some(lost) = self.revoked.get(&id.other) {
            return Err(lost.why.status());
        }
        if self.by_owner.is_some() && !self.states.contains_key(&id.other) {
            self.take_note(id.other);
        }
        let state = self.states.get_mut(&id.other).ok_or(Status::BAD_STATEID)?;
        // NFS4-8881-8.2.4-a
        let fits = file.is_none_or(|file| file == state.file);
        if !fits || ![Wanted::Any, state.kind.wanted()].contains(&wanted) {
            return Err(Status::BAD_STATEID);
        }
        check_sequence(id.sequence, state.sequence)?;
        Ok(state)
    }

    /// Removes a state, and the locks that belong to it. A state that the server takes away is remembered by its name.
    pub(super) fn remove(&mut self, name: StateIdOther, why: Option<Why>, into: &mut Vec<Release<P>>) {
        let Some(state) = self.states.remove(&name) else { return };
        let (number, octets) = (state.kind.number(), state.kind.name_bytes());
        if let Some(by_owner) = &mut self.by_owner {
            by_owner.remove(name, &state.kind);
        }
        // The owner's name goes with the state, even if the state is remembered.
        // NFS4-LIMITS-NAMES-a
        self.names = self.names.saturating_sub(octets);
        self.totals.names.fetch_sub(octets, Ordering::Relaxed);
        match (why, &mut self.by_owner) {
            // Minor version 0 has no FREE_STATEID, which would count it out later.
            (Some(why), Some(by_owner)) => {
                by_owner.lose(name, why);
                self.lost[why as usize] += 1;
                self.count_out(number);
            }
            (Some(why), None) => {
                let locks = if let Kind::Open(open) = &state.kind { open.locks.clone() } else { Vec::new() };
                self.revoked.insert(name, Lost { number, why, locks });
                self.lost[why as usize] += 1;
            }
            (None, _) => self.count_out(number),
        }
        let what = match state.kind {
            Kind::Open(open) => {
                // NFS4-8881-18.2-a
                for lock in &open.locks {
                    self.remove(*lock, why, into);
                }
                self.opens.remove(&(open.owner.clone(), state.file));
                Released::Open(open.owner, open.pins.into_iter().map(|(_, pin)| pin).collect())
            }
            Kind::Lock(lock) => {
                if let Some(State { kind: Kind::Open(open), .. }) = self.states.get_mut(&lock.open) {
                    open.locks.retain(|other| *other != name);
                }
                self.locks.remove(&(lock.owner.clone(), lock.open));
                Released::Lock(lock.owner)
            }
            Kind::Delegation(delegation) => Released::Delegation(delegation.pin),
        };
        into.push(Release { client: self.client, file: state.file, other: name, what });
    }
}

impl<P> Held<P> {
    pub(super) fn new(client: ClientId, limits: Arc<Limits>, totals: Arc<Totals>) -> Self {
        let inner = Inner {
            client,
            states: foldhash::HashMap::default(),
            revoked: foldhash::HashMap::default(),
            opens: HashMap::new(),
            locks: HashMap::new(),
            by_owner: None,
            counts: [0; 3],
            names: 0,
            lost: [0; 3],
            last: 0,
            copies: HashSet::new(),
            is_ended: false,
            limits,
            totals,
        };
        Self { flags: Arc::default(), inner: Mutex::new(inner) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a name for a copy: no state gets this name meanwhile. The code that keeps copies bounds their number.
    ///
    /// # Errors
    /// EXPIRED if the client has ended.
    pub(super) fn name(&self) -> Result<StateIdOther, Status> {
        let mut inner = self.lock();
        if inner.is_ended {
            return Err(Status::EXPIRED);
        }
        let name = inner.new_name();
        inner.copies.insert(name);
        Ok(name)
    }

    /// The name of a copy is free again.
    pub(super) fn unname(&self, name: StateIdOther) {
        self.lock().copies.remove(&name);
    }

    /// Whether the client has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    /// Whether the client holds nothing. States that were taken away do not count.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().states.is_empty()
    }

    /// The flags of SEQUENCE about states that were taken away.
    // NFS4-8881-18.46-e
    pub(super) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Acquire)
    }

    /// The same flags, for code that may outlive this: 0 if the client has learned of all its losses.
    pub(super) fn losses(&self) -> Arc<AtomicU32> {
        self.flags.clone()
    }

    /// Whether a client of minor version 0 has learned of all its losses since this was last asked.
    pub(super) fn has_taken_note(&self) -> bool {
        let mut inner = self.lock();
        let has = inner.by_owner.as_mut().is_some_and(|by_owner| std::mem::take(&mut by_owner.has_taken_note));
        self.tell(&inner);
        has && inner.lost == [0; 3]
    }

    fn tell(&self, inner: &Inner<P>) {
        let flags = inner.lost.iter().zip(Why::ALL).filter(|(count, _)| **count > 0);
        self.flags.store(flags.fold(0, |flags, (_, why)| flags | why.flag()), Ordering::Release);
    }

    /// The file and the owner of a lock stateid, whether or not a range is locked.
    pub(crate) fn lock_of(&self, id: StateId) -> Option<(FileKey, OwnerName)> {
        let inner = self.lock();
        let state = inner.states.get(&id.other)?;
        match &state.kind {
            Kind::Lock(lock) => Some((state.file, lock.owner.clone())),
            _ => None,
        }
    }

    /// Whether an owner has a lock stateid for a file, through whichever open.
    pub(crate) fn locks_on(&self, file: FileKey, owner: &OwnerName) -> bool {
        let inner = self.lock();
        let mut names = inner.locks.iter().filter(|((of, _), _)| of == owner).map(|(_, name)| name);
        names.any(|name| inner.states.get(name).is_some_and(|state| state.file == file))
    }

    /// The status of a stateid in TEST_STATEID.
    // NFS4-8881-18.48-a
    pub(crate) fn test(&self, id: StateId) -> Status {
        self.lock().find(id, None, Wanted::Any).err().unwrap_or(Status::OK)
    }

    /// Frees a stateid that names nothing any more (FREE_STATEID). Returns whether it was the last state that the
    /// server had taken away: then the client has acknowledged all losses, and may reclaim again.
    ///
    /// A client that knows of the loss of an open also knows of the loss of the locks under it, which cannot outlive
    /// the open: they are freed with it. Linux frees only the open, and recovers again and again while SEQUENCE reports
    /// a loss.
    ///
    /// # Errors
    /// LOCKS_HELD while it names something, else as for every stateid.
    // NFS4-8881-18.38-a, NFS4-8881-18.38-b
    pub(super) fn free(&self, id: StateId) -> Result<bool, Status> {
        let mut inner = self.lock();
        // NFS4-8881-18.38-c
        if inner.forget(id.other) {
            self.tell(&inner);
            return Ok(inner.revoked.is_empty());
        }
        match &inner.find(id, None, Wanted::Any)?.kind {
            Kind::Lock(lock) if !lock.holds => {
                inner.remove(id.other, None, &mut Vec::new());
                Ok(false)
            }
            _ => Err(Status::LOCKS_HELD),
        }
    }

    /// Takes a state away, and the locks that belong to it.
    pub(super) fn revoke(&self, name: StateIdOther, why: Why) -> Vec<Release<P>> {
        let mut released = Vec::new();
        let mut inner = self.lock();
        inner.remove(name, Some(why), &mut released);
        self.tell(&inner);
        released
    }

    /// Takes away everything that the client holds on a file.
    pub(super) fn revoke_file(&self, file: FileKey, why: Why) -> Vec<Release<P>> {
        let mut inner = self.lock();
        let names: Vec<_> =
            inner.states.iter().filter(|(_, state)| state.file == file).map(|(name, _)| *name).collect();
        let mut released = Vec::new();
        // Locks go with their opens, and before them.
        for name in names {
            if let Some(Kind::Lock(lock)) = inner.states.get(&name).map(|state| &state.kind) {
                let open = lock.open;
                inner.remove(open, Some(why), &mut released);
            }
            inner.remove(name, Some(why), &mut released);
        }
        self.tell(&inner);
        released
    }

    /// Ends the client if it holds nothing: its calls that still run get nothing. States that were taken away do not
    /// count.
    pub(super) fn end_if_empty(&self) -> bool {
        let mut inner = self.lock();
        inner.is_ended |= inner.states.is_empty();
        inner.is_ended
    }

    /// Returns everything, because the client has ended.
    pub(super) fn release_all(&self) -> Vec<Release<P>> {
        let mut inner = self.lock();
        inner.is_ended = true;
        let mut released = Vec::new();
        let names: Vec<_> = inner.states.keys().copied().collect();
        let (locks, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| matches!(&inner.states[name].kind, Kind::Lock(_)));
        for name in locks.into_iter().chain(others) {
            inner.remove(name, None, &mut released);
        }
        for (_, lost) in std::mem::take(&mut inner.revoked) {
            inner.count_out(lost.number);
        }
        released
    }

    /// How many opens, lock stateids and delegations the client has, including those that were taken away.
    pub(crate) fn counts(&self) -> [usize; 3] {
        self.lock().counts
    }
}

impl<P> Drop for Held<P> {
    /// Takes the rest out of the totals; callers have taken the releases before.
    fn drop(&mut self) {
        let mut inner = self.lock();
        let counts = std::mem::take(&mut inner.counts);
        for (total, count) in inner.totals.states.iter().zip(counts) {
            total.fetch_sub(count, Ordering::Relaxed);
        }
        inner.totals.names.fetch_sub(inner.names, Ordering::Relaxed);
    }
}
