//! Delegations: DELEGPURGE, DELEGRETURN, GET_DIR_DELEGATION, WANT_DELEGATION (RFC 8881 sections 18.5, 18.6, 18.39,
//! 18.49).

use crate::v4::{Ace, Bitmap, ClientId, StateId, Time, Verifier};

xdr_enum! {
    /// A kind of delegation (`open_delegation_type4`).
    pub enum DelegationKind: "kind of delegation" {
        /// None.
        None = 0,
        /// For reading.
        Read = 1,
        /// For writing.
        Write = 2,
        /// None, with the reason.
        NoneExtended = 3,
        /// For reading, and times (RFC 9754).
        ReadAttributes = 4,
        /// For writing, and times (RFC 9754).
        WriteAttributes = 5,
    }
}

xdr_union! {
    /// The delegation that comes with an open (`open_delegation4`).
    pub enum Delegation: "kind of delegation" {
        /// None.
        None = 0,
        /// For reading.
        Read(delegation: ReadDelegation) = 1,
        /// For writing.
        Write(delegation: Box<WriteDelegation>) = 2,
        /// None, for this reason. Not in minor version 0.
        NoneExtended(why: WhyNoDelegation) = 3,
        /// For reading, and times.
        ReadAttributes(delegation: ReadDelegation) = 4,
        /// For writing, and times.
        WriteAttributes(delegation: Box<WriteDelegation>) = 5,
    }

    /// Why there is no delegation (`open_none_delegation4`).
    pub enum WhyNoDelegation: "reason for no delegation" {
        /// None was wanted.
        NotWanted = 0,
        /// Others use the file; whether the server will offer the delegation when they no longer do.
        Contention(will_push: bool) = 1,
        /// The server has too few resources; whether the server will signal when it has more.
        Resource(will_signal: bool) = 2,
        /// Not for this type of file.
        NotSupportedType = 3,
        /// Not for writing for this type of file.
        WriteNotSupportedType = 4,
        /// One for reading cannot become one for writing.
        NotSupportedUpgrade = 5,
        /// One for writing cannot become one for reading.
        NotSupportedDowngrade = 6,
        /// The client has taken back its wish.
        Cancelled = 7,
        /// It is a directory.
        IsDirectory = 8,
    } else {
        /// A reason of a later minor version.
        Other
    }

    /// How far a file may grow before it is written back (`nfs_space_limit4`).
    pub enum SpaceLimit: "kind of space limit" {
        /// To this size in octets.
        Size(octets: u64) = 1,
        /// By these blocks.
        Blocks(blocks: BlockLimit) = 2,
    }

    /// The right by which WANT_DELEGATION asks (`deleg_claim4`).
    pub enum DelegationClaim: "claim" {
        /// It was held before the server restarted.
        Previous(kind: DelegationKind) = 1,
        /// None.
        Handle = 4,
        /// It was held before the client restarted.
        DelegatePreviousHandle = 6,
    }

    /// What GET_DIR_DELEGATION returns (`GET_DIR_DELEGATION4res_non_fatal`).
    pub enum GetDirDelegationOk: "outcome of a directory delegation" {
        /// The delegation.
        Granted(delegation: Box<DirectoryDelegation>) = 0,
        /// None is available; whether the server will signal when one is.
        Unavailable(will_signal: bool) = 1,
    }
}

xdr_struct! {
    /// A number of blocks (`nfs_modified_limit4`).
    #[derive(Copy)]
    pub struct BlockLimit {
        /// How many blocks.
        pub blocks: u32,
        /// Octets of a block.
        pub block_bytes: u32,
    }

    /// A delegation for reading (`open_read_delegation4`).
    pub struct ReadDelegation {
        /// Names the delegation.
        pub state: StateId,
        /// Whether it is recalled already.
        pub recalled: bool,
        /// The users that may open the file without asking the server.
        pub permissions: Ace,
    }

    /// A delegation for writing (`open_write_delegation4`).
    pub struct WriteDelegation {
        /// Names the delegation.
        pub state: StateId,
        /// Whether it is recalled already.
        pub recalled: bool,
        /// How far the file may grow before it is written back.
        pub limit: SpaceLimit,
        /// The users that may open the file without asking the server.
        pub permissions: Ace,
    }

    /// DELEGPURGE: gives up delegations from before the client restarted.
    #[derive(Copy)]
    pub struct DelegPurge {
        /// The client. Minor versions from 1 on ignore it.
        pub client: ClientId,
    }

    /// DELEGRETURN: gives back a delegation of the current file.
    #[derive(Copy)]
    pub struct DelegReturn {
        /// The delegation.
        pub state: StateId,
    }

    /// WANT_DELEGATION: asks for a delegation of the current file.
    pub struct WantDelegation {
        /// The wanted delegation: bits of [`share`](super::share).
        pub want: u32,
        /// The right to ask for it.
        pub claim: DelegationClaim,
    }

    /// What WANT_DELEGATION returns.
    pub struct WantDelegationOk {
        /// The delegation, perhaps.
        pub delegation: Delegation,
    }

    /// GET_DIR_DELEGATION: asks for notices of changes of the current directory.
    #[derive(Copy)]
    pub struct GetDirDelegation {
        /// Whether the server should signal when one is available.
        pub signal_when_available: bool,
        /// The changes that the client wants to know.
        pub notifications: Bitmap,
        /// How soon the client wants to know changes of a file's attributes.
        pub child_delay: Time,
        /// How soon the client wants to know changes of the directory's attributes.
        pub directory_delay: Time,
        /// The attributes of files that the client wants to know.
        pub child_attributes: Bitmap,
        /// The attributes of the directory that the client wants to know.
        pub directory_attributes: Bitmap,
    }

    /// A delegation of a directory (`GET_DIR_DELEGATION4resok`).
    #[derive(Copy)]
    pub struct DirectoryDelegation {
        /// The verifier for READDIR.
        pub verifier: Verifier,
        /// Names the delegation.
        pub state: StateId,
        /// The changes that the server will report.
        pub notifications: Bitmap,
        /// The attributes of files that the server will report.
        pub child_attributes: Bitmap,
        /// The attributes of the directory that the server will report.
        pub directory_attributes: Bitmap,
    }
}
