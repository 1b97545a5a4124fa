//! What a client loses, and why: it must be given back to others.

use crate::claims::FileKey;
use rpcrdma_nfs::v4::{ClientId, OwnerName, StateIdOther, Status};

/// Why the server took a state away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The lease was over, and another client wanted it.
    Expired,
    /// An administrator wished it.
    Admin,
    /// The client did not give a delegation back.
    NotReturned,
}

impl Why {
    pub(super) const ALL: [Self; 3] = [Self::Expired, Self::Admin, Self::NotReturned];

    /// What a stateid is answered with until it is freed.
    // NFS4-8881-8.2.4-b
    pub(super) fn status(self) -> Status {
        match self {
            Why::Expired => Status::EXPIRED,
            Why::Admin => Status::ADMIN_REVOKED,
            // NFS4-8881-10.4.6-b
            Why::NotReturned => Status::DELEG_REVOKED,
        }
    }

    /// What SEQUENCE says until the client has freed all stateids of the kind.
    // NFS4-8881-18.46-e
    pub(super) fn flag(self) -> u32 {
        match self {
            Why::Expired => super::flags::EXPIRED_SOME_STATE_REVOKED,
            Why::Admin => super::flags::ADMIN_STATE_REVOKED,
            Why::NotReturned => super::flags::RECALLABLE_STATE_REVOKED,
        }
    }
}

/// What must be taken out of the table of claims, because the client no longer holds it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Release<P> {
    /// The client that held it.
    pub(crate) client: ClientId,
    /// Of which file.
    pub(crate) file: FileKey,
    /// As what it was known.
    pub(crate) other: StateIdOther,
    /// What it was.
    pub(crate) what: Released<P>,
}

/// What a [`Release`] was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released<P> {
    /// An open, of this owner, with all that it pinned.
    Open(OwnerName, Vec<P>),
    /// Locks of this owner. They come before the open that they belong to.
    Lock(OwnerName),
    /// A delegation, with what it pinned.
    Delegation(P),
}
