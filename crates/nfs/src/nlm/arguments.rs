//! The arguments of procedures.

use super::basic::{CallerName, Cookie, OwnerHandle, Widen};
use crate::v3::Handle;

located! {
    /// A lock: octets of a file, and their owner (`nlm_lock`, `nlm4_lock`).
    // NLM-6.1.4-b, NLM-6.1.4-d
    pub struct Lock<W> {
        /// The caller's host, as it names itself.
        pub caller: CallerName,
        /// The file.
        pub file: Handle,
        /// The owner on that host.
        pub owner: OwnerHandle,
        /// The owner's process, as the host numbers it. It is a part of the owner's identity.
        pub process: i32,
        /// The first octet.
        pub offset: W,
        /// How many octets; 0 for all to the end of the file, however long it becomes.
        pub length: W,
    }

    /// LOCK and NM_LOCK.
    pub struct LockArguments<W> {
        /// Comes back with the answer.
        pub cookie: Cookie,
        /// Whether to wait for the lock.
        pub block: bool,
        /// Whether the lock excludes even readers.
        pub exclusive: bool,
        /// What is to be locked.
        pub lock: Lock<W>,
        /// Whether the caller had it before the server started again.
        pub reclaim: bool,
        /// The state number of the caller's host (NSM).
        pub state: i32,
    }

    /// CANCEL: ends waiting for a lock that a LOCK with the same arguments asked for.
    pub struct CancelArguments<W> {
        /// Comes back with the answer.
        pub cookie: Cookie,
        /// As in the LOCK.
        pub block: bool,
        /// As in the LOCK.
        pub exclusive: bool,
        /// As in the LOCK.
        pub lock: Lock<W>,
    }

    /// TEST, and GRANTED, by which a server says that a caller that waited now has its lock.
    pub struct TestArguments<W> {
        /// Comes back with the answer.
        pub cookie: Cookie,
        /// Whether the lock excludes even readers.
        pub exclusive: bool,
        /// What is to be locked.
        pub lock: Lock<W>,
    }

    /// UNLOCK.
    pub struct UnlockArguments<W> {
        /// Comes back with the answer.
        pub cookie: Cookie,
        /// What is to be unlocked.
        pub lock: Lock<W>,
    }
}

xdr_struct! {
    /// FREE_ALL: a host has started again, and holds nothing that it did not reclaim (`nlm_notify`).
    pub struct Notice {
        /// The host, as it names itself.
        pub name: CallerName,
        /// Its state number (NSM).
        pub state: i32,
    }
}

impl Widen for Notice {
    type Wide = Self;

    fn widen(self) -> Self {
        self
    }
}
