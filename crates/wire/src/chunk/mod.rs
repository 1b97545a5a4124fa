//! Chunks: the memory of the requester from or to which the responder moves data of an RPC message. They are the same
//! in both versions.
//!
//! Owns the decoded segments. A list that is cut off, whose presence words are neither 0 nor 1, or whose counts go
//! beyond the message, is an error of the header; the decoder reserves no room for segments that are not in the
//! message.

pub(crate) mod fit;
mod lists;
mod read_list;
mod segment;
mod write_list;

pub use lists::Lists;
pub use read_list::{ReadChunk, ReadList, ReadSegment};
pub use segment::Segment;
pub use write_list::{WriteChunk, WriteList};
