//! What an embedder adds to version 2 (draft appendix B): header types and properties of its own.
//!
//! The engine carries them and does not read them. An extension says which it knows and what it announces; the engine
//! passes received ones on as actions. Their bytes are copies, so that they keep no receive buffer.

use rpcrdma_wire::v2::{ErrorBody, Extensions, OtherBody, OtherProperty};
use std::fmt::Debug;

/// The most messages of an extension that may wait for credits. An embedder that sends more gets
/// [`ExtensionRefused::Busy`].
pub const MAX_WAITING_MESSAGES: usize = 64;

/// Header types and properties beyond the draft's.
// V2-5-a, V2-B.1-a
pub trait Extension: Extensions + Debug + Send + Sync {
    /// The properties to announce.
    fn announced(&self) -> Vec<OtherProperty> {
        Vec::new()
    }
}

/// Something for the extension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// The peer has announced a property that the extension knows. The engine passes it on as it comes, even before
    /// host authentication has a verdict.
    Property(OtherProperty),
    /// A message of one of the extension's header types.
    Message {
        /// Its XID.
        xid: u32,
        /// Whether this end chose its XID.
        response: bool,
        /// Its body.
        body: OtherBody,
    },
    /// The peer has answered a message of the extension with an error.
    Error {
        /// The message's XID.
        xid: u32,
        /// The peer's error.
        error: ErrorBody,
    },
}

/// Why a message of an extension is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtensionRefused {
    /// The peer has answered that it does not know the header type (draft section 7.1.2).
    #[error("the peer does not know the header type {header_type}")]
    Unsupported {
        /// The header type.
        header_type: u32,
    },
    /// The message does not fit into a Send.
    #[error("a message of {len} bytes does not fit the inline threshold of {max}")]
    TooLarge {
        /// Its bytes.
        len: usize,
        /// The threshold.
        max: usize,
    },
    /// Too many messages wait for credits.
    #[error("too many messages wait for credits")]
    Busy,
    /// This connection is not one of version 2.
    #[error("the connection does not speak version 2")]
    Version,
}
