//! Why a connection ended.

use rpcrdma_engine::PeerFault;
use rpcrdma_fabric::CloseReason;
use std::time::Duration;

/// Why a connection ended otherwise than in an orderly manner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer broke a rule of RPC-over-RDMA.
    #[error("the peer broke a rule: {0}")]
    Peer(#[from] PeerFault),
    /// The peer answers nothing, not even a probe.
    #[error("the peer is silent")]
    Silent,
    /// A caller has given the peer up, for this reason.
    #[error("{0}")]
    GivenUp(&'static str),
    /// The server did not answer in version 2.
    #[error("the server did not answer in version 2")]
    NoAnswer,
    /// The peer did not prove who it is.
    #[error("the peer is not authenticated")]
    Unauthenticated,
    /// The two ends have no version in common.
    #[error("the server speaks versions {low} to {high} of RPC-over-RDMA only")]
    Version {
        /// The lowest version of the server's.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The peer took no message, or served no RDMA Read, for too long.
    #[error("the peer made no progress for {} seconds", after.as_secs())]
    Stalled {
        /// How long.
        after: Duration,
    },
    /// The fabric ended it.
    #[error("the connection was lost")]
    Fabric(#[source] CloseReason),
    /// The provider did not take work that is within its limits.
    #[error("the provider refused work: {0}")]
    Provider(rpcrdma_fabric::RefusedReason),
    /// There is no memory for receives.
    #[error("no memory for receives")]
    NoMemory,
}
