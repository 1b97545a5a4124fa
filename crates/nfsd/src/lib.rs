//! An NFS server, versions 2, 3 and 4, with NFSACL for version 3.
//!
//! * [`Nfsd`] makes the handlers for the NFS and the MOUNT port from [`Export`]s.
//! * An export is any [`FileSystem`]: [`DirectoryFs`] serves a directory of the host, [`MemoryFs`] its own memory.
//! * Clients cannot forge file handles: a handle carries a keyed check, under the secret of the [`StateDirectory`].
//! * Work that may sleep in the kernel goes to the program's [`Workers`] in the order of the [`Queue`]; the library
//!   starts no thread.

pub mod acls;
mod borders;
mod caller;
pub mod claims;
mod directory;
mod fs;
mod groups;
mod handle;
mod lookups;
mod memory;
mod mount;
mod nfs2;
mod nfs3;
mod nfs4;
mod nfsacl;
mod nlm;
mod nsm;
mod opened;
mod origin;
mod outside;
mod owners;
mod queue;
mod security;
mod server;
mod state;
mod stranger;
mod transfer;
mod trouble;

pub use caller::{ANONYMOUS_ID, BadCidr, Caller, Cidr, Identities, Squash};
pub use directory::{DirectoryFs, IndexUse, OfdLocks, OpenError};
pub use fs::{
    Access, Broken, Changed, Content, Copied, CreateHow, Failure, Fault, Features, FileId, FileSystem, Found,
    HostLease, Linked, Listing, ListingBudget, ListingEntry, MAX_FILE_ID_BYTES, MAX_XATTR_BYTES, Made, New, NodeKind,
    OpenFile, Piece, PieceBudget, ReadData, Reading, Renamed, Rights, SetXattr, Sought, Span, SparseData, Told, Usage,
    Via, Workers, Written, XattrNames, failed,
};
pub use groups::{Groups, ManagedGroups};
pub use handle::SECRET_BYTES;
pub use memory::MemoryFs;
pub use nfs2::Version2Error;
pub use nfs4::{CallbackEvent, Counts, Dial, HealthEvent, Observer, Version4, Version4Error, is_timed};
pub use nlm::{
    MAX_NLM_CALLS, MAX_NLM_CALLS_TO_CLIENT, MAX_NLM_HOSTS, MAX_NLM_HOSTS_OF_CLIENT, MAX_NLM_LOCKS_OF_HOST,
    MAX_NLM_OWNERS, MAX_NLM_OWNERS_OF_HOST, MAX_NLM_WAITING, MAX_NLM_WAITING_OF_HOST, NlmCounts, NlmLimits,
};
pub use nsm::{MonitorCounts, MonitorError};
pub use origin::Origin;
pub use outside::{Outside, OutsideCall, OutsideError, OutsideTransport};
pub use owners::{Accounts, BadDomain, Domain, Kind, MAX_DOMAIN_BYTES, OwnerNames};
pub use queue::Queue;
pub use security::{BadSecurity, Securities, Security};
pub use server::{ConfigError, Export, Locks, Nfsd};
pub use state::{StateDirectory, StateError};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
