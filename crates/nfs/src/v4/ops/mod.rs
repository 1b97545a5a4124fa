//! Arguments and results of each operation. Arguments have the operation's name, results on success end in `Ok`; an
//! operation without arguments or without results has no type for them.
//!
//! Strings and data share the memory of the message that they came in: code that keeps one copies it. Handles, tags,
//! and the names of owners and clients are copies already, because they are always kept.
//!
//! Fields have the same order as in the protocol, since that is how they are encoded.

pub(super) mod answer;
mod change;
mod client;
mod copy;
mod data;
mod delegation;
mod directory;
mod layout;
mod lock;
mod look;
mod open;
mod security;
mod session;
mod space;
mod xattr;

pub use answer::{Answer, Failure, Refusal};
pub use change::{
    Create, CreateKind, CreateOk, GetAttr, GetAttrOk, Link, LinkOk, OpenAttr, Remove, RemoveOk, Rename, RenameOk,
    SetAttr, SetAttrFailure, SetAttrOk, Verify,
};
pub use client::*;
pub use copy::*;
pub use data::{Commit, CommitOk, Read, ReadOk, Stability, Write, WriteOk};
pub use delegation::*;
pub use directory::{Entry, MAX_ENTRIES, ReadDir, ReadDirOk};
pub use layout::*;
pub use lock::*;
pub use look::*;
pub use open::*;
pub use security::*;
pub use session::*;
pub use space::*;
pub use xattr::*;
