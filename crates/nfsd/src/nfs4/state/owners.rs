//! Opens and locks by their owners (RFC 8881 sections 9.1, 9.8 and 9.9; 18.2, 18.10, 18.12, 18.16, 18.18).
//!
//! An owner has one open of a file, whose access and denial are the union of its OPENs, and one lock stateid for each
//! open under which it locks. Each change advances the stateid. Conflicts with other owners were decided before; after
//! an error here the caller gives back what it got from the table of claims.

use super::{
    checked::Wanted,
    grace::Recorded,
    held::{Held, Inner, Kind, State},
    release::Release,
    stateids::next,
};
use crate::claims::FileKey;
use bytes::Bytes;
use rpcrdma_nfs::v4::{OwnerName, StateId, StateIdOther, Status};

/// READ and WRITE, together.
pub(crate) const BOTH: u8 = 3;

/// What an open may do, and what it denies others: bit 1 is READ, bit 2 is WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Share {
    access: u8,
    deny: u8,
}

impl Share {
    /// From the words of an operation, without the bits of wishes for delegations.
    ///
    /// # Errors
    /// INVAL for no access, or for bits other than READ and WRITE.
    // NFS4-8881-9.7-a, NFS4-8881-9.7-b, NFS4-8881-18.18.3-b
    pub(crate) fn new(access: u32, deny: u32) -> Result<Self, Status> {
        match (u8::try_from(access), u8::try_from(deny)) {
            (Ok(access @ 1..=BOTH), Ok(deny @ 0..=BOTH)) => Ok(Self { access, deny }),
            _ => Err(Status::INVAL),
        }
    }

    /// The access, 1 to 3.
    pub(crate) fn access(self) -> u8 {
        self.access
    }

    /// The denial, 0 to 3.
    pub(crate) fn deny(self) -> u8 {
        self.deny
    }

    // NFS4-8881-9.9-c
    fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }
}

/// An open of one owner.
pub(super) struct Open<P> {
    pub(super) owner: OwnerName,
    pub(super) share: Share,
    /// The set of accesses (or denials) of the OPENs in effect: bit n stands for access (or denial) n.
    accesses: u8,
    denials: u8,
    /// At most one pin for each access.
    pub(super) pins: Vec<(u8, P)>,
    pub(super) locks: Vec<StateIdOther>,
}

/// The locks of one owner under one open.
pub(super) struct Lock {
    pub(super) owner: OwnerName,
    pub(super) open: StateIdOther,
    /// Whether a range is locked.
    pub(super) holds: bool,
}

/// A delegation.
pub(super) struct Delegation<P> {
    pub(super) share: Share,
    pub(super) pin: P,
}

/// The union of those values in a set (bit n: value n) that are within `within`; `None` if there are none.
fn union_within(values: u8, within: u8) -> Option<u8> {
    let fitting = (0..=BOTH).filter(|value| values & (1 << value) != 0 && value & !within == 0);
    fitting.reduce(|union, value| union | value)
}

/// Those values in a set that are within `within`.
fn subset(values: u8, within: u8) -> u8 {
    (0..=BOTH).filter(|value| value & !within == 0).fold(0, |set, value| set | values & (1 << value))
}

/// An OPEN that has passed all checks.
#[derive(Clone, Debug)]
pub(crate) struct Opening<P> {
    /// The open owner.
    pub(crate) owner: OwnerName,
    /// The file.
    pub(crate) file: FileKey,
    /// The access and denial that it asks for.
    pub(crate) share: Share,
    /// The file that the file system has opened for it, with that access.
    pub(crate) pin: P,
}

/// The result of an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The stateid.
    pub(crate) id: StateId,
    /// The union of the owner's OPENs.
    pub(crate) share: Share,
}

/// The owner whose locks change.
#[derive(Clone, Debug)]
pub(crate) enum LockBy {
    /// The owner's first lock under an open (`open_to_lock_owner4`).
    New {
        /// The open.
        open: StateId,
        /// The lock owner.
        owner: OwnerName,
    },
    /// Later locks.
    Known(StateId),
}

/// Copies a name: a decoder returns a part of a whole message.
fn own(name: &OwnerName) -> OwnerName {
    OwnerName(Bytes::copy_from_slice(&name.0))
}

// NFS4-8881-8.2.2-c, NFS4-8881-18.18-b
fn count_on<P>(state: &mut State<P>, other: StateIdOther) -> StateId {
    state.sequence = next(state.sequence);
    StateId { sequence: state.sequence, other }
}

impl<P> Held<P> {
    /// Records an OPEN: a new open, or more access of the owner's open. [`Recorded`] proves that the server would know
    /// the client after a restart.
    ///
    /// # Errors
    /// DELAY at the limits. Then the caller gives back its claim.
    // NFS4-8881-9.9-c
    pub(crate) fn open(&self, _recorded: &Recorded, opening: Opening<P>) -> Result<Opened, Status> {
        let Opening { owner, file, share, pin } = opening;
        let mut inner = self.lock();
        let key = (owner, file);
        let (accesses, denials) = (1 << share.access, 1 << share.deny);
        if let Some(other) = inner.opens.get(&key).copied() {
            let state = inner.states.get_mut(&other).ok_or(Status::SERVERFAULT)?;
            let Kind::Open(open) = &mut state.kind else { return Err(Status::SERVERFAULT) };
            open.share = open.share.union(share);
            open.accesses |= accesses;
            open.denials |= denials;
            if !open.pins.iter().any(|(access, _)| *access == share.access) {
                open.pins.push((share.access, pin));
            }
            let share = open.share;
            // NFS4-8881-9.9-a: also when nothing is added.
            return Ok(Opened { id: count_on(state, other), share });
        }
        let owner = own(&key.0);
        let pins = vec![(share.access, pin)];
        let open = Open { owner: owner.clone(), share, accesses, denials, pins, locks: Vec::new() };
        let id = inner.add(file, Kind::Open(open))?;
        inner.opens.insert((owner, file), id.other);
        Ok(Opened { id, share })
    }

