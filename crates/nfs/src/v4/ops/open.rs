//! Opening and closing: OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE (RFC 8881 sections 18.2, 18.16, 18.18, RFC 7530
//! section 16.18).

use super::{Delegation, DelegationKind};
use crate::v4::{Bitmap, ChangeInfo, FileAttributes, Name, Owner, StateId, Verifier};

xdr_union! {
    /// Whether OPEN makes the file (`openflag4`).
    pub enum OpenHow: "kind of open" {
        /// It must exist.
        NoCreate = 0,
        /// The server creates it if it does not exist.
        Create(how: CreateHow) = 1,
    }

    /// How OPEN treats a file that exists (`createhow4`).
    pub enum CreateHow: "way to create" {
        /// It is used as it is; of these attributes only a size of 0 is set on it.
        Unchecked(attributes: FileAttributes) = 0,
        /// It is an error.
        Guarded(attributes: FileAttributes) = 1,
        /// It is an error, unless it was made by a call with this verifier: a retransmission.
        Exclusive(verifier: Verifier) = 2,
        /// As `Exclusive`, and sets attributes. Not in minor version 0.
        Exclusive41(create: CreateExclusive) = 3,
    }

    /// The right by which OPEN opens, and the file (`open_claim4`).
    pub enum Claim: "claim" {
        /// None; the file of this name in the current directory.
        Null(name: Name) = 0,
        /// It was open before the server restarted, with this delegation; the current file.
        Previous(delegation: DelegationKind) = 1,
        /// A delegation; the file of a name in the current directory.
        DelegateCurrent(current: DelegateCurrent) = 2,
        /// A delegation from before the client restarted; the file of this name in the current directory.
        DelegatePrevious(name: Name) = 3,
        /// None; the current file. Not in minor version 0.
        Handle = 4,
        /// This delegation; the current file. Not in minor version 0.
        DelegateCurrentHandle(delegation: StateId) = 5,
        /// A delegation from before the client restarted; the current file. Not in minor version 0.
        DelegatePreviousHandle = 6,
    }
}

xdr_struct! {
    /// A verifier and attributes (`creatverfattr`).
    pub struct CreateExclusive {
        /// Distinguishes this creation from others.
        pub verifier: Verifier,
        /// The attributes.
        pub attributes: FileAttributes,
    }

    /// A delegation and a name (`open_claim_delegate_cur4`).
    pub struct DelegateCurrent {
        /// The delegation.
        pub delegation: StateId,
        /// The file's name.
        pub name: Name,
    }

    /// OPEN: opens a regular file.
    pub struct Open {
        /// In minor version 0 the owner's next number; ignored in later ones.
        pub sequence: u32,
        /// What the file will be used for: [`share`].
        pub access: u32,
        /// What others may not do meanwhile: [`share`].
        pub deny: u32,
        /// The owner of the open.
        pub owner: Owner,
        /// Whether to make the file.
        pub how: OpenHow,
        /// The file, and the right to open it.
        pub claim: Claim,
    }

    /// What OPEN returns.
    pub struct OpenOk {
        /// Names the open.
        pub state: StateId,
        /// The directory before and after.
        pub directory: ChangeInfo,
        /// Flags of [`open_result`].
        pub flags: u32,
        /// The attributes that were set.
        pub set: Bitmap,
        /// A delegation, perhaps.
        pub delegation: Delegation,
    }

    /// OPEN_CONFIRM: says that the owner is known. Minor version 0 alone.
    #[derive(Copy)]
    pub struct OpenConfirm {
        /// The open.
        pub state: StateId,
        /// The owner's next number.
        pub sequence: u32,
    }

    /// What OPEN_CONFIRM returns.
    #[derive(Copy)]
    pub struct OpenConfirmOk {
        /// The open.
        pub state: StateId,
    }

    /// OPEN_DOWNGRADE: gives up some of what an open may do.
    #[derive(Copy)]
    pub struct OpenDowngrade {
        /// The open.
        pub state: StateId,
        /// In minor version 0 the owner's next number.
        pub sequence: u32,
        /// The access that is left: [`share`].
        pub access: u32,
        /// What others still may not do: [`share`].
        pub deny: u32,
    }

    /// What OPEN_DOWNGRADE returns.
    #[derive(Copy)]
    pub struct OpenDowngradeOk {
        /// The open.
        pub state: StateId,
    }

    /// CLOSE: ends an open.
    #[derive(Copy)]
    pub struct Close {
        /// In minor version 0 the owner's next number.
        pub sequence: u32,
        /// The open.
        pub state: StateId,
    }

    /// What CLOSE returns.
    #[derive(Copy)]
    pub struct CloseOk {
        /// A stateid that names nothing any more.
        pub state: StateId,
    }
}

impl Open {
    /// Whether a minor version has all forms that stand in the fields. Other forms cannot be decoded there (RFC 8178
    /// section 8).
    pub fn exists_in(&self, minor: u32) -> bool {
        let how = matches!(self.how, OpenHow::Create(CreateHow::Exclusive41(_)));
        let claim =
            matches!(self.claim, Claim::Handle | Claim::DelegateCurrentHandle(_) | Claim::DelegatePreviousHandle);
        minor > 0 || !(how || claim)
    }
}

/// Bits of `access` and `deny`.
pub mod share {
    /// To read; others may not read.
    pub const READ: u32 = 1;
    /// To write; others may not write.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;

    /// The part of `access` that says which delegation the client wants. Not in minor version 0.
    pub const WANT_MASK: u32 = 0xFF00;
    /// Wants a delegation for reading.
    pub const WANT_READ: u32 = 0x0100;
    /// Wants a delegation for writing.
    pub const WANT_WRITE: u32 = 0x0200;
    /// Wants any delegation.
    pub const WANT_ANY: u32 = 0x0300;
    /// Wants none.
    pub const WANT_NONE: u32 = 0x0400;
    /// Takes back what the client wanted.
    pub const WANT_CANCEL: u32 = 0x0500;
    /// The client wants a signal when one is available.
    pub const WANT_SIGNAL_WHEN_AVAILABLE: u32 = 0x1_0000;
    /// The client wants it when no other client contends for the file.
    pub const WANT_PUSH_WHEN_UNCONTENDED: u32 = 0x2_0000;
    /// Wants to keep times while it holds a delegation (RFC 9754).
    pub const WANT_TIMESTAMPS: u32 = 0x10_0000;
    /// Wants either a delegation or an open, not both (RFC 9754).
    pub const WANT_OPEN_XOR_DELEGATION: u32 = 0x20_0000;
}

/// Flags of what OPEN returns.
pub mod open_result {
    /// OPEN_CONFIRM has to follow. Minor version 0 alone.
    pub const CONFIRM: u32 = 0x02;
    /// Locks behave as POSIX defines them.
    pub const LOCKTYPE_POSIX: u32 = 0x04;
    /// The file stays until it is closed, though its last name is removed.
    pub const PRESERVE_UNLINKED: u32 = 0x08;
    /// There is a delegation and no open (RFC 9754).
    pub const NO_OPEN_STATEID: u32 = 0x10;
    /// CB_NOTIFY_LOCK may come.
    pub const MAY_NOTIFY_LOCK: u32 = 0x20;
}
