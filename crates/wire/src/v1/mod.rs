//! Version 1 of RPC-over-RDMA (RFC 8166 section 4).
//!
//! A message is a header and, behind it in `RDMA_MSG`, the RPC message, or what remains of it after items were moved to
//! chunks. [`Header`] is that header as data; [`judge`] says what a receiver does with a message.

mod classify;
mod error;
mod header;
mod plain;

pub use crate::{
    chunk::{Lists, ReadChunk, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
    fixed::FIXED_OCTETS,
};
pub use classify::{Discard, Judgement, Role, judge, judge_by};
pub use error::ErrorBody;
pub use header::{Body, Header, HeaderError, MIN_MESSAGE_OCTETS, NO_CHUNKS_OCTETS, Procedure};
pub use plain::Plain;

/// The version that stands in `rdma_vers`.
pub const VERSION: u32 = 1;