    /// Reduces an open (OPEN_DOWNGRADE), and returns what it no longer pins.
    ///
    /// # Errors
    /// INVAL unless access and denial are unions of OPENs in effect; else as for every stateid.
    // NFS4-8881-18.18-b, NFS4-8881-18.18.3-a
    pub(crate) fn downgrade(&self, id: StateId, file: FileKey, to: Share) -> Result<(StateId, Vec<P>), Status> {
        let mut inner = self.lock();
        let state = inner.find(id, Some(file), Wanted::Open)?;
        let Kind::Open(open) = &mut state.kind else { return Err(Status::BAD_STATEID) };
        // NFS4-8881-18.18-a
        let is_union = |values, of| union_within(values, of) == Some(of);
        if !is_union(open.accesses, to.access) || !is_union(open.denials, to.deny) {
            return Err(Status::INVAL);
        }
        open.share = to;
        open.accesses = subset(open.accesses, to.access);
        open.denials = subset(open.denials, to.deny);
        // Each access of an OPEN that stays in effect has its own pin.
        let (kept, dropped) =
            std::mem::take(&mut open.pins).into_iter().partition(|(access, _)| access & !to.access == 0);
        open.pins = kept;
        let dropped: Vec<(u8, P)> = dropped;
        Ok((count_on(state, id.other), dropped.into_iter().map(|(_, pin)| pin).collect()))
    }

    /// Ends an open, with all locks under it. The stateid in the reply is [`StateId::INVALID`].
    ///
    /// # Errors
    /// As for every stateid.
    pub(crate) fn close(&self, id: StateId, file: FileKey) -> Result<Vec<Release<P>>, Status> {
        let mut inner = self.lock();
        inner.find(id, Some(file), Wanted::Open)?;
        let mut released = Vec::new();
        inner.remove(id.other, None, &mut released);
        Ok(released)
    }

    /// Records a LOCK that was granted.
    ///
    /// # Errors
    /// As for every stateid, and DELAY at the limits. Then the caller gives back the range: the open may have been
    /// closed since the check.
    // NFS4-8881-8.2.1-a
    pub(crate) fn locked(&self, by: LockBy, file: FileKey) -> Result<StateId, Status> {
        let mut inner = self.lock();
        let (open, owner) = match by {
            LockBy::Known(id) => return change_lock(&mut inner, id, file, true),
            LockBy::New { open, owner } => (open, owner),
        };
        inner.find(open, Some(file), Wanted::Open)?;
        let key = (owner, open.other);
        if let Some(known) = inner.locks.get(&key).copied() {
            return change_lock(&mut inner, StateId { sequence: 0, other: known }, file, true);
        }
        let owner = own(&key.0);
        let id = inner.add(file, Kind::Lock(Lock { owner: owner.clone(), open: open.other, holds: true }))?;
        inner.locks.insert((owner, open.other), id.other);
        if let Some(State { kind: Kind::Open(state), .. }) = inner.states.get_mut(&open.other) {
            state.locks.push(id.other);
        }
        Ok(id)
    }

    /// Records a LOCKU, and whether the owner still has a range of the file.
    ///
    /// # Errors
    /// As for every stateid.
    pub(crate) fn unlocked(&self, id: StateId, file: FileKey, still_holds: bool) -> Result<StateId, Status> {
        change_lock(&mut self.lock(), id, file, still_holds)
    }

    /// Records a delegation.
    ///
    /// # Errors
    /// DELAY at the limits: then the OPEN succeeds without a delegation.
    pub(crate) fn delegate(
        &self,
        _recorded: &Recorded,
        file: FileKey,
        share: Share,
        pin: P,
    ) -> Result<StateId, Status> {
        self.lock().add(file, Kind::Delegation(Delegation { share, pin }))
    }

    /// Ends a delegation.
    ///
    /// # Errors
    /// As for every stateid.
    pub(crate) fn undelegate(&self, id: StateId, file: FileKey) -> Result<Vec<Release<P>>, Status> {
        let mut inner = self.lock();
        inner.find(id, Some(file), Wanted::Delegation)?;
        let mut released = Vec::new();
        inner.remove(id.other, None, &mut released);
        Ok(released)
    }
}

fn change_lock<P>(inner: &mut Inner<P>, id: StateId, file: FileKey, holds: bool) -> Result<StateId, Status> {
    let state = inner.find(id, Some(file), Wanted::Lock)?;
    if let Kind::Lock(lock) = &mut state.kind {
        lock.holds = holds;
    }
    Ok(count_on(state, id.other))
}
