//! NFS version 4, minor versions 0 to 2: one superset of types (RFC 7530, 8881, 7862, 8276; XDR in RFC 7531, 5662,
//! 7863).
//!
//! A call is a COMPOUND, [`Arguments`], of operations, [`Args`], whose arguments are in [`ops`]; its answer is
//! [`Results`] of [`Outcome`]s. [`Op`] says which operations there are, in which minor versions, and which of their
//! items may be placed directly. [`callback`] has the same names for calls of a server. Attributes are
//! [`FileAttributes`] on the wire and [`Value`]s elsewhere.
//!
//! Every list and string has a limit of its own. A value that is longer, or cut, or not valid for its type, ends the
//! decoding of the call at that operation, [`Broken`]; the operations before it can be executed.
//!
//! ```
//! use rpcrdma_nfs::{Call, v4::{Args, Arguments, Attribute, Bitmap, Outcome, Results, Status, ops}};
//! use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
//!
//! let asked = Bitmap::of(&[Attribute::Type, Attribute::Size]);
//! let call = Arguments::new(2, vec![Args::PutRootFh, Args::GetAttr(ops::GetAttr { asked })]);
//! let mut encoder = Encoder::new();
//! call.encode(&mut encoder);
//! let mut decoder = Decoder::new(encoder.finish().to_bytes().into());
//! let read = Arguments::decode(&mut decoder)?;
//! decoder.finish()?;
//! assert_eq!(read, call);
//!
//! let results = vec![Outcome::PutRootFh(Ok(())), Outcome::GetAttr(Err(Status::DELAY))];
//! let answer = <Results>::of(read.tag, results);
//! assert_eq!(answer.status, Status::DELAY);
//! assert!(call.reply_shape().items.is_empty(), "nothing of it may be placed directly");
//! # Ok::<(), rpcrdma_xdr::DecodeError>(())
//! ```

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

pub use crate::v3::MAX_TRANSFER_BYTES;
pub use attributes::*;
pub use basic::{
    ChangeInfo, ClientId, ClientName, Handle, MAX_HANDLE_BYTES, MAX_OPAQUE_BYTES, Owner, OwnerName, SESSION_ID_BYTES,
    STATE_ID_OTHER_BYTES, SessionId, StateId, StateIdOther, Time, VERIFIER_BYTES, Verifier,
};
pub use bitmap::{BITMAP_BYTES, BITMAP_WORDS, Bitmap, MAX_BITMAP_WORDS};
pub use compound::{Arguments, Broken, Fault, MAX_COMPOUND_OPS, MAX_TAG_BYTES, Null, Results, Tag};
pub use containers::{List, Opaque};
pub use names::{LinkText, MAX_LINK_BYTES, MAX_NAME_BYTES, MAX_PATH_NAMES, Name, Path};
pub use op::{Args, ILLEGAL, MAX_MINOR, Minors, Op, Outcome};
pub use shape::GUESSED_BYTES;
pub use status::Status;

/// The program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// This version.
pub const VERSION: u32 = 4;
