//! Version 1 of RPC-over-RDMA on one connection (RFC 8166, in the reverse direction RFC 8167).
//!
//! Drive [`Connection`] like its namesake of version 2. Both share the table of calls, the planning of chunks and the
//! lent memory. Only in this version, a credit pays for a call and not for a message, and the header of a reply states
//! how many credits its receiver has.

mod connection;
mod ledger;
mod plan;
mod requester;
mod responder;

pub use connection::Connection;
pub(crate) use responder::FAULT_ANSWERS;
pub use rpcrdma_wire::v1::ErrorBody;
