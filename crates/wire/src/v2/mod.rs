//! Version 2 of RPC-over-RDMA (draft-ietf-nfsv4-rpcrdma-version-two-01).
//!
//! A message is a [`Header`] and, behind it in `RDMA2_MSG`, all or part of an RPC message. [`judge`] says what a
//! receiver does with a message; [`Properties`] are what an end has announced about itself; [`probe`] reads the answer
//! to a client's first message. Where the draft contradicts itself, `docs/version2.md` says how we read it.
//!
//! The decoder passes on unread what an extension adds: an unknown header type becomes [`Body::Other`] with its octets,
//! an unknown property [`Property::Other`] with its data. [`Extensions`] tells [`judge`] which of them the receiver
//! knows.
//!
//! Decoded opaque data share the message's buffer: the decoder copies nothing.

// V2-8.3-d: the types are written by hand, as the XDR that the draft prints does not compile
mod chunks;
mod classify;
mod credits;
mod error;
mod extensions;
mod flags;
mod header;
mod header_error;
pub mod probe;
mod properties;
mod property;
mod property_set;
mod subset;

pub use crate::{
    chunk::{Lists, ReadChunk, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
    v1::Role,
};
pub use chunks::Chunks;
pub use classify::{Discard, Judgement, Place, Receiver, judge, judge_after};
pub use credits::Credits;
pub use error::{ErrorBody, UnknownError};
pub use extensions::{Extensions, Fit, NoExtensions};
pub use flags::Flags;
pub use header::{Body, Header, HeaderType, OtherBody, PREFIX_OCTETS, Prefix};
pub use header_error::HeaderError;
pub use properties::{MIN_SIZE_OCTETS, Properties, ReverseSupport};
pub use property::{OtherProperty, Property, PropertyError, PropertyId, RawProperty};
pub use property_set::PropertySet;
pub use subset::PropertySubset;

/// The version that stands in `rdma_vers`.
pub const VERSION: u32 = 2;
/// Octets of a `RDMA2_MSG` or `RDMA2_NOMSG` header with no chunk.
pub const NO_CHUNKS_OCTETS: usize = 36;
