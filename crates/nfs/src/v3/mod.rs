//! NFS version 3 (RFC 1813).
//!
//! Each procedure has a type for its arguments, which implements [`Call`](crate::Call), and one for its
//! results: an [`Answer`], since every procedure returns one thing on success and another on failure.

mod answer;
mod attributes;
mod create;
mod directory;
mod file;
mod handle;
mod info;
mod names;
mod neutral;
mod procedure;
#[cfg(test)]
mod sample;
pub(crate) mod sizes;
mod status;

pub use answer::{Answer, Failure};
pub use attributes::{
    Attributes, FileType, GetAttributes, NewAttributes, SetAttributes, SetTime, Specification, Time, WeakAttributes,
    WeakCache,
};
pub use create::{
    Create, CreateHow, Created, Link, LinkInfo, MakeDirectory, MakeNode, NodeKind, Remove, RemoveDirectory, Rename,
    RenameInfo, SymbolicLink,
};
pub use directory::{Entry, EntryPlus, ReadDirectory, ReadDirectoryOk, ReadDirectoryPlus, ReadDirectoryPlusOk};
pub use file::{Commit, CommitOk, Read, ReadOk, Stability, Verifier, Write, WriteOk, WriteVerifier};
pub use handle::{Handle, HandleTooLong, MAX_HANDLE_BYTES};
pub use info::{
    Access, AccessOk, FileSystemInfo, FileSystemInfoOk, FileSystemStatus, FileSystemStatusOk, Lookup, LookupOk, Null,
    PathConfiguration, PathConfigurationOk, ReadLink, ReadLinkOk, access, properties,
};
pub use names::{MAX_NAME_BYTES, MAX_PATH_BYTES, Name, Path};
pub use procedure::Procedure;
pub use sizes::{MAX_TRANSFER_BYTES, entry_bytes, entry_plus_bytes, read_directory_bytes};
pub use status::Status;

/// The program number of NFS.
// V1-9-c
pub const PROGRAM: u32 = 100_003;
/// This version.
pub const VERSION: u32 = 3;
