//! The headers that RPC-over-RDMA puts around an RPC message on the wire.
//!
//! [`v1`] has the transport headers of version 1 (RFC 8166) and the checks for which a receiver needs the message
//! alone, [`v2`] has the same for version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01), and [`chunk`] the chunk lists
//! that both have; [`FixedWords`] are the words with which headers of every version begin, and [`rpc`] has the words of
//! an RPC message that a transport reads. [`private_data`] has the eight octets that the ends exchange while they
//! connect (RFC 8797).
//!
//! The crate keeps no state, does no input or output, and keeps no buffer after a call. Decoders take the octets of a
//! hostile peer: whatever these are, a decoder returns, and allocates no more than a small multiple of their number.
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
mod fixed;
pub mod private_data;
pub mod rpc;
pub mod v1;
pub mod v2;

pub use fixed::{FIXED_OCTETS, FixedWords};
pub use private_data::PrivateData;

/// The version of RPC-over-RDMA that a message states: its second word, in every version. `None` if the message is too
/// short.
// V2-4.2.3-e, V1-7-a
pub fn version(message: &[u8]) -> Option<u32> {
    cursor::word_at(message, 4)
}

#[cfg(test)]
mod tests {
    /// proves: V1-7-a
    #[test]
    fn the_version_is_the_second_word_whatever_follows() {
        let message = [0, 0, 0, 1, 0xf0, 0, 0, 2, 0, 0, 0, 3];
        assert_eq!(super::version(&message), Some(0xf000_0002));
        assert_eq!(super::version(&message[..8]), Some(0xf000_0002));
        assert_eq!(super::version(&message[..7]), None);
        assert_eq!(super::version(&[]), None);
    }
}
