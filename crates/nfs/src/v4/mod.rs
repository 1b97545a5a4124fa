//! NFS version 4, minor versions 0 to 2: one superset of types (RFC 7530, 8881, 7862, 8276; XDR in RFC 7531, 5662, 7863).

#[macro_use]
mod table;

mod attributes;
mod basic;
mod bitmap;
pub mod callback;
mod compound;
mod containers;
mod names;
mod op;
pub mod ops;
mod shape;
mod status;
#[cfg(test)]
mod tests;

pub use crate::v3::MAX_TRANSFER_OCTETS;
pub use attributes::*;
pub use basic::{
    ChangeInfo, ClientId, ClientName, Handle, MAX_HANDLE_OCTETS, MAX_OPAQUE_OCTETS, Owner, OwnerName,
    SESSION_ID_OCTETS, STATE_ID_OTHER_OCTETS, SessionId, StateId, StateIdOther, Time, VERIFIER_OCTETS, Verifier,
};
pub use bitmap::{BITMAP_OCTETS, BITMAP_WORDS, Bitmap, MAX_BITMAP_WORDS};
pub use compound::{Arguments, Broken, Fault, MAX_COMPOUND_OPS, MAX_TAG_OCTETS, Null, Results, Tag};
pub use containers::{List, Opaque};
pub use names::{LinkText, MAX_LINK_OCTETS, MAX_NAME_OCTETS, MAX_PATH_NAMES, Name, Path};
pub use op::{Args, ILLEGAL, MAX_MINOR, Minors, Op, Outcome};
pub use shape::GUESSED_OCTETS;
pub use status::Status;

/// The program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// This version.
pub const VERSION: u32 = 4;
