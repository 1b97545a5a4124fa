//! Why a message has no header of version 2.
//!
//! Every error keeps the prefix if the message has one: an answer repeats its XID and version.

use super::{Prefix, PropertyError};
use rpcrdma_xdr::DecodeError;

/// Why a message has no header of version 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The message is too short for the prefix, so the receiver cannot trust the XID either.
    #[error("a message of {len} bytes is too short for a header of RPC-over-RDMA version 2")]
    Short {
        /// Octets of the message.
        len: usize,
    },
    /// The message is of another version. Then only the prefix's first four words mean something.
    #[error("version {} of RPC-over-RDMA is not spoken on this connection", prefix.version)]
    Version {
        /// Its prefix.
        prefix: Prefix,
    },
    /// What follows the prefix is wrong.
    #[error("malformed {} header", prefix.type_name().unwrap_or("unknown"))]
    Malformed {
        /// Its prefix.
        prefix: Prefix,
        /// What is wrong, and where.
        #[source]
        cause: DecodeError,
    },
    /// A transport property has a value that is not one of its type.
    #[error("bad transport property")]
    Property {
        /// The prefix.
        prefix: Prefix,
        /// The property, and why.
        #[source]
        cause: PropertyError,
    },
}

impl HeaderError {
    /// The prefix, if there was one.
    pub fn prefix(&self) -> Option<&Prefix> {
        match self {
            HeaderError::Short { .. } => None,
            HeaderError::Version { prefix }
            | HeaderError::Malformed { prefix, .. }
            | HeaderError::Property { prefix, .. } => Some(prefix),
        }
    }
}
