//! Why a call has no results.

use crate::{AuthStat, ContextError, Rejection, TransportError};
use rpcrdma_xdr::DecodeError;

/// Why a call has no results.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It could not be carried.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server did not execute it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The reply is malformed, or data was placed where it does not belong.
    #[error("the reply is malformed")]
    Malformed(#[from] DecodeError),
    /// The transport delivered another call's reply.
    #[error("the reply has the XID {got:#010x}, the call {expected:#010x}")]
    WrongXid {
        /// The call's.
        expected: u32,
        /// The reply's.
        got: u32,
    },
    /// The server's verifier or the protection of the results is wrong.
    #[error("the reply is not authentic (reason {})", .0.0)]
    BadVerifier(AuthStat),
    /// There is nothing to sign the call with. It was not executed, unless it was sent before.
    #[error(transparent)]
    NotSigned(#[from] ContextError),
}
