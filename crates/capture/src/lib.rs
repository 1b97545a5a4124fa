//! What is on the wire: capture files of RPC-over-RDMA, written and read, and pictures of what they hold.
//!
//! * [`capture`] gives a [`Tap`](rpcrdma_iwarp::Tap) for `iwarp` and a [`CaptureWriter`], which turns the octet streams into
//!   packets of a pcapng file. The tap never waits: what the writer cannot keep up with is left out, and the file says so.

pub mod write;

pub use write::{Capture, CaptureWriter, Options, WriteError, Written, capture};
