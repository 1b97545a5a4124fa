//! The meaning of the stateid of an operation: which kind of state it names, whose it is, and which file is open
//! through it.

use super::{
    held::{Held, Kind},
    owners::Share,
};
use crate::claims::FileKey;
use rpcrdma_nfs::v4::{OwnerName, StateId, Status};

/// The kind of state that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any: READ, WRITE, SETATTR.
    Any,
    /// An open: CLOSE, OPEN_DOWNGRADE, the first LOCK of an owner.
    Open,
    /// Locks: LOCK and LOCKU.
    Lock,
    /// A delegation: DELEGRETURN.
    Delegation,
}

/// What a valid stateid stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked<P> {
    /// The kind, never [`Wanted::Any`].
    pub(crate) kind: Wanted,
    /// The owner of the open, or of the locks. A delegation has none.
    pub(crate) owner: Option<OwnerName>,
    /// The access and denial of the open, or of the open to which locks belong.
    pub(crate) share: Share,
    /// The stateid with its present sequence number.
    pub(crate) id: StateId,
    pins: Vec<(u8, P)>,
}

impl<P> Checked<P> {
    /// An open file with at least this access.
    pub(crate) fn pin(&self, access: u8) -> Option<&P> {
        with_access(&self.pins, access)
    }
}

fn with_access<P>(pins: &[(u8, P)], access: u8) -> Option<&P> {
    pins.iter().find(|(has, _)| has & access == access).map(|(_, pin)| pin)
}

impl<P: Clone> Held<P> {
    /// The meaning of an operation's stateid, for the operation's file. The caller handles
    /// [special](super::stateids::special) stateids, which mean nothing here.
    ///
    /// # Errors
    /// BAD_STATEID, OLD_STATEID, EXPIRED, ADMIN_REVOKED, DELEG_REVOKED.
    pub(crate) fn check(&self, id: StateId, file: FileKey, wanted: Wanted) -> Result<Checked<P>, Status> {
        let mut inner = self.lock();
        let state = inner.find(id, Some(file), wanted)?;
        let id = StateId { sequence: state.sequence, other: id.other };
        let open = match &state.kind {
            Kind::Open(open) => (Wanted::Open, open.owner.clone(), id.other),
            Kind::Lock(lock) => (Wanted::Lock, lock.owner.clone(), lock.open),
            Kind::Delegation(delegation) => {
                let share = delegation.share;
                let pins = vec![(share.access(), delegation.pin.clone())];
                return Ok(Checked { kind: Wanted::Delegation, owner: None, share, id, pins });
            }
        };
        let (kind, owner, open) = open;
        match inner.states.get(&open).map(|state| &state.kind) {
            Some(Kind::Open(open)) => {
                Ok(Checked { kind, owner: Some(owner), share: open.share, id, pins: open.pins.clone() })
            }
            // Locks never outlive their open.
            _ => Err(Status::SERVERFAULT),
        }
    }

    /// Whether a stateid names a delegation of the client.
    pub(crate) fn is_delegation(&self, id: StateId) -> bool {
        matches!(self.lock().states.get(&id.other).map(|state| &state.kind), Some(Kind::Delegation(_)))
    }

    /// An open of a file with at least this access, by any owner.
    pub(crate) fn open_of(&self, file: FileKey, access: u8) -> Option<StateId> {
        let inner = self.lock();
        let mut states = inner.states.iter().filter(|(_, state)| state.file == file);
        states.find_map(|(&other, state)| match &state.kind {
            Kind::Open(open) if with_access(&open.pins, access).is_some() => Some(StateId { sequence: 0, other }),
            _ => None,
        })
    }

    /// An open file with at least this access, for a stateid: the same as [`check`](Self::check) and
    /// [`pin`](Checked::pin), but faster, for READ and WRITE. `None` if it is not open with this access.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn pin(&self, id: StateId, file: FileKey, access: u8) -> Result<Option<P>, Status> {
        let mut inner = self.lock();
        let open = match &inner.find(id, Some(file), Wanted::Any)?.kind {
            Kind::Open(open) => return Ok(with_access(&open.pins, access).cloned()),
            Kind::Delegation(delegation) => {
                let has = delegation.share.access();
                return Ok((has & access == access).then(|| delegation.pin.clone()));
            }
            Kind::Lock(lock) => lock.open,
        };
        match inner.states.get(&open).map(|state| &state.kind) {
            Some(Kind::Open(open)) => Ok(with_access(&open.pins, access).cloned()),
            // Locks never outlive their open.
            _ => Err(Status::SERVERFAULT),
        }
    }
}
