//! What a client loses, and why; the caller must release it for others.

use crate::claims::FileKey;
use rpcrdma_nfs::v4::{ClientId, OwnerName, StateIdOther, Status};

/// Why the server took a state away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The lease was over, and another client wanted it.
    Expired,
    /// An administrator wanted it.
    Admin,
    /// The client did not return a delegation.
    NotReturned,
}

impl Why {
    pub(super) const ALL: [Self; 3] = [Self::Expired, Self::Admin, Self::NotReturned];

    /// The status of its stateid until the client has freed it.
    // NFS4-8881-8.2.4-b
    pub(super) fn status(self) -> Status {
        match self {
            Why::Expired => Status::EXPIRED,
            Why::Admin => Status::ADMIN_REVOKED,
            // NFS4-8881-10.4.6-b
            Why::NotReturned => Status::DELEG_REVOKED,
        }
    }

    /// The flag of SEQUENCE until the client has freed all stateids of this kind.
    // NFS4-8881-18.46-e
    pub(super) fn flag(self) -> u32 {
        match self {
            Why::Expired => super::flags::EXPIRED_SOME_STATE_REVOKED,
            Why::Admin => super::flags::ADMIN_STATE_REVOKED,
            Why::NotReturned => super::flags::RECALLABLE_STATE_REVOKED,
        }
    }
}

/// A claim to remove from the table of claims, because the client no longer holds it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Release<P> {
    /// The client that held it.
    pub(crate) client: ClientId,
    /// The file.
    pub(crate) file: FileKey,
    /// Its name in the stateid.
    pub(crate) other: StateIdOther,
    /// The kind of the claim.
    pub(crate) what: Released<P>,
}

/// The kind of a [`Release`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released<P> {
    /// An open of this owner, with all its pins.
    Open(OwnerName, Vec<P>),
    /// Locks of this owner. They come before the open to which they belong.
    Lock(OwnerName),
    /// A delegation, with its pin.
    Delegation(P),
}
