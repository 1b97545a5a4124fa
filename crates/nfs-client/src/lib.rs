//! An NFS client over any ONC RPC transport.
//!
//! * [`Nfs3`] has every procedure of NFS version 3 as an async method. It waits where the server asks to, for ten
//!   minutes at most, and takes an "exists" or "does not exist" that answers a retransmitted call for the success it
//!   was, after a check.
//! * [`Reader`] and [`Writer`] stream a file with a window of calls under way; the writer survives a restart of the
//!   server without losing an octet.
//! * [`Listing`] walks a directory, [`Nfs3::walk`] a path.
//! * [`Mount`] finds the root of an export.
//! * [`v4`] is a client of NFS version 4, with sessions, state that it recovers, and callbacks.
//!
//! Nothing here starts a task: a call proceeds while its future is polled, and several proceed together. Buffers for
//! data belong to the caller or to the transport; on error they go back to their allocator.

mod denied;
mod error;
mod list;
mod mount;
mod nfs3;
mod read;
mod retransmitted;
pub mod v4;
mod walk;
mod write;

pub use denied::{Denied, Owner};
pub use error::Error;
pub use list::{Listing, MAX_ENTRIES};
pub use mount::{Mount, MountError, split_export};
pub use nfs3::{Nfs3, Transfer};
pub use read::{Block, Reader};
pub use walk::Found;
pub use write::Writer;
