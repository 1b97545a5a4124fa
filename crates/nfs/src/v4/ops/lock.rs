//! Byte-range locks: LOCK, LOCKT, LOCKU (RFC 8881 sections 18.10 to 18.12).

use super::Refusal;
use crate::v4::{ClientId, Owner, OwnerName, StateId, Status};

xdr_enum! {
    /// A kind of lock (`nfs_lock_type4`).
    pub enum LockKind: "kind of lock" {
        /// Others may read.
        Read = 1,
        /// Others may do nothing.
        Write = 2,
        /// As `Read`, by a client that waits for it.
        ReadWaiting = 3,
        /// As `Write`, by a client that waits for it.
        WriteWaiting = 4,
    }
}

xdr_union! {
    /// The owner of a lock (`locker4`).
    pub enum Locker: "kind of locker" {
        /// An owner that has locked this file before.
        Known(locker: KnownLocker) = 0,
        /// An owner that has not.
        New(locker: NewLocker) = 1,
    }
}

xdr_struct! {
    /// An owner that has no lock on the file yet (`open_to_lock_owner4`).
    pub struct NewLocker {
        /// In minor version 0 the open owner's next number.
        pub open_sequence: u32,
        /// The open of the file.
        pub open_state: StateId,
        /// In minor version 0 the lock owner's first number.
        pub lock_sequence: u32,
        /// The owner of the lock.
        pub owner: Owner,
    }

    /// An owner that has had locks on the file (`exist_lock_owner4`).
    #[derive(Copy)]
    pub struct KnownLocker {
        /// The owner of the locks.
        pub state: StateId,
        /// In minor version 0 the owner's next number.
        pub sequence: u32,
    }

    /// LOCK: locks a range of the current file.
    pub struct Lock {
        /// The kind of lock.
        pub kind: LockKind,
        /// Whether it was held before the server restarted.
        pub reclaim: bool,
        /// Where the range begins.
        pub offset: u64,
        /// Its length; all ones means up to the end, however far that moves.
        pub length: u64,
        /// The owner of the lock.
        pub locker: Locker,
    }

    /// What LOCK returns.
    #[derive(Copy)]
    pub struct LockOk {
        /// Names the owner's locks on the file.
        pub state: StateId,
    }

    /// The conflicting lock (`LOCK4denied`).
    pub struct LockDenied {
        /// Where it begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The kind of lock.
        pub kind: LockKind,
        /// The owner of the lock.
        pub owner: Owner,
    }

    /// LOCKT: asks whether a range of the current file could be locked.
    pub struct LockT {
        /// The kind of lock.
        pub kind: LockKind,
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The owner that would lock.
        pub owner: Owner,
    }

    /// LOCKU: unlocks a range of the current file.
    #[derive(Copy)]
    pub struct LockU {
        /// The kind of lock.
        pub kind: LockKind,
        /// In minor version 0 the owner's next number.
        pub sequence: u32,
        /// The owner's locks on the file.
        pub state: StateId,
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
    }

    /// What LOCKU returns.
    #[derive(Copy)]
    pub struct LockUOk {
        /// The owner's locks on the file.
        pub state: StateId,
    }
}

impl Default for LockDenied {
    /// A lock of the whole file for writing, without an owner: a server that does not know the lock may return this
    /// (RFC 8881 section 18.10.3).
    fn default() -> Self {
        let owner = Owner { client: ClientId(0), name: OwnerName::default() };
        Self { offset: 0, length: u64::MAX, kind: LockKind::Write, owner }
    }
}

impl LockKind {
    /// Whether it excludes other readers.
    pub fn excludes(self) -> bool {
        matches!(self, Self::Write | Self::WriteWaiting)
    }

    /// Whether the client will ask again until it has it.
    pub fn waits(self) -> bool {
        matches!(self, Self::ReadWaiting | Self::WriteWaiting)
    }
}

/// LOCK or LOCKT has failed; with `DENIED` the server describes the conflicting lock.
pub type LockFailure = Refusal<LockDenied, { Status::DENIED.0 }>;
