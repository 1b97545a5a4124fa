//! NFS version 2 (RFC 1094).
//!
//! Each procedure has a type for its arguments, which implements [`Call`](crate::Call), and one for its results: an
//! [`Answer`]. A procedure that fails returns only its status. Handles have 32 octets; sizes, offsets, file numbers and
//! cookies have 32 bits; times are in microseconds.
//!
//! The two procedures that the protocol calls obsolete, ROOT and WRITECACHE, take nothing and return nothing.

mod answer;
mod attributes;
mod directory;
mod file;
mod info;
mod names;
mod neutral;
mod procedure;
mod settable;
mod sizes;
mod status;

pub use crate::v3::Name;
pub use answer::Answer;
pub use attributes::{Attributes, GetAttributes, Handle, Time, file_type};
pub use directory::{Entry, ReadDirectory, ReadDirectoryOk};
pub use file::{Read, ReadOk, Write};
pub use info::{FileSystemStatus, FileSystemStatusOk, Null, Root, WriteCache};
pub use names::{
    Create, Link, Lookup, LookupOk, MakeDirectory, Path, ReadLink, ReadLinkOk, Remove, RemoveDirectory, Rename,
    SymbolicLink,
};
pub use neutral::{BLOCK_BYTES, SizeTooLarge, device_word, word_device};
pub use procedure::Procedure;
pub use settable::{NewAttributes, SetAttributes, SetTime};
pub use sizes::{HANDLE_BYTES, MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_TRANSFER_BYTES, entry_bytes, list_bytes};
pub use status::Status;

/// The program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// This version.
pub const VERSION: u32 = 2;
