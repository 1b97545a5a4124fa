//! An NFS client over any ONC RPC transport.
//!
//! * [`Files`] is what programs use: files and directories of a server, in types that do not depend on the version of
//!   NFS. Its [`Error`] has methods that say what an error means. [`File`] is an open file.
//! * [`Reader`] and [`Writer`] stream a file with a window of calls under way; the writer survives a restart of the
//!   server without losing a byte.
//! * [`Listing`] walks a directory, [`Files::walk`] a path.
//! * [`Nfs3`] has every procedure of NFS version 3 as an async method. If the server asks it to try again later, it
//!   does so for ten minutes at most. If the reply to a retransmitted call is "exists" or "does not exist", it checks
//!   whether the first transmission succeeded. [`Files`] can use it. It has access control lists by NFSACL.
//! * [`Nfs2`] has the procedures of NFS version 2. [`Files`] can use it, too.
//! * [`Mount`] finds the root of an export.
//! * [`v4`] is a client of NFS version 4, with sessions, state that it recovers, and callbacks. [`Files`] can use it,
//!   too.
//!
//! The crate starts no task: a call makes progress while its future is polled, and several calls can be in progress
//! together. The caller or the transport owns the buffers for data; on error they go back to their allocator.

mod denied;
mod error;
mod files;
mod list;
mod mount;
mod nfs2;
mod nfs3;
mod nfsacl;
mod patience;
mod read;
mod retransmitted;
mod status;
mod transfer;
pub mod v4;
mod walk;
mod write;

pub use denied::{Denied, Owner};
pub use error::Error;
pub use files::{
    Access, Copied, CreateHow, Created, CreatedFile, Entry, File, Files, Found, Handle, LockKind, MAX_HANDLE_BYTES,
    Name, NewFile, Node, NodeKind, Place, ReadOk, SetXattr, Sought, Space, TO_THE_END, Verifier, WriteOk,
};
pub use list::{Listing, MAX_ENTRIES};
pub use mount::{Mount, MountError, Mounted, split_export};
pub use nfs2::Nfs2;
pub use nfs3::Nfs3;
pub use read::{Block, Reader};
pub use status::{Cause, Status};
pub use transfer::Transfer;
pub use v4::Span;
pub use write::Writer;
