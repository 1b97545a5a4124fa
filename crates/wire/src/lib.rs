//! What RPC-over-RDMA puts on the wire around an RPC message.
//!
//! [`v1`] has the transport headers of version 1 (RFC 8166) and the judgement of a received message that
//! stands alone; [`private_data`] the eight octets that the ends exchange while they connect (RFC 8797).
//!
//! Nothing here owns a buffer for longer than a call, keeps state, or does IO. Decoders take octets as a peer
//! sent them: whatever stands there, they return, and reserve no memory beyond a small multiple of the octets
//! that are there.
//!
//! ```
//! use rpcrdma_wire::v1::{Body, Header, Lists};
//! let header = Header::new(7, 32, Body::Msg(Lists::default()));
//! let octets = header.to_bytes();
//! assert_eq!(octets.len(), 28);
//! let (decoded, len) = Header::decode(&octets)?;
//! assert_eq!((decoded, len), (header, 28));
//! # Ok::<(), rpcrdma_wire::v1::HeaderError>(())
//! ```

pub mod chunk;
mod cursor;
pub mod private_data;
pub mod v1;

pub use private_data::PrivateData;
