//! Version 1 of RPC-over-RDMA (RFC 8166 section 4).
//!
//! A message is a header and, behind it in `RDMA_MSG`, the RPC message or what is left of it once items were
//! moved to chunks. [`Header`] is that header as data; [`judge`] says what a receiver does with a message.

mod classify;
mod error;
mod header;
mod read_list;
mod segment;
mod write_list;

pub use classify::{Discard, Judgement, Role, judge, judge_by};
pub use error::ErrorBody;
pub use header::{Body, FIXED_OCTETS, Header, HeaderError, Lists, MIN_MESSAGE_OCTETS, NO_CHUNKS_OCTETS, Procedure};
pub use read_list::{ReadChunk, ReadList, ReadSegment};
pub use segment::Segment;
pub use write_list::{WriteChunk, WriteList};

/// The version that stands in `rdma_vers`.
pub const VERSION: u32 = 1;

/// Octets of the RPC message that are looked at here: its XID, the first word of every RPC message.
pub(crate) const XID_OCTETS: usize = 4;
