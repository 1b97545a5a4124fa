//! Version 1 of RPC-over-RDMA on one connection (RFC 8166, in the reverse direction RFC 8167).
//!
//! Drive [`Connection`] as its namesake of version 2. Both share the table of calls, the planning of chunks and the
//! lent memory. What only this version has: a credit pays for a call and not for a message, and a reply grants as many
//! as its header says.

mod connection;
mod ledger;
mod plan;
mod requester;
mod responder;

pub use connection::Connection;
pub(crate) use responder::FAULT_ANSWERS;
pub use rpcrdma_wire::v1::ErrorBody;
