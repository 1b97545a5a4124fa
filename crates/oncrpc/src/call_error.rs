//! Why a call has no results.

use crate::{AuthStat, ContextError, Rejection, TransportError};
use rpcrdma_xdr::DecodeError;

/// Why a call has no results.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The transport could not carry the call.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server did not execute the call.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The reply is malformed, or data was placed where it does not belong.
    #[error("the reply is malformed")]
    Malformed(#[from] DecodeError),
    /// The transport delivered another call's reply.
    #[error("the reply has the XID {got:#010x}, the call {expected:#010x}")]
    WrongXid {
        /// The XID of the call.
        expected: u32,
        /// The XID of the reply.
        got: u32,
    },
    /// The server's verifier or the protection of the results is wrong.
    #[error("the reply is not authentic (reason {})", .0.0)]
    BadVerifier(AuthStat),
    /// The flavour cannot sign the call. The server can have executed it only if it was sent before.
    #[error(transparent)]
    NotSigned(#[from] ContextError),
}
